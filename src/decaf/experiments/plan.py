"""Which runs a report is made of."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from decaf.errors import ConfigError
from decaf.experiments.systems import ABLATIONS, COST, MAIN, METADATA, SHORTLISTERS, SYSTEMS

__all__ = ["PROFILES", "Job", "Profile", "plan"]

_FEW = 1024  # labels, so that all pairs can be scored


@dataclass(frozen=True)
class Job:
    """One run; of another content, it is another run."""

    kind: str  # judge; metadata: combine a peer with label text; theorem
    system: str
    seed: int = 0
    labels: int = 0  # so many labels, drawn; 0: all


@dataclass(frozen=True)
class Profile:
    """How much is done."""

    labels: int  # drawn from the dataset; 0: all
    seeds: int  # of the main comparison
    cost: tuple[int, ...]  # what the labels are divided by, beside all of them
    instances: tuple[str, ...] = ()  # larger ensembles, beside those of the main comparison

    def with_options(self, *, labels: int | None = None, seeds: int | None = None) -> Profile:
        """The same with what a user wants otherwise."""
        return replace(
            self,
            labels=self.labels if labels is None else labels,
            seeds=self.seeds if seeds is None else seeds,
        )


_DRAWN = tuple(name for name in MAIN if SYSTEMS[name].maker != "match")  # where a seed makes a difference
PROFILES = {
    "quick": Profile(1024, 3, (8, 4, 2)),
    "full": Profile(0, 3, (16, 8, 4, 2), ("paper-5",)),
}


def plan(profile: Profile, labels: int, makers: Iterable[str], only: Collection[str] | None = None) -> list[Job]:
    """All runs for a dataset of so many labels, the most telling first; only systems of these makers, or only these."""
    makers = set(makers)
    systems = {name for name, system in SYSTEMS.items() if system.maker in makers}
    if wrong := sorted(set(only or ()) - systems):
        raise ConfigError(f"there is no system {wrong[0]!r} to run; there are: {', '.join(sorted(systems))}")
    count = min(profile.labels or labels, labels)
    part = _drawn(count, labels)
    jobs = [Job("judge", name, 0, part) for name in (*MAIN, *ABLATIONS, *SHORTLISTERS)]
    jobs += [Job("metadata", name, 0, part) for name in METADATA]
    jobs += [Job("theorem", "paper", 0, _drawn(min(count, _FEW), labels))]
    jobs += [Job("judge", name, 0, size) for size in _sizes(profile, count) for name in COST]
    jobs += [Job("judge", name, seed, part) for seed in range(1, profile.seeds) for name in _DRAWN]
    jobs += [Job("judge", name, 0, part) for name in profile.instances]
    return [job for job in jobs if job.system in (only or systems)]


def _drawn(count: int, labels: int) -> int:
    """How many labels a run draws; 0: it takes all."""
    return count if count < labels else 0


def _sizes(profile: Profile, count: int) -> list[int]:
    """Numbers of labels for the figure of costs, but for all of them."""
    return [count // part for part in profile.cost if count // part >= 16]
