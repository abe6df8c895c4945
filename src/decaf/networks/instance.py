"""One trained model, frozen: a shortlister that names clusters, a ranker that scores their labels."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from decaf.networks.classifier import LabelTexts
from decaf.networks.encoder import FrozenEncoder
from decaf.networks.graph import NOBODY, NeighbourGraph
from decaf.networks.words import Words

__all__ = [
    "LEANING",
    "Blend",
    "Instance",
    "Level",
    "Parts",
    "Ranker",
    "Shortlister",
    "blended",
    "first_blend",
    "prefixed",
    "weighed",
    "within",
]

_TREE_BEAM = 10  # nodes of a tree that are followed down


class Level(NamedTuple):
    """Classifiers of the nodes on one level of a tree."""

    weights: Tensor  # [nodes, dim]
    bias: Tensor  # [nodes]


@dataclass(frozen=True, eq=False)
class Shortlister:
    """Names the clusters of labels that a document should look into: of all, or by a search down a tree or a graph."""

    encoder: FrozenEncoder
    weights: Tensor  # h_m, [clusters, dim]
    bias: Tensor  # [clusters]
    members: Tensor  # labels of each cluster, -1 where it has fewer, [clusters, width]
    above: tuple[Level, ...] = ()  # levels of the tree above the clusters, from the root down
    searched: bool = False  # by a graph of neighbours, not looking at every cluster
    texts: LabelTexts | None = None  # makes label texts vectors among its documents

    def tensors(self) -> dict[str, Tensor]:
        """All arrays by name."""
        named = {"weights": self.weights, "bias": self.bias, "members": self.members}
        for number, level in enumerate(self.above):
            named |= prefixed(f"above.{number}.", level._asdict())
        named["searched"] = torch.tensor([self.searched])
        named |= {} if self.texts is None else prefixed("texts.", self.texts._asdict())
        return named | prefixed("encoder.", self.encoder.tensors())

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Shortlister:
        """The shortlister made of these arrays."""
        levels = sum(name.startswith("above.") for name in tensors) // len(Level._fields)
        above = tuple(Level(**within(f"above.{number}.", tensors)) for number in range(levels))
        encoder = FrozenEncoder.of(within("encoder.", tensors))
        searched = bool(tensors["searched"][0])
        texts = LabelTexts(**within("texts.", tensors)) if "texts.factor" in tensors else None
        return cls(encoder, tensors["weights"], tensors["bias"], tensors["members"], above, searched, texts)

    @cached_property
    def _graph(self) -> NeighbourGraph:
        return NeighbourGraph(self.weights)

    def top(self, tokens: Tensor, starts: Tensor, weights: Tensor, beam: int) -> tuple[Tensor, Tensor]:
        """The best clusters and their scores, or those of the paths to them -> [documents, at most beam] each."""
        return self.nearest(self.encoder(tokens, starts, weights), beam)

    def nearest(self, vectors: Tensor, beam: int) -> tuple[Tensor, Tensor]:
        """The same for document vectors."""
        if self.above:
            return self._descend(vectors, beam)
        if self.searched:
            return self._graph.search(vectors, min(beam, len(self.bias)))
        best = torch.addmm(self.bias, vectors, self.weights.T).topk(min(beam, len(self.bias)), dim=1)
        return best.indices, best.values

    def scores(self, vectors: Tensor, labels: Tensor) -> Tensor:
        """What the clusters of these labels [documents, listed] score, or the paths to them; -1 stands for none."""
        clusters = self._cluster[labels.clamp(min=0)]
        if not self.above:
            return products(vectors, self.weights, clusters) + self.bias[clusters]
        path = torch.zeros(labels.shape, device=vectors.device)
        for level in (*self.above, Level(self.weights, self.bias)):
            nodes = clusters * len(level.bias) // len(self.bias)
            path = path + logsigmoid(products(vectors, level.weights, nodes) + level.bias[nodes])
        return path

    @cached_property
    def _cluster(self) -> Tensor:
        """The cluster of each label."""
        there = self.members >= 0
        cluster = torch.empty(int(there.sum()), dtype=torch.int64, device=self.members.device)
        cluster[self.members[there]] = there.nonzero()[:, 0]
        return cluster

    def _descend(self, vectors: Tensor, beam: int) -> tuple[Tensor, Tensor]:
        """Keep the best nodes of every level and look only at their children; a path's probabilities multiply."""
        nodes = torch.zeros(len(vectors), 1, dtype=torch.int64, device=vectors.device)  # the root
        scores = torch.zeros(len(vectors), 1, device=vectors.device)
        count = 1
        for level in (*self.above, Level(self.weights, self.bias)):
            fan_out = len(level.bias) // count
            children = (nodes[:, :, None] * fan_out + torch.arange(fan_out, device=nodes.device)).flatten(1)
            logits = torch.bmm(level.weights[children], vectors[:, :, None])[:, :, 0] + level.bias[children]
            paths = scores.repeat_interleave(fan_out, dim=1) + logsigmoid(logits)
            count = len(level.bias)
            kept = beam if count == len(self.bias) else _TREE_BEAM
            best = paths.topk(min(kept, paths.shape[1]), dim=1)
            nodes, scores = children.gather(1, best.indices), best.values
        return nodes, scores


@dataclass(frozen=True, eq=False)
class Ranker:
    """Scores labels."""

    encoder: FrozenEncoder
    weights: Tensor  # w_l, [labels, dim]
    bias: Tensor  # [labels]
    texts: LabelTexts | None = None  # the part of the weights that is the labels' text, for explanations

    def tensors(self) -> dict[str, Tensor]:
        """All arrays by name."""
        texts = {} if self.texts is None else prefixed("texts.", self.texts._asdict())
        named = {"weights": self.weights, "bias": self.bias} | texts
        return named | prefixed("encoder.", self.encoder.tensors())

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Ranker:
        """The ranker made of these arrays."""
        texts = LabelTexts(**within("texts.", tensors)) if "texts.factor" in tensors else None
        return cls(FrozenEncoder.of(within("encoder.", tensors)), tensors["weights"], tensors["bias"], texts)

    def scores(self, vectors: Tensor, labels: Tensor) -> Tensor:
        """Scores of these labels [documents, listed] for document vectors; -1 stands for none."""
        return products(vectors, self.weights, labels) + self.bias[labels.clamp(min=0)]


def products(vectors: Tensor, weights: Tensor, labels: Tensor) -> Tensor:
    """Products of each document's vector with the weights of its labels [documents, listed]; -1 stands for none."""
    wanted = labels.clamp(min=0)
    if labels.shape[1] * 8 >= len(weights):  # most rows of the weights are needed anyway
        return (vectors @ weights.T).gather(1, wanted)
    return torch.bmm(weights[wanted], vectors[:, :, None])[:, :, 0]


@dataclass(frozen=True, eq=False)
class Blend:
    """How classifier and other parts make one score, from head to tail, and what chance a score is."""

    tails: Tensor  # from 0 to 1, [points]
    weights: Tensor  # of the parts in their order, then of those that lean on rarity, [points, 13]
    chances: Tensor  # what score, company and constant weigh in the logit of the chance, [points, 3]
    rarity: Tensor  # the logarithm of each label's inverse propensity, [labels]
    texts: Tensor | None  # label texts among the vectors of the shortlister's encoder, [labels, dim]
    words: Words | None = None  # what is known of the labels by tokens
    tail: float = 0.0  # where it stands, unless another place is wanted

    def at(self, tail: float) -> tuple[list[float], list[float]]:
        """The weights and the chances' at this place between head and tail, in a line between the points."""
        return self.between(self.tails, self.weights, self.chances, tail)

    @staticmethod
    def between(tails: Tensor, weights: Tensor, chances: Tensor, tail: float) -> tuple[list[float], list[float]]:
        """The same of bare arrays."""
        points = tails.tolist()
        right = min(bisect_left(points, tail), len(points) - 1)
        left = max(0, right - 1)
        share = min(1.0, (tail - points[left]) / (points[right] - points[left])) if right else 0.0
        weighed, chance = (values[left].lerp(values[right], share) for values in (weights, chances))
        return weighed.tolist(), chance.tolist()

    def tensors(self) -> dict[str, Tensor]:
        """All arrays by name."""
        named = {"tails": self.tails, "weights": self.weights, "chances": self.chances, "rarity": self.rarity}
        named["tail"] = torch.tensor([self.tail])
        if self.texts is not None:
            named["texts"] = self.texts
        return named if self.words is None else named | prefixed("words.", self.words._asdict())

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Blend:
        """The blend made of these arrays."""
        names = ("tails", "weights", "chances", "rarity")
        tails, weights, chances, rarity = (tensors[name] for name in names)
        words = Words(**within("words.", tensors)) if "words.tokens" in tensors else None
        return cls(tails, weights, chances, rarity, tensors.get("texts"), words, round(float(tensors["tail"][0]), 6))


LEANING = ("classifier", "text", "cluster", "share", "linear")  # parts that may weigh more or less the rarer a label is


class Parts(NamedTuple):
    """The shortlisted labels of documents and what their scores are made of, [documents, listed] each."""

    labels: Tensor  # -1 for none
    classifier: Tensor
    text: Tensor  # the document's vector and the label text's
    cluster: Tensor
    likeness: Tensor  # the document's tokens and those of the label's documents
    share: Tensor  # of the document's tokens that is the label's
    linear: Tensor  # what the linear classifier says of the document's tokens
    rarity: Tensor
    match: Tensor  # the document's tokens and those of the label's text


@dataclass(frozen=True, eq=False)
class Instance:
    """A shortlister, a ranker, how many clusters a document looks into, and how scores are blended.

    Without a blend the chance of a label is that of its cluster times its own, as in the paper.
    """

    shortlister: Shortlister
    ranker: Ranker
    beam: int
    blend: Blend | None = None

    def top(
        self, tokens: Tensor, starts: Tensor, weights: Tensor, top: int, *, tail: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """The best labels and the logarithms of their chances -> [documents, at most top]; -inf for none."""
        parts = self.parts(tokens, starts, weights)
        scores = self.chances(parts, tail).masked_fill(parts.labels < 0, -torch.inf)
        best = scores.topk(min(top, scores.shape[1]), dim=1)
        return parts.labels.gather(1, best.indices), best.values

    def parts(self, tokens: Tensor, starts: Tensor, weights: Tensor) -> Parts:
        """What the scores of the shortlisted labels are made of."""
        vectors = self.shortlister.encoder(tokens, starts, weights)
        clusters, of_cluster = self.shortlister.nearest(vectors, self.beam)
        listed = self.shortlister.members[clusters]  # [documents, beam, width]
        listed = listed.masked_fill((of_cluster <= NOBODY)[:, :, None], -1)
        of_cluster = of_cluster[:, :, None].expand(listed.shape).flatten(1)
        return self._parts((tokens, starts, weights), vectors, listed.flatten(1), of_cluster)

    def parts_of(self, tokens: Tensor, starts: Tensor, weights: Tensor, labels: Tensor) -> Parts:
        """The same of these labels [documents, listed], shortlisted or not."""
        vectors = self.shortlister.encoder(tokens, starts, weights)
        return self._parts((tokens, starts, weights), vectors, labels, self.shortlister.scores(vectors, labels))

    def _parts(
        self,
        documents: tuple[Tensor, Tensor, Tensor],
        vectors: Tensor,  # of the shortlister
        labels: Tensor,
        of_cluster: Tensor,  # what the labels' clusters score
    ) -> Parts:
        classifier = self.ranker.scores(self.ranker.encoder(*documents), labels)
        text = likeness = share = linear = rarity = match = torch.zeros_like(classifier)
        if self.blend is not None:
            rarity = self.blend.rarity[labels.clamp(min=0)]
            if self.blend.texts is not None:
                text = products(vectors, self.blend.texts, labels)
            if self.blend.words is not None:
                vocabulary = len(self.ranker.encoder.table)
                likeness, share, linear, match = self.blend.words.compare(*documents, labels, vocabulary)
        return Parts(labels, classifier, text, of_cluster, likeness, share, linear, rarity, match)

    def chances(self, parts: Parts, tail: float) -> Tensor:
        """The logarithms of the chances of the shortlisted labels."""
        if self.blend is None:
            # A path down a tree comes as the logarithm of its probability.
            of_cluster = parts.cluster if self.shortlister.above else logsigmoid(parts.cluster)
            return logsigmoid(parts.classifier) + of_cluster
        weights, (slope, company, constant) = self.blend.at(tail)
        scores = blended(parts, weights)
        return logsigmoid(slope * scores + company * scores.logsumexp(dim=1, keepdim=True) + constant)

    def to(self, device: torch.device) -> Instance:
        """The instance on another device."""
        return Instance.of({name: tensor.to(device) for name, tensor in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """All arrays by name."""
        named = prefixed("shortlister.", self.shortlister.tensors()) | prefixed("ranker.", self.ranker.tensors())
        if self.blend is not None:
            named |= prefixed("blend.", self.blend.tensors())
        return named | {"beam": torch.tensor([self.beam])}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Instance:
        """The instance made of these arrays."""
        shortlister, ranker = Shortlister.of(within("shortlister.", tensors)), Ranker.of(within("ranker.", tensors))
        blend = Blend.of(within("blend.", tensors)) if "blend.tails" in tensors else None
        return cls(shortlister, ranker, int(tensors["beam"][0]), blend)


def first_blend(rarity: Tensor, texts: Tensor | None, words: Words | None = None) -> Blend:
    """A blend before any was chosen: what serves most data well, and chances that are only in the right order."""
    weighed = [[1.0, 0.5, 0.0, 10.0, 0.0, 5.0, rare, 0.0, *(0.0 for _ in LEANING)] for rare in (0.0, 1.0)]
    values = ([0.0, 1.0], weighed, [[1.0, -1.0, 0.0]] * 2)
    tails, weights, chances = (torch.tensor(value, device=rarity.device) for value in values)
    return Blend(tails, weights, chances, rarity, texts, words)


def blended(parts: Parts, weights: Sequence[float]) -> Tensor:
    """One score out of the weighted parts; no label scores next to nothing."""
    scores, *others = weighed(parts, weights).values()
    for part in others:
        scores = scores + part
    return scores.masked_fill(parts.labels < 0, -1e4)


def weighed(parts: Parts, weights: Sequence[float]) -> dict[str, Tensor]:
    """What each part adds to a score: by its own weight, and by one more for each unit of rarity where it leans."""
    (_, *columns), count = parts, len(Parts._fields) - 1
    leans = dict(zip(LEANING, weights[count:], strict=True))
    found = {}
    for name, part, weight in zip(Parts._fields[1:], columns, weights[:count], strict=True):
        lean = leans.get(name, 0.0)
        found[name] = (weight + lean * parts.rarity) * part if lean else weight * part
    return found


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same arrays, their names behind a prefix."""
    return {prefix + name: tensor for name, tensor in tensors.items()}


def within(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The arrays whose names are behind a prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
