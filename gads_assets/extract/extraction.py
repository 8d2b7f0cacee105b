"""What a batch of extractions came to. Apart from the extractor, so that reading about it needs no gRPC."""

from collections.abc import Mapping
from dataclasses import dataclass

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.manifest import RunManifest
from gads_assets.errors import GadsError


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """For every partition asked for, a sealed run or a reason."""

    sealed: Mapping[PartitionKey, RunManifest]
    failed: Mapping[PartitionKey, GadsError]
