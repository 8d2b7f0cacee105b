import pytest

from gads_assets.catalog.specification import Column, QuerySchema
from gads_assets.errors import ReadError
from gads_assets.warehouse.columns import KEY, reader_columns, wider_type
from gads_assets_tests.sealed_runs import schema


def version(number: str, **types: str) -> QuerySchema:
    return schema(number, [Column(name=name, field=f"campaign.{name}", type=type_) for name, type_ in types.items()])


def read_as(*schemas: QuerySchema, in_use: tuple[QuerySchema, ...]) -> dict[str, str]:
    columns = reader_columns(schemas, in_use=in_use)
    assert columns[: len(KEY)] == KEY
    return {column.name: column.type for column in columns[len(KEY) :]}


@pytest.mark.parametrize(
    ("one", "other", "wider"),
    [
        ("int", "int", "int"),
        ("int", "bigint", "bigint"),
        ("int", "double", "double"),
        ("array<int>", "array<double>", "array<double>"),
        ("array<string>", "array<string>", "array<string>"),
        ("bigint", "double", None),
        ("date", "string", None),
        ("boolean", "int", None),
        ("string", "binary", None),
        ("int", "string", None),
        ("array<int>", "int", None),
        ("array<bigint>", "array<double>", None),
    ],
)
def test_a_type_is_wider_only_if_no_value_is_lost_in_it(one: str, other: str, wider: str | None) -> None:
    assert wider_type(one, other) == wider_type(other, one) == wider


def test_the_columns_of_the_current_version_lead_and_older_ones_follow() -> None:
    current, older = version("2", a="string", c="int"), version("1", b="date", a="string")
    assert list(read_as(current, older, in_use=(older,))) == ["a", "c", "b"]


def test_an_incompatible_version_that_has_no_rows_gives_way_whichever_is_current() -> None:
    texts, numbers = version("2", a="string"), version("1", a="int")
    assert read_as(texts, numbers, in_use=(texts,)) == {"a": "string"}
    assert read_as(texts, numbers, in_use=(numbers,)) == {"a": "int"}
    assert read_as(texts, numbers, in_use=()) == {"a": "string"}


def test_the_refusal_names_the_column_both_types_and_the_versions_that_have_them() -> None:
    versions = version("3", a="double"), version("2", a="bigint"), version("1", a="int")
    assert read_as(*versions, in_use=(versions[0], versions[2])) == {"a": "double"}
    with pytest.raises(
        ReadError, match="column a of campaign is double in schema version 3 and bigint in version 2; read one version"
    ):
        read_as(*versions, in_use=versions)
