"""How much each entity was seen, clicked and bought from on a day; what children have adds up to their parent's."""

from collections.abc import Iterable, Sequence
from datetime import date
from itertools import accumulate
from typing import NamedTuple

from gads_assets.emulator.accounts import EmulatedAccount
from gads_assets.emulator.entities import Entity, stable_number

_SETTLED_AFTER = 90


class Traffic(NamedTuple):
    """Whole numbers only, so that splitting and adding are exact. Conversions and values are in hundredths."""

    clicks: int = 0
    unclicked: int = 0
    cost_micros: int = 0
    conversions: int = 0
    conversions_value: int = 0
    view_through: int = 0

    @property
    def impressions(self) -> int:
        return self.clicks + self.unclicked


def campaign_traffic(account: EmulatedAccount, campaign: Entity, day: str) -> Traffic:
    size = 1 + stable_number("size", campaign.id) % 20
    chance = stable_number("traffic", campaign.id, day)
    impressions = size * (20 + chance % 180)
    clicks = impressions * (10 + chance // 1_000 % 80) // 1_000
    cost_per_click = account.money * (250_000 + chance // 1_000_000 % 2_250_000)
    conversions = clicks * (chance // 10_000_000 % 12)
    return Traffic(
        clicks=clicks,
        unclicked=impressions - clicks,
        cost_micros=clicks * cost_per_click,
        conversions=conversions,
        conversions_value=conversions * account.money * (5 + chance // 1_000_000_000 % 60),
        view_through=chance % 5,
    )


def late_share(account: EmulatedAccount, day: date, today: date | None) -> int:
    """How many thousandths of a day's conversions will be counted after `today` only.

    People buy days after they clicked: a fifth to a half are missing at first, ever fewer later, none after 90 days.
    """
    if today is None or (age := (today - day).days) >= _SETTLED_AFTER:
        return 0
    most = 200 + stable_number("late", account.customer_id, day) % 300
    return most * (_SETTLED_AFTER - max(age, 0)) ** 2 // _SETTLED_AFTER**2


def counted(traffic: Traffic, late: int) -> Traffic:
    """Each number by itself, not shares of a sum: so none of them ever falls while the day grows older."""
    if not late:
        return traffic
    conversions = traffic.conversions * (1000 - late) // 1000
    value = traffic.conversions_value * (1000 - late) // 1000 if conversions else 0
    return traffic._replace(conversions=conversions, conversions_value=value)


def split(traffic: Traffic, weights: Sequence[int]) -> list[Traffic]:
    """One share per weight, adding up exactly. Clicks and other impressions are dealt out separately, so that no
    share has more clicks than impressions; money follows clicks, and value follows conversions."""
    if len(weights) == 1:
        return [traffic]
    clicks = _shares(traffic.clicks, weights)
    conversions = _shares(traffic.conversions, clicks)
    columns = zip(
        clicks,
        _shares(traffic.unclicked, weights),
        _shares(traffic.cost_micros, clicks),
        conversions,
        _shares(traffic.conversions_value, conversions),
        _shares(traffic.view_through, weights),
        strict=True,
    )
    return list(map(Traffic._make, columns))


def total(parts: Iterable[Traffic]) -> Traffic:
    return Traffic(*map(sum, zip(*parts, strict=True)))


def _shares(whole: int, weights: Sequence[int]) -> list[int]:
    """Rounds the running total, not each share: nothing is lost or made up."""
    weight = sum(weights)
    if weight == 0:
        return [whole if index == 0 else 0 for index in range(len(weights))]
    marks = [whole * running // weight for running in accumulate(weights)]
    return [high - low for low, high in zip([0, *marks], marks, strict=False)]
