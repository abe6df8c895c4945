"""A million labels on one GPU: every stage of training timed, memory measured, accuracy beside what can be reached.

    python -m benchmarks.million [--labels 1305265] [--documents 2248619] [--tests 100000] [--fraction 1]
                                 [--keep FOLDER] [--out FILE] [--seconds 560] [--until STAGE] [--device cuda]

Makes the dataset of `benchmarks.make_catalogue` in memory (or reads DATASET) and goes through all that `decaf train`
and `decaf evaluate` do. `--fraction` is the share of the epochs that are run, at least one of each module: at 1 the
training is the real one and all times are measured; below, the time of the other epochs is worked out from those that
were run, and told apart. Figures are printed and written to FILE after every stage and every epoch, so that a run that
is killed loses nothing; with `--keep` data, features and modules are kept too, and the same command goes on from there.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import math
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from scipy import sparse
from torch import Tensor

from benchmarks.make_catalogue import AT_ONCE, TOP, Shape, World
from benchmarks.report import commit
from benchmarks.trial import device_name
from decaf import Config, Dataset, Model, recipe
from decaf.config import SplitSettings
from decaf.datasets import Items
from decaf.datasets.dataset import Propensity
from decaf.datasets.parts import Part, no_pairs
from decaf.devices import choose_device, memory_kept
from decaf.experiments.provenance import machine
from decaf.features import Features, texts_of
from decaf.metrics import evaluate
from decaf.modules import ranker, shortlister, tokens
from decaf.modules.blend import learn_blend
from decaf.modules.problem import Problem
from decaf.modules.shortlister import Shortlist
from decaf.modules.tokens import Tokens
from decaf.modules.words import label_words
from decaf.networks import Instance, Ranker, Words, first_blend, prefixed, within
from decaf.packed import Packed
from decaf.predictions import Predictions, load_scores
from decaf.scoring.exact import ExactScorer
from decaf.training import _fingerprints, _quick_products, memory_needed, prepared, usual_tail

__all__ = ["catalogue", "main"]

GB = 1e9
JUDGED = 20  # labels of a test document that are looked at


class OutOfTimeError(Exception):
    """There is no time for more."""


class Report:
    """What was measured so far: printed, and written to a file."""

    def __init__(self, file: Path | None, device: torch.device, seconds: float, *, goes_on: bool = False) -> None:
        self._file, self._device = file, device
        self._deadline = time.monotonic() + seconds
        self.figures: dict[str, Any] = {"stages": []}
        if goes_on and file is not None and file.is_file():
            before = json.loads(file.read_text(encoding="utf-8"))
            self.figures["earlier"] = [*before.get("earlier", []), *before["stages"]]

    def note(self, **facts: Any) -> None:  # noqa: ANN401 - JSON values
        """Facts beside the stages."""
        self.figures |= facts
        self._write()

    @property
    def done(self) -> list[dict[str, Any]]:
        """The stages that were gone through, here or in an earlier run that this one goes on with."""
        lines = [*self.figures.get("earlier", []), *self.figures["stages"]]
        found = {(line["stage"], line.get("of")): line for line in lines if not {"kept", "cut"} & set(line)}
        return list(found.values())

    def check(self) -> None:
        """Stop where the time is over."""
        if time.monotonic() > self._deadline:
            raise OutOfTimeError

    @contextmanager
    def stage(self, name: str, *, of: str = "") -> Iterator[dict[str, Any]]:
        """Time and memory of a stage, or of a step `of` one; what is put into the line is told with it."""
        if not of:
            self.check()
        line: dict[str, Any] = {"stage": name} | ({"of": of} if of else {})
        on_gpu = self._device.type == "cuda"
        if on_gpu:
            torch.cuda.synchronize(self._device)
            if not of:
                torch.cuda.reset_peak_memory_stats(self._device)
        started, worked = time.perf_counter(), time.process_time()
        try:
            yield line
        except BaseException as error:
            line["cut"] = type(error).__name__
            raise
        finally:
            if on_gpu:
                torch.cuda.synchronize(self._device)
            line["seconds"] = round(time.perf_counter() - started, 2)
            line["cpu_seconds"] = round(time.process_time() - worked, 2)
            line["host_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GB, 2)
            if on_gpu and not of:
                line["gpu_gb"] = round(torch.cuda.max_memory_allocated(self._device) / GB, 2)
            self.figures["stages"].append(line)
            self._write()
            shown = {key: value for key, value in line.items() if key not in ("stage", "of", "epochs", "cpu_seconds")}
            print(f"{'  ' if of else ''}{name:24}", *(f"{key} {value}" for key, value in shown.items()), flush=True)

    def _write(self) -> None:
        if self._file is not None:
            aside = self._file.with_name(f"{self._file.name}.part")
            aside.write_text(json.dumps(self.figures, indent=1) + "\n", encoding="utf-8")
            aside.replace(self._file)


class Epochs:
    """The keeper of a module: notes how long its epochs take and what all would, and stops where the time is over."""

    def __init__(self, report: Report, line: dict[str, Any], wanted: int = 0, steps: int = 0, refresh: int = 0) -> None:
        self._report, self._line = report, line
        self._wanted, self._steps, self._refresh = wanted, steps, refresh
        self._epochs: list[dict[str, Any]] = []

    due = False

    def restore(self, name: str, tensors: dict[str, Tensor]) -> int:
        """Nothing was kept."""
        return 0

    def keep(self, name: str, tensors: dict[str, Tensor], epochs: int) -> None:
        """Nothing is kept of a running module."""
        self._report.note(running=self._line)
        self._report.check()

    def broke(self, name: str) -> None:
        """Nothing is kept in mind."""

    def note(self, **facts: float | str) -> None:
        """Epochs with the line of the module, all else as it is."""
        facts.pop("module", None)
        if "epoch" not in facts:
            self._line |= {key: round(value, 4) if isinstance(value, float) else value for key, value in facts.items()}
            return
        self._epochs.append(facts)
        seconds = [float(epoch["seconds"]) for epoch in self._epochs]
        plain = [taken for at, taken in enumerate(seconds) if not self._refreshed(at)]
        each = float(np.median(plain[1:] or plain))  # the first has the recording of a step in it
        done, wanted = len(seconds), self._wanted
        missing = sum(self._refreshed(at) for at in range(done, wanted))
        self._line |= {
            "epochs": self._epochs,
            "steps_measured": done * self._steps,
            "steps_in_all": wanted * self._steps,
            "steps_per_second": round(self._steps / max(each, 1e-9), 1),
            "epoch_seconds": round(each, 2),
            "seconds_not_run": round((wanted - done) * each, 2),  # extrapolated
            "refreshes_not_run": missing,
        }

    def _refreshed(self, epoch: int) -> bool:
        """Whether labels are clustered anew in an epoch, from 0."""
        return bool(self._refresh and epoch and epoch % self._refresh == 0)


def catalogue(shape: Shape) -> tuple[Dataset, Predictions]:
    """What `make_catalogue.make` writes, without the way over files, and what the oracle says of the test documents."""
    world, rng = World(shape), np.random.default_rng([shape.seed, 1])
    titles = [
        title
        for start in range(0, shape.labels, AT_ONCE)
        for title in world.titles(world.family[start : start + AT_ONCE], world.aspect[start : start + AT_ONCE], rng)
    ]
    train, _, _ = _part(world, shape.documents, rng, "d")
    test, family, aspect = _part(world, shape.tests, rng, "t")
    labels = Items(shape.labels, [f"l{row}" for row in range(shape.labels)], titles)
    kinds, place = np.unique(np.stack([family, aspect], axis=1), axis=0, return_inverse=True)
    chances = world.likeliest(kinds[:, 0], kinds[:, 1], TOP).to_csr(shape.labels)
    chances.sum_duplicates()  # a label of the family may be one of the head too
    known = Predictions.from_csr(chances, TOP)
    oracle = Predictions(known.ids[place.ravel()], known.scores[place.ravel()])
    return Dataset("made-up titles", train, test, labels, Propensity(0.6, 2.6)), oracle


def _part(
    world: World, count: int, rng: np.random.Generator, prefix: str
) -> tuple[Part, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Documents with their labels, and the family and the aspect of each."""
    titles: list[str] = []
    found: list[tuple[np.ndarray[Any, Any], ...]] = []
    for start in range(0, count, AT_ONCE):
        family, aspect = world.products(min(AT_ONCE, count - start), rng)
        titles += world.titles(family, aspect, rng)
        row, label = world.labels_of(family, aspect, rng)
        found.append((np.bincount(row, minlength=len(family)), label, family, aspect))
    lengths, label, family, aspect = (np.concatenate(column) for column in zip(*found, strict=True))
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    ones = np.ones(len(label), dtype=np.float32)
    truth = sparse.csr_array((ones, label, bounds), shape=(count, world.shape.labels))
    return Part(Items(count, [f"{prefix}{row}" for row in range(count)], titles), truth, no_pairs()), family, aspect


class Kept:
    """What earlier runs of the same command have made."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self.read = False  # whether the last thing was there already
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def has(self, *names: str) -> bool:
        """Whether all these matrices are kept."""
        return self._folder is not None and all((self._folder / name).is_dir() for name in names)

    def matrices(self, name: str, make: Callable[[], list[sparse.csr_array]]) -> list[sparse.csr_array]:
        """Sparse matrices, read where they are kept, otherwise made."""
        self.read = False
        if self._folder is None:
            return make()
        folder = self._folder / name
        if not folder.is_dir():
            made, aside = make(), folder.with_name(f"{name}.part")
            aside.mkdir(exist_ok=True)
            for number, matrix in enumerate(made):
                for key in ("data", "indices", "indptr"):
                    np.save(aside / f"{number}.{key}.npy", getattr(matrix, key))
                np.save(aside / f"{number}.shape.npy", np.array(matrix.shape))
            aside.rename(folder)
            return made
        self.read = True
        count = len(list(folder.glob("*.shape.npy")))
        loaded = [
            {key: np.load(folder / f"{n}.{key}.npy") for key in ("data", "indices", "indptr", "shape")}
            for n in range(count)
        ]
        return [
            sparse.csr_array((one["data"], one["indices"], one["indptr"]), shape=tuple(one["shape"].tolist()))
            for one in loaded
        ]

    def tensors(self, name: str, device: torch.device, make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """Tensors, read where they are kept, otherwise made."""
        self.read = False
        if self._folder is None:
            return make()
        file = self._folder / f"{name}.safetensors"
        if file.is_file():
            self.read = True
            return load_file(file, device=str(device))
        made, aside = make(), file.with_name(f"{file.name}.part")
        save_file({key: tensor.detach().cpu().contiguous().clone() for key, tensor in made.items()}, aside)
        aside.replace(file)
        return made


@contextmanager
def watched(report: Report, of: str, *places: tuple[ModuleType, str]) -> Iterator[None]:
    """Time these functions of modules as steps of a stage."""

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the function takes
            with report.stage(name.strip("_"), of=of):
                return function(*given, **named)

        return call

    with ExitStack() as stack:
        for module, name in places:
            stack.enter_context(mock.patch.object(module, name, timed(name, getattr(module, name))))
        yield


def fewer_epochs(config: Config, fraction: float) -> Config:
    """The same settings with a share of the epochs of modules I and IV, at least one."""
    epochs = {name: max(1, round(fraction * getattr(config, name).epochs)) for name in ("tokens", "ranker")}
    epochs["shortlister"] = max(1, round(min(1.0, 2 * fraction) * config.shortlister.epochs))
    return config.with_settings([f"{name}.epochs={count}" for name, count in epochs.items()])


def with_rows(dataset: Dataset, rows: list[sparse.csr_array]) -> Dataset:
    """The dataset with these features of training documents, test documents and labels."""
    train, test, labels = rows
    of_train, of_test = dataset.train, dataset.test
    return dataclasses.replace(
        dataset,
        train=dataclasses.replace(of_train, documents=dataclasses.replace(of_train.documents, features=train)),
        test=dataclasses.replace(of_test, documents=dataclasses.replace(of_test.documents, features=test)),
        labels=dataclasses.replace(dataset.labels, features=labels),
    )


class Run:
    """One run, stage by stage."""

    def __init__(self, report: Report, kept: Kept, full: Config, fraction: float, device: torch.device) -> None:
        self.report, self.kept, self.device, self.fraction = report, kept, device, fraction
        self.full = full  # settings with all epochs
        self.seed = 0

    def data(self, shape: Shape, folder: str | None) -> tuple[Dataset, Predictions | None]:
        """The dataset, and what the oracle says; where features are kept too, without texts."""
        with self.report.stage("read" if folder else "make") as line:
            oracle: Predictions | None = None
            if self.kept.has("data", "features"):
                train, test, *known = self.kept.matrices("data", list)
                line["kept"] = True
                items = [Items(count) for count in (train.shape[0], test.shape[0], train.shape[1])]
                parts = Part(items[0], train, no_pairs()), Part(items[1], test, no_pairs())
                dataset = Dataset("made-up titles", *parts, items[2], Propensity(0.6, 2.6))
                oracle = Predictions.from_csr(known[0], JUDGED) if known else None
            elif folder is None:
                dataset, oracle = catalogue(shape)
            else:
                dataset = Dataset.load(folder)
                file = Path(folder) / "oracle.npz"
                oracle = (
                    Predictions.from_csr(load_scores(file, *dataset.test.truth.shape), JUDGED)
                    if file.is_file()
                    else None
                )
            line |= {"documents": dataset.train.documents.count, "labels": dataset.labels.count}
            line["pairs"] = int(dataset.train.truth.nnz)
        of_oracle = [] if oracle is None else [oracle.to_csr(dataset.labels.count)]
        self.kept.matrices("data", lambda: [dataset.train.truth, dataset.test.truth, *of_oracle])
        return dataset, oracle

    def features(self, dataset: Dataset) -> Dataset:
        """The dataset with features."""
        settings = self.full.features
        parts = (dataset.train.documents, dataset.test.documents, dataset.labels)
        with self.report.stage("features") as line:

            def make() -> list[sparse.csr_array]:
                with self.report.stage("learn", of="features"):
                    given = texts_of(dataset.train.documents, settings), texts_of(dataset.labels, settings)
                    features = Features.learn(*given, settings)
                with self.report.stage("transform", of="features"):
                    return [features.transform(texts_of(items, settings)) for items in parts]

            rows = self.kept.matrices("features", make)
            line |= {"tokens": rows[0].shape[1], "tokens_a_document": round(rows[0].nnz / max(1, rows[0].shape[0]), 1)}
            line |= {"kept": True} if self.kept.read else {}
        return with_rows(dataset, rows)

    def problem(self, dataset: Dataset) -> tuple[Problem, Config]:
        """What is to be learned; settings with sizes filled in, and fewer epochs."""
        with self.report.stage("problem") as line:
            _, problem, self.full = prepared(dataset, self.full, self.device)
            if self.full.blend.tail < 0:
                self.full = self.full.with_settings([f"blend.tail={usual_tail(problem)}"])
            with self.report.stage("fingerprint", of="problem"):
                _fingerprints(problem, dataset.labels, self.full, self.seed)
            line |= {"trained_labels": len(problem.kept), "dim": self.full.model.dim}
            line |= {"clusters": self.full.shortlister.clusters, "negatives": self.full.ranker.negatives}
            line["estimate_gb"] = round(memory_needed(problem, self.full) / GB, 1)
        return problem, fewer_epochs(self.full, self.fraction)

    def learn_tokens(self, problem: Problem, config: Config) -> Tokens:
        """Module I."""
        with self.report.stage("module I") as line:
            settings = self.full.tokens
            texts = problem.documents.shape[0] + problem.labels.shape[0] * settings.own_texts
            given = (settings.epochs, math.ceil(texts / settings.batch), settings.refresh)
            epochs = Epochs(self.report, line, *given)

            def make() -> dict[str, Tensor]:
                steps = ((tokens, "with_label_texts"), (tokens, "_related"), (tokens, "balanced_clusters"))
                with watched(self.report, "module I", *steps):
                    learned = tokens.learn_tokens(problem, config, seed=self.seed, device=self.device, keeper=epochs)
                return learned.tensors()

            return Tokens.of(self._module("module-I", line, make))

    def learn_shortlist(self, problem: Problem, learned: Tokens, config: Config) -> Shortlist:
        """Module II."""
        with self.report.stage("module II") as line:
            steps = math.ceil(problem.documents.shape[0] / config.shortlister.batch)
            epochs = Epochs(self.report, line, self.full.shortlister.epochs, steps)

            def make() -> dict[str, Tensor]:
                names = ("_encoded", "label_sums", "balanced_clusters", "_fit", "_reach", "retrieve")
                with watched(self.report, "module II", *((shortlister, name) for name in names)):
                    found = shortlister.learn_shortlister(
                        "module II", problem, learned, config, seed=self.seed, keeper=epochs
                    )
                return found.tensors()

            return Shortlist.of(self._module("module-II", line, make))

    def learn_ranker(self, problem: Problem, found: Shortlist, config: Config) -> Ranker:
        """Modules III and IV."""
        with self.report.stage("module IV") as line:
            steps = math.ceil(problem.documents.shape[0] / config.ranker.batch)
            epochs = Epochs(self.report, line, self.full.ranker.epochs, steps)

            def make() -> dict[str, Tensor]:
                made = ranker.learn_ranker("module IV", problem, found, config, seed=self.seed, keeper=epochs)
                return prefixed("ranker.", made.tensors())

            return Ranker.of(within("ranker.", self._module("module-IV", line, make)))

    def _module(self, name: str, line: dict[str, Any], make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """What a module learned, or had before."""
        made = self.kept.tensors(name, self.device, make)
        line |= {"kept": True} if self.kept.read else {}
        return made

    def learn_blend(self, problem: Problem, found: Shortlist, made: Ranker) -> Instance:
        """Words, linear classifiers and the weights of the score."""
        from decaf.modules.linear import learn_linear

        with self.report.stage("words") as line:

            def make() -> dict[str, Tensor]:
                with self.report.stage("linear", of="words"):
                    linear = learn_linear(problem, found.cluster.cpu().numpy(), found.clusters.cpu().numpy())
                with self.report.stage("label_words", of="words"):
                    return label_words(problem, linear, self.device)._asdict()

            words = Words(**self._module("words", line, make))
        with self.report.stage("blend") as line:
            blend = first_blend(problem.rarity(self.device), found.texts, words)
            blend = dataclasses.replace(blend, tail=self.full.blend.tail)
            instance = Instance(found.shortlister, made, found.clusters.shape[1], blend)
            if problem.held is not None:
                epochs = Epochs(self.report, line)
                blend = learn_blend("blend", problem.held, instance, epochs)
        return dataclasses.replace(instance, blend=blend)

    def model(self, dataset: Dataset, problem: Problem, instance: Instance) -> Model:
        """The model in eight bits."""
        with self.report.stage("pack") as line:
            packed = (Packed.of(instance, self.full.model.precision),)
            about = {"calibrated": problem.held is not None}
            model = Model(self.full, None, dataset.labels, problem.kept, packed, about, dataset.frequency)
            line["model_gb"] = round(model.facts()["bytes"] / GB, 2)
        return model

    def judge(self, dataset: Dataset, model: Model, oracle: Predictions | None) -> None:
        """Figures of the test documents, beside those of the oracle; at the head and as the model was made."""
        rows, truth = dataset.test.documents.need_features(), dataset.test.truth
        given = (truth, dataset.inverse_propensity, dataset.test.filters)

        def figures(predictions: Predictions) -> dict[str, float]:
            return {name: round(value, 2) for name, value in evaluate(predictions, *given).items()}

        if oracle is not None:
            with self.report.stage("oracle") as line:
                line |= figures(oracle)
        with self.report.stage("load for scoring"):
            scorer = ExactScorer(model, self.device)
        for tail in (0.0, self.full.blend.tail):
            with self.report.stage(f"judge, tail {tail:g}") as line:
                started = time.perf_counter()
                predictions = scorer.top(rows, JUDGED, tail=tail)
                line["ms_per_document"] = round(1000 * (time.perf_counter() - started) / max(1, rows.shape[0]), 4)
                line |= figures(predictions)


def summary(report: Report) -> dict[str, Any]:
    """Seconds of the whole training, measured and worked out, and the most memory that a stage took."""
    stages, steps = ([line for line in report.done if ("of" in line) == inner] for inner in (False, True))
    clustering = max((line["seconds"] for line in steps if line["stage"] == "balanced_clusters"), default=0.0)
    trained = [line for line in stages if not line["stage"].startswith(("make", "oracle", "load", "judge"))]
    measured = sum(line["seconds"] for line in trained)
    missing = sum(line.get("seconds_not_run", 0.0) + line.get("refreshes_not_run", 0) * clustering for line in trained)
    return {
        "stages_done": [line["stage"] for line in stages],
        "training_seconds_measured": round(measured, 1),
        "training_seconds_extrapolated": round(missing, 1),  # of epochs that were not run
        "training_seconds_in_all": round(measured + missing, 1),
        "estimate_gb": next((line["estimate_gb"] for line in stages if "estimate_gb" in line), None),
        "gpu_gb": max((line.get("gpu_gb", 0.0) for line in stages), default=0.0),
        "host_gb": max((line["host_gb"] for line in stages), default=0.0),
    }


STAGES = ("data", "features", "problem", "module I", "module II", "module IV", "blend", "judge")


def go(run: Run, shape: Shape, folder: str | None, until: str) -> None:
    """All stages, up to this one."""

    def over(stage: str) -> bool:
        return STAGES.index(stage) >= STAGES.index(until)

    dataset, oracle = run.data(shape, folder)
    if over("data"):
        return
    dataset = run.features(dataset)
    if over("features"):
        return
    with _quick_products(), memory_kept():
        problem, config = run.problem(dataset)
        if over("problem"):
            return
        learned = run.learn_tokens(problem, config)
        if over("module I"):
            return
        found = run.learn_shortlist(problem, learned, config)
        if over("module II"):
            return
        made = run.learn_ranker(problem, found, config)
        if over("module IV"):
            return
        instance = run.learn_blend(problem, found, made)
    model = run.model(dataset, problem, instance)
    del instance, made, found, learned, problem
    if not over("blend"):
        run.judge(dataset, model, oracle)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("dataset", nargs="?", help="folder of a dataset to read; without one it is made")
    options.add_argument("--labels", type=int, default=1_305_265)
    options.add_argument("--documents", type=int, default=2_248_619)
    options.add_argument("--tests", type=int, default=100_000)
    options.add_argument("--fraction", type=float, default=1.0, help="share of the epochs that are run, at least one")
    options.add_argument("--seconds", type=float, default=560.0, help="no stage and no epoch begins after these")
    options.add_argument("--until", choices=STAGES, default=STAGES[-1], help="the last stage")
    options.add_argument("--device", default="auto")
    options.add_argument("--keep", type=Path, help="folder to keep features and modules in, to go on from")
    options.add_argument("--out", type=Path, default=Path("million.json"), help="file for the figures")
    options.add_argument("--set", dest="assignments", action="append", default=[], help="a setting, stage.key=value")
    arguments = options.parse_args()
    logging.basicConfig(level=logging.INFO, format="    %(message)s")
    device = choose_device(arguments.device)
    report = Report(arguments.out, device, arguments.seconds, goes_on=arguments.keep is not None)
    settings = [f"split.validation={SplitSettings().validation}", *arguments.assignments]
    shape = Shape(arguments.labels, arguments.documents, arguments.tests)
    report.note(
        benchmark="million",
        commit=commit(),
        machine=machine(),
        device=device_name(device.type),
        shape=dataclasses.asdict(shape),
        fraction=arguments.fraction,
        settings=arguments.assignments,
    )
    run = Run(report, Kept(arguments.keep), recipe().with_settings(settings), arguments.fraction, device)
    try:
        go(run, shape, arguments.dataset, arguments.until)
    except OutOfTimeError:
        print(f"stopped after {arguments.seconds:g} s", flush=True)
    finally:
        report.note(summary=summary(report))
        print(json.dumps(report.figures["summary"], indent=1), flush=True)


if __name__ == "__main__":
    main()
