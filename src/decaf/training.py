"""The main path of training: features, then modules I to IV, then the model. Run again, it goes on where it was."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from decaf.config import Config, recipe
from decaf.datasets import Dataset, Items, statistics
from decaf.devices import choose_device, free_memory, memory_kept, on_gpu
from decaf.errors import ConfigError, ModelError, TrainingError
from decaf.features import Features, texts_of
from decaf.header import FORMAT, read_header
from decaf.model import Model
from decaf.modules.blend import learn_blend
from decaf.modules.checkpoints import Checkpoint, Forgetful
from decaf.modules.finite import NotFiniteError, finite
from decaf.modules.problem import ENOUGH_TO_HOLD, Problem
from decaf.modules.ranker import learn_ranker
from decaf.modules.shortlister import Shortlist, learn_shortlister, retrieve
from decaf.modules.tokens import Tokens, learn_tokens
from decaf.modules.words import WIDTH, label_words, usual_cues
from decaf.networks import Instance, Words, first_blend
from decaf.packed import Packed
from decaf.plots import plot_run
from decaf.ranks import Ranks

__all__ = ["memory_needed", "prepared", "train", "usual_clusters", "usual_tail"]

log = logging.getLogger(__name__)

_TAIL = 0.45  # between head and tail, where enough pairs are of rare labels
_RARE = 10  # documents of a label that is rare
_ENOUGH_RARE = 0.1  # of the pairs
_STEPS = 32  # in an epoch, at the least
_STAGES = {"module I": "tokens", "module II": "shortlister", "module IV": "ranker"}  # where the rates are set


def train(
    dataset: Dataset,
    config: Config | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    folder: str | Path | None = None,
    ranks: Ranks | None = None,
) -> Model:
    """Train a model; with a folder, the run is kept there, and the model is written into it.

    Several ranks train it together; the first of them keeps and writes it, in a folder that all can read.
    """
    started = time.perf_counter()
    ranks = ranks or Ranks()
    where = torch.device(choose_device(device).type) if ranks.many else choose_device(device)
    asked = config = config or recipe()
    if idle := config.without_effect():
        log.warning("without effect here: %s; the recipe has no such part", ", ".join(idle))
    features, problem, config = prepared(dataset, config, where)
    if config.model.loss == "softmax" and problem.held is None:
        log.warning("%s: scores are in the right order, but they are no chances", _why_none_held(problem, config))
    _check_ranks(problem, config, ranks, folder)
    _check_memory(problem, config, where, ranks)
    run, begun = _fingerprints(problem, dataset.labels, config, seed)
    ranks.check_same(run)
    if folder is not None and ranks.told(lambda: (Path(folder) / "model.json").is_file()):
        return _finished(Path(folder), run, (asked, config), dataset.name)
    keeper: Checkpoint | Forgetful = Forgetful()
    if folder is not None and ranks.first:
        keeper = Checkpoint(Path(folder), begun, torch.device("cpu") if ranks.many else where, _rates(config))
    with _quick_products(), memory_kept(), _documents_named(problem, dataset, keeper):

        def learn() -> dict[str, Tensor]:
            return learn_tokens(problem, config, seed=seed, device=where, keeper=keeper, ranks=ranks).tensors()

        tokens = Tokens.of(_result("module I", learn, keeper, ranks, where))
        instances = tuple(
            _learn_instance(number, problem, tokens, config, seed=seed, keeper=keeper, ranks=ranks)
            for number in range(config.ensemble.instances)
        )
    if folder is not None and not ranks.first:
        ranks.wait()
        return Model.load(folder, verify=False)
    about = {
        "dataset": dataset.name,
        "seed": seed,
        "run": run,
        "labels": dataset.labels.count,
        "trained_labels": len(problem.kept),
        "calibrated": config.model.loss == "softmax" and problem.held is not None,
        "tokens": problem.documents.shape[1],
        "statistics": _counted(dataset),
        "seconds": round(time.perf_counter() - started, 1),
    }
    made = [instance for instance in instances if instance is not None]
    packed = tuple(Packed.of(instance, config.model.precision) for instance in made)
    model = Model(_with_tail(config, made), features, dataset.labels, problem.kept, packed, about, dataset.frequency)
    if isinstance(keeper, Checkpoint) and folder is not None:
        model.save(folder)
        keeper.finish()
        _draw(Path(folder))
        ranks.wait()
    return model


def prepared(dataset: Dataset, config: Config, device: torch.device) -> tuple[Features | None, Problem, Config]:
    """Features, unless the dataset has its own, what is to be learned from them, and settings filled in by size."""
    features, problem = _learn_features(dataset, config)
    if not len(problem.kept):
        raise TrainingError(f"{dataset.name}: no training document has both a known token and a label")
    return features, problem, _with_sizes(config, problem, device)


def _counted(dataset: Dataset) -> dict[str, float]:
    """What the dataset is like, in numbers."""
    counted = dataclasses.asdict(statistics(dataset))
    return {name: round(value, 2) for name, value in counted.items() if isinstance(value, int | float)}


def _learn_features(dataset: Dataset, config: Config) -> tuple[Features | None, Problem]:
    """Features, unless the dataset has its own, and what is to be learned from them."""
    features, parts = None, (dataset.train.documents, dataset.labels)
    if any(items.features is None for items in parts):
        of_documents, of_labels = (texts_of(items, config.features) for items in parts)
        features, documents, labels = Features.learned(of_documents, of_labels, config.features)
    else:
        documents, labels = (items.need_features() for items in parts)
    return features, Problem.of(
        documents,
        labels,
        dataset.train.truth,
        dataset.train.filters,
        dataset.inverse_propensity,
        hold=config.split.validation,
        seed=config.split.seed,
    )


def memory_needed(problem: Problem, config: Config, ranks: int = 1) -> int:
    """A rough estimate of the bytes at the peak of the largest module, rather too high than too low.

    On several ranks it is what each of them needs.
    """
    dim, batch = config.model.dim, max(config.tokens.batch, config.ranker.batch)
    labels, clusters = len(problem.kept), config.shortlister.clusters
    tokens, documents = problem.documents.shape[1], problem.documents.shape[0]
    compared = labels
    if config.model.loss == "softmax" and config.ranker.negatives < labels:
        of_documents = config.ranker.batch * (config.ranker.hard + math.ceil(problem.truth.nnz / documents))
        compared = min(labels, config.ranker.negatives + of_documents)
    # Parameters, gradients and averages of all; activations of those that a step compares.
    network = 4 * dim * (4 * tokens + (8 * max(labels, clusters) + 16 * max(compared, clusters)) // ranks)
    if ranks > 1:  # label texts are everywhere, and the first rank has the whole in the end
        network += 4 * dim * 2 * labels
    scores = 4 * batch * 4 * max(compared, clusters) // ranks
    data = 40 * (problem.documents.nnz + problem.truth.nnz) + 4 * documents * max(config.shortlister.beam, 200)
    words = 12 * (WIDTH + usual_cues(labels)) * labels if config.model.loss == "softmax" else 0
    return network + scores + data + words + 500_000_000


@contextmanager
def _quick_products() -> Iterator[None]:
    """Matrix products of fewer bits, exact enough for learning: TF32 on a GPU, bfloat16 on some processors."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _result(
    name: str,
    make: Callable[[], dict[str, Tensor]],
    keeper: Checkpoint | Forgetful,
    ranks: Ranks,
    device: torch.device | None,
) -> dict[str, Tensor]:
    """What a module learned: made and kept, or found by the first rank, which tells the others on their device."""
    if not ranks.many:
        return keeper.result(name, make)
    kept = keeper.finished(name)
    if not ranks.told(lambda: kept is not None):
        made = make()
        return keeper.result(name, lambda: made)
    return kept or {} if device is None else ranks.told_tensors(lambda: kept or {}, device)


def _learn_instance(
    number: int,
    problem: Problem,
    tokens: Tokens,
    config: Config,
    *,
    seed: int,
    keeper: Checkpoint | Forgetful,
    ranks: Ranks,
) -> Instance | None:
    """Modules II to IV of one instance; the first rank alone has it."""
    part = "" if config.ensemble.instances == 1 else f", instance {number + 1}"
    seed = seed + 1000 * number

    def shortlist() -> dict[str, Tensor]:
        name = f"module II{part}"
        return learn_shortlister(name, problem, tokens, config, seed=seed, keeper=keeper, ranks=ranks).tensors()

    found = Shortlist.of(_result(f"module II{part}", shortlist, keeper, ranks, tokens.table.device))

    def rank() -> dict[str, Tensor]:
        ranker = learn_ranker(f"module IV{part}", problem, found, config, seed=seed, keeper=keeper, ranks=ranks)
        if not ranks.first:
            return {}
        device, blend = found.table.device, None
        if config.model.loss == "softmax":
            words = _words(problem, found, config) if config.blend.words else None
            blend = first_blend(problem.rarity(device), found.texts, words)
            blend = dataclasses.replace(blend, tail=usual_tail(problem) if config.blend.tail < 0 else config.blend.tail)
        instance = Instance(found.shortlister, ranker, found.clusters.shape[1], blend)
        if wrong := [name for name, tensor in instance.tensors().items() if not finite({name: tensor})]:
            raise TrainingError(f"module IV{part}: {', '.join(wrong)} not finite; lower ranker.rate and run again")
        if blend is not None and problem.held is not None:
            given, bounded = (f"blend{part}", problem.held, instance, keeper), config.blend.tail < 0
            blend = learn_blend(*given, lean=config.blend.lean, bounded=bounded)
            if blend.words is not None:  # chosen with words that knew nothing of those held out; now they may
                blend = dataclasses.replace(blend, words=_words(problem.whole(), found, config))
        return dataclasses.replace(instance, blend=blend).tensors()

    made = _result(f"module IV{part}", rank, keeper, ranks, None)
    return Instance.of(made) if ranks.first else None


def _words(problem: Problem, shortlist: Shortlist, config: Config) -> Words:
    """What is known of the labels by tokens. Documents may stand behind those that the shortlist is of."""
    linear = None
    if config.blend.linear:
        from decaf.modules.linear import learn_linear  # compiled when first used

        clusters, beam = shortlist.clusters, shortlist.clusters.shape[1]
        if more := problem.documents[len(clusters) :].shape[0]:
            of_more = retrieve(shortlist.shortlister, sparse.csr_array(problem.documents[-more:]), beam)
            clusters = torch.cat([clusters, of_more])
        given = (problem, shortlist.cluster.cpu().numpy(), clusters.cpu().numpy())
        linear = learn_linear(*given, cues=usual_cues(len(problem.kept)))
    return label_words(problem, linear, shortlist.table.device)


def _with_sizes(config: Config, problem: Problem, device: torch.device) -> Config:
    """Fill in what the settings leave to the size of the data."""
    labels, documents = len(problem.kept), problem.documents.shape[0]
    dim = config.model.dim or (300 if labels < 1_000_000 else 512)
    clusters = config.shortlister.clusters or usual_clusters(labels)
    if not config.model.text and not config.model.refinement:
        raise TrainingError("model.text and model.refinement are both false; classifiers need one of them")
    if clusters & (clusters - 1):
        raise TrainingError(f"shortlister.clusters must be a power of two, not {clusters}")
    texts = documents + (labels if config.tokens.own_texts and config.tokens.kind == "texts" else 0)
    quick = on_gpu(device)
    # All labels are negatives where that is cheap, up to 100,000 on a GPU; otherwise a quarter, up to 8,192.
    sampled = labels > (100_000 if quick else 4096)
    negatives = config.ranker.negatives or (min(8192, max(2048, labels // 4)) if sampled else labels)
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, dim=dim),
        tokens=dataclasses.replace(config.tokens, batch=config.tokens.batch or _batch(texts, 4096)),
        shortlister=dataclasses.replace(
            config.shortlister, clusters=clusters, batch=config.shortlister.batch or _batch(documents, 1024)
        ),
        ranker=dataclasses.replace(
            config.ranker,
            negatives=min(negatives, labels),
            batch=config.ranker.batch or _batch(documents, 1024),
        ),
    )


def usual_clusters(labels: int) -> int:
    """The number K of clusters for so many labels: a power of two, about four labels in each."""
    return 1 << max(0, min(17, round(math.log2(max(labels, 1) / 4))))


def _with_tail(config: Config, instances: Sequence[Instance]) -> Config:
    """The place between head and tail where the instances stand, unless one was asked for."""
    blends = [instance.blend for instance in instances if instance.blend is not None]
    if config.blend.tail >= 0 or not blends:
        return config
    tail = round(float(np.mean([blend.tail for blend in blends])), 2)
    return dataclasses.replace(config, blend=dataclasses.replace(config.blend, tail=tail))


def usual_tail(problem: Problem) -> float:
    """Where to stand between head and tail: near the head, unless enough of the pairs are of rare labels.

    Leaning to rare labels costs right answers of the others. Where hardly any are rare, that buys little.
    """
    counts = np.bincount(problem.truth.indices)
    share = float(counts[counts <= _RARE].sum() / max(1, counts.sum()))
    return round(_TAIL * min(1.0, share / _ENOUGH_RARE), 2)


def _why_none_held(problem: Problem, config: Config) -> str:
    """Why there are no held-out documents, and what to do about it."""
    share, documents = config.split.validation, problem.documents.shape[0]
    if not share or documents < 2 * ENOUGH_TO_HOLD:
        return "no documents are held out"
    needed = math.ceil(100 * ENOUGH_TO_HOLD / documents) / 100
    few = f"no documents are held out, {ENOUGH_TO_HOLD} are needed"
    return few if share >= needed else f"{few} (--set split.validation={needed:g} or more)"


def _batch(documents: int, most: int) -> int:
    """Documents a step, a power of two: enough steps in an epoch to learn, few enough to be quick."""
    return int(min(most, max(32, 1 << max(0, round(math.log2(max(documents, 1) / _STEPS))))))


def _check_ranks(problem: Problem, config: Config, ranks: Ranks, folder: str | Path | None) -> None:
    """Refuse what several ranks cannot train."""
    if not ranks.many:
        return
    default = {"model.loss": "softmax", "tokens.kind": "texts", "shortlister.kind": "clusters"}
    if other := [name for name, value, _ in config.describe() if name in default and value != f'"{default[name]}"']:
        raise TrainingError(f"several ranks train the default recipe alone, not {', '.join(other)}; use one process")
    if folder is None:
        raise TrainingError("several ranks need a folder that all can read, to keep the run and the model in")
    most = min(len(problem.kept), config.shortlister.clusters)
    if ranks.count > most:
        raise TrainingError(f"{ranks.count} ranks are too many for {most} clusters of labels; use {most} or fewer")


def _check_memory(problem: Problem, config: Config, device: torch.device, ranks: Ranks) -> None:
    """Say how much memory training takes, and refuse what cannot fit."""
    needed = memory_needed(problem, config, ranks.count) * (1 if on_gpu(device) else ranks.local)
    free = free_memory(device)
    if free is None:
        return
    log.info("training takes about %.1f GB of memory; %.1f GB are free", needed / 1e9, free / 1e9)
    if needed > free:
        advice = "lower model.dim or the batch sizes, or use a larger device"
        raise TrainingError(f"training takes about {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free; {advice}")


def _fingerprints(problem: Problem, labels: Items, config: Config, seed: int) -> tuple[str, str]:
    """A name for these data and settings, and one for whatever rates the modules learn at."""
    without_rates = config.with_settings([f"{stage}.rate=0" for stage in _STAGES.values()])
    digests = [hashlib.sha256(json.dumps([FORMAT, seed, each.to_json()]).encode()) for each in (config, without_rates)]
    for part in _data(problem, labels):
        for digest in digests:
            digest.update(part)
    run, begun = (digest.hexdigest()[:32] for digest in digests)
    return run, begun


def _data(problem: Problem, labels: Items) -> Iterator[bytes | memoryview]:
    """All that is learned from, piece by piece."""
    held = problem.held
    matrices = (problem.documents, problem.labels, problem.truth)
    of_held = () if held is None else (held.documents, held.truth)
    for matrix in (*matrices, *of_held):
        for array in (matrix.indptr, matrix.indices, matrix.data):
            yield np.ascontiguousarray(array).data
    arrays = (problem.kept, problem.filters, problem.inverse_propensity)
    for array in arrays if held is None else (*arrays, held.filters):
        yield np.ascontiguousarray(array).data
    for row in range(labels.count):
        yield json.dumps([labels.id(row), labels.text(row)]).encode()


def _rates(config: Config) -> dict[str, float]:
    """How fast each module learns."""
    return {name: float(getattr(config, stage).rate) for name, stage in _STAGES.items()}


@contextmanager
def _documents_named(problem: Problem, dataset: Dataset, keeper: Checkpoint | Forgetful) -> Iterator[None]:
    """Where numbers are not finite, the documents that they came with are named as the user knows them."""
    try:
        yield
    except NotFiniteError as error:
        titles = [_title(number, problem, dataset) for number in error.documents]
        keeper.note(module=error.name, broke=f"epoch {error.epoch}, step {error.step}", documents=", ".join(titles))
        rate = f"{_STAGES[error.name.partition(',')[0]]}.rate"
        raise TrainingError(error.told(titles, rate)) from error


def _title(number: int, problem: Problem, dataset: Dataset) -> str:
    """A document of a module, by the user's id; behind them come, in module I, the labels that have a text."""
    documents = problem.documents.shape[0]
    if number < documents:
        return dataset.train.documents.id(int(number if problem.rows is None else problem.rows[number]))
    with_text = np.flatnonzero(np.diff(problem.labels.indptr))
    return f"(label {dataset.labels.id(int(problem.kept[with_text[number - documents]]))})"


def _finished(folder: Path, run: str, config: tuple[Config, Config], dataset: str) -> Model:
    """The model that an earlier run with the same data and settings has made."""
    try:
        header = read_header(folder)
    except ModelError as error:
        raise TrainingError(str(error)) from error
    if header.get("run") != run:
        raise TrainingError(
            f"{folder}: holds a model of other {_difference(header, *config, dataset)}; choose another folder"
        )
    log.info("%s: is trained already", folder)
    model = Model.load(folder)
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)  # left by a run that was killed at its very end
    if (folder / "metrics.jsonl").is_file() and not (folder / "training.png").is_file():
        _draw(folder)
    return model


def _draw(folder: Path) -> None:
    """The picture of the run; a model is whole without it."""
    try:
        plot_run(folder)
    except (OSError, ValueError, KeyError) as error:
        (folder / ".training.png.part").unlink(missing_ok=True)
        log.warning("%s: cannot be drawn (%s); run the same command again", folder / "training.png", error)


def _difference(header: dict[str, Any], asked: Config, config: Config, dataset: str) -> str:
    """What a model was made of that is another now; a setting that is left to the data may tell of other data."""
    if header.get("dataset") != dataset:
        return f"data ({header.get('dataset')})"
    try:
        changed = config.changed(Config.from_json(header["config"]))
    except ConfigError:
        return "settings"
    left = [*config.changed(asked), *(["blend.tail"] if asked.blend.tail < 0 else [])]  # to the data
    if made := [name for name in changed if name not in left]:
        return f"settings ({', '.join(made)})"
    return f"data, or of other settings ({', '.join(changed)})" if changed else "data, or with another seed"
