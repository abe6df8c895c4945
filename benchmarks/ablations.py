"""What each part of the default recipe is worth, on documents held out of a dataset's training part.

    python -m benchmarks.ablations DATASET [--device cuda] [--share 0.15] [--only "default;tail 0"] [--seed 0]

A line is the default with one thing changed. The test part is never looked at. Lines measured before stay.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from benchmarks.report import commit, figures_before, parser, write_report
from benchmarks.trial import device_name, judged, measure, trained
from decaf import Dataset, Model, SplitSettings, recipe
from decaf.experiments.judging import features_of
from decaf.features import unit_values, with_features
from decaf.metrics import evaluate
from decaf.modules import ranker
from decaf.modules.batches import Batch
from decaf.modules.problem import Problem
from decaf.networks import Ranker, Rows
from decaf.predictions import Predictions

SHOWN = ("P@1", "P@5", "PSP@1", "PSP@5", "training_seconds", "parameters_mb")

# What is changed -> the settings that change it.
SETTINGS: dict[str, list[str]] = {
    "default": [],
    "word pieces alone": [f"features.{kind}=false" for kind in ("pairs", "ends", "shapes", "compounds")],
    "no beginnings and ends of texts": ["features.ends=false"],
    "no shapes of texts": ["features.shapes=false"],
    "compounds stay whole": ["features.compounds=false"],
    "whole words too": ["features.words=true"],
    "module I: no label texts as documents": ["tokens.own_texts=false"],
    "module I: no related labels": ["tokens.related=false"],
    "module I: no hard negatives": ["tokens.refresh=0"],
    "module IV: negatives sampled": ["ranker.negatives=4096"],
    "module IV: sampled, none hard": ["ranker.negatives=4096", "ranker.hard=0"],
    "logistic loss": ["model.loss=logistic"],
    "no refinement vectors": ["model.refinement=false"],
    "no label text in classifiers": ["model.text=false"],
    "blend: no words": ["blend.words=false"],
    "blend: no linear classifiers": ["blend.linear=false"],
    "blend: no leaning on rarity": ["blend.lean=false"],
    "tail 0": ["blend.tail=0"],
    "tail 1": ["blend.tail=1"],
    "D = 512": ["model.dim=512"],
    "two instances": ["ensemble.instances=2"],
    "three instances": ["ensemble.instances=3"],
}


def with_graph(dataset: Dataset) -> Dataset:
    """Label texts with those of the labels given together with them mixed in, a third as heavy (after ECLARE)."""
    ready = with_features(dataset, recipe().features)
    truth = ready.train.truth
    company = sparse.coo_array(truth.T @ truth)
    others = company.row != company.col
    row, column, times = company.row[others], company.col[others], company.data[others]
    share = times / np.bincount(row, weights=times, minlength=truth.shape[1])[row]
    close = share >= 0.05
    walk = sparse.csr_array((share[close], (row[close], column[close])), shape=(truth.shape[1], truth.shape[1]))
    texts = ready.labels.need_features()
    mixed = sparse.csr_array(texts + 0.3 * (walk @ texts)).astype(np.float32)
    mixed.data = unit_values(mixed, mixed.data)
    return dataclasses.replace(ready, labels=dataclasses.replace(ready.labels, features=mixed))


@contextmanager
def weighted_by_propensity() -> Iterator[None]:
    """The loss of a true label times the root of its inverse propensity."""
    task: Any = ranker.ChoiceTask
    begin, targets = task.__init__, task.targets

    def weigh(self: Any, network: Any, shortlist: Any, problem: Problem, **others: Any) -> None:  # noqa: ANN401
        begin(self, network, shortlist, problem, **others)
        gains = torch.as_tensor(problem.inverse_propensity).float().sqrt().to(shortlist.table.device)
        self.gains = gains / gains.mean()

    def weighed(self: Any, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
        rows, labels, weights = targets(self, batch)
        return rows, labels, weights * self.gains[labels]

    task.__init__, task.targets = weigh, weighed
    try:
        yield
    finally:
        task.__init__, task.targets = begin, targets


@contextmanager
def averaged() -> Iterator[None]:
    """Module IV's weights averaged over the starts of the epochs of its second half and the end."""
    task: Any = ranker.ChoiceTask
    order, begin = task.order, task.__init__

    def start(self: Any, network: Any, *others: Any, **named: Any) -> None:  # noqa: ANN401
        begin(self, network, *others, **named)
        self.seen, self.mean = 0, {}
        frozen = network.frozen

        def of_mean() -> Any:  # noqa: ANN401
            if not self.mean:
                return frozen()
            state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
            share = 1 / (self.seen + 1)
            network.load_state_dict({name: mean.lerp(state[name], share) for name, mean in self.mean.items()})
            found = frozen()
            network.load_state_dict(state)
            return found

        network.frozen = of_mean

    def noting(self: Any, epoch: int, documents: int) -> Tensor:  # noqa: ANN401
        if epoch >= 4:  # of eight
            self.seen += 1
            for name, tensor in self.network.state_dict().items():
                self.mean.setdefault(name, tensor.clone()).lerp_(tensor, 1 / self.seen)
        found: Tensor = order(self, epoch, documents)
        return found

    task.__init__, task.order = start, noting
    try:
        yield
    finally:
        task.__init__, task.order = begin, order


@contextmanager
def distilled(teachers: Sequence[Ranker]) -> Iterator[None]:
    """Module IV also learns what others that were trained before say, together, of its documents."""
    task: Any = ranker.ChoiceTask
    plain = task.loss

    def loss(self: Any, batch: Batch) -> Tensor:  # noqa: ANN401
        documents = (batch.tokens, batch.starts, batch.weights)
        with torch.no_grad():
            said = [torch.addmm(one.bias, one.encoder(*documents), one.weights.T).softmax(dim=1) for one in teachers]
            chances = torch.stack(said).mean(dim=0)
        apart = -(chances * self.network(*documents).log_softmax(dim=1)).sum(dim=1)
        found: Tensor = plain(self, batch) + (apart * batch.there).sum() / batch.count
        return found

    task.loss = loss
    try:
        yield
    finally:
        task.loss = plain


def two_heads(model: Model, dataset: Dataset, device: str) -> dict[str, float]:
    """The shortlists and the blend of the first instance, the mean of both instances' classifiers."""
    first, second = (instance.to(torch.device(device)) for instance in model.instances)
    ids, scores = [], []
    top = 20 + int(np.bincount(dataset.test.filters[:, 0], minlength=1).max())
    with torch.inference_mode():
        for rows in Rows.in_parts(features_of(model, dataset.test.documents), 256, torch.device(device)):
            documents = (rows.columns, rows.starts, rows.values)
            parts = first.parts(*documents)
            other = second.ranker.scores(second.ranker.encoder(*documents), parts.labels)
            parts = parts._replace(classifier=(parts.classifier + other) / 2)
            chances = first.chances(parts, model.config.blend.tail).masked_fill(parts.labels < 0, -torch.inf)
            best = chances.topk(min(top, chances.shape[1]), dim=1)
            labels = parts.labels.gather(1, best.indices).cpu().numpy()
            ids.append(np.where(labels >= 0, model.kept[labels.clip(min=0)], -1))
            scores.append(best.values.cpu().numpy())
    found = Predictions(np.concatenate(ids), np.concatenate(scores))
    return evaluate(found, dataset.test.truth, dataset.inverse_propensity, dataset.test.filters)


def _line(name: str, dataset: Dataset, device: str, seed: int) -> dict[str, Any]:
    """One line of the table."""
    config = recipe().with_settings(SETTINGS.get(name, []))
    if name == "two heads, one shortlister":
        model, seconds = trained(dataset, config.with_settings(["ensemble.instances=2"]), device, seed)
        figures = {key: round(value, 2) for key, value in two_heads(model, dataset, device).items()}
        return judged(model, dataset, device) | figures | {"training_seconds": round(seconds, 1)}
    if name == "three instances distilled into one":
        teachers, seconds = trained(dataset, config.with_settings(["ensemble.instances=3"]), device, seed)
        with distilled([instance.to(torch.device(device)).ranker for instance in teachers.instances]):
            result = measure(dataset, config, device, seed)
        return result | {"training_seconds": round(seconds + result["training_seconds"], 1)}
    running = {"loss weighted by propensity": weighted_by_propensity, "weights averaged": averaged}
    with running.get(name, nullcontext)():
        return measure(with_graph(dataset) if name.startswith("label graph") else dataset, config, device, seed)


# What is tried in other ways than by a setting.
TRIED = (
    "label graph in the label text",
    "loss weighted by propensity",
    "weights averaged",
    "two heads, one shortlister",
    "three instances distilled into one",
)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("dataset")
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--share", type=float, default=0.15, help="share of the training documents to judge by")
    options.add_argument("--only", default="", help="lines, separated by semicolons; otherwise all")
    arguments = options.parse_args()
    dataset = Dataset.load(arguments.dataset).validation(SplitSettings(validation=arguments.share))
    wanted = arguments.only.split(";") if arguments.only else [*SETTINGS, *TRIED]
    title = f"ablations-{Path(arguments.dataset).name}"
    lines = figures_before(title).get("lines", {})
    figures: dict[str, Any] = {"dataset": dataset.name, "device": device_name(arguments.device), "lines": lines}
    for name in wanted:
        result = _line(name, dataset, arguments.device, arguments.seed)
        result |= {"training_seconds": None} if arguments.shared else {}
        lines[name] = {key: result[key] for key in SHOWN} | {"commit": commit()}
        print(name, lines[name], flush=True)
    figures["lines"] = {name: lines[name] for name in (*SETTINGS, *TRIED) if name in lines}
    write_report(title, arguments.seed, figures, save=arguments.save)


if __name__ == "__main__":
    main()
