"""decaf-experiments: the paper's comparisons on a dataset, as a report."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from decaf.errors import ConfigError, DataError, DecafError

if TYPE_CHECKING:
    from decaf.datasets import Dataset
    from decaf.experiments.plan import Job
    from decaf.experiments.runs import Runner

__all__ = ["app", "main"]

app = typer.Typer(
    name="decaf-experiments",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
)


@app.command()
def experiments(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A dataset: a folder, or `catalogue`, the embedded one.")
    ] = "catalogue",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the report; left out: experiments/NAME."),
    ] = None,
    profile: Annotated[
        str, typer.Option(metavar="NAME", help="quick: 1,024 labels, half an hour on two cores; full: all labels.")
    ] = "quick",
    labels: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Draw so many labels; 0: all; left out: by the profile.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Seeds of the main comparison; left out: by the profile.")
    ] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu or cuda, for DECAF.")] = "auto",
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time; their times then count for less.")] = 1,
    limit: Annotated[
        float, typer.Option(min=0, metavar="MINUTES", help="End a run that takes longer; 0: never.")
    ] = 60.0,
    peers: Annotated[bool, typer.Option("--peers/--no-peers", help="PECOS, napkinXC and omikuji too.")] = True,
    only: Annotated[
        list[str] | None, typer.Option(metavar="SYSTEM", help="Only this system's runs; may be given several times.")
    ] = None,
    join: Annotated[
        Path | None,
        typer.Option(metavar="REPORT.json", help="Take runs that are not made here from a report on the same data."),
    ] = None,
    environment: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Virtual environment of the peers; left out: experiments/.peers."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Warnings alone.")] = False,
) -> None:
    """Rerun the paper's comparisons on a dataset and write report.html and report.json.

    Each run is kept under FOLDER/runs by its content: stopped anywhere, the same command goes on, and what is there
    already is not run again. A peer that cannot be installed is reported and left out.
    """
    from decaf import console
    from decaf.experiments.peers import PACKAGES
    from decaf.experiments.plan import PROFILES, plan
    from decaf.experiments.report import assembled, check_same_data, joined, read_report, write_report

    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"there is no device {device!r}; there are: auto, cpu, cuda")
    if profile not in PROFILES:
        raise ConfigError(f"there is no profile {profile!r}; there are: {', '.join(PROFILES)}")
    before = None if join is None else read_report(join)
    dataset = _dataset(data)
    chosen = PROFILES[profile].with_options(labels=labels, seeds=seeds)
    folder = output or Path("experiments") / dataset.name
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file; --output names a folder")
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    wanted = plan(chosen, dataset.labels.count, ["decaf", "match", *(PACKAGES if peers else ())], only)
    if not wanted:
        raise ConfigError(f"the profile {profile} has no runs of {', '.join(only or ())}; try --profile full")
    if before is not None:
        check_same_data(before, dataset, wanted[0].labels)
    with console.session(quiet=quiet):
        runner = _runner(data, dataset, folder, device, jobs, limit)
        _check_device(runner, wanted)
        if peers:
            runner = _with_peers(runner, wanted, environment or Path("experiments") / ".peers")
        console.say(f"{len(wanted)} runs on {dataset.name}, kept under {folder / 'runs'}")
        try:
            outcomes = runner.run(wanted)
        except KeyboardInterrupt:
            console.say("stopped; run the same command again to go on")
            raise typer.Exit(130) from None
        report = assembled(dataset, profile, wanted[0].labels, outcomes)
        write_report(report if before is None else joined(report, before), folder)
        failed = sum(outcome.result is None for outcome in outcomes)
        console.say(
            f"{folder / 'report.html'}: {len(outcomes) - failed} runs" + (f"; {failed} failed" if failed else "")
        )
    if failed == len(outcomes):
        raise typer.Exit(1)


def _dataset(data: str) -> Dataset:
    """The dataset, which must have documents to learn from and to be judged by."""
    from decaf.datasets import Dataset

    dataset = Dataset.load(data)
    for name, part in (("training", dataset.train), ("test", dataset.test)):
        if not part.documents.count:
            raise DataError(f"{data}: has no {name} documents; make some with decaf split {data} FOLDER, and name that")
    return dataset


def _runner(data: str, dataset: Dataset, folder: Path, device: str, jobs: int, limit: float) -> Runner:
    """What does the runs, so many at a time; the threads are shared out among them."""
    from decaf.devices import choose_device
    from decaf.experiments.provenance import fingerprint
    from decaf.experiments.runs import Runner

    return Runner(
        dataset=str(Path(data).resolve()) if Path(data).exists() else data,
        content=fingerprint(dataset),
        folder=(folder / "runs").resolve(),
        device=str(choose_device("auto").type) if device == "auto" else device,
        threads=max(1, (os.cpu_count() or 1) // jobs),
        at_a_time=jobs,
        limit=60 * limit,
    )


def _with_peers(runner: Runner, wanted: list[Job], environment: Path) -> Runner:
    """The same with an environment that has the peers whose runs are wanted; those that cannot be had are told."""
    from decaf import console
    from decaf.experiments.peers import PACKAGES, install
    from decaf.experiments.systems import SYSTEMS

    makers = {SYSTEMS[job.system].maker for job in wanted}
    packages = [name for name in PACKAGES if name in makers]
    if not packages:
        return runner
    console.say("looking for the peers; those that are not there are installed")
    python, missing = install(environment, packages)
    return replace(runner, python=python, missing=missing)


def _check_device(runner: Runner, wanted: list[Job]) -> None:
    """A GPU is needed, unless the folder was carried from a machine that has one: what it lacks is then reported."""
    from decaf.devices import choose_device
    from decaf.experiments.systems import SYSTEMS

    own = [job for job in wanted if SYSTEMS[job.system].maker == "decaf"]
    if runner.device == "cuda" and own and len(runner.lacking(own)) == len(own):
        choose_device("cuda")


def main() -> None:
    """Run it; what goes wrong on purpose is one line, not a traceback."""
    try:
        app()
    except DecafError as error:
        sys.exit(f"decaf-experiments: {error}")
    except OSError as error:
        sys.exit(f"decaf-experiments: {error.filename or 'input or output'}: {error.strerror or error}")
