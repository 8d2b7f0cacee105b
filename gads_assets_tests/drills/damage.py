"""What a drill looks for, and how it tells."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self


@dataclass
class Damage:
    """Each entry is a sentence about one partition or one moment; an empty list is what is hoped for."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    mixed_reads: list[str] = field(default_factory=list)
    partial_reads: list[str] = field(default_factory=list)
    missing_reads: list[str] = field(default_factory=list)
    retracted_reads: list[str] = field(default_factory=list)
    stale_reads: list[str] = field(default_factory=list)
    failed_reads: list[str] = field(default_factory=list)
    differing_after_reconcile: list[str] = field(default_factory=list)
    unaccounted: list[str] = field(default_factory=list)
    broken_seals: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        return {name: len(entries) for name, entries in vars(self).items()}

    def sentences(self) -> list[str]:
        return [f"{name}: {entry}" for name, entries in vars(self).items() for entry in entries]

    def __add__(self, other: Self) -> "Damage":
        return Damage(**{name: entries + vars(other)[name] for name, entries in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class Report:
    """`kills` are real ones, `kill -9` of a process; `reads` are by reader; `facts` say what else there was."""

    damage: Damage = field(default_factory=Damage)
    kills: int = 0
    reads: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)

    def __add__(self, other: Self) -> "Report":
        return Report(
            damage=self.damage + other.damage,
            kills=self.kills + other.kills,
            reads={**self.reads, **other.reads},
            facts={**self.facts, **other.facts},
        )


def say(what: str) -> None:
    sys.stderr.write(f"{what}\n")
