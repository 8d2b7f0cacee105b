import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from gads_assets.status.rendering import render_page

HOSTILE = "</script><img src=x onerror=alert(1)><!--<script>&amp;\u2028\u2029<!-- scripts --> \ud800"


class Elements(HTMLParser):
    """What a browser would find: each element's tag and attributes, and the text of those that hold code."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.found and self.cdata_elem:
            self.texts.append((self.found[-1][1].get("type") or self.found[-1][0], data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for found, attributes in self.found if found == tag]


def test_no_value_can_end_the_element_that_holds_it() -> None:
    data = {"overview": {HOSTILE: HOSTILE}}
    document, _ = render_page(data)
    plain, _ = render_page({})
    elements = Elements(document)
    assert [tag for tag, _ in elements.found] == [tag for tag, _ in Elements(plain).found]
    [embedded] = [text for kind, text in elements.texts if kind == "application/json"]
    assert json.loads(embedded) == data
    assert not set(embedded) & set("<>&\u2028\u2029")
    document.encode()


def test_a_page_without_data_holds_none_and_leaves_the_policy_to_the_server() -> None:
    document, policy = render_page(None)
    assert 'id="embedded"' not in document
    assert "Content-Security-Policy" not in document
    assert "frame-ancestors 'none'" in policy


def test_the_policy_allows_exactly_the_code_inside() -> None:
    document, policy = render_page(None)
    allowed = dict(directive.split(" ", 1) for directive in policy.split("; "))
    code = Elements(document).texts
    assert {kind for kind, _ in code} == {"style", "script"}
    for kind in ("style", "script"):
        assert allowed[f"{kind}-src"].split() == [_hash(text) for found, text in code if found == kind]
    assert {name: value for name, value in allowed.items() if not name.endswith(("style-src", "script-src"))} == {
        "default-src": "'none'",
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }


def test_a_file_carries_the_policy_inside() -> None:
    document, policy = render_page({})
    [inside] = [meta["content"] for meta in Elements(document).all("meta") if "http-equiv" in meta]
    assert inside == policy.removesuffix("; frame-ancestors 'none'")
    assert document.index("http-equiv") < document.index("<style>")


def test_nothing_comes_from_anywhere_else() -> None:
    document, _ = render_page({})
    for tag, attributes in Elements(document).found:
        assert "src" not in attributes, tag
        assert (attributes.get("href") or "data:").startswith("data:"), tag
        assert not [name for name in attributes if name == "style" or name.startswith("on")], tag
    assert not re.search(r"@import|url\(|//cdn", document)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", document)


def test_numbers_that_json_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        render_page({"count": float("nan")})


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
