"""The catalog is compared with the API, and schema versions are stored once."""

import json
import shutil
from pathlib import Path

import pytest

from gads_assets.catalog.checking import check_catalog, store_missing_versions
from gads_assets.catalog.loading import PACKAGED_CATALOG, load_catalog
from gads_assets.catalog.schema_store import schemas_beside, store_schema
from gads_assets.errors import CatalogFileError


@pytest.fixture
def catalog_file(tmp_path: Path) -> Path:
    shutil.copytree(PACKAGED_CATALOG.parent, tmp_path / "config")
    return tmp_path / "config" / PACKAGED_CATALOG.name


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_the_packaged_catalog_fits_the_api() -> None:
    checks = check_catalog()
    assert [check.query_name for check in checks] == list(load_catalog().queries)
    assert [check.problem for check in checks] == [None] * 12


def test_a_stored_type_that_the_api_does_not_give_is_named(catalog_file: Path) -> None:
    stored = catalog_file.parent / "schemas/campaign/1.json"
    edit(
        stored, '"field": "metrics.clicks",\n      "type": "bigint"', '"field": "metrics.clicks",\n      "type": "int"'
    )
    wrong = [check.problem for check in check_catalog(catalog_file) if check.problem]
    assert len(wrong) == 1
    assert wrong[0].key == "queries.campaign.schema_version"
    assert "metrics_clicks is bigint, stored as int" in str(wrong[0])


def test_an_unknown_field_is_reported_at_its_own_line(catalog_file: Path) -> None:
    edit(catalog_file, "ad_group.type,", "ad_group.typ,")
    edit(catalog_file.parent / "schemas/ad_group/1.json", '"ad_group_type"', '"ad_group_typ"')
    edit(catalog_file.parent / "schemas/ad_group/1.json", '"ad_group.type"', '"ad_group.typ"')
    (problem,) = [check.problem for check in check_catalog(catalog_file) if check.problem]
    lines = catalog_file.read_text().split("\n")
    assert problem.line == 1 + next(number for number, line in enumerate(lines) if "ad_group.typ," in line)
    assert problem.excerpt == "        ad_group.typ,\n        ^"
    assert "did you mean ad_group.type?" in str(problem)


def test_an_api_version_that_is_gone_is_reported_at_its_line(catalog_file: Path) -> None:
    edit(catalog_file, "api_version: v26", "api_version: v19")
    assert load_catalog(catalog_file).api_version == "v19", "old catalogs still load"
    with pytest.raises(CatalogFileError, match="it has v23, v24, v25, v26") as refused:
        check_catalog(catalog_file)
    assert refused.value.key == "api_version"


def test_missing_versions_are_derived_and_stored_and_then_the_catalog_loads(catalog_file: Path) -> None:
    before = {path: path.read_bytes() for path in catalog_file.parent.rglob("*.json")}
    edit(catalog_file, "metrics.clicks,", "metrics.clicks,\n        metrics.ctr,")
    edit(catalog_file, 'schema_version: "1"', 'schema_version: "2"')
    with pytest.raises(CatalogFileError, match="version '2' is not stored"):
        load_catalog(catalog_file)
    assert store_missing_versions(catalog_file) == (catalog_file.parent / "schemas/campaign/2.json",)
    catalog = load_catalog(catalog_file)
    assert catalog.query("campaign").schema.version == "2"
    assert "metrics_ctr" in catalog.schema("campaign", "2").column_names
    assert "metrics_ctr" not in catalog.schema("campaign", "1").column_names
    assert {path: path.read_bytes() for path in before} == before
    assert store_missing_versions(catalog_file) == ()


def test_what_is_stored_is_what_was_packaged(catalog_file: Path) -> None:
    shutil.rmtree(schemas_beside(catalog_file))
    assert len(store_missing_versions(catalog_file)) == 12
    packaged = schemas_beside(PACKAGED_CATALOG)
    for path in packaged.rglob("*.json"):
        assert (schemas_beside(catalog_file) / path.relative_to(packaged)).read_bytes() == path.read_bytes()


def test_nothing_is_stored_when_one_version_cannot_be_derived(catalog_file: Path) -> None:
    shutil.rmtree(schemas_beside(catalog_file))
    edit(catalog_file, "search_term_view.status", "search_term_view.statsu")
    with pytest.raises(CatalogFileError, match=r"did you mean search_term_view\.status"):
        store_missing_versions(catalog_file)
    assert not schemas_beside(catalog_file).exists()


def test_a_stored_version_is_never_overwritten(catalog_file: Path) -> None:
    schema = load_catalog(catalog_file).query("campaign").schema
    path = schemas_beside(catalog_file) / "campaign/1.json"
    before = path.read_bytes()
    with pytest.raises(CatalogFileError, match="is stored already"):
        store_schema(schemas_beside(catalog_file), schema)
    assert path.read_bytes() == before
    assert sorted(file.name for file in path.parent.iterdir()) == ["1.json"], "no leftovers"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    schema = load_catalog().query("campaign").schema
    (tmp_path / "schemas").write_text("a file where the folder should be")
    with pytest.raises(CatalogFileError, match="cannot be written") as refused:
        store_schema(tmp_path / "schemas", schema)
    assert refused.value.file == str(tmp_path / "schemas/campaign/1.json")


def test_a_stored_version_reads_back_as_it_was(tmp_path: Path) -> None:
    schema = load_catalog().query("keyword_view").schema
    document = json.loads(store_schema(tmp_path, schema).read_text())
    assert document["query"] == "keyword_view"
    assert [column["name"] for column in document["columns"]] == list(schema.column_names)
