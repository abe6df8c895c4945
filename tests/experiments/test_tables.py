"""Tables: every figure by hand, from reports made by hand."""

from __future__ import annotations

from math import isnan

import pytest

from decaf.experiments.systems import MAIN, PAPER, SYSTEMS
from decaf.experiments.tables import Mean, Run, Table, best_loss, metric, runs_of, tables

from .reports import BEAMS, DRAWN, Report, beam, judged, report, theorem, trouble, whole, with_text


def table(report: Report, title: str) -> Table:
    (found,) = (one for one in tables(report) if one.title == title)
    return found


def lines(report: Report, title: str) -> dict[str, list[str]]:
    """The texts of a table's lines by their first cells, each with its column's heading in mind."""
    return {row[0].text: [cell.text for cell in row[1:]] for row in table(report, title).rows}


def column(report: Report, title: str, name: str) -> dict[str, str]:
    place = table(report, title).heading.index(name) - 1
    return {first: others[place] for first, others in lines(report, title).items()}


def title_of(system: str) -> str:
    return SYSTEMS[system].title


def test_by_hand_mean_and_spread_over_seeds() -> None:
    runs = [judged("decaf", value, seed=seed) for seed, value in enumerate((1.0, 2.0, 4.0))]
    mean = metric(runs, "P@1")
    assert mean is not None
    # The mean is 7/3; squares of -4/3, -1/3 and 5/3 add up to 42/9, and 42/9/2 = 7/3 = 1.5275^2.
    assert (mean.value, mean.spread, mean.seeds) == pytest.approx((7 / 3, 1.527525, 3), abs=1e-6)
    assert str(mean) == "2.33 ± 1.53"


def test_one_seed_has_no_spread() -> None:
    mean = metric([judged("decaf", 12.346)], "N@5")
    assert mean is not None
    assert isnan(mean.spread)
    assert str(mean) == "12.35"
    assert metric([], "P@1") is None
    assert str(Mean(1.0, 0.0, 2)) == "1.00 ± 0.00"


def test_runs_are_those_on_the_reports_own_labels() -> None:
    runs = [judged("decaf"), judged("decaf", labels=16), judged("paper"), with_text("pecos-pifa"), judged("pecos-pifa")]
    of = report(runs)
    assert runs_of(of, "decaf") == [runs[0]]
    assert runs_of(of, "decaf", labels=16) == [runs[1]]
    assert runs_of(of, "pecos-pifa") == [runs[4]]
    assert runs_of(of, "pecos-pifa", kind="metadata") == [runs[3]]
    assert runs_of(of, "match") == []
    assert runs_of(report(runs, drawn=0), "decaf") == []
    everything = judged("decaf", labels=0)
    assert runs_of(report([*runs, everything], drawn=0), "decaf") == [everything]


def test_accuracy_has_a_line_for_each_system_that_was_run() -> None:
    found = lines(whole(), "Accuracy")
    assert list(found) == [title_of(name) for name in MAIN if runs_of(whole(), name)]
    assert found[title_of("decaf")] == ["41.00 ± 1.00"] * 7 + ["3"]
    assert found[title_of("match")] == ["20.00"] * 7 + ["1"]
    assert table(whole(), "Accuracy").heading == ["", "P@1", "P@3", "P@5", "N@1", "N@3", "N@5", "R@20", "seeds"]
    assert list(lines(whole(), "Rare labels")) == list(found)
    assert "C@20" in table(whole(), "Rare labels").heading


def test_the_best_of_a_column_is_marked() -> None:
    of = report(
        [
            judged("decaf", 30.0, others={"P_1": 50.0, "R_20": 70.0}),
            judged("paper", 31.0, others={"P_1": 49.9, "R_20": 70.0}),
            judged("match", 29.0),
            judged("decaf", 99.0, labels=16),
        ]
    )
    marked = {row[0].text: [cell.best for cell in row] for row in table(of, "Accuracy").rows}
    #                                         P@1   P@3    P@5    N@1    N@3    N@5    R@20  seeds
    assert marked[title_of("decaf")] == [False, True, False, False, False, False, False, True, False]
    assert marked[title_of("paper")] == [False, False, True, True, True, True, True, True, False]
    assert not any(marked[title_of("match")])


def test_cost_is_the_median_over_seeds() -> None:
    seconds = (1500.04, 3.0, 2000.0)
    of = report(
        [
            *(judged("decaf", seed=seed, training_seconds=value) for seed, value in enumerate(seconds)),
            judged("match", training_seconds=0.5, ms_per_document=0.0126),
            judged("paper", model_mb=1234.56, beside=3),
        ]
    )
    found = lines(of, "Cost")
    assert found[title_of("decaf")] == ["1,500.0", "0.250", "4.5", "2 CPU cores"]
    assert found[title_of("match")][1:] == ["0.013", "", "2 CPU cores"]
    assert float(found[title_of("match")][0]) == 0.5
    assert found[title_of("paper")][2:] == ["1,234.6", "2 CPU cores, 3 runs at a time"]


def test_what_label_text_adds_to_a_peer() -> None:
    peer = "omikuji-parabel"
    of = report([judged(peer, 30.0), with_text(peer, 31.25, weight=0.85, PSP_5=29.5), judged("decaf", 40.0)])
    found = table(of, "Peers with label text")
    first, last = ([cell.text for cell in row] for row in found.rows)
    assert found.heading[:6] == ["", "P@1", "P@5", "PSP@1", "PSP@5", "a"]
    assert first[:6] == [f"{title_of(peer)} + label text", *["31.25 (+1.25)"] * 3, "29.50 (-0.50)", "0.85"]
    # Its P@1 goes from 32.6 to 33.6, its PSP@1 from 23.27 to 25.89; and from 17.68 to 20.69, from 9.24 to 12.96.
    assert found.heading[6:] == [f"paper, {name}" for name in PAPER]
    assert first[6:] == ["+1.00 / +2.62", "+3.01 / +3.72"]
    assert last == [title_of("decaf"), *["40.00"] * 4, "", "", ""]


def test_a_peer_that_the_paper_does_not_have_is_compared_with_nothing() -> None:
    of = report([judged("pecos-pifa"), with_text("pecos-pifa", weight=1.0)])
    (row,) = table(of, "Peers with label text").rows
    assert [cell.text for cell in row[5:]] == ["1", "", ""]


@pytest.mark.parametrize("runs", [[judged("decaf"), judged("pecos-pifa")], [judged("decaf"), with_text("pecos-pifa")]])
def test_without_both_runs_of_a_peer_there_is_no_line(runs: list[Run]) -> None:
    assert "Peers with label text" not in [one.title for one in tables(report(runs))]


DIRECTION = "direction: P@1 / PSP@1"


def test_by_hand_directions_against_the_paper() -> None:
    # The paper has fixed embeddings below in P@1 and PSP@1 on both datasets; label text alone below in P@1 on both, and
    # in PSP@1 below on the first and above on the second.
    of = report(
        [
            judged("paper", 30.0),
            judged("paper-fixed", 29.0, others={"PSP_1": 30.1}),
            judged("paper-z1", 30.5),
            judged("paper-z2", 30.19, others={"PSP_1": 29.81}),
            judged("paper-lite", 30.3, others={"PSP_1": 29.7}),
            judged("paper-forced", 35.0, beam=64),
        ]
    )
    assert column(of, "Components", DIRECTION) == {
        title_of("paper-fixed"): "same / within noise",
        title_of("paper-z1"): "opposite / same as one of the two",
        title_of("paper-z2"): "within noise / within noise",
        title_of("paper-lite"): "opposite / same",
        title_of("paper-forced"): "not in the paper",
    }
    assert column(of, "Components", "P@1")[title_of("paper-fixed")] == "-1.00"
    assert column(of, "Components", "PSP@1")[title_of("paper-fixed")] == "+0.10"
    assert lines(of, "Components")[title_of("paper-forced")] == [*["+5.00"] * 5, "64", "", "", "not in the paper"]
    assert lines(of, "Components")[title_of("paper-fixed")][6:8] == ["-5.98 / -5.35", "-3.42 / -2.82"]
    assert "below 0.20 (P@1) and 0.20 (PSP@1) are within noise" in table(of, "Components").caption
    of["dataset"]["test_documents"] = 200  # two of them are a point
    assert column(of, "Components", DIRECTION)[title_of("paper-lite")] == "within noise / within noise"
    assert "below 1.00 (P@1) and 1.00 (PSP@1) are within noise" in table(of, "Components").caption


def test_noise_is_twice_the_spread_of_the_recipe_and_variants_are_compared_with_their_seed() -> None:
    # Deviations of 0.7071 in P@1 and 1.4142 in PSP@1; the variants are of seed 0.
    base = [
        judged("paper", value, seed=seed, others={"PSP_1": 2 * value}, beam=16)
        for seed, value in enumerate((29.5, 30.5))
    ]
    for gain, said in (
        (1.4, "within noise / within noise"),
        (1.43, "opposite / within noise"),
        (2.85, "opposite / opposite"),
        (-2.8, "same / within noise"),
    ):
        other = judged("paper-hnsw", 29.5 + gain, others={"PSP_1": 59 + gain})
        of = report([*base, other, judged("paper-fixed")])
        assert column(of, "Shortlisters", DIRECTION) == {title_of("paper-hnsw"): said}
        assert column(of, "Shortlisters", "P@1") == {title_of("paper-hnsw"): f"{gain:+.2f}"}
    caption = table(of, "Components").caption
    assert "below 1.41 (P@1) and 2.83 (PSP@1) are within noise" in caption
    assert "(its own is 16)" in caption


def test_variants_are_nothing_without_the_recipe_they_vary() -> None:
    of = report([judged("decaf"), judged("paper-fixed"), judged("paper-hnsw"), judged("paper", labels=16)])
    assert {one.title for one in tables(of)} == {"Accuracy", "Rare labels", "Cost"}


def test_the_theorem_counts_the_lines_within_the_bound() -> None:
    of = report([theorem()])
    found = table(of, "The theorem")
    assert [[cell.text for cell in row] for row in found.rows] == [
        ["1", "50.0 %", "5.000", "+1.500", "2.000", "9.000", "+5.500"],
        ["2", "75.0 %", "4.250", "+0.750", "1.000", "4.500", "+1.000"],
        ["4", "90.0 %", "3.900", "+0.400", "0.500", "4.000", "+0.500"],
    ]
    assert "3 of 3 lines stay below that" in found.caption
    assert "they never met, 2 do" in found.caption
    assert "sparsity s = 2.00e-02" in found.caption
    assert "the lowest of all, which stands for the minimum that nobody knows, 3.500" in found.caption


def test_a_line_above_the_bound_is_not_counted() -> None:
    found = table(report([theorem([*BEAMS, beam(8, 0.95, 3.8, 3.9, 0.25)])]), "The theorem")
    assert "3 of 4 lines stay below that" in found.caption
    assert "they never met, 2 do" in found.caption


def test_the_best_loss_may_be_that_of_shortlists() -> None:
    assert best_loss(theorem()["theorem"]) == 3.5
    assert best_loss(theorem(full=4.25)["theorem"]) == 3.9


def test_what_did_not_run_is_told_with_the_reason() -> None:
    of = report([judged("decaf")], troubles=[trouble("took more than 60 s"), trouble("died", "pecos-pifa")])
    assert lines(of, "Not run") == {
        f"{title_of('napkinxc-br')}, seed 0": ["took more than 60 s"],
        f"{title_of('pecos-pifa')}, seed 0": ["died"],
    }
    assert "Not run" not in [one.title for one in tables(report([judged("decaf")]))]


def test_tables_come_in_order_and_are_as_wide_as_their_headings() -> None:
    found = tables(whole())
    assert [one.title for one in found] == [
        "Accuracy",
        "Rare labels",
        "Cost",
        "Peers with label text",
        "Shortlisters",
        "Components",
        "The theorem",
        "Not run",
    ]
    assert all(len(row) == len(one.heading) for one in found for row in one.rows)


def test_a_report_without_runs_has_no_tables() -> None:
    assert tables(report([])) == []
    assert tables(report([judged("decaf", labels=DRAWN // 2)])) == []
