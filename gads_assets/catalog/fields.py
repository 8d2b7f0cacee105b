"""From selected fields to typed columns, by the Google Ads API's own descriptors.

google-ads is imported inside the functions: it takes seconds, and definitions load without it.
"""

import difflib
import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Final

from gads_assets.catalog.gaql import GaqlQuery
from gads_assets.catalog.gaql_tokens import shortened
from gads_assets.catalog.specification import Column
from gads_assets.errors import CatalogError, UnknownFieldError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

# The API calls dates strings. Those of these three are the first day of what they name.
_DATES: Final = frozenset({"segments.week", "segments.month", "segments.quarter"})
_LONGEST_PATH: Final = 200
_STRING: Final = 9
_API_VERSION: Final = re.compile(r"v[0-9]+\Z")


def columns_of(query: GaqlQuery, api_version: str) -> tuple[Column, ...]:
    """One column per selected field, in the query's order.

    Raises UnknownFieldError for what this API version does not have, wherever the query names it.
    """
    require_distinct_columns(query.select)
    _require_resource(query.resource, api_version)
    for path in query.fields:
        resolve_field(path, api_version)
    return tuple(
        Column(name=column_name(path), field=path, type=_spark_type(path, resolve_field(path, api_version)[-1]))
        for path in query.select
    )


def column_name(path: str) -> str:
    return path.replace(".", "_")


def require_distinct_columns(paths: tuple[str, ...]) -> None:
    """`a.b_c` and `a_b.c` are two fields and one column name, so names are compared, not paths."""
    for name, times in Counter(map(column_name, paths)).items():
        if times > 1:
            raise CatalogError(f"column {shortened(name)} is selected {times} times; select each field once")


def resolve_field(path: str, api_version: str) -> tuple["FieldDescriptor", ...]:
    """The descriptors from GoogleAdsRow down to the field; their `name`s are the attributes to follow.

    These names differ from the path's where a word is taken in Python: `ad_group.type` is `ad_group.type_`.
    """
    if "." not in path:
        raise UnknownFieldError(
            f"{shortened(path)} is not a field; name its resource too, as in campaign.id", field=path
        )
    message: Descriptor | None = row_descriptor(api_version)
    chain: list[FieldDescriptor] = []
    for word in path.split("."):
        if message is None or (chain and chain[-1].is_repeated):
            whole = ".".join(_gaql_name(field) for field in chain)
            raise UnknownFieldError(
                f"field {shortened(path)} does not exist: {whole} has no parts; name that", field=path
            )
        field = _fields_by_gaql_name(message).get(word)
        if field is None:
            raise _unknown(path, chain, message, api_version)
        chain.append(field)
        message = field.message_type
    return tuple(chain)


@cache
def row_descriptor(api_version: str) -> "Descriptor":
    """GoogleAdsRow's. Raises CatalogError for a version that the installed client does not have."""
    if _API_VERSION.match(api_version):
        try:
            module = importlib.import_module(f"google.ads.googleads.{api_version}.services.types.google_ads_service")
        except ModuleNotFoundError:
            pass
        else:
            descriptor: Descriptor = module.GoogleAdsRow.pb().DESCRIPTOR
            return descriptor
    known = ", ".join(installed_api_versions())
    raise CatalogError(f"API version {api_version!r} is not in the installed google-ads client; it has {known}")


def installed_api_versions() -> tuple[str, ...]:
    package = importlib.import_module("google.ads.googleads")
    names = (module.name for module in pkgutil.iter_modules(package.__path__))
    return tuple(sorted(filter(_API_VERSION.match, names), key=lambda name: int(name[1:])))


def _spark_type(path: str, field: "FieldDescriptor") -> str:
    element = "date" if path in _DATES or _is_date(field) else _SCALARS.get(field.type)
    if element is None:
        raise CatalogError(f"field {path!r} has protobuf type {field.type}, for which there is no column type")
    return f"array<{element}>" if field.is_repeated else element


def _is_date(field: "FieldDescriptor") -> bool:
    """Written YYYY-MM-DD. A `date_time` stays a string: it has no time zone, and not always the same form."""
    return field.type == _STRING and (field.name == "date" or field.name.endswith("_date"))


# By the numbers that google.protobuf.descriptor.FieldDescriptor gives its TYPE_ constants, which are part of the
# protobuf format; naming them would import protobuf here. Enums are kept by name, messages as JSON.
_SCALARS: Final = {
    1: "double",
    2: "double",  # float
    3: "bigint",
    5: "int",
    8: "boolean",
    _STRING: "string",
    11: "string",  # message
    12: "binary",
    14: "string",  # enum
}


def _fields_by_gaql_name(message: "Descriptor") -> dict[str, "FieldDescriptor"]:
    return {_gaql_name(field): field for field in message.fields}


def _gaql_name(field: "FieldDescriptor") -> str:
    return field.name.removesuffix("_")


def _require_resource(resource: str, api_version: str) -> None:
    resources = _fields_by_gaql_name(row_descriptor(api_version)).keys() - {"metrics", "segments"}
    if resource not in resources:
        hint = _did_you_mean(_close(resource, resources))
        raise UnknownFieldError(f"resource {shortened(resource)} is not in API {api_version}{hint}", field=resource)


def _unknown(path: str, chain: list["FieldDescriptor"], message: "Descriptor", api_version: str) -> CatalogError:
    words = path.split(".")
    parent, rest = [_gaql_name(field) for field in chain], words[len(chain) + 1 :]
    near = [
        ".".join([*parent, name, *rest])
        for name in _close(words[len(chain)], _fields_by_gaql_name(message))
        if len(path) <= _LONGEST_PATH
    ]
    # `campaign.clicks` is a more likely slip than any misspelling: the field exists, elsewhere.
    row = _fields_by_gaql_name(row_descriptor(api_version))
    for group in ("metrics", "segments"):
        if (group_message := row[group].message_type) and words[-1] in _fields_by_gaql_name(group_message):
            near.insert(0, f"{group}.{words[-1]}")
    return UnknownFieldError(
        f"field {shortened(path)} is not in API {api_version}{_did_you_mean(near[:3])}", field=path
    )


def _close(name: str, names: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(name[:_LONGEST_PATH].lower(), sorted(names))


def _did_you_mean(near: list[str]) -> str:
    return f"; did you mean {' or '.join(near)}?" if near else "; look it up in Google's field reference"
