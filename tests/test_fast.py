"""The fast scorer beside the exact one: the same answers where nothing is rounded or passed over, close ones else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

from decaf import Config, Model, Predictions
from decaf.datasets import Items
from decaf.errors import ConfigError, ModelError
from decaf.networks import Blend, FrozenEncoder, Instance, Level, Ranker, Shortlister, Words
from decaf.scoring import fast
from decaf.scoring.exact import ExactScorer
from decaf.scoring.fast import FastScorer

TOKENS, DIM, LABELS, CLUSTERS = 60, 16, 90, 32
CPU = torch.device("cpu")


def encoder(generator: torch.Generator, *, unit: bool) -> FrozenEncoder:
    shapes = ((TOKENS, DIM), (DIM,), (DIM, DIM), (DIM,))
    table, scale, weight, bias = (torch.randn(shape, generator=generator) for shape in shapes)
    return FrozenEncoder(table, scale, 0.3 * weight, 0.1 * bias, unit)


def blend(generator: torch.Generator, *, texts: bool, words: bool) -> Blend:
    own = torch.randint(TOKENS, (LABELS, 5), generator=generator, dtype=torch.int32)
    about = Words(own, torch.rand(LABELS, 5, generator=generator), 0.2 * torch.rand(LABELS, 5, generator=generator))
    return Blend(
        torch.tensor([0.0, 1.0]),
        torch.tensor([[0.7, 0.3, 4.0, 0.5, 0.2], [0.9, 0.1, 6.0, 0.2, 1.5]]),
        torch.tensor([[0.8, -0.6, 0.3], [0.5, -0.4, 0.1]]),
        torch.randn(LABELS, generator=generator),
        torch.randn(LABELS, DIM, generator=generator) if texts else None,
        about if words else None,
    )


def instance(seed: int = 0, *, mixed: Blend | None = None, unit: bool = True, beam: int = 9) -> Instance:
    generator = torch.Generator().manual_seed(seed)
    members = torch.full((CLUSTERS, 3), -1)  # 90 labels in 32 clusters: some have two, the others three
    members.view(-1)[torch.randperm(CLUSTERS * 3, generator=generator)[:LABELS].sort().values] = torch.randperm(
        LABELS, generator=generator
    )
    near, far = encoder(generator, unit=unit), encoder(generator, unit=unit)
    weights, bias = torch.randn(CLUSTERS, DIM, generator=generator), torch.randn(CLUSTERS, generator=generator)
    ranker = Ranker(far, torch.randn(LABELS, DIM, generator=generator), 0.1 * torch.randn(LABELS, generator=generator))
    return Instance(Shortlister(near, weights, bias, members), ranker, beam, mixed)


def model(*instances: Instance) -> Model:
    kept = np.arange(LABELS) * 2 + 1  # every other label of the dataset was trained
    return Model(Config(), None, Items(2 * LABELS + 1), kept, instances, {})


def documents(count: int = 40, seed: int = 0) -> sparse.csr_array:
    rng = np.random.default_rng(seed)
    dense = rng.random((count, TOKENS)) * (rng.random((count, TOKENS)) < 0.1)
    dense[3] = 0
    return sparse.csr_array(dense.astype(np.float32))


def close(found: Predictions, expected: Predictions, tolerance: float = 1e-5) -> bool:
    return np.array_equal(found.ids, expected.ids) and np.allclose(found.scores, expected.scores, atol=tolerance)


def mixed(*, texts: bool = True, words: bool = True) -> Blend:
    return blend(torch.Generator().manual_seed(7), texts=texts, words=words)


@pytest.mark.parametrize("texts", [True, False])
@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("tail", [0.0, 0.4])
def test_a_blend_gives_what_the_exact_scorer_gives(texts: bool, words: bool, tail: float) -> None:
    made = model(instance(mixed=mixed(texts=texts, words=words)))
    expected = ExactScorer(made, CPU, tail=tail).top(documents(), 7)
    assert close(FastScorer(made, tail=tail, precision="float32").top(documents(), 7), expected)
    assert (expected.ids[3] == -1).all()
    assert (expected.ids[[0, 1, 2]] >= 0).all()


@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("count", [1, 2])
def test_without_a_blend_and_with_several_instances_too(unit: bool, count: int) -> None:
    made = model(*(instance(seed, unit=unit) for seed in range(count)))
    assert close(FastScorer(made, precision="float32").top(documents(), 7), ExactScorer(made, CPU).top(documents(), 7))


@pytest.mark.parametrize("top", [1, 5, 27, 200])
def test_any_number_of_labels_may_be_asked_for(top: int) -> None:
    made = model(instance(mixed=mixed()))
    assert close(
        FastScorer(made, precision="float32").top(documents(), top), ExactScorer(made, CPU).top(documents(), top)
    )


def tree() -> Instance:
    made, generator = instance(), torch.Generator().manual_seed(9)
    level = Level(torch.randn(8, DIM, generator=generator), torch.randn(8, generator=generator))
    return replace(made, shortlister=replace(made.shortlister, above=(level,)))


def searched() -> Instance:
    made = instance()
    return replace(made, shortlister=replace(made.shortlister, bias=torch.zeros(CLUSTERS), searched=True))


@pytest.mark.parametrize("made", [tree(), searched()], ids=["tree", "graph"])
def test_other_shortlisters_are_asked_as_they_are(made: Instance) -> None:
    found = FastScorer(model(made), precision="float32").top(documents(), 7)
    assert close(found, ExactScorer(model(made), CPU).top(documents(), 7))


def test_rough_scores_choose_what_is_looked_at_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "_NARROW", 4)
    rows, made = documents(300), model(instance(mixed=mixed(), beam=3))
    expected = ExactScorer(made, CPU).top(rows, 5)
    shares = []
    for effort in (3, 8, CLUSTERS):
        found = FastScorer(made, precision="float32", effort=effort).top(rows, 5)
        shares.append(np.mean(found.ids == expected.ids))
    assert shares[0] < shares[1] < shares[2] == 1


def test_eight_bits_are_close() -> None:
    made = model(instance(mixed=mixed()))
    rows = documents(600)
    found, expected = FastScorer(made).top(rows, 5), ExactScorer(made, CPU).top(rows, 5)
    there = expected.ids >= 0
    agree = [len({*one} & {*other}) / 5 for one, other in zip(found.ids, expected.ids, strict=True) if other[0] >= 0]
    assert np.mean(agree) > 0.95
    assert not np.array_equal(found.scores, expected.scores)  # something is rounded
    assert np.quantile(np.abs(found.scores[there] - expected.scores[there]), 0.95) < 0.02


@pytest.mark.parametrize("size", [1, 255, 256, 257, 600])
def test_threads_and_company_change_nothing(size: int) -> None:
    made, rows = model(instance(mixed=mixed())), documents(600)[:size] if size > 3 else documents(600)[5:6]
    one, many = FastScorer(made), FastScorer(made, threads=4)
    expected = one.top(rows, 5)
    found = many.top(rows, 5)
    assert np.array_equal(found.ids, expected.ids)
    assert np.array_equal(found.scores, expected.scores)
    with ThreadPoolExecutor(4) as pool:
        alone = list(pool.map(lambda at: one.top(rows[at : at + 1], 5), range(min(size, 40))))
    for at, answer in enumerate(alone):
        assert np.array_equal(answer.ids[0], expected.ids[at])
        assert np.array_equal(answer.scores[0], expected.scores[at])


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(ConfigError, match="there is no precision 'int4'; choose int8 or float32"):
        FastScorer(model(instance()), precision="int4")
    with pytest.raises(ModelError, match="only models of the contrastive recipe can lean from head to tail"):
        FastScorer(model(instance()), tail=0.5)
    with pytest.raises(ValueError, match="dimension mismatch"):
        FastScorer(model(instance())).top(sparse.csr_array((2, TOKENS + 1), dtype=np.float32), 5)
