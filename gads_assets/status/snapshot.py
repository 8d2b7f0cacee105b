"""The page as one file: what the server would answer, taken at a moment and put inside."""

from pathlib import Path
from typing import Final

from gads_assets.status.board import StatusBoard
from gads_assets.status.deriving import Selection
from gads_assets.status.files import replacing
from gads_assets.status.rendering import render_page
from gads_assets.status.telling import Document

_MOST_IN_FULL: Final = 500
"""Partitions that are put inside with all that is known of them; each takes a few questions."""


def write_page(target: Path, board: StatusBoard, selection: Selection) -> int:
    """Returns the file's bytes. Of partitions that need somebody's eye, the details are inside."""
    shown = [asset for asset in selection.assets if asset.has_days]
    data = {
        "overview": board.overview(selection),
        "matrices": {asset.asset_key: _matrix(board, asset.asset_key, selection) for asset in shown},
        "partitions": {
            asset.asset_key: board.remarkable(asset.asset_key, selection, limit=_MOST_IN_FULL // len(shown))
            for asset in shown
        },
    }
    document = render_page(data).html.encode()
    with replacing(str(target.absolute())) as file:
        file.write(document)
    return len(document)


def _matrix(board: StatusBoard, asset_key: str, selection: Selection) -> Document:
    """Of the selected customers only: whoever gets the file of one is not to read of the others."""
    matrix = board.matrix(asset_key, selection.first, selection.last)
    if selection.customer_ids is None:
        return matrix
    return {**matrix, "rows": [row for row in matrix["rows"] if row["customer_id"] in selection.customer_ids]}
