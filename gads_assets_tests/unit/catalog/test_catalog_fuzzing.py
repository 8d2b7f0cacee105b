"""Whatever the catalog's files hold, loading them ends in a catalog or in a CatalogError of one line."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gads_assets.catalog.loading import PACKAGED_CATALOG, load_catalog
from gads_assets.errors import CatalogError
from gads_assets_tests.unit.catalog.test_catalog_loading import CATALOG, STORED, refusal, replaced, write_catalog

_PACKAGED = PACKAGED_CATALOG.read_bytes()


def assert_loads_or_is_refused(catalog: bytes, stored: bytes = json.dumps(STORED).encode()) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "google_apis.yaml"
        path.write_bytes(catalog)
        schema = Path(folder) / "schemas/campaign/1.json"
        schema.parent.mkdir(parents=True)
        schema.write_bytes(stored)
        message = ""
        try:
            load_catalog(path)
        except CatalogError as error:
            message = str(error)
        assert message.isprintable(), "one line"
        assert len(message) < 5_000


@st.composite
def _spoiled(draw: st.DrawFn, original: bytes) -> bytes:
    start = draw(st.integers(0, len(original)))
    end = draw(st.integers(start, min(len(original), start + 40)))
    return original[:start] + draw(st.binary(max_size=20)) + original[end:]


_scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.dates())
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def _odd_catalogs(draw: st.DrawFn) -> bytes:
    """The catalog with one of its values replaced by any other, or with a further key."""
    document = yaml.safe_load(CATALOG)
    document["queries"]["campaign"] |= {"restatement": {}, "max_attempts": 5, "limits": {"never_above": {}}}
    place = draw(st.sampled_from([document, document["queries"], document["queries"]["campaign"]]))
    place[draw(st.sampled_from(sorted(place)) | st.text(max_size=10))] = draw(_values)
    return str(yaml.safe_dump(document, allow_unicode=True)).encode("utf-8", "surrogatepass")


@given(st.one_of(st.binary(), st.text().map(lambda text: text.encode("utf-8", "surrogatepass"))))
@example(b"\x00")
@example(b"\xef\xbb\xbf")
@example(b"%YAML 9.9\n---\n")
@example(b"? {a: b}\n: c\n")
@example(b"!!binary x: y\n")
@example(b'"\\ud800": x\n')
@settings(deadline=None)
def test_no_bytes_at_all_make_the_catalog_raise_anything_but_a_catalog_error(content: bytes) -> None:
    assert_loads_or_is_refused(content)


@given(st.one_of(_spoiled(_PACKAGED), _spoiled(CATALOG.encode()), _odd_catalogs()))
@settings(deadline=None, max_examples=300)
def test_a_catalog_spoiled_anywhere_loads_or_is_refused_in_one_line(content: bytes) -> None:
    assert_loads_or_is_refused(content)


@given(
    st.one_of(
        st.binary(),
        _spoiled(json.dumps(STORED).encode()),
        st.builds(
            lambda name, value: json.dumps(STORED | {name: value}, default=str).encode(),
            st.sampled_from([*STORED, "resource", "conditions", "rules"]),
            _values,
        ),
    )
)
@settings(deadline=None)
def test_a_stored_version_spoiled_anywhere_is_read_or_refused_in_one_line(stored: bytes) -> None:
    assert_loads_or_is_refused(CATALOG.encode(), stored)


# Each tries to say more than a name or a date may: to leave a folder, a quote, an identifier or a statement.
INJECTIONS: dict[str, Callable[[str], str]] = {
    "a query that is a path": replaced("  campaign:", "  ../../etc/passwd:"),
    "a query that is SQL": replaced("  campaign:", '  "campaign; DROP TABLE partition_state":'),
    "a query that ends an identifier": replaced("  campaign:", '  "campaign`":'),
    "a query with a line break": replaced("  campaign:", '  "campaign\\nx":'),
    "a query in another script": replaced("  campaign:", "  c\u0430mpaign:"),
    "a source that is a path": replaced("google_ads", "google_ads/../x"),
    "a version that is a path": replaced('"1"', '"1/../../2"'),
    "a version with a line break": replaced('"1"', '"1\\n"'),
    "a date with a condition": replaced("2024-01-01", "\"2024-01-01' OR segments.date > '2000-01-01\""),
    "a date with a line break": replaced("2024-01-01", '"2024-01-01\\n"'),
    "a date in other digits": replaced("2024-01-01", "\u0662\u0660\u0662\u0664-01-01"),
    "an API version that is a module": replaced("v26", "v26.services"),
    "a key that is SQL": replaced("- campaign.id", "- campaign.id` OR 1=1 --"),
    "a key with a comma": replaced("- campaign.id", '- "campaign.id, segments.date"'),
    "a field that ends an identifier": replaced("        campaign.id\n", "        campaign.id`, x\n"),
    "a field with a quote": replaced("        campaign.id\n", "        campaign.id' OR '1'='1\n"),
    "a second statement": replaced("FROM campaign", "FROM campaign; DELETE FROM x"),
    "a resource with a condition": replaced("FROM campaign", "FROM campaign'--"),
    "a union": replaced("FROM campaign", "FROM campaign UNION SELECT customer.id FROM customer"),
    "a subquery": replaced("FROM campaign", "FROM campaign WHERE campaign.id IN (SELECT campaign.id FROM campaign)"),
    "an object": replaced("Campaigns by day.", "!!python/object/apply:os.system [true]"),
    "a date condition in disguise": replaced(
        "FROM campaign", "FROM campaign WHERE\n        segments.date>='2000-01-01'"
    ),
}


@pytest.mark.parametrize("change", INJECTIONS.values(), ids=INJECTIONS.keys())
def test_nothing_can_be_injected_through_names_or_dates(tmp_path: Path, change: Callable[[str], str]) -> None:
    error = refusal(write_catalog(tmp_path, change(CATALOG)))
    assert error.line is not None
    assert error.key


@pytest.mark.parametrize(
    "column",
    [
        {"name": "campaign_id`", "field": "campaign.id`", "type": "bigint"},
        {"name": "campaign_id", "field": "campaign.id", "type": "bigint, `x` string"},
        {"name": "campaign_id'", "field": "campaign.id'", "type": "bigint"},
        {"name": "campaign_id\n", "field": "campaign.id\n", "type": "bigint"},
        {"name": "campaign_\u0131d", "field": "campaign.\u0131d", "type": "bigint"},
    ],
)
def test_nothing_can_be_injected_through_a_stored_column(tmp_path: Path, column: dict[str, str]) -> None:
    stored = json.loads(json.dumps(STORED))
    stored["columns"][2] = column
    stored["natural_key"] = ["customer_id"]
    assert refusal(write_catalog(tmp_path, stored=stored)).file.endswith("1.json")
