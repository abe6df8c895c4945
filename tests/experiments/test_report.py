"""The report: a page that parses, needs nothing else and says what its JSON says; the same as Markdown; its figures."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from modules import dataset_of

from decaf import DataError, Predictions
from decaf.experiments.figures import Drawing, drawings
from decaf.experiments.judging import drawn
from decaf.experiments.plan import Job
from decaf.experiments.report import (
    assembled,
    check_same_data,
    findings,
    html,
    joined,
    markdown,
    read_report,
    write_report,
)
from decaf.experiments.runs import Outcome
from decaf.experiments.systems import MAIN, SYSTEMS
from decaf.experiments.tables import runs_of, tables
from decaf.predictions import save_scores

from .reports import (
    Report,
    beam,
    example,
    judged,
    metrics,
    our_runs,
    reach,
    report,
    theorem,
    trouble,
    whole,
    with_text,
)

FIGURES = ["quantiles", "instances", "recall", "cost", "theorem"]
PICTURES = {name: f"images/{name}.png" for name in FIGURES}
HOSTILE = "<script>alert('1')</script> & \"><img src=x onerror=alert(2)> {{ 7 * 7 }}"
VOID = ("meta", "br")
LOADED = ("script", "link", "img", "image", "iframe", "object", "embed", "base", "audio", "video", "source", "form")


class Page(HTMLParser):
    """Everything that is looked at in a page; a tag that is not closed where it should be is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.ids: defaultdict[str, list[dict[str, str | None]]] = defaultdict(list)
        self.texts: list[tuple[str, str]] = []  # with the tag that they stand in
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]
        of = dict(attrs)
        if of.get("id"):
            self.ids[str(of["id"])].append({"": tag, **of})
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def values(self, *names: str) -> list[str]:
        return [value for name, value in self.attributes if name in names]

    def within(self, tag: str) -> list[str]:
        return [text for at, text in self.texts if at == tag]

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.texts)


@pytest.fixture(scope="module")
def figures() -> list[Drawing]:
    return drawings(whole())


@pytest.fixture(scope="module")
def text() -> str:
    return html(whole())


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_the_page_has_every_table_and_every_figure(page: Page, figures: list[Drawing]) -> None:
    titles = [one.title for one in (*tables(whole()), *figures)]
    assert [one.name for one in figures] == FIGURES
    assert page.within("h2") == [*titles, "Examples", "Runs"]
    assert page.within("a") == [*titles, "Examples", "Runs"]
    assert page.tags["svg"] == len(FIGURES)
    assert page.tags["table"] == len(tables(whole())) + len(whole()["examples"])
    assert page.tags["h1"] == page.tags["title"] == 1


def test_every_cell_and_caption_stands_in_the_page(page: Page, figures: list[Drawing]) -> None:
    for table in tables(whole()):
        assert table.caption in page.within("p")
        assert set(table.heading) - {""} <= set(page.within("th"))
        assert {cell.text for row in table.rows for cell in row} - {""} <= set(page.within("td"))
    assert [one.caption for one in figures] == page.within("figcaption")


def test_best_cells_are_marked(text: str) -> None:
    best = [cell.text for table in tables(whole()) for row in table.rows for cell in row if cell.best]
    assert re.findall('<td class="best">([^<]*)</td>', text) == best
    assert best


def test_labels_of_examples_are_marked_as_right_new_or_wrong(text: str) -> None:
    found = re.findall('<span class="(new|right|wrong)">([^<]*)</span>', text)[3:]  # behind the legend
    one = [("right", "one"), ("new", "two"), ("right", "three")]
    assert found == [*one, *(("wrong", f"not {label}") for _, label in one)] * 2


def test_links_lead_to_one_place_of_the_page(page: Page) -> None:
    links = [value for name, value in page.attributes if name == "href"]
    assert len(links) == len(tables(whole())) + len(FIGURES) + 2
    assert all(len(page.ids[link.removeprefix("#")]) == 1 for link in links)


def test_the_page_loads_nothing(page: Page) -> None:
    assert not [tag for tag in LOADED if page.tags[tag]]
    assert not page.values("src", "srcset", "data", "poster", "background", "action", "formaction")
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    references = page.values("href", "xlink:href")
    assert references
    assert all(reference.startswith("#") for reference in references)
    styles = [*page.within("style"), *(value for _, value in page.attributes)]
    assert not [style for style in styles if "@import" in style or re.search(r"url\((?!#)", style)]


def test_what_figures_refer_to_is_there_and_means_one_thing(page: Page) -> None:
    places = {value.removeprefix("#") for value in page.values("xlink:href")}
    places |= {place for _, value in page.attributes for place in re.findall(r"url\(#([^)]*)\)", value)}
    assert places
    for place in places:
        assert page.ids[place]
        assert all(one == page.ids[place][0] for one in page.ids[place])


def test_the_same_report_is_the_same_page(text: str) -> None:
    assert html(json.loads(json.dumps(whole()))) == text


def hostile() -> Report:
    """The text in all places that users, machines and other programs fill."""
    run = judged("decaf", settings={HOSTILE: HOSTILE}, device=HOSTILE, commit=HOSTILE)
    run["machine"]["processor"] = HOSTILE
    shown = example(HOSTILE, [HOSTILE, "two", "three"])
    return report([run, judged("match")], troubles=[trouble(HOSTILE)], examples=[shown], name=HOSTILE)


def test_texts_of_others_stay_texts_in_the_page() -> None:
    made = html(hostile())
    page = Page(made)
    assert not [tag for tag in LOADED if page.tags[tag]]
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "src"]
    for tag in ("h1", "title", "td", "th", "span", "li", "code"):
        assert HOSTILE in "".join(page.within(tag))
    assert HOSTILE in page.values("aria-label")
    assert "<script" not in made.lower()


SMALLER: dict[str, Callable[[], Report]] = {
    "no runs": lambda: report([]),
    "neither peers nor a theorem": lambda: report(our_runs(), examples=[example()]),
    "peers alone": lambda: report([judged("pecos-pifa"), with_text("pecos-pifa")]),
    "no examples": lambda: report([judged("decaf"), judged("pecos-pifa"), theorem()]),
    "theorem alone": lambda: report([theorem()]),
    "a theorem of one cluster": lambda: report([theorem([])]),
    "match alone": lambda: report([judged("match", 0.0)]),
    "troubles alone": lambda: report([], troubles=[trouble("died")]),
    "all labels": lambda: report([judged("decaf", labels=0), judged("decaf", labels=100)], drawn=0),
}


@pytest.mark.parametrize("name", SMALLER)
def test_a_report_of_less_is_a_shorter_page(name: str) -> None:
    of = SMALLER[name]()
    page = Page(html(of))
    titles = [one.title for one in tables(of)] + [one.title for one in drawings(of)]
    more = ["Examples"] * bool(of["examples"])
    assert page.within("h2") == [*titles, *more, "Runs"]
    assert page.tags["table"] == len(tables(of)) + len(of["examples"])
    assert page.tags["svg"] == len(titles) - len(tables(of))
    assert ("of its 200 labels, drawn at random" in page.text) == (of["dataset"]["drawn"] > 0)
    peers = any(run["job"]["system"].startswith("pecos") for run in of["runs"])
    assert page.within("h1") == [f"own: DECAF{', the paper and the peers' if peers else ' and the paper'}"]
    assert markdown(of, PICTURES).startswith("## own\n\nProfile quick: ")


def cells(line: str) -> list[str]:
    """The cells of a line of a table, as readers of Markdown see them: a backslash takes the next letter with it."""
    assert line.startswith("|")
    assert line.endswith("|")
    found, rest = [""], iter(line[1:-1])
    for letter in rest:
        if letter == "|":
            found.append("")
        else:
            found[-1] += letter + (next(rest, "") if letter == "\\" else "")
    return [cell.strip() for cell in found]


def tables_of(text: str) -> list[list[list[str]]]:
    """Each table's lines, each with its cells."""
    blocks = [block.splitlines() for block in text.split("\n\n")]
    return [[cells(line) for line in block] for block in blocks if block and block[0].startswith("|")]


def test_lines_of_a_markdown_table_have_equally_many_cells() -> None:
    of = whole()
    of["examples"].append(example("a | b", ["one", "two", "three"]))
    of["examples"].append(example("a\nb", ["x|y", "a\\|b", "line\nline"]))
    of["troubles"].append(trouble("left | right\nbelow \\| <script>"))
    found = tables_of(markdown(of, PICTURES))
    assert len(found) == len(tables(of)) + 4
    assert r"left \| right below \\\| \<script\>" in markdown(of, PICTURES)
    for table in found:
        assert table[1] == ["---"] * len(table[0])
        assert {len(line) for line in table} == {len(table[0])}
    expected = [[len(table.heading), 2 + len(table.rows)] for table in tables(of)]
    assert [[len(table[0]), len(table)] for table in found[: len(expected)]] == expected


def test_markdown_says_what_the_tables_say() -> None:
    found = tables_of(markdown(whole(), PICTURES))
    for table, lines in zip(tables(whole()), found, strict=False):
        assert lines[0] == table.heading
        for row, line in zip(table.rows, lines[2:], strict=True):
            assert line == [f"**{cell.text}**" if cell.best else cell.text for cell in row]


def test_markdown_has_pictures_and_captions_in_order(figures: list[Drawing]) -> None:
    text = markdown(whole(), PICTURES)
    headings = re.findall("^### (.*)$", text, re.MULTILINE)
    assert headings == [*(one.title for one in (*tables(whole()), *figures)), "Examples"]
    assert re.findall(r"!\[.*\]\((.*)\)", text) == [PICTURES[name] for name in FIGURES]
    plain = re.sub(r"\\(.)", r"\1", text)
    assert all(one.caption in plain for one in (*tables(whole()), *figures))
    assert all(f"\n- {line}\n" in text for line in findings(whole()))


def test_examples_in_markdown_mark_labels_and_escape_texts() -> None:
    shown = example(HOSTILE, [HOSTILE, "under_score", "*star*"])
    text = markdown(report([], examples=[shown]), {})
    table = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    assert not re.findall(r"(?<!\\)[<>\[\]`_#~]", table)
    heading, _, ours, match = tables_of(text)[0]
    plain = [re.sub(r"\\(.)", r"\1", cell) for cell in heading]
    assert plain == [f"{HOSTILE} (found more)", f"to be found: {HOSTILE}, under_score, *star*"]
    assert ours[0] == SYSTEMS["decaf"].title
    assert ours[1].endswith(r", ***under\_score***, **\*star\***")
    assert ours[1].startswith(r"**\<script\>")
    assert match[1].endswith(r", not under\_score, not \*star\*")


def test_by_hand_what_the_main_comparison_says() -> None:
    of = report(
        [
            judged("decaf", 40.0, others={"PSP_1": 20.0}),
            judged("decaf", 42.0, seed=1, others={"PSP_1": 22.0}),
            judged("decaf-3", 50.0),
            judged("paper", 36.0),
            judged("pecos-pifa", 38.5, others={"PSP_1": 19.0}),
            judged("match", 20.0, others={"PSP_1": 36.5}),
            with_text("pecos-pifa", 37.0, PSP_1=36.0),
            judged("paper-forced", 99.0),
            judged("paper", 99.0, labels=16),
        ]
    )
    first, second = findings(of)
    assert first == (
        "P@1 (the first label is right): DECAF's default recipe 40.00, 1.50 points ahead of the best of the "
        "others, PECOS XR-Linear (38.50). Both with seed 0."
    )
    assert second == (
        "PSP@1 (the same, rare labels weighing more): DECAF's default recipe 20.00, 16.50 points behind the "
        "best of the others, label-text match, nothing learned (36.50). Both with seed 0."
    )


def test_without_our_system_or_another_nothing_is_found() -> None:
    assert findings(report([judged("paper"), judged("match")])) == []
    assert findings(report([judged("decaf"), judged("decaf-3")])) == []
    assert findings(report([])) == []
    both = [judged("decaf", 40.0), judged("pecos-pifa", 39.0), with_text("pecos-pifa", 41.0)]
    assert (
        "1.00 points behind the best of the others, PECOS XR-Linear + label text (41.00)" in findings(report(both))[0]
    )
    level = findings(report([judged("decaf"), judged("match")]))
    assert all("level with the best of the others" in line for line in level[:2])
    assert level[2:] == ["No peer was run: the only other system learns nothing."]


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    of = report([theorem()], examples=[example("Überschrift ± \u2028")])
    write_report(of, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.html", "report.json"]
    assert read_report(tmp_path / "report.json") == of
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == html(of)
    write_report(report([]), tmp_path)
    assert read_report(tmp_path / "report.json") == report([])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no report",
        b"[]",
        b"null",
        b"{}",
        b'{"format": 0}',
        b'{"format": 1}',
        b"[" * 100_000,
        b"1",
        b'"\xff"',
        b"{",
    ],
)
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "report.json"
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"report\.json: is no report.*; make one with decaf-experiments"):
        read_report(file)


def test_a_file_that_is_not_there_is_no_report(tmp_path: Path) -> None:
    for file in (tmp_path / "nothing.json", tmp_path):
        with pytest.raises(DataError, match="is no report"):
            read_report(file)


def test_a_report_is_assembled_of_what_the_runs_left(tmp_path: Path) -> None:
    labels = [f"label {label}" for label in range(6)]
    dataset = dataset_of([("training", [0, 1]), ("more", [5])], labels, [("test", [0, 1, 2]), ("others", [3, 4, 5])])
    found = {"decaf": [[0, 1, 2], [3, 0, 1]], "match": [[0, 3, 4], [4, 2, 5]]}
    outcomes = [Outcome(Job("judge", "pecos-pifa"), None, "died"), Outcome(Job("theorem", "paper"), None, "late")]
    for name, ids in found.items():
        folder = tmp_path / name
        folder.mkdir()
        scores = Predictions(np.array(ids), np.array([[0.9, 0.5, 0.1]] * 2, dtype=np.float32))
        save_scores(scores.to_csr(6), folder / "predictions.npz")
        outcomes.append(Outcome(Job("judge", name), judged(name, labels=0), folder=folder))
    empty = tmp_path / "empty"  # of runs whose predictions nobody looks at
    others = [
        Job("judge", "decaf", 1),
        Job("judge", "decaf", 0, 3),
        Job("judge", "paper-fixed"),
    ]
    outcomes += [Outcome(job, {"job": vars(job)}, folder=empty) for job in others]

    made = assembled(dataset, "full", 0, outcomes)
    about = made["dataset"]
    assert (about["name"], about["drawn"], about["labels"], about["all_labels"]) == ("own", 0, 6, 6)
    assert (about["training_documents"], about["test_documents"], about["labels_per_document"]) == (2, 2, 1.5)
    assert made["runs"] == [outcome.result for outcome in outcomes[2:]]
    assert [(one["title"], one["reason"]) for one in made["troubles"]] == [
        ("PECOS XR-Linear, seed 0", "died"),
        (f"{SYSTEMS['paper'].title} (theorem), seed 0", "late"),
    ]
    assert made["troubles"][0]["job"] == {"kind": "judge", "system": "pecos-pifa", "seed": 0, "labels": 0}
    more, fewer = made["examples"]
    assert (more["document"], more["kind"]) == ("test", "found more")
    assert (fewer["document"], fewer["kind"]) == ("others", "found fewer")
    assert [label["label"] for label in more["systems"]["match"]] == ["label 0", "label 3", "label 4"]
    # Labels 0 and 1 were given together in training; label 2 was not given at all.
    assert [label["new"] for label in more["systems"]["decaf"]] == [False, False, True]
    assert json.loads(json.dumps(made)) == made
    write_report(made | {"runs": [run for run in made["runs"] if "metrics" in run]}, tmp_path)


def test_a_report_on_labels_drawn_counts_these() -> None:
    labels = [f"label {label}" for label in range(6)]
    dataset = dataset_of([(f"training {label}", [label]) for label in range(6)], labels)
    made = assembled(dataset, "quick", 2, [])
    part = drawn(dataset, 2)
    about = made["dataset"]
    assert (about["drawn"], about["labels"], about["all_labels"]) == (2, part.labels.count, 6)
    assert (about["training_documents"], about["test_documents"]) == (2, 2)
    assert (made["runs"], made["troubles"], made["examples"]) == ([], [], [])


def drawing(of: Mapping[str, Any], name: str) -> Drawing:
    (found,) = (one for one in drawings(dict(of)) if one.name == name)
    return found


def test_the_same_figure_is_the_same_text_and_a_picture() -> None:
    of = report([judged("paper", **reach(8)), theorem()])
    for one, other in zip(drawings(of), drawings(of), strict=True):
        text = one.svg()
        assert text == other.svg()
        assert text.startswith("<svg")
        assert one.png().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("runs", "names"),
    [
        ([], []),
        ([judged("match")], ["quantiles"]),
        ([judged("paper-forced")], []),
        ([judged("paper", **reach(8))], ["quantiles", "recall"]),
        ([judged("paper-5", instances={"1": metrics(), "2": metrics()})], ["instances"]),
        ([judged("decaf"), judged("decaf", labels=16)], ["quantiles", "cost"]),
        ([judged("paper"), judged("paper", labels=16)], ["quantiles"]),
        ([theorem()], ["theorem"]),
        ([with_text("pecos-pifa")], []),
    ],
)
def test_figures_are_those_that_there_are_runs_for(runs: list[dict[str, Any]], names: list[str]) -> None:
    assert [one.name for one in drawings(report(runs))] == names


def test_bars_are_the_contributions_of_the_first_seed() -> None:
    of = drawing(report(our_runs()), "quantiles")
    systems = [name for name in MAIN if runs_of(report(our_runs()), name)]
    assert len(of.figure.axes) == 5
    for place, axes in enumerate(of.figure.axes):
        widths = [bar.get_width() for bar in axes.patches][::-1]  # the first system is on top
        assert widths == [runs_of(whole(), name)[0]["quantiles"][place]["contribution"] for name in systems]
    assert "On the rarest 40 labels DECAF, default recipe, 3 instances has most, 4.30 points." in of.caption


def test_who_has_as_much_on_rare_labels_is_named_beside_the_best() -> None:
    caption = drawing(report([judged("decaf"), judged("pecos-pifa")]), "quantiles").caption
    assert "labels DECAF, default recipe and PECOS XR-Linear have most, " in caption


def test_larger_ensembles_take_the_place_of_smaller_ones_and_seeds_are_averaged() -> None:
    three = {str(count): metrics(10.0 * count) for count in (1, 2, 3)}
    five = [{str(count): metrics(20.0 + count + shift, PSP_1=5.0) for count in range(1, 6)} for shift in (0, 1)]
    smaller = report([judged("paper-3", instances=three)])
    assert "the paper's recipe P@1 10.00, 20.00, 30.00;" in drawing(smaller, "instances").caption
    runs = [judged("paper-3", instances=three)]
    runs += [judged("paper-5", seed=seed, instances=instances) for seed, instances in enumerate(five)]
    larger = drawing(report(runs), "instances")
    assert "the paper's recipe P@1 21.50, 22.50, 23.50, 24.50, 25.50;" in larger.caption
    assert "PSP@1 5.00, 5.00, 5.00, 5.00, 5.00." in larger.caption
    assert larger.caption.startswith("The first instances of an ensemble alone (the paper's recipe with seed 0, 1): ")
    (line,) = larger.figure.axes[0].lines
    assert list(line.get_xdata()) == [1, 2, 3, 4, 5]


def test_costs_go_from_few_labels_to_all() -> None:
    runs = [judged("decaf", labels=labels, training_seconds=labels + 1.5) for labels in (0, 100, 25)]
    of = drawing(report([*runs, judged("pecos-pifa", labels=0)], drawn=0), "cost")
    assert "from the fewest labels to all: DECAF, default recipe 26.5, 101.5, 1.5." in of.caption
    for axes in of.figure.axes:
        (line,) = axes.lines
        assert list(line.get_xdata()) == [25, 100, 200]
    some = drawing(report([judged("decaf"), judged("decaf", labels=16)]), "cost")
    assert "from the fewest labels to 64: " in some.caption


def test_recall_is_told_by_beam_and_by_labels() -> None:
    of = drawing(report([judged("paper", **reach(16)), judged("paper-few-clusters", **reach(4))]), "recall")
    assert "K = 16 50.0 % at 1, 60.0 % at 2, 75.2 % at 5 (4 labels a cluster); K = 4 50.0 %" in of.caption
    by_beam, by_labels = of.figure.axes
    assert [list(line.get_xdata()) for line in by_beam.lines] == [[1, 2, 5]] * 4
    assert [list(line.get_xdata()) for line in by_labels.lines] == [[4, 8, 20]] * 2 + [[16, 32, 80]] * 2


def test_where_nothing_is_missed_there_is_no_bound_to_compare_with() -> None:
    of = drawing(report([theorem([beam(1, 1.0, 3.0, 3.0, 0.0)])]), "theorem")
    assert "times that term" not in of.caption
    assert "nan" not in drawing(report([theorem([])]), "theorem").caption


def test_by_hand_how_much_of_the_bound_is_used() -> None:
    # Above the best, 3.5: 1.5, 0.75 and 0.4 of bounds 2, 1 and 0.5; a line without a bound is left out.
    assert "at most 0.80 times that term" in drawing(report([theorem()]), "theorem").caption
    lines = [beam(1, 0.5, 5.0, 9.0, 1.0), beam(2, 1.0, 3.5, 3.5, 0.0)]
    of = drawing(report([theorem(lines)]), "theorem")
    assert "at most 1.50 times that term" in of.caption
    bound, learned, own = of.figure.axes[0].lines[:3]
    assert list(bound.get_ydata()) == [1.0, 0.0]
    assert list(learned.get_ydata()) == [1.5, 0.0]
    assert list(own.get_ydata()) == [5.5, 0.0]
    assert list(own.get_xdata()) == [50, 100]


def test_a_report_takes_what_it_lacks_from_another() -> None:
    new = report([judged("napkinxc-br", 51.0), judged("match", 20.0)], troubles=[trouble("broke", "omikuji-bonsai")])
    old = report(
        [judged("match", 19.0), judged("decaf", 55.0), judged("decaf", 56.0, seed=1)],
        troubles=[trouble("took long"), trouble("took longer", "omikuji-bonsai"), trouble("lost", "pecos-pifa")],
        examples=[example()],
    )
    both = joined(new, old)
    found = {(run["job"]["system"], run["job"]["seed"]): run["metrics"]["P@1"] for run in both["runs"]}
    assert found == {("napkinxc-br", 0): 51.0, ("match", 0): 20.0, ("decaf", 0): 55.0, ("decaf", 1): 56.0}
    assert len(both["runs"]) == 4
    assert [(one["job"]["system"], one["reason"]) for one in both["troubles"]] == [
        ("omikuji-bonsai", "broke"),
        ("pecos-pifa", "lost"),
    ]
    assert both["examples"] == [example()]
    assert [new["runs"], new["examples"], len(old["runs"])] == [report(new["runs"])["runs"], [], 3]  # both as they were


def test_reports_on_other_data_are_not_joined() -> None:
    dataset = dataset_of([("a b", [0]), ("b c", [1])], ["one", "two"], [("a", [0])])
    same = assembled(dataset, "quick", 0, [])
    check_same_data(same, dataset, 0)
    with pytest.raises(DataError, match=r"the report is on own \(64 labels, 1,300 documents\), not on .*; join one"):
        check_same_data(report([]), dataset, 0)
