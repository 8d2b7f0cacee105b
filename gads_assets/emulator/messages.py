"""Values into protobuf messages."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from gads_assets.catalog.fields import installed_api_versions
from gads_assets.emulator.rows import Value
from gads_assets.emulator.values import SelectedField


@dataclass(frozen=True, kw_only=True)
class ApiMessages:
    """One API version's protobuf classes (the plain ones: proto-plus is several times slower to fill)."""

    row: Any
    search_request: Any
    search_response: Any
    stream_request: Any
    stream_response: Any
    customers_request: Any
    customers_response: Any


@cache
def messages_of(api_version: str) -> ApiMessages | None:
    """None for a version that the installed client does not have. Imports take a second or two, once a version."""
    if api_version not in installed_api_versions():
        return None
    search = importlib.import_module(f"google.ads.googleads.{api_version}.services.types.google_ads_service")
    customers = importlib.import_module(f"google.ads.googleads.{api_version}.services.types.customer_service")
    return ApiMessages(
        row=search.GoogleAdsRow.pb(),
        search_request=search.SearchGoogleAdsRequest.pb(),
        search_response=search.SearchGoogleAdsResponse.pb(),
        stream_request=search.SearchGoogleAdsStreamRequest.pb(),
        stream_response=search.SearchGoogleAdsStreamResponse.pb(),
        customers_request=customers.ListAccessibleCustomersRequest.pb(),
        customers_response=customers.ListAccessibleCustomersResponse.pb(),
    )


def fill_row(row: Any, fields: Sequence[SelectedField], values: Sequence[Value]) -> None:
    for field, value in zip(fields, values, strict=True):
        if value is None:
            continue
        message = row
        for step in field.descriptors[:-1]:
            message = getattr(message, step.name)
        _assign(message, field.leaf, value)


def _assign(message: Any, field: FieldDescriptor, value: Value) -> None:
    if isinstance(value, list):
        target = getattr(message, field.name)
        for item in value:
            if isinstance(item, dict):
                _fill(target.add(), item)
            else:
                target.append(_stored(field, item))
    elif isinstance(value, dict):
        inner = getattr(message, field.name)
        inner.SetInParent()
        _fill(inner, value)
    else:
        setattr(message, field.name, _stored(field, value))


def _fill(message: Any, values: dict[str, Value]) -> None:
    for name, value in values.items():
        _assign(message, message.DESCRIPTOR.fields_by_name[name], value)


def _stored(field: FieldDescriptor, value: Value) -> Value:
    return field.enum_type.values_by_name[str(value)].number if field.enum_type else value
