"""Partitions are replaced again and again while readers look; loads crash at named points, or are killed.

Every round seals new runs, some of them bad, spoils a few that were accepted, and judges all of it. Then the accepted
ones are loaded, a few at a time, by a loader of this process or of another; a third of these loads crash. What they
left is loaded by a later one, in another batch, or found by reconciling, after which everything must equal state.
"""

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from pyspark.sql import SparkSession

from gads_assets.domain.keys import PartitionKey, RunId
from gads_assets.domain.roles import Role
from gads_assets.domain.state import DemotionIntent
from gads_assets_tests.drills.damage import Damage, Report, say
from gads_assets_tests.drills.failpoints import DiedError, Failpoint, die_alone, dying_loader
from gads_assets_tests.drills.journal import Journal
from gads_assets_tests.drills.loader_process import LoaderProcess
from gads_assets_tests.drills.readers import looking_all_the_time
from gads_assets_tests.drills.settling import differences, look_around, settle
from gads_assets_tests.sealed_runs import key, row
from gads_assets_tests.sites import Site, make_site

LARGEST_RUN = 6
EMPTY, REJECTED, RELOADED, BY_ITSELF = 0.1, 0.08, 0.5, 0.5
"""How often a run has no rows, is bad, is loaded with the next after a crash, and a killed process kills itself."""


@dataclass(frozen=True, kw_only=True)
class Extent:
    """Loads are drawn from a deck that is shuffled anew when it is used up: in it are every failpoint once, `kills` of
    a process, `elsewhere` loads that this process does in peace, and `calm` ones here. `sizes` are how many partitions
    a load has, to choose from."""

    customers: int
    days: int
    replacements: int
    a_round: int
    sizes: Sequence[int]
    kills: int
    elsewhere: int
    calm: int
    retractions_a_round: int
    rounds_to_settle: int

    @property
    def partitions(self) -> list[PartitionKey]:
        return [
            key(f"10000000{customer:02}", f"2024-06-{day:02}")
            for customer in range(1, self.customers + 1)
            for day in range(1, self.days + 1)
        ]


FULL = Extent(
    customers=12,
    days=6,
    replacements=500,
    a_round=24,
    sizes=(1, 2, 2, 3),
    kills=3,
    elsewhere=3,
    calm=15,
    retractions_a_round=3,
    rounds_to_settle=4,
)


class Card(StrEnum):
    CALM = "calm"
    ELSEWHERE = "elsewhere"
    KILL = "kill"


class Withdrawal(StrEnum):
    """Where a withdrawal may crash."""

    BEFORE = "before_withdrawal"
    AFTER = "before_failure_shows"


class PublishingDrill:
    """`root` is an empty folder and `database_url` a migrated database of the drill's own."""

    def __init__(
        self, root: Path, database_url: str, session: Callable[[], SparkSession], extent: Extent, *, seed: int
    ) -> None:
        self._root = root
        self._extent = extent
        self._chance = random.Random(seed)
        self._site: Site = make_site(root, database_url, session)
        self._elsewhere = LoaderProcess(root, database_url)
        self._partitions = extent.partitions
        self._journal = Journal(self._partitions)
        self._expected: dict[PartitionKey, RunId | None] = dict.fromkeys(self._partitions)
        self._unfinished: list[PartitionKey] = []
        self._deck: list[Card | Failpoint] = []
        self._raw: dict[Path, str] = {}
        self._damage = Damage()
        self._rounds = 0
        self._replacements = 0
        self._crashed_replacements = 0
        self._crashes: Counter[str] = Counter()
        self._kills = 0
        self._rejections = 0
        self._retractions = 0

    def run(self) -> Report:
        try:
            with self._site.here, looking_all_the_time(self._site.here, self._journal) as readers:
                while self._replacements < self._extent.replacements:
                    self._round()
                self._settle()
        finally:
            self._elsewhere.stop()
        self._damage.broken_seals += self._changed_in_raw()
        return Report(
            damage=sum((reader.damage for reader in readers), start=self._damage),
            kills=self._kills,
            reads={reader.name: reader.reads for reader in readers},
            facts={
                "replacements": self._replacements,
                "crashed_replacements": self._crashed_replacements,
                "crashes": dict(sorted(self._crashes.items())),
                "process_kills": self._kills,
                "retractions": self._retractions,
                "rejections": self._rejections,
            },
        )

    def _round(self) -> None:
        started = time.monotonic()
        self._rounds += 1
        run = f"round-{self._rounds}"
        chosen = self._chance.sample(self._partitions, min(self._extent.a_round, len(self._partitions)))
        sealed = {partition: self._extract(partition, run) for partition in chosen}
        retracted = self._spoil([partition for partition in self._partitions if partition not in sealed])
        self._judge(run, sealed, retracted)
        states = self._site.here.store_as(Role.OPERATOR).states(sealed)
        fresh = [
            partition
            for partition, run_id in sealed.items()
            if partition in states and states[partition].current_run_id == run_id
        ]
        for partition in fresh:
            self._expected[partition] = sealed[partition]
        superseded = {*fresh, *retracted}
        self._unfinished = [partition for partition in self._unfinished if partition not in superseded]
        while fresh and self._replacements < self._extent.replacements:
            self._load_some(fresh)
        self._unfinished += fresh
        if self._rounds % self._extent.rounds_to_settle == 0:
            self._settle()
        damaged = len(self._damage.sentences())
        say(
            f"round {self._rounds}: {self._replacements} of {self._extent.replacements} replacements, "
            f"{self._crashes.total()} crashes, {self._kills} of them kills; "
            f"{time.monotonic() - started:.0f} s; {damaged} complaints of the writer"
        )

    def _extract(self, partition: PartitionKey, run: str) -> RunId:
        """The clicks tell the run; a bad one has a row twice."""
        is_bad = self._chance.random() < REJECTED
        size = 0 if self._chance.random() < EMPTY else self._chance.randint(1, LARGEST_RUN)
        rows = [row(partition, campaign, metrics_clicks=len(self._raw)) for campaign in range(size)]
        if is_bad:
            rows = [row(partition, 1), row(partition, 1)]
        manifest = self._site.extract(partition, rows, run=run)
        self._rejections += is_bad
        self._journal.sealed(manifest.run_id, rows)
        for uri in self._site.here.sink.payload_uris(manifest):
            for file in Path(uri).parent.iterdir():
                self._raw[file] = _digest(file)
        return manifest.run_id

    def _spoil(self, partitions: Sequence[PartitionKey]) -> list[PartitionKey]:
        """Authorities whose bytes are not what they were: judged again, they are rejected."""
        accepted = [
            partition
            for partition in partitions
            if (run_id := self._expected[partition]) and self._journal.rows(run_id)
        ]
        spoiled = self._chance.sample(accepted, min(self._extent.retractions_a_round, len(accepted)))
        for partition in spoiled:
            run_id = self._expected[partition]
            assert run_id
            [payload] = self._site.here.sink.payload_uris(self._site.here.sink.manifest(partition, run_id))
            Path(payload).write_bytes(b"")
            self._raw[Path(payload)] = _digest(Path(payload))
        return spoiled

    def _judge(self, run: str, sealed: dict[PartitionKey, RunId], retracted: Sequence[PartitionKey]) -> None:
        """All in one go, as a backfill does; the withdrawals that follow may crash, which are one commit too."""
        self._retractions += len(retracted)
        for partition in retracted:
            self._journal.begins(partition, None)
            self._expected[partition] = None
        crash = self._chance.choice([None, None, *Withdrawal]) if retracted else None
        validator = self._site.here.validator
        withdraw = validator.withdraw

        def dies(intents: Sequence[DemotionIntent]) -> None:
            # Those that an earlier crash left open are finished first, by themselves.
            is_ours = any(intent.key in retracted for intent in intents)
            if crash is Withdrawal.AFTER or not is_ours:
                withdraw(intents)
            if is_ours:
                die_alone()

        try:
            replace(validator, withdraw=dies if crash else withdraw).validate([*sealed, *retracted], dagster_run_id=run)
        except DiedError:
            self._crashes[str(crash)] += 1
        else:
            for partition in retracted:
                self._journal.is_known(partition, None)

    def _load_some(self, fresh: list[PartitionKey]) -> None:
        """Takes a few out of `fresh`, one with rows first: without any, most failpoints are not on the way."""
        with_rows = [partition for partition in fresh if self._journal.rows(self._run(partition))]
        size = min(self._chance.choice(self._extent.sizes), self._extent.replacements - self._replacements)
        ordered = [*with_rows[:1], *(partition for partition in fresh if partition not in with_rows[:1])]
        batch = ordered[:size]
        for partition in batch:
            fresh.remove(partition)
        self._replacements += len(batch)
        card = self._draw() if with_rows else Card.CALM
        again = [partition for partition in self._unfinished if self._chance.random() < RELOADED]
        if self._load([*batch, *again], card):
            self._unfinished = [partition for partition in self._unfinished if partition not in again]
        else:
            self._crashed_replacements += len(batch)
            self._unfinished += batch

    def _draw(self) -> Card | Failpoint:
        """Kills are as far apart as can be: a process has started again by the next."""
        if not self._deck:
            here: list[Card | Failpoint] = [*Failpoint, *[Card.CALM] * self._extent.calm]
            self._chance.shuffle(here)
            for number in range(self._extent.kills):
                elsewhere = [Card.ELSEWHERE] if number < self._extent.elsewhere else []
                self._deck += [Card.KILL, *elsewhere, *here[number :: self._extent.kills]]
        return self._deck.pop()

    def _load(self, partitions: Sequence[PartitionKey], card: Card | Failpoint) -> bool:
        """False if it crashed."""
        for partition in partitions:
            self._journal.begins(partition, self._run(partition))
        match card:
            case Failpoint():
                return self._crash(partitions, card)
            case Card.KILL:
                shown = self._kill(partitions)
            case Card.ELSEWHERE:
                shown = self._elsewhere.load(partitions)
            case Card.CALM:
                published = self._site.here.loader.load(partitions)
                shown = {pointer.key: pointer.run_id for pointer in published.pointers}
        if shown is None:
            return False
        for partition in partitions:
            if shown.get(partition) == self._run(partition):
                self._journal.is_known(partition, self._run(partition))
            else:
                self._damage.stuck.append(f"{partition} was loaded, and shows run {shown.get(partition)}")
        return True

    def _crash(self, partitions: Sequence[PartitionKey], failpoint: Failpoint) -> bool:
        with dying_loader(self._site.here, failpoint, die_alone) as loader:
            try:
                loader.load(partitions)
            except DiedError:
                self._crashes[failpoint] += 1
                return False
        raise AssertionError(f"the loader did not die: {failpoint} is not reached any more")

    def _kill(self, partitions: Sequence[PartitionKey]) -> dict[PartitionKey, RunId] | None:
        """By itself at a failpoint, or by us at any moment; the answer, if it was faster than we."""
        if self._chance.random() < BY_ITSELF:
            failpoint = self._chance.choice(list(Failpoint))
            self._elsewhere.load_and_die(partitions, failpoint)
            self._crashes[failpoint] += 1
        elif (shown := self._elsewhere.load_and_kill(partitions, self._chance.random())) is not None:
            self._deck.append(Card.KILL)
            return shown
        else:
            self._crashes["any_moment"] += 1
        self._kills += 1
        return None

    def _settle(self) -> None:
        for partition in self._unfinished:
            self._journal.begins(partition, self._run(partition))
        self._unfinished = []
        complaints = settle(self._site.here)
        found = look_around(self._site.here, self._partitions)
        contents = {run_id: self._journal.rows(run_id) for run_id in self._expected.values() if run_id}
        complaints += differences(found, self._expected, contents)
        self._damage.differing_after_reconcile += complaints
        if not complaints:
            for partition, run_id in self._expected.items():
                self._journal.is_known(partition, run_id)

    def _run(self, partition: PartitionKey) -> RunId:
        run_id = self._expected[partition]
        assert run_id, f"{partition} was retracted, and is to be loaded"
        return run_id

    def _changed_in_raw(self) -> list[str]:
        """Nobody but the extractor writes there, and we where we spoiled a run."""
        raw = Path(self._site.here.settings.raw_uri)
        found = {file: _digest(file) for file in raw.rglob("*") if file.is_file()}
        return [
            f"{file} is not what it was"
            for file in sorted(found.keys() | self._raw.keys())
            if found.get(file) != self._raw.get(file)
        ]


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
