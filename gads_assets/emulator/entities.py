"""The made-up world behind the answers: who has which campaigns, ad groups, keywords and search terms.

Everything follows from the account's number by hashing, so any process gives the same world, and no list is kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from gads_assets.emulator.accounts import EmulatedAccount

CAMPAIGN, AD_GROUP, KEYWORD, SEARCH_TERM, AD = "campaign", "ad_group", "keyword", "search_term", "ad"

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
}
_CHILDREN = {CAMPAIGN: (9, 40), AD_GROUP: (2, 4), KEYWORD: (3, 6), SEARCH_TERM: (1, 3), AD: (2, 3)}
_ALWAYS_SERVED = 5


def stable_number(*parts: object) -> int:
    """A 64-bit number that depends on nothing but the parts; Python's own hash() differs between processes."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


@dataclass(frozen=True, kw_only=True)
class Entity:
    """`id` is unique among the account's entities of that kind."""

    kind: str
    id: int
    position: int


Lineage = tuple[Entity, ...]
"""An entity with those above it, the campaign first."""


def chain_of(resource: str) -> tuple[str, ...]:
    return _CHAINS.get(resource, (CAMPAIGN, AD_GROUP, resource))


def level_of(resource: str) -> str | None:
    """The kind of entity that a known resource's fields describe; None for one that has no fixed place."""
    chain = _CHAINS.get(resource)
    return chain[-1] if chain else None


def children(account: EmulatedAccount, lineage: Lineage, kind: str) -> Iterator[Entity]:
    parent_id = lineage[-1].id if lineage else 100_000 + stable_number(account.customer_id) % 900_000
    fewest, most = _CHILDREN.get(kind, (1, 3))
    count = fewest + stable_number("children", kind, parent_id) % (most - fewest + 1)
    # Ten (or a thousand) times the parent's id, plus the position: no two siblings or cousins can share an id.
    spread = 1000 if kind == CAMPAIGN else 10
    for position in range(count):
        yield Entity(kind=kind, id=parent_id * spread + position, position=position)


def is_dark(account: EmulatedAccount, day: str) -> bool:
    """On some days an account shows no ads at all: legal, and to be sealed as empty."""
    return stable_number("dark", account.customer_id, day) % 23 == 0


def is_served(campaign: Entity, day: str) -> bool:
    return campaign.position < _ALWAYS_SERVED or stable_number("idle", campaign.id, day) % 7 != 0
