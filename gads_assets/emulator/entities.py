"""The made-up world behind the answers: who has which campaigns, ad groups, keywords and search terms.

Everything follows from the account's number by hashing, so any process gives the same world, and no list is kept.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from gads_assets.emulator.accounts import EmulatedAccount

CAMPAIGN, AD_GROUP, KEYWORD, SEARCH_TERM, AD = "campaign", "ad_group", "keyword", "search_term", "ad"
CAMPAIGN_TERM, PLACE, ASSET_GROUP = "campaign_search_term", "place", "asset_group"
CONVERSION_ACTION = "conversion_action"

# Which level of the tree each resource's rows stand for; an unlisted resource is a level of its own under ad groups.
_CHAINS: dict[str, tuple[str, ...]] = {
    "customer": (),
    "customer_client": (),
    "campaign": (CAMPAIGN,),
    "campaign_budget": (CAMPAIGN,),
    "bidding_strategy": (CAMPAIGN,),
    "ad_group": (CAMPAIGN, AD_GROUP),
    "ad_group_criterion": (CAMPAIGN, AD_GROUP, KEYWORD),
    "keyword_view": (CAMPAIGN, AD_GROUP, KEYWORD),
    "search_term_view": (CAMPAIGN, AD_GROUP, KEYWORD, SEARCH_TERM),
    "ad_group_ad": (CAMPAIGN, AD_GROUP, AD),
    "campaign_search_term_view": (CAMPAIGN, CAMPAIGN_TERM),
    "geographic_view": (CAMPAIGN, PLACE),
    "user_location_view": (CAMPAIGN, PLACE),
    "asset_group": (CAMPAIGN, ASSET_GROUP),
    "conversion_action": (CONVERSION_ACTION,),
    **dict.fromkeys(
        ("age_range_view", "display_keyword_view", "gender_view", "product_group_view", "topic_view"),
        (CAMPAIGN, AD_GROUP, KEYWORD),
    ),
}
_CHILDREN = {
    CAMPAIGN: (9, 40),
    AD_GROUP: (2, 4),
    KEYWORD: (3, 6),
    SEARCH_TERM: (1, 3),
    AD: (2, 3),
    CAMPAIGN_TERM: (3, 9),
    PLACE: (2, 6),
    ASSET_GROUP: (1, 4),
    CONVERSION_ACTION: (3, 8),
}
_CHANNELS = {AD_GROUP: "SEARCH", ASSET_GROUP: "PERFORMANCE_MAX"}
_ALWAYS_SERVED = 5
# Copies' ids lie between 2**62 and 2**63: the same number of digits and of bytes for all, and no original is there.
_FIRST_COPY_ID = 2**62
_COPY_BITS = 21
MOST_COPIES = 2**_COPY_BITS - 1


def stable_number(*parts: object) -> int:
    """A 64-bit number that depends on nothing but the parts; Python's own hash() differs between processes."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


class Entity(NamedTuple):
    """`id` is unique among the account's entities of that kind; `copy` is 0 for all but the copies of large days."""

    kind: str
    id: int
    position: int
    copy: int = 0

    @property
    def seed(self) -> int:
        """What attributes follow from: a copy has those of its original."""
        return (self.id - _FIRST_COPY_ID) >> _COPY_BITS if self.copy else self.id

    def copied(self, copy: int) -> "Entity":
        return Entity(self.kind, _FIRST_COPY_ID + (self.id << _COPY_BITS) + copy, self.position, copy)


Lineage = tuple[Entity, ...]
"""An entity with those above it, the campaign first."""


def chain_of(resource: str) -> tuple[str, ...]:
    under = ASSET_GROUP if resource.startswith("asset_group_") else AD_GROUP
    return _CHAINS.get(resource, (CAMPAIGN, under, resource))


def level_of(resource: str) -> str | None:
    """The kind of entity that a known resource's fields describe; None for one that has no fixed place."""
    chain = _CHAINS.get(resource)
    return chain[-1] if chain else None


def children(account: EmulatedAccount, lineage: Lineage, kind: str) -> Iterator[Entity]:
    parent_id = lineage[-1].id if lineage else 100_000 + stable_number(account.customer_id) % 900_000
    if kind in _CHANNELS and _CHANNELS[kind] != channel_of(account, lineage[0]):
        return
    fewest, most = _CHILDREN.get(kind, (1, 3))
    count = fewest + stable_number("children", kind, parent_id) % (most - fewest + 1)
    # Ten (or a thousand) times the parent's id, plus the position: no two siblings or cousins can share an id.
    spread = 1000 if kind == CAMPAIGN else 10
    for position in range(count):
        yield Entity(kind, parent_id * spread + position, position)


def channel_of(account: EmulatedAccount, campaign: Entity) -> str:
    return "PERFORMANCE_MAX" if account.performance_max and campaign.position % 6 == 3 else "SEARCH"


def is_dark(account: EmulatedAccount, day: str) -> bool:
    """On some days an account shows no ads at all: legal, and to be sealed as empty."""
    return stable_number("dark", account.customer_id, day) % 23 == 0


def is_served(campaign: Entity, day: str) -> bool:
    return campaign.position < _ALWAYS_SERVED or stable_number("idle", campaign.id, day) % 7 != 0
