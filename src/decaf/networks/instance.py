"""One trained model, frozen: a shortlister that names clusters, a ranker that scores their labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from decaf.networks.encoder import FrozenEncoder

__all__ = ["Instance", "Level", "Ranker", "Shortlister"]

_TREE_BEAM = 10  # nodes of a tree that are followed down


class Level(NamedTuple):
    """Classifiers of the nodes on one level of a tree."""

    weights: Tensor  # [nodes, dim]
    bias: Tensor  # [nodes]


@dataclass(frozen=True, eq=False)
class Shortlister:
    """Names the clusters of labels that a document should look into: of all, or by a search down a tree."""

    encoder: FrozenEncoder
    weights: Tensor  # h_m, [clusters, dim]
    bias: Tensor  # [clusters]
    members: Tensor  # labels of each cluster, -1 where it has fewer, [clusters, width]
    above: tuple[Level, ...] = ()  # levels of the tree above the clusters, from the root down

    def tensors(self) -> dict[str, Tensor]:
        """All arrays by name."""
        named = {"weights": self.weights, "bias": self.bias, "members": self.members}
        for number, level in enumerate(self.above):
            named |= _prefixed(f"above.{number}.", level._asdict())
        return named | _prefixed("encoder.", self.encoder._asdict())

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Shortlister:
        """The shortlister made of these arrays."""
        levels = sum(name.startswith("above.") for name in tensors) // len(Level._fields)
        above = tuple(Level(**_within(f"above.{number}.", tensors)) for number in range(levels))
        encoder = FrozenEncoder(**_within("encoder.", tensors))
        return cls(encoder, tensors["weights"], tensors["bias"], tensors["members"], above)

    def top(self, tokens: Tensor, starts: Tensor, weights: Tensor, beam: int) -> tuple[Tensor, Tensor]:
        """The best clusters and the logarithms of their probabilities -> [documents, at most beam] each."""
        vectors = self.encoder(tokens, starts, weights)
        if self.above:
            return self._descend(vectors, beam)
        best = torch.addmm(self.bias, vectors, self.weights.T).topk(min(beam, len(self.bias)), dim=1)
        return best.indices, logsigmoid(best.values)

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

    def tensors(self) -> dict[str, Tensor]:
        """All arrays by name."""
        return {"weights": self.weights, "bias": self.bias} | _prefixed("encoder.", self.encoder._asdict())

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Ranker:
        """The ranker made of these arrays."""
        return cls(FrozenEncoder(**_within("encoder.", tensors)), tensors["weights"], tensors["bias"])

    def scores(self, tokens: Tensor, starts: Tensor, weights: Tensor, labels: Tensor) -> Tensor:
        """The logarithms of the probabilities of these labels [documents, listed]; -1 stands for none."""
        vectors = self.encoder(tokens, starts, weights)
        wanted = labels.clamp(min=0)
        if labels.shape[1] * 8 >= len(self.bias):  # most rows of the weights are needed anyway
            logits = torch.addmm(self.bias, vectors, self.weights.T).gather(1, wanted)
        else:
            logits = torch.bmm(self.weights[wanted], vectors[:, :, None])[:, :, 0] + self.bias[wanted]
        return logsigmoid(logits).masked_fill(labels < 0, -torch.inf)


@dataclass(frozen=True, eq=False)
class Instance:
    """A shortlister, a ranker, and how many clusters a document looks into."""

    shortlister: Shortlister
    ranker: Ranker
    beam: int

    def top(self, tokens: Tensor, starts: Tensor, weights: Tensor, top: int) -> tuple[Tensor, Tensor]:
        """The best labels and the logarithms of their probabilities -> [documents, at most top]; -inf for none."""
        clusters, of_cluster = self.shortlister.top(tokens, starts, weights, self.beam)
        labels = self.shortlister.members[clusters]  # [documents, beam, width]
        scores = self.ranker.scores(tokens, starts, weights, labels.flatten(1)).view(labels.shape)
        scores = (scores + of_cluster[:, :, None]).flatten(1)
        best = scores.topk(min(top, scores.shape[1]), dim=1)
        return labels.flatten(1).gather(1, best.indices), best.values

    def to(self, device: torch.device) -> Instance:
        """The instance on another device."""
        return Instance.of({name: tensor.to(device) for name, tensor in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """All arrays by name."""
        shortlister, ranker = self.shortlister.tensors(), self.ranker.tensors()
        beam = {"beam": torch.tensor([self.beam])}
        return _prefixed("shortlister.", shortlister) | _prefixed("ranker.", ranker) | beam

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Instance:
        """The instance made of these arrays."""
        shortlister = Shortlister.of(_within("shortlister.", tensors))
        return cls(shortlister, Ranker.of(_within("ranker.", tensors)), int(tensors["beam"][0]))


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def _within(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
