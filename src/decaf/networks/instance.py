"""One trained model, frozen: a shortlister that names clusters, a ranker that scores their labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from decaf.networks.encoder import FrozenEncoder

__all__ = ["Instance", "Ranker", "Shortlister"]


@dataclass(frozen=True, eq=False)
class Shortlister:
    """Names the clusters of labels that a document should look into."""

    encoder: FrozenEncoder
    weights: Tensor  # h_m, [clusters, dim]
    bias: Tensor  # [clusters]
    members: Tensor  # labels of each cluster, -1 where it has fewer, [clusters, width]

    def top(self, tokens: Tensor, starts: Tensor, weights: Tensor, beam: int) -> tuple[Tensor, Tensor]:
        """The best clusters and the logarithms of their probabilities -> [documents, beam] each."""
        logits = torch.addmm(self.bias, self.encoder(tokens, starts, weights), self.weights.T)
        best = logits.topk(min(beam, len(self.bias)), dim=1)
        return best.indices, logsigmoid(best.values)


@dataclass(frozen=True, eq=False)
class Ranker:
    """Scores labels."""

    encoder: FrozenEncoder
    weights: Tensor  # w_l, [labels, dim]
    bias: Tensor  # [labels]

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
        named = {
            "shortlister.weights": self.shortlister.weights,
            "shortlister.bias": self.shortlister.bias,
            "shortlister.members": self.shortlister.members,
            "shortlister.beam": torch.tensor([self.beam]),
            "ranker.weights": self.ranker.weights,
            "ranker.bias": self.ranker.bias,
        }
        for name, encoder in (("shortlister", self.shortlister.encoder), ("ranker", self.ranker.encoder)):
            named |= {f"{name}.encoder.{key}": tensor for key, tensor in encoder._asdict().items()}
        return named

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Instance:
        """The instance made of these arrays."""

        def encoder(name: str) -> FrozenEncoder:
            return FrozenEncoder(*(tensors[f"{name}.encoder.{field}"] for field in FrozenEncoder._fields))

        shortlister = Shortlister(
            encoder("shortlister"),
            tensors["shortlister.weights"],
            tensors["shortlister.bias"],
            tensors["shortlister.members"],
        )
        ranker = Ranker(encoder("ranker"), tensors["ranker.weights"], tensors["ranker.bias"])
        return cls(shortlister, ranker, int(tensors["shortlister.beam"][0]))
