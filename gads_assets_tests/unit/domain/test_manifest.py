import json

import pytest

from gads_assets.domain.manifest import ManifestError, manifest_from_json, manifest_to_json
from gads_assets_tests.sealed_runs import MANIFEST


def test_a_seal_reads_back_as_it_was_written() -> None:
    assert manifest_from_json(manifest_to_json(MANIFEST)) == MANIFEST


def _altered(**changes: object) -> bytes:
    return json.dumps({**json.loads(manifest_to_json(MANIFEST)), **changes}).encode()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "not an object"),
        (_altered(manifest_version=2), "manifest_version 2"),
        (_altered(surprise=1), "surprise"),
        (_altered(record_count=-1), "record_count"),
        (_altered(record_count=True), "record_count"),
        (_altered(record_count="3"), "record_count"),
        (_altered(run_seq=None), "run_seq"),
        (_altered(customer_id="123"), "ten digits"),
        (_altered(customer_id=1234567890), "customer_id"),
        (_altered(logical_date="2024-06-31"), "calendar"),
        (_altered(run_id="x"), "ULID"),
        (_altered(gaql=None), "gaql"),
        (_altered(extraction_started_at="2024-06-09T04:00:00"), "zone"),
        (_altered(files=[{"name": "../x", "bytes": 1, "sha256": "0"}]), "plain files"),
        (_altered(files=[{"name": "x"}]), "wrong kind"),
        (_altered(files="x"), "wrong kind"),
        (json.dumps({"manifest_version": 1}).encode(), "missing"),
    ],
)
def test_a_seal_with_anything_wrong_is_refused_naming_it(content: bytes, complaint: str) -> None:
    with pytest.raises(ManifestError, match=complaint):
        manifest_from_json(content)
