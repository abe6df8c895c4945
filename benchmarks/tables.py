"""Write docs/performance.md from the JSON in results/: python -m benchmarks.tables"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.report import RESULTS

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
RECIPES = ("P@1", "P@5", "PSP@1", "PSP@5")
MATCH = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "R@20", "C@20")


def load(name: str) -> dict[str, Any]:
    """What a benchmark wrote."""
    report: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return report


def table(heading: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    heading = list(heading)
    lines = [heading, ["---"] * len(heading), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def origin(report: dict[str, Any], command: str) -> str:
    """Where and how a figure was measured."""
    machine = report["machine"]
    where = f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}"
    return f"`{command}`, {report['date']}, commit {report['commit']}; {where}."


def features() -> str:
    """Speed of the features, and the match by kind of token."""
    report = load("features")
    speed = [
        (name, f"{of['speed']['tokens']:,}", f"{of['speed']['titles_per_second']:,}", *_times(of["speed"]))
        for name, of in report["figures"].items()
    ]
    tokens = [
        (name, kind, f"{scores['tokens']:,}", *(f"{scores[key]:.2f}" for key in ("P@1", "P@5", "PSP@1", "PSP@5")))
        for name, of in report["figures"].items()
        for kind, scores in of["label_text_match_on_validation"].items()
    ]
    return "\n\n".join(
        [
            "## Features",
            origin(report, "python -m benchmarks.features DATASET ..."),
            table(("dataset", "tokens", "titles a second", "one text, p50", "one text, p99", "learning"), speed),
            "Which tokens match label texts best, on validation documents out of the training part:",
            table(("dataset", "tokens are", "tokens", "P@1", "P@5", "PSP@1", "PSP@5"), tokens),
        ]
    )


def _times(speed: dict[str, float]) -> tuple[str, str, str]:
    return f"{speed['one_text_p50_us']} µs", f"{speed['one_text_p99_us']} µs", f"{speed['learn_seconds']} s"


def label_text() -> str:
    """The label-text match on test documents."""
    report = load("label_text")
    rows = [
        (name, *(f"{scores[key]:.2f}" for key in MATCH), f"{scores['ms_per_document']:.3f}")
        for name, scores in report["figures"].items()
    ]
    return "\n\n".join(
        [
            "## The label-text match",
            origin(report, "python -m benchmarks.label_text DATASET ..."),
            table(("dataset", *MATCH, "ms a document"), rows),
        ]
    )


def case() -> str:
    """Test texts in lower case and in capitals."""
    parts = []
    for path in sorted(RESULTS.glob("case-*.json")):
        report = load(path.stem)
        rows = [
            ("cut" if of["compounds"] else "whole", how, *(f"{scores[key]:.2f}" for key in RECIPES))
            for of in report["figures"]["models"]
            for how, scores in of["written"].items()
        ]
        command = f"python -m benchmarks.case {report['figures']['dataset']} MODEL..."
        parts += [origin(report, command), table(("compounds", "test texts", *RECIPES), rows)]
    if not parts:
        return ""
    words = "Models whose features cut words that nobody wrote apart (`features.compounds`), and one whose do not."
    return "\n\n".join(["## Texts in another case", words, *parts])


def clustering() -> str:
    """Time of the clusters."""
    report = load("clustering")
    figures = report["figures"]
    rows = [(name, f"{figures[name]['seconds']} s") for name in ("dense", "sparse")]
    return "\n\n".join(
        [
            "## Clusters",
            origin(report, "python -m benchmarks.clustering"),
            f"{figures['labels']:,} labels into {figures['clusters']:,} clusters on the {figures['device']}.",
            table(("vectors", "time"), rows),
        ]
    )


def metrics() -> str:
    """Time of the ruler."""
    report = load("metrics")
    figures = report["figures"]
    return "\n\n".join(
        [
            "## Metrics",
            origin(report, "python -m benchmarks.metrics"),
            f"All figures and the frequency groups for {figures['documents']:,} documents with "
            f"{figures['predictions_each']} predictions each: {figures['seconds']} s. Ranking the same predictions "
            f"out of a sparse matrix: {figures['seconds_to_rank_a_sparse_matrix']} s.",
        ]
    )


def reading() -> str:
    """Time and memory of reading large sparse files."""
    report = load("reading")
    figures = report["figures"]
    rows = [(name, f"{figures[name]['seconds']} s", f"{figures[name]['peak_gb']} GB") for name in ("first", "second")]
    return "\n\n".join(
        [
            "## Reading",
            origin(report, "python -m benchmarks.reading"),
            f"Sparse files of the size of LF-AmazonTitles-1.3M: {figures['documents']:,} training documents, "
            f"{figures['labels']:,} labels, {figures['first']['pairs']:,} training pairs, "
            f"{figures['bytes'] / 1e9:.1f} GB of text.",
            table(("load", "time", "peak memory of the process"), rows),
        ]
    )


def recipes() -> str:
    """Both recipes beside the peers, on every dataset that was measured."""
    sections = [
        "## Both recipes and the peers",
        "One instance each, test documents, the filter applied, all judged by the same code. Training time is from "
        "texts to model. The chances of the default are off by so many percent in the mean, over the five best labels "
        "of the test documents. debtags, icd and wordnet are made of public data by `python -m benchmarks.make_sets`.",
    ]
    names = sorted({file.stem.split("-", 1)[1].rsplit("-", 1)[0] for file in RESULTS.glob("recipes-*.json")})
    for name in names:
        rows: list[tuple[object, ...]] = []
        origins = []
        for file in sorted(RESULTS.glob(f"recipes-{name}-*.json")):
            report = load(file.stem)
            where = _where(report)
            for recipe, of in report["figures"]["recipes"].items():
                off = of.get("calibration_error", "") if recipe == "contrastive" else ""
                title = f"{recipe}, tail {of['tail']}" if recipe == "contrastive" else recipe
                figures = (f"{of[key]:.2f}" for key in RECIPES)
                rows.append((title, where, *figures, _seconds(of), f"{of['parameters_mb']} MB", off))
                if len(seeds := of.get("seeds", [])) > 1:
                    rows.append((f"{title}, mean of {len(seeds)} seeds", where, *_means(seeds), "", "", ""))
            origins.append(origin(report, f"python -m benchmarks.recipes {name}"))
        if (RESULTS / f"peers-{name}.json").exists():
            report = load(f"peers-{name}")
            for peer, of in report["figures"]["systems"].items():
                if "P@1" in of:
                    figures = (f"{of[key]:.2f}" for key in RECIPES)
                    where = f"{report['machine']['cores']} cores"
                    rows.append((peer, where, *figures, _seconds(of), "", ""))
            origins.append(origin(report, f"python -m benchmarks.peers {name}"))
        heading = ("system", "on", *RECIPES, "training", "parameters", "chances off by, %")
        sections += [f"### {name}", *origins, table(heading, rows)]
    sections.append("![How often labels of a chance are right](images/reliability.png)")
    return "\n\n".join(sections)


def _means(seeds: list[dict[str, float]]) -> list[str]:
    """Figures of several seeds: the mean, and the standard deviation."""
    of = {key: [seed[key] for seed in seeds] for key in RECIPES}
    return [f"{mean(values):.2f} ± {stdev(values):.2f}" for values in of.values()]


def _seconds(of: dict[str, Any]) -> str:
    """The time of training, where the machine was alone with it."""
    return "" if of["training_seconds"] is None else f"{of['training_seconds']} s"


def _where(report: dict[str, Any]) -> str:
    device: str = report["figures"]["device"]
    return device if device != "cpu" else f"{report['machine']['cores']} cores"


def ablations() -> str:
    """What each part of the default recipe is worth."""
    sections = []
    for file in sorted(RESULTS.glob("ablations-*.json")):
        report = load(file.stem)
        figures = report["figures"]
        rows = [
            (
                name,
                *(f"{of[key]:.2f}" for key in ("P@1", "P@5", "PSP@1", "PSP@5")),
                _seconds(of),
                of.get("commit", report["commit"]),
            )
            for name, of in figures["lines"].items()
        ]
        sections += [
            "## Ablations of the default recipe",
            f"{figures['dataset']}, on documents held out of its training part, which costs rare labels documents; on "
            f"{_where(report)}, one seed. Each line is the default of its commit with one thing changed; differences "
            "of a few tenths are noise. The last ones were tried and are not part of the recipe.",
            origin(report, f"python -m benchmarks.ablations {figures['dataset']}"),
            table(("line", "P@1", "P@5", "PSP@1", "PSP@5", "training", "commit"), rows),
        ]
    return "\n\n".join(sections)


def draw_reliability() -> None:
    """Draw how often labels of a chance are right, one line a dataset."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.6", linestyle=":", label="as it should be")
    colours = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")
    files = sorted(RESULTS.glob("recipes-*-cuda.json"))
    for file, colour in zip(files, colours, strict=False):
        figures = load(file.stem)["figures"]
        of = figures["recipes"].get("contrastive")
        if of:
            chances, shares, _ = zip(*of["bins"], strict=True)
            label = f"{figures['dataset']} (off by {of['calibration_error']} %)"
            axes.plot(chances, shares, marker="o", markersize=3, color=colour, label=label)
    axes.set(xlabel="chance that the model gives", ylabel="share that is right", xlim=(0, 1), ylim=(0, 1))
    axes.legend(fontsize="small")
    figure.savefig(PAGE.parent / "images" / "reliability.png", dpi=110)


def precision() -> str:
    """Few bits beside single precision."""
    rows = []
    for file in sorted(RESULTS.glob("recipes-*.json")):
        report = load(file.stem)
        for recipe, of in report["figures"]["recipes"].items():
            if whole := of.get("float32"):
                figures = (f"{of[key]:.2f} ({of[key] - whole[key]:+.2f})" for key in RECIPES)
                share = f"{of['parameters_mb'] / whole['parameters_mb']:.2f}"
                title = f"{report['figures']['dataset']}, {recipe}"
                rows.append((title, _where(report), *figures, whole["parameters_mb"], of["parameters_mb"], share))
    if not rows:
        return ""
    heading = ("model", "trained on", *RECIPES, "float32, MB", "kept, MB", "share")
    about = "Models as they are kept by default, and in brackets how far that is from single precision."
    return "\n\n".join(["## Few bits", about, table(heading, rows)])


def latency() -> str:
    """One query at a time."""
    sections = []
    for file in sorted(RESULTS.glob("latency-*.json")):
        report = load(file.stem)
        figures = report["figures"]
        efforts = {"fast" if key == "usual" else f"fast, effort {key}": of for key, of in figures["fast"].items()}
        lines = {"exact": figures["exact"], **efforts}
        times = [f"p{share}_ms" for share in (50, 90, 99)]
        rows = [
            (name, *(f"{of[key]:.3f}" for key in times), of.get("agreement", ""), of["P@1"], of["P@5"])
            for name, of in lines.items()
        ]
        heading = ("scorer", "p50, ms", "p90, ms", "p99, ms", "agreement with exact, %", "P@1", "P@5")
        sections += [
            f"{figures['dataset']}, {figures['queries']:,} queries, {figures['clusters']:,} clusters, accuracy on "
            f"{figures['documents']:,} test documents; the model was trained for {figures['epochs']} epoch"
            f"{'s' * (figures['epochs'] > 1)}. Of this, making features takes {figures['features']['p50_ms']:.3f} ms.",
            origin(report, f"python -m benchmarks.latency MODEL {figures['dataset']}"),
            table(heading, rows),
        ]
        if file.with_suffix(".png").exists():
            sections.append(f"![What effort buys](../benchmarks/results/{file.stem}.png)")
    if not sections:
        return ""
    about = "Text to top 5 on one thread. Agreement is the share of the exact five best labels that the fast ones hold."
    return "\n\n".join(["## One query", about, *sections])


def serve() -> str:
    """The service under load."""
    sections = []
    for file in sorted(RESULTS.glob("serve-*.json")):
        report = load(file.stem)
        figures = report["figures"]
        rows = [
            (clients, f"{of['per_second']:,}", f"{of['p50']:.2f}", f"{of['p99']:.2f}", of["errors"])
            for clients, of in figures["clients"].items()
        ]
        live, memory = figures["live"], figures["memory_mb"]
        held = ", ".join(f"{value:.0f} after {int(requests):,}" for requests, value in memory.items())
        sections += [
            f"{figures['dataset']}, one worker; the load comes from another process on the same cores.",
            origin(report, f"python -m benchmarks.serve MODEL {figures['dataset']}"),
            table(("clients", "requests a second", "p50, ms", "p99, ms", "errors"), rows),
            f"Of {live['added']} labels added while it ran, {live['predicted_at_once']} were in the next answer to "
            f"their own text, {live['p50']:.1f} ms after the acknowledgement (median), {live['most']:.1f} at most. "
            f"Resident megabytes: {held} requests.",
        ]
    return "\n\n".join(["## The service", *sections]) if sections else ""


def live_labels() -> str:
    """Labels added by text alone, beside the same labels trained."""
    sections = []
    for file in sorted(RESULTS.glob("live-labels-*.json")):
        report = load(file.stem)
        figures = report["figures"]
        shown = ("found in 1", "found in 5", "found in 20", *RECIPES)
        rows = [
            (f"these labels {name}", *(figures[name][key] for key in shown))
            for name in ("trained", "added live", "not added")
        ]
        sections += [
            f"{figures['dataset']}: {figures['left out']:,} of {figures['labels']:,} labels were left out of training "
            "and added by their text alone. The first three columns say how many percent of the test pairs of these "
            "labels have their label among the first ones; the others judge all labels as ever.",
            origin(report, f"python -m benchmarks.live_labels {figures['dataset']}"),
            table(("", *shown), rows),
        ]
    return "\n\n".join(["## Live labels", *sections]) if sections else ""


def engines() -> str:
    """Whole files on Ray beside one process."""
    sections = []
    for file in sorted(RESULTS.glob("engines-*.json")):
        report = load(file.stem)
        figures = report["figures"]
        speed = figures["documents_per_second"]
        sections += [
            origin(report, f"python -m benchmarks.engines MODEL {figures['dataset']}"),
            f"{figures['dataset']}, {figures['documents']:,} documents from Parquet to Parquet on {figures['cores']} "
            f"cores: {speed['one process']:,} a second by one process with a thread for each core, {speed['ray']:,} by "
            f"Ray with a worker for each core, {figures['ray_to_one_process']:.2f} times as many.",
        ]
    return "\n\n".join(["## Whole files", *sections]) if sections else ""


def scaling() -> str:
    """Cost against the number of labels."""
    if not (RESULTS / "scaling.json").exists():
        return ""
    report = load("scaling")
    figures = report["figures"]
    rows = [
        (
            f"{of['labels']:,}",
            f"{of['clusters']:,}",
            *(f"{of[f'p{share}_ms']:.3f}" for share in (50, 99)),
            of["agreement"],
            f"{of['bytes'] / 1e6:,.0f}",
            f"{of['resident_mb']:,.0f}",
            f"{of['first_answer_s']:.2f}",
            f"{of['verified_load_s']:.2f}",
        )
        for of in figures["lines"]
    ]
    heading = (
        *("labels", "clusters", "p50, ms", "p99, ms", "agreement, %", "folder, MB", "resident, MB"),
        *("first answer, s", "load with checksums, s"),
    )
    return "\n\n".join(
        [
            "## Cost against the number of labels",
            f"Models made up by a tree, vectors of {figures['dim']}, one query at a time on one thread, from features "
            "to top 5. The median grows with the number of labels to the power of "
            f"{figures.get('exponent', '?')}. Resident is what the whole process holds after all queries; the first "
            "answer is counted from the beginning of the load, without checksums.",
            origin(report, "python -m benchmarks.scaling"),
            table(heading, rows),
            "![Cost against labels](../benchmarks/results/scaling.png)",
        ]
    )


def search() -> str:
    """The nearest clusters of one document."""
    sections = []
    for file in sorted(RESULTS.glob("search-*.json")):
        report = load(file.stem)
        figures = report["figures"]
        rows = [(name, of["recall"], of["p50_us"]) for name, of in figures["search"].items()]
        sections += [
            f"{figures['dataset']}, the best {figures['beam']} of {figures['clusters']:,} clusters for each of "
            f"{figures['queries']} documents.",
            origin(report, f"python -m benchmarks.search MODEL {figures['dataset']}"),
            table(("index", "recall, %", "p50, µs"), rows),
        ]
    return "\n\n".join(["## Nearest clusters", "One document at a time on one thread, from its vector.", *sections])


def throughput() -> str:
    """Many documents at once, beside the peers."""
    sections = []
    for file in sorted(RESULTS.glob("throughput-*.json")):
        report = load(file.stem)
        figures = report["figures"]
        rows = [
            (
                name,
                *(f"{of[key]:.2f}" for key in RECIPES),
                f"{of['ms_per_document']:.4f}",
                f"{of['documents_per_second']:,}",
                of.get("times_ours", ""),
            )
            for name, of in figures["systems"].items()
        ]
        heading = ("system", *RECIPES, "ms a document", "documents a second", "times decaf")
        sections += [
            f"### {figures['dataset']}: throughput",
            f"{figures['documents']:,} test documents, {figures['labels']:,} labels, {figures['threads']} threads, the "
            f"best of {figures['rounds']} rounds.",
            origin(report, f"python -m benchmarks.throughput MODEL {figures['dataset']}"),
            table(heading, rows),
        ]
        picture = file.with_suffix(".png")
        if picture.exists():
            sections.append(f"![Documents a second](../benchmarks/results/{picture.name})")
    if not sections:
        return ""
    about = (
        "The top 5 of all test documents at once, from ready features but for decaf-from-texts; all systems have the "
        "same features, the same threads and take turns in one run. The last column is a system's time over decaf's. "
        "Accuracy is judged on more labels, the filter applied. omikuji's Python package takes one document a call."
    )
    return "\n\n".join(["## Batch throughput", about, *sections])


def main() -> None:
    """Write the page."""
    head = "# Performance\n\nWritten by `python -m benchmarks.tables` from `benchmarks/results/`; not typed by hand."
    draw_reliability()
    sections = (
        recipes(),
        precision(),
        latency(),
        search(),
        throughput(),
        serve(),
        live_labels(),
        engines(),
        scaling(),
        ablations(),
        case(),
        clustering(),
        features(),
        label_text(),
        metrics(),
        reading(),
    )
    PAGE.write_text("\n\n".join([head, *filter(None, sections)]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
