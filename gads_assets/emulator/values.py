"""The value of any selectable field in any row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from google.protobuf.descriptor import FieldDescriptor

from gads_assets.catalog.fields import resolve_field
from gads_assets.emulator.accounts import EmulatedAccount
from gads_assets.emulator.entities import (
    AD,
    AD_GROUP,
    ASSET_GROUP,
    CAMPAIGN,
    CAMPAIGN_TERM,
    CONVERSION_ACTION,
    KEYWORD,
    PLACE,
    SEARCH_TERM,
    Entity,
    channel_of,
    children,
    level_of,
    stable_number,
)
from gads_assets.emulator.made_up import enum_names, in_choice, left_out, made_up
from gads_assets.emulator.rows import RowFacts, Value

_THEMES = (
    "Brand", "Sommerschlußverkauf", "東京 ブランド", "Rebajas de otoño", "Été · nouveautés", "Łódź \"centrum\"",
    "Зима 50% \\ скидки", "🚲 Cargo", "עונה חדשה", "Generic",
)  # fmt: skip
_AUDIENCES = ("new customers", "Stammkunden", "リピーター", "near store", "remarketing")
_NOUNS = ("sourdough bread", "lastenrad", "万年筆", "crème brûlée", "kids bike", "stationery set")
# Six, all different and none a search suffix: keywords and search terms stay unique within their ad group.
_MODIFIERS = ("online", "günstig", "オンライン", "same day", "de qualité", "for sale")
_SUFFIXES = ("", " near me", " 送料無料")
_MATCH_TYPES = ("EXACT", "PHRASE", "BROAD")
_BIDDING = ("maximize_conversions", "target_cpa", "manual_cpc")
# An id of 32 bits is made up: the entities' own do not fit.
_ID_TYPES: dict[int, Callable[[int], Value]] = {FieldDescriptor.TYPE_INT64: int, FieldDescriptor.TYPE_STRING: str}
_COUNTRIES = (2840, 2276, 2392)
_LOCATION_TYPES = ("LOCATION_OF_PRESENCE", "AREA_OF_INTEREST")
_ACTIONS = (
    ("Purchase", "PURCHASE"), ("Newsletter ✉️", "SIGNUP"), ("Anruf über Anzeige", "PHONE_CALL_LEAD"),
    ("お問い合わせ", "CONTACT"), ("طلب عرض سعر", "REQUEST_QUOTE"), ("Warenkorb", "ADD_TO_CART"),
    ("Store visit", "STORE_VISIT"), ("Download", "DOWNLOAD"),
)  # fmt: skip
# Rows whose identity or state could be missing would be unlike anything the API sends.
_ALWAYS_PRESENT = frozenset({"resource_name", "id", "criterion_id", "name", "status", "type_", "field_type"})
# By these alone the rows of a view are told from each other: no two of them say the same, and none says nothing.
_TELLING = frozenset(
    {"expanded_final_url", "final_url", "gclid", "place_id", "placement", "search_term", "unexpanded_final_url"}
)


@dataclass(frozen=True, kw_only=True)
class SelectedField:
    """A field by its GAQL path, and the descriptors from GoogleAdsRow down to it."""

    path: str
    descriptors: tuple[FieldDescriptor, ...]

    @property
    def leaf(self) -> FieldDescriptor:
        return self.descriptors[-1]

    @property
    def group(self) -> str:
        """A resource's name, `metrics` or `segments`."""
        return self.path.partition(".")[0]

    @cached_property
    def value(self) -> Callable[[RowFacts], Value]:
        if self.group == "metrics":
            return _METRICS.get(self.path.removeprefix("metrics.")) or self._made_up_metric
        if self.group == "segments":
            return _SEGMENTS_OF_KEYWORDS.get(self.path) or (lambda facts: facts.segments[self.path])
        if self.leaf.name == "resource_name":
            return lambda facts: _resource_name(self.group, facts)
        return _ATTRIBUTES.get(self.path) or self._made_up_attribute

    def _made_up_metric(self, facts: RowFacts) -> Value:
        seed = (facts.account.customer_id, _subject(facts), *facts.segments.values())
        if left_out(self.leaf, *seed):
            return None
        value = made_up(self.leaf, *seed)
        return value % (facts.traffic.impressions + 1) if type(value) is int else value

    def _made_up_attribute(self, facts: RowFacts) -> Value:
        entity = entity_of(self.group, facts)
        seed = (facts.account.customer_id, entity.seed if entity else facts.client.customer_id)
        if entity and self.leaf.name == "id" and len(self.descriptors) == 2 and self.leaf.type in _ID_TYPES:
            return _ID_TYPES[self.leaf.type](entity.id)
        if not all(_chosen(step, seed) for step in self.descriptors if in_choice(step)):
            return None
        if self._names_a_resource:
            # A campaign_asset is of a campaign and of an asset, always; other references may be missing.
            missing = self.leaf.name not in self.group and left_out(self.leaf, *seed)
            return None if missing else _resource_name(self.leaf.name, facts)
        if entity and self.leaf.name in _TELLING and len(self.descriptors) == 2:
            return str(made_up(self.leaf, *seed)) + f"{'&page=' if 'url' in self.leaf.name else ' '}{entity.id}"
        if self.leaf.name not in _ALWAYS_PRESENT and left_out(self.leaf, *seed):
            return None
        return made_up(self.leaf, *seed)

    @property
    def _names_a_resource(self) -> bool:
        row = self.descriptors[0].containing_type
        text = self.leaf.type == FieldDescriptor.TYPE_STRING and not self.leaf.is_repeated
        return text and len(self.descriptors) == 2 and row is not None and self.leaf.name in row.fields_by_name


def select_field(path: str, api_version: str) -> SelectedField:
    """Raises CatalogError for a field that this API version does not have."""
    return SelectedField(path=path, descriptors=resolve_field(path, api_version))


def follows_keyword(path: str) -> bool:
    """Whether the segment comes from the row's keyword, rather than dividing the row."""
    return path.startswith("segments.keyword.")


def segment_combinations(
    fields: Sequence[SelectedField], account: EmulatedAccount, place: int | None
) -> list[dict[str, Value]]:
    """The values into which segments other than dates divide a row; `place` is its place's position, if it has one.

    Segments that tell of the same thing go together: a conversion action has one name and one category.
    """
    actions = [field.path for field in fields if field.path in _SEGMENTS_OF_ACTIONS]
    axes: list[list[dict[str, Value]]] = []
    if actions:
        known = children(account, (), CONVERSION_ACTION)
        axes.append([{path: _SEGMENTS_OF_ACTIONS[path](account, action) for path in actions} for action in known])
    axes.extend(
        [{field.path: value} for value in _segment_values(field, place)]
        for field in fields
        if field.path not in _SEGMENTS_OF_ACTIONS
    )
    return [{path: value for part in parts for path, value in part.items()} for parts in product(*axes)]


def _segment_values(field: SelectedField, place: int | None) -> Sequence[Value]:
    leaf = field.leaf
    if leaf.is_repeated or leaf.type == FieldDescriptor.TYPE_MESSAGE:
        return (made_up(leaf),)
    if leaf.type == FieldDescriptor.TYPE_ENUM:
        return enum_names(leaf)[:3]
    if leaf.type == FieldDescriptor.TYPE_BOOL:
        return (False, True)
    if field.path == "segments.hour":
        return range(24)
    if leaf.name.startswith("geo_target_"):
        country = _COUNTRIES[(place or 0) // 2]
        return [f"geoTargetConstants/{country}{index}{len(leaf.name)}" for index in range(1, 4)]
    return sorted({str(value): value for value in (made_up(leaf, index) for index in range(3))}.values(), key=str)


def _chosen(step: FieldDescriptor, seed: tuple[object, ...]) -> bool:
    """Of several fields that exclude each other an entity has one, whichever of them was selected."""
    choice = step.containing_oneof
    if choice is None or choice.name == "criterion":
        return choice is None or step.name == "keyword"
    chance = stable_number(choice.full_name, *seed)
    if choice.name == "ad_data":
        return step.name == "responsive_search_ad"
    if choice.name == "campaign_bidding_strategy":
        return step.name == _BIDDING[chance % len(_BIDDING)]
    return step.name == choice.fields[chance % len(choice.fields)].name


def entity_of(resource: str, facts: RowFacts) -> Entity | None:
    if resource in ("customer", "customer_client") or not facts.lineage:
        return None
    kind = level_of(resource)
    return next((entity for entity in facts.lineage if entity.kind == kind), facts.lineage[-1])


def _of(kind: str, facts: RowFacts) -> Entity:
    return next(entity for entity in facts.lineage if entity.kind == kind)


def _subject(facts: RowFacts) -> int:
    return facts.lineage[-1].seed if facts.lineage else 0


def _resource_name(resource: str, facts: RowFacts) -> str:
    customer = f"customers/{facts.account.customer_id}"
    if resource == "customer":
        return customer
    if resource == "customer_client":
        return f"{customer}/customerClients/{facts.client.customer_id}"
    plural = "".join(word.capitalize() for word in resource.split("_")) + "s"
    plural = plural[0].lower() + plural[1:].replace("Criterions", "Criteria")
    ids = [str(entity.id) for entity in facts.lineage]
    if resource in ("ad_group_criterion", "keyword_view", "ad_group_ad"):
        return f"{customer}/{plural}/{'~'.join(ids[1:3])}"
    if resource == "search_term_view":
        return f"{customer}/{plural}/{'~'.join([ids[0], ids[1], ids[3]])}"
    entity = entity_of(resource, facts)
    return f"{customer}/{plural}/{entity.id if entity else facts.account.customer_id}"


def _name(entity: Entity) -> str:
    theme = _THEMES[stable_number("theme", entity.seed) % len(_THEMES)]
    return f"{theme} | {_AUDIENCES[entity.seed % len(_AUDIENCES)]} #{entity.position + 1}{copy_mark(entity)}"


def copy_mark(entity: Entity) -> str:
    return f" {entity.copy:07}" if entity.copy else ""


def _keyword(facts: RowFacts) -> str:
    noun = _NOUNS[stable_number("noun", _of(AD_GROUP, facts).id) % len(_NOUNS)]
    keyword = _of(KEYWORD, facts)
    return f"{noun} {_MODIFIERS[keyword.position]}{copy_mark(keyword)}"


def _search_term(facts: RowFacts) -> str:
    term = _of(SEARCH_TERM, facts)
    return f"{_keyword(facts)}{_SUFFIXES[term.position]}{copy_mark(term)}"


def _campaign_term(facts: RowFacts) -> str:
    term = _of(CAMPAIGN_TERM, facts)
    noun = _NOUNS[stable_number("noun", _of(CAMPAIGN, facts).seed) % len(_NOUNS)]
    suffix, modifier = divmod(term.position, len(_MODIFIERS))
    return f"{noun} {_MODIFIERS[modifier]}{_SUFFIXES[suffix]}{copy_mark(term)}"


def _country(facts: RowFacts) -> int:
    """A copy stands for a country of its own: it has nothing else to be told apart by."""
    place = _of(PLACE, facts)
    return place.id if place.copy else _COUNTRIES[place.position // 2]


def _texts(count: int, pinned: str) -> Callable[[RowFacts], Value]:
    """A responsive ad's texts: three at least, the first of them sometimes pinned to its place."""

    def texts(facts: RowFacts) -> Value:
        chance = stable_number(pinned, _of(AD, facts).seed)
        found: list[Value] = []
        for index in range(3 + chance % (count - 2)):
            text: dict[str, Value] = {"text": f"{_THEMES[(chance + index) % len(_THEMES)]} {index + 1}"}
            if index == 0 and chance % 3 == 0:
                text["pinned_field"] = pinned
            found.append(text)
        return found

    return texts


def _action_name(action: Entity) -> str:
    return _ACTIONS[action.position][0] + copy_mark(action)


def _match_type(facts: RowFacts) -> str:
    return _MATCH_TYPES[_of(KEYWORD, facts).seed % len(_MATCH_TYPES)]


def _quality_score(facts: RowFacts) -> int | None:
    """None for keywords that were shown too rarely to be judged."""
    return stable_number("quality", _of(KEYWORD, facts).seed) % 11 or None


def _status(kind: str) -> Callable[[RowFacts], Value]:
    return lambda facts: "PAUSED" if stable_number("status", _of(kind, facts).seed) % 8 == 0 else "ENABLED"


_ATTRIBUTES: dict[str, Callable[[RowFacts], Value]] = {
    "customer.id": lambda facts: int(facts.account.customer_id),
    "customer.descriptive_name": lambda facts: facts.account.name,
    "customer.currency_code": lambda facts: facts.account.currency,
    "customer.time_zone": lambda facts: facts.account.time_zone,
    "customer.manager": lambda facts: facts.account.manager,
    "customer.status": lambda facts: facts.account.status,
    "customer.test_account": lambda _: False,
    "customer_client.id": lambda facts: int(facts.client.customer_id),
    "customer_client.client_customer": lambda facts: f"customers/{facts.client.customer_id}",
    "customer_client.descriptive_name": lambda facts: facts.client.name,
    "customer_client.currency_code": lambda facts: facts.client.currency,
    "customer_client.time_zone": lambda facts: facts.client.time_zone,
    "customer_client.manager": lambda facts: facts.client.manager,
    "customer_client.status": lambda facts: facts.client.status,
    "customer_client.level": lambda facts: facts.level,
    "customer_client.hidden": lambda facts: facts.client.hidden,
    "customer_client.test_account": lambda _: False,
    "campaign.id": lambda facts: _of(CAMPAIGN, facts).id,
    "campaign.name": lambda facts: _name(_of(CAMPAIGN, facts)),
    "campaign.status": _status(CAMPAIGN),
    "campaign.advertising_channel_type": lambda facts: channel_of(facts.account, _of(CAMPAIGN, facts)),
    "campaign.advertising_channel_sub_type": lambda _: "UNSPECIFIED",
    "campaign_budget.id": lambda facts: _of(CAMPAIGN, facts).id,
    "ad_group.id": lambda facts: _of(AD_GROUP, facts).id,
    "ad_group.name": lambda facts: _name(_of(AD_GROUP, facts)),
    "ad_group.status": _status(AD_GROUP),
    "ad_group.type": lambda _: "SEARCH_STANDARD",
    "ad_group_criterion.criterion_id": lambda facts: _of(KEYWORD, facts).id,
    "ad_group_criterion.type": lambda _: "KEYWORD",
    "ad_group_criterion.status": _status(KEYWORD),
    "ad_group_criterion.negative": lambda _: False,
    "ad_group_criterion.quality_info.quality_score": _quality_score,
    "ad_group_criterion.keyword.text": _keyword,
    "ad_group_criterion.keyword.match_type": _match_type,
    "search_term_view.search_term": _search_term,
    "search_term_view.status": lambda facts: ("ADDED", "NONE", "NONE")[_of(SEARCH_TERM, facts).position],
    "ad_group_ad.ad.id": lambda facts: _of(AD, facts).id,
    "ad_group_ad.ad.type": lambda _: "RESPONSIVE_SEARCH_AD",
    "ad_group_ad.ad.responsive_search_ad.headlines": _texts(15, "HEADLINE_1"),
    "ad_group_ad.ad.responsive_search_ad.descriptions": _texts(4, "DESCRIPTION_1"),
    "ad_group_ad.status": _status(AD),
    "campaign_search_term_view.search_term": _campaign_term,
    "geographic_view.country_criterion_id": _country,
    "geographic_view.location_type": lambda facts: _LOCATION_TYPES[_of(PLACE, facts).position % 2],
    "user_location_view.country_criterion_id": _country,
    "user_location_view.targeting_location": lambda facts: _of(PLACE, facts).position % 2 == 0,
    "asset_group.name": lambda facts: _name(_of(ASSET_GROUP, facts)),
    "asset_group.status": _status(ASSET_GROUP),
    "conversion_action.name": lambda facts: _action_name(_of(CONVERSION_ACTION, facts)),
    "conversion_action.category": lambda facts: _ACTIONS[_of(CONVERSION_ACTION, facts).position][1],
}

_SEGMENTS_OF_ACTIONS: dict[str, Callable[[EmulatedAccount, Entity], Value]] = {
    "segments.conversion_action": lambda account, action: (
        f"customers/{account.customer_id}/conversionActions/{action.id}"
    ),
    "segments.conversion_action_name": lambda _, action: _action_name(action),
    "segments.conversion_action_category": lambda _, action: _ACTIONS[action.position][1],
}

_SEGMENTS_OF_KEYWORDS: dict[str, Callable[[RowFacts], Value]] = {
    "segments.keyword.info.text": _keyword,
    "segments.keyword.info.match_type": _match_type,
    "segments.keyword.ad_group_criterion": lambda facts: _resource_name("ad_group_criterion", facts),
}


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None


_METRICS: dict[str, Callable[[RowFacts], Value]] = {
    "impressions": lambda facts: facts.traffic.impressions,
    "clicks": lambda facts: facts.traffic.clicks,
    "interactions": lambda facts: facts.traffic.clicks,
    "cost_micros": lambda facts: facts.traffic.cost_micros,
    "conversions": lambda facts: facts.traffic.conversions / 100,
    "conversions_value": lambda facts: facts.traffic.conversions_value / 100,
    "all_conversions": lambda facts: facts.traffic.conversions / 100 + facts.traffic.view_through,
    "all_conversions_value": lambda facts: facts.traffic.conversions_value / 100,
    "view_through_conversions": lambda facts: facts.traffic.view_through,
    "ctr": lambda facts: _ratio(facts.traffic.clicks, facts.traffic.impressions),
    "interaction_rate": lambda facts: _ratio(facts.traffic.clicks, facts.traffic.impressions),
    "average_cpc": lambda facts: _ratio(facts.traffic.cost_micros, facts.traffic.clicks),
    "average_cost": lambda facts: _ratio(facts.traffic.cost_micros, facts.traffic.clicks),
    "average_cpm": lambda facts: _ratio(facts.traffic.cost_micros * 1000, facts.traffic.impressions),
    "cost_per_conversion": lambda facts: _ratio(facts.traffic.cost_micros * 100, facts.traffic.conversions),
    "conversions_from_interactions_rate": lambda facts: _ratio(facts.traffic.conversions / 100, facts.traffic.clicks),
    "value_per_conversion": lambda facts: _ratio(facts.traffic.conversions_value, facts.traffic.conversions),
}
