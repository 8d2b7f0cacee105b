"""Whatever Google's documentation asks for is read, printed and given a schema, in every installed API version."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gads_assets.catalog.fields import columns_of, installed_api_versions
from gads_assets.catalog.gaql import parse_gaql, print_gaql
from gads_assets.catalog.gaql_query import Operator, print_condition, print_parameter
from gads_assets.catalog.schema_store import read_stored_schemas, store_schema
from gads_assets.catalog.shapes import Shape, shape_of
from gads_assets.catalog.specification import QuerySchema, Terms
from gads_assets.errors import CatalogError
from gads_assets_tests.unit.catalog.documented_queries import DOCUMENTED_QUERIES


@pytest.mark.parametrize("text", DOCUMENTED_QUERIES)
def test_a_documented_query_is_read_printed_and_gets_a_schema_in_every_version(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    query = parse_gaql(text)
    printed = print_gaql(query)
    assert parse_gaql(printed) == query
    assert print_gaql(parse_gaql(printed)) == printed
    for api_version in installed_api_versions():
        columns = columns_of(query, api_version)
        assert tuple(column.field for column in columns) == query.select
        schema = QuerySchema(
            query_name="q",
            version="1",
            columns=columns,
            natural_key=(columns[0].name,),
            terms=Terms(
                resource=query.resource,
                conditions=tuple(map(print_condition, query.conditions)),
                parameters=tuple(map(print_parameter, query.parameters)),
            ),
        )
        folder = tmp_path_factory.mktemp("schemas")
        store_schema(folder, schema)
        assert read_stored_schemas(folder) == {("q", "1"): schema}


def test_the_documented_queries_are_many_and_of_every_kind() -> None:
    queries = [parse_gaql(text) for text in DOCUMENTED_QUERIES]
    assert len(set(DOCUMENTED_QUERIES)) == len(DOCUMENTED_QUERIES) >= 60
    assert len({query.resource for query in queries}) >= 50
    assert {shape_of(query) for query in queries} == set(Shape)
    assert {condition.operator for query in queries for condition in query.conditions} == set(Operator)


_NAMES = [
    "campaign",
    "metrics",
    "segments",
    "customer.id",
    "segments.date",
    "metrics.clicks",
    "metrics.clicks.x",
    "campaign.labels",
    "campaign.labels.x",
    "campaign.network_settings",
    "ad_group.type",
    "ad_group.type_",
    "change_event.old_resource.campaign.name",
    "campaign._",
    "campaign.__class__",
    "campaign.DESCRIPTOR",
]
_names = st.one_of(
    st.sampled_from(_NAMES), st.from_regex(r"[a-z][a-zA-Z0-9_]{0,9}(\.[a-zA-Z0-9_]{1,9}){0,4}", fullmatch=True)
)


def assert_columns_or_one_line(text: str, api_version: str) -> None:
    message = ""
    try:
        assert columns_of(parse_gaql(text), api_version)
    except CatalogError as error:
        message = str(error)
    assert message.isprintable()
    assert len(message) < 1_000


@given(st.lists(_names, min_size=1, max_size=5), _names, st.lists(_names, max_size=2), st.sampled_from(["v23", "v26"]))
@example(["campaign.id"], "metrics", [], "v26")
@settings(deadline=None)
def test_no_names_at_all_end_in_anything_but_columns_or_a_catalog_error(
    select: list[str], resource: str, others: list[str], api_version: str
) -> None:
    conditions = " AND ".join(f"{name} IS NULL" for name in others)
    text = f"SELECT {', '.join(select)} FROM {resource}" + (f" WHERE {conditions}" if others else "")
    assert_columns_or_one_line(text, api_version)


@given(st.text())
@settings(deadline=None)
def test_no_text_at_all_ends_in_anything_but_columns_or_a_catalog_error(text: str) -> None:
    for asked in (text, f"SELECT {text} FROM campaign", f"SELECT campaign.id FROM {text}"):
        assert_columns_or_one_line(asked, "v26")
