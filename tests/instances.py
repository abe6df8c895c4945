"""Instances of random weights, with all that they may have or without."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch

from decaf.networks import Blend, FrozenEncoder, Instance, Level, Ranker, Shortlister, Words


class Size(NamedTuple):
    """Of an instance."""

    tokens: int = 60
    dim: int = 16
    labels: int = 90
    clusters: int = 32
    width: int = 5  # tokens of a label


SMALL = Size()


def encoder(generator: torch.Generator, *, size: Size = SMALL, unit: bool) -> FrozenEncoder:
    """A document encoder."""
    shapes = ((size.tokens, size.dim), (size.dim,), (size.dim, size.dim), (size.dim,))
    table, scale, weight, bias = (torch.randn(shape, generator=generator) for shape in shapes)
    return FrozenEncoder(table, scale, 0.3 * weight, 0.1 * bias, unit)


def mixed(*, size: Size = SMALL, texts: bool = True, words: bool = True) -> Blend:
    """A blend of two points."""
    generator, wide = torch.Generator().manual_seed(7), (size.labels, size.width)
    some = (size.labels, size.width if size.width >= 32 else 3)
    cues = (
        torch.randint(size.tokens, some, generator=generator, dtype=torch.int32),
        torch.randn(some, generator=generator),
        torch.randn(size.labels, generator=generator),
        torch.rand(some, generator=generator),
    )
    own = torch.randint(size.tokens, wide, generator=generator, dtype=torch.int32)
    about = Words(own, torch.rand(wide, generator=generator), 0.2 * torch.rand(wide, generator=generator), *cues)
    return Blend(
        torch.tensor([0.0, 1.0]),
        torch.tensor(
            [
                [1.1, 0.7, 0.3, 4.0, 0.5, 1.1, 0.2, -2.0, 0.2, -0.3, 0.1, 0.2, 0.4],
                [0.8, 0.9, 0.1, 6.0, 0.2, 0.6, 1.5, 0.8, 0.1, 0.4, -0.2, -0.1, 0.7],
            ]
        ),
        torch.tensor([[0.8, -0.6, 0.3], [0.5, -0.4, 0.1]]),
        torch.randn(size.labels, generator=generator),
        torch.randn(size.labels, size.dim, generator=generator) if texts else None,
        about if words else None,
    )


def instance(
    seed: int = 0, *, size: Size = SMALL, mixed: Blend | None = None, unit: bool = True, beam: int = 9
) -> Instance:
    """Clusters of different sizes, as nearly as they go."""
    generator, width = torch.Generator().manual_seed(seed), -(-size.labels // size.clusters)
    members = torch.full((size.clusters, width), -1)
    places = torch.randperm(size.clusters * width, generator=generator)[: size.labels].sort().values
    members.view(-1)[places] = torch.randperm(size.labels, generator=generator)
    members = members.sort(dim=1, descending=True).values  # those that are none come last
    near, far = (encoder(generator, size=size, unit=unit) for _ in range(2))
    shapes = ((size.clusters, size.dim), (size.clusters,), (size.labels, size.dim), (size.labels,))
    weights, bias, of_labels, biases = (torch.randn(shape, generator=generator) for shape in shapes)
    return Instance(Shortlister(near, weights, bias, members), Ranker(far, of_labels, 0.1 * biases), beam, mixed)


def tree(mixed: Blend | None = None) -> Instance:
    """Four clusters under every node."""
    made, generator = instance(mixed=mixed), torch.Generator().manual_seed(9)
    level = Level(torch.randn(8, SMALL.dim, generator=generator), torch.randn(8, generator=generator))
    return replace(made, shortlister=replace(made.shortlister, above=(level,)))


def searched(mixed: Blend | None = None) -> Instance:
    """Clusters are found by a graph."""
    made = instance(mixed=mixed)
    return replace(made, shortlister=replace(made.shortlister, bias=torch.zeros(SMALL.clusters), searched=True))
