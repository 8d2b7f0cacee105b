"""The status page as one document: its style and scripts inlined, and the policy that allows exactly those."""

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_FOLDER: Final = Path(__file__).with_name("page")
# In the order in which the browser needs them: each uses what the ones before it declare.
_SCRIPTS: Final = (
    *("words.js", "address.js", "sources.js", "live.js", "matrices.js"),
    *("strips.js", "grid.js", "partition.js", "drawer.js", "overview.js", "page.js"),
)
# No text of ours or of an advertiser may end the element that holds it, nor start another.
_ESCAPES: Final = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


class RenderedPage(NamedTuple):
    """`policy` is for the Content-Security-Policy header; a document with data carries it inside as well."""

    html: str
    policy: str


def render_page(data: Mapping[str, object] | None) -> RenderedPage:
    """With data, a file that needs no server and never calls one; without, the page asks the server it came from."""
    style = _read("page.css")
    scripts = [_read(name) for name in _SCRIPTS]
    policy = _policy(style, scripts)
    document = _read("page.html")
    for place, piece in (
        ("<!-- policy -->", "" if data is None else _policy_element(policy)),
        ("<!-- style -->", f"<style>{style}</style>"),
        ("<!-- scripts -->", "\n".join(f"<script>{script}</script>" for script in scripts)),
        # Last, so that nothing in it is taken for a place.
        ("<!-- data -->", "" if data is None else _data_element(data)),
    ):
        document = document.replace(place, piece, 1)
    return RenderedPage(html=document, policy="; ".join((*policy, "frame-ancestors 'none'")))


def _policy(style: str, scripts: list[str]) -> tuple[str, ...]:
    return (
        "default-src 'none'",
        f"script-src {' '.join(map(_hash_source, scripts))}",
        f"style-src {_hash_source(style)}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )


def _policy_element(policy: tuple[str, ...]) -> str:
    """Without frame-ancestors, which browsers refuse to take from a document."""
    return f'<meta http-equiv="Content-Security-Policy" content="{html.escape("; ".join(policy))}">'


def _data_element(data: Mapping[str, object]) -> str:
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)
    return f'<script type="application/json" id="embedded">{text}</script>'


def _hash_source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
