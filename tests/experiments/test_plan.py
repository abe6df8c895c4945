"""Which runs are made: of whom, on how many labels, with which seeds, and in which order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decaf.errors import ConfigError
from decaf.experiments.plan import PROFILES, Job, Profile, plan
from decaf.experiments.systems import ABLATIONS, COST, MAIN, METADATA, SHORTLISTERS, SYSTEMS

MAKERS = ("decaf", "match", "pecos", "napkinxc", "omikuji")
SMALL = Profile(100, 3, (4, 2), ("paper-5",))
DRAWN = [name for name in MAIN if name != "match"]  # a seed makes no difference to it


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    st.sampled_from(sorted(PROFILES)),
    st.integers(1, 10_000),
    st.one_of(st.none(), st.integers(0, 10_000)),
    st.one_of(st.none(), st.integers(1, 5)),
    st.sets(st.sampled_from(MAKERS)),
)
def test_no_run_is_made_twice_and_every_run_can_be_made(
    name: str, labels: int, some: int | None, seeds: int | None, makers: set[str]
) -> None:
    profile = PROFILES[name].with_options(labels=some, seeds=seeds)
    jobs = plan(profile, labels, makers)
    assert len(set(jobs)) == len(jobs)
    assert all(SYSTEMS[job.system].maker in makers for job in jobs)
    assert all(0 <= job.labels < labels for job in jobs)  # all of them are called 0
    assert all(0 <= job.seed < profile.seeds for job in jobs)
    needed = [Job("judge", job.system, job.seed, job.labels) for job in jobs if job.kind == "metadata"]
    assert set(needed) <= set(jobs)
    own = profile.labels if 0 < profile.labels < labels else 0
    assert [job for job in jobs if job.seed] == [
        Job("judge", system, seed, own)
        for seed in range(1, profile.seeds)
        for system in DRAWN
        if SYSTEMS[system].maker in makers
    ]


def test_the_main_comparison_comes_first() -> None:
    for profile in PROFILES.values():
        jobs = plan(profile, 5000, MAKERS)
        assert [job.system for job in jobs[: len(MAIN)]] == list(MAIN)
        assert {(job.kind, job.seed) for job in jobs[: len(MAIN)]} == {("judge", 0)}


def test_by_hand_all_runs_of_a_small_profile() -> None:
    jobs = plan(SMALL, 1000, MAKERS)
    expected = [Job("judge", name, 0, 100) for name in (*MAIN, *ABLATIONS, *SHORTLISTERS, "paper-5")]
    expected += [Job("metadata", name, 0, 100) for name in METADATA]
    expected += [Job("theorem", "paper", 0, 100)]
    expected += [Job("judge", name, 0, size) for name in COST for size in (25, 50)]
    expected += [Job("judge", name, seed, 100) for name in DRAWN for seed in (1, 2)]
    assert set(jobs) == set(expected)


def test_label_text_is_combined_with_peers_alone() -> None:
    combined = [job for job in plan(SMALL, 1000, MAKERS) if job.kind == "metadata"]
    assert {SYSTEMS[job.system].maker for job in combined} == {"pecos", "napkinxc", "omikuji"}
    assert not [job for job in plan(SMALL, 1000, ("decaf", "match")) if job.kind == "metadata"]


@pytest.mark.parametrize("labels", [100, 99, 40])
def test_a_dataset_of_fewer_labels_is_taken_whole(labels: int) -> None:
    jobs = plan(SMALL, labels, MAKERS)
    assert {job.labels for job in jobs if job.system == "paper"} == {0}
    assert {job.labels for job in jobs if job.system == "decaf"} == {0, labels // 4, labels // 2} - set(range(1, 16))


def test_a_profile_of_all_labels_takes_all() -> None:
    jobs = plan(PROFILES["full"], 3000, MAKERS)
    assert {job.labels for job in jobs if job.kind == "metadata"} == {0}
    assert {job.labels for job in jobs if job.kind == "judge"} == {0, 1500, 750, 375, 187}


def test_the_theorem_is_checked_on_few_labels() -> None:
    for labels, expected in ((900, 0), (1024, 0), (1025, 1024), (300_000, 1024)):
        (job,) = (job for job in plan(PROFILES["full"], labels, MAKERS) if job.kind == "theorem")
        assert job == Job("theorem", "paper", 0, expected)


def test_costs_are_not_measured_on_a_handful_of_labels() -> None:
    assert {job.labels for job in plan(SMALL, 63, ("decaf",))} == {0, 31}
    assert {job.labels for job in plan(SMALL, 31, ("decaf",))} == {0}


def test_options_change_what_they_name() -> None:
    quick = PROFILES["quick"]
    assert quick.with_options() == quick
    changed = quick.with_options(labels=0, seeds=1)
    assert (changed.labels, changed.seeds) == (0, 1)
    assert (changed.cost, changed.instances) == (quick.cost, quick.instances)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_all_that_a_seed_changes_has_three(profile: Profile) -> None:
    of_all = [job for job in plan(profile, 20_000, MAKERS) if job.kind == "judge" and job.system in MAIN]
    whole = of_all[0].labels
    seeds = {name: {job.seed for job in of_all if job.system == name and job.labels == whole} for name in MAIN}
    assert seeds == {name: {0} if name == "match" else {0, 1, 2} for name in MAIN}


def test_only_some_systems() -> None:
    some = plan(SMALL, 1000, MAKERS, ["napkinxc-br", "match"])
    assert some == [job for job in plan(SMALL, 1000, MAKERS) if job.system in ("napkinxc-br", "match")]
    assert {job.kind for job in some} == {"judge", "metadata"}
    with pytest.raises(ConfigError, match="there is no system 'pecos-pifa' to run; there are: decaf, decaf-3, match"):
        plan(SMALL, 1000, ("decaf", "match"), ["decaf", "pecos-pifa"])
