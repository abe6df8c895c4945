"""The blend: chances that are what they say, weights that follow what is informative, and a tail that pays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit

from decaf.modules.blend import fit_chances, learn_blend, reliability
from decaf.modules.checkpoints import Forgetful
from decaf.modules.judge import Judge
from decaf.modules.problem import Held
from decaf.networks import FrozenEncoder, Instance, Parts, Ranker, Rows, Shortlister, blended, first_blend

from . import truth_of

CPU = torch.device("cpu")
LABELS, DOCUMENTS = 24, 600
FREQUENCY = 1 / np.arange(1, LABELS + 1) / (1 / np.arange(1, LABELS + 1)).sum()
GAIN = 1 + 20 * np.arange(1, LABELS + 1) / LABELS  # inverse propensities
Numbers = NDArray[np.float64]


class Notes(Forgetful):
    """Remembers what is noted."""

    def __init__(self) -> None:
        self.facts: dict[str, float | str] = {}

    def note(self, **facts: float | str) -> None:
        self.facts |= facts


def drawn(slope: float, of_company: float, constant: float, *, count: int = 20_000) -> tuple[Numbers, Numbers, Numbers]:
    """Scores, company and chances of a logistic model."""
    rng = np.random.default_rng(1)
    scores, company = 2 * rng.standard_normal(count), 3 + rng.standard_normal(count)
    return scores, company, expit(slope * scores + of_company * company + constant)


@pytest.mark.parametrize("values", [(1.3, -0.7, 0.4), (0.4, 0.0, -2.0), (2.0, -1.5, 1.0)])
def test_chances_that_were_drawn_are_found_again(values: tuple[float, float, float]) -> None:
    scores, company, chances = drawn(*values)
    right = np.random.default_rng(2).random(len(chances)) < chances
    found = fit_chances(scores, company, right)
    assert found == pytest.approx(values, abs=0.12)
    fitted = expit(found[0] * scores + found[1] * company + found[2])
    assert float(fitted.mean()) == pytest.approx(float(right.mean()), abs=1e-3)
    for chance, share, count in reliability(fitted, right):
        assert share == pytest.approx(chance, abs=0.02 + 2 / count**0.5)


def test_a_higher_score_is_never_a_lower_chance() -> None:
    scores, company, chances = drawn(-1.0, 0.0, 0.0)
    right = np.random.default_rng(2).random(len(chances)) < chances
    assert fit_chances(scores, company, right)[0] > 0


@pytest.mark.parametrize("right", [np.ones(50, dtype=bool), np.zeros(50, dtype=bool)])
def test_all_or_none_right_gives_finite_chances(right: NDArray[np.bool_]) -> None:
    scores = np.linspace(-3, 3, 50)
    found = fit_chances(scores, np.ones(50), right)
    assert np.isfinite(found).all()
    fitted = expit(found[0] * scores + found[1] + found[2])
    assert abs(float(fitted.mean()) - right.mean()) < 0.2


def test_bins_of_equal_width_by_hand() -> None:
    chances = np.array([0.05, 0.15, 0.12, 0.55, 0.5, 1.0, 0.99, 0.0])
    right = np.array([True, False, True, True, False, True, True, False])
    found = reliability(chances, right)
    expected = [(0.025, 0.5, 2), (0.135, 0.5, 2), (0.525, 0.5, 2), (0.995, 1.0, 2)]
    assert [bin_[2] for bin_ in found] == [2, 2, 2, 2]
    assert [bin_[:2] for bin_ in found] == [pytest.approx(bin_[:2]) for bin_ in expected]
    (both,) = reliability(chances, right, bins=1)
    assert both == pytest.approx((chances.mean(), 5 / 8, 8))
    assert reliability(chances[:0], right[:0]) == []


def held_out(*, seed: int = 0, spread: float = 0.5, documents: int = DOCUMENTS) -> Held:
    """Documents are noisy pictures of their label; some labels are frequent, most are rare."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(LABELS, size=documents, p=FREQUENCY)
    pictures = np.eye(LABELS)[labels] + spread * rng.standard_normal((documents, LABELS))
    filters = np.array([[row, (labels[row] + 1) % LABELS] for row in range(0, documents, 3)])
    truth = truth_of([[label] for label in labels.tolist()], LABELS)
    return Held(sparse.csr_array(pictures.astype(np.float32)), truth, filters, GAIN)


def instance_of(held: Held, *, classifier: float, text: float | None, cluster: float = 0.0) -> Instance:
    """Classifier, text and cluster each know the label as well as their number says, and noise besides."""
    generator = torch.Generator().manual_seed(3)

    def guess(knowledge: float) -> torch.Tensor:
        return knowledge * torch.eye(LABELS) + 0.7 * torch.randn(LABELS, LABELS, generator=generator)

    nothing = torch.zeros(LABELS, LABELS)
    encoder = FrozenEncoder(torch.eye(LABELS), torch.ones(LABELS), nothing, torch.zeros(LABELS), True)
    shortlister = Shortlister(encoder, guess(cluster), torch.zeros(LABELS), torch.arange(LABELS)[:, None])
    ranker = Ranker(encoder, guess(classifier), torch.zeros(LABELS))
    rarity = torch.as_tensor(np.log(held.inverse_propensity)).float()
    return Instance(shortlister, ranker, LABELS, first_blend(rarity, None if text is None else guess(text)))


def parts_of(instance: Instance, held: Held) -> Parts:
    rows = Rows.of(held.documents, CPU)
    return instance.parts(rows.columns, rows.starts, rows.values)


def learned(held: Held, instance: Instance) -> tuple[Instance, Notes]:
    notes = Notes()
    return replace(instance, blend=learn_blend("blend", held, instance, notes)), notes


def text_weight(classifier: float, text: float) -> float:
    held = held_out()
    made, _ = learned(held, instance_of(held, classifier=classifier, text=text))
    return made.blend.at(0.0)[0][0]


def test_text_weighs_more_the_more_it_knows() -> None:
    useless, equal, better = text_weight(5.0, 0.0), text_weight(3.0, 3.0), text_weight(0.5, 5.0)
    assert useless < 0.35
    assert useless < equal < better
    assert better >= 2.0


def test_clusters_weigh_more_the_more_they_know() -> None:
    held = held_out()
    weights = []
    for cluster in (0.0, 5.0):
        made, _ = learned(held, instance_of(held, classifier=1.5, text=None, cluster=cluster))
        weights.append(made.blend.at(0.0)[0][1])
    assert weights[0] < weights[1]
    assert weights[1] > 0.3


def test_without_texts_they_weigh_nothing() -> None:
    held = held_out()
    made, notes = learned(held, instance_of(held, classifier=3.0, text=None))
    assert made.blend.texts is None
    assert notes.facts["text_weight"] == 0
    assert all(made.blend.at(tail)[0][0] == 0 for tail in (0.0, 0.5, 1.0))


def test_the_blend_is_as_good_as_its_parts_alone_and_says_what_it_chose() -> None:
    held = held_out()
    instance = instance_of(held, classifier=3.0, text=3.0)
    made, notes = learned(held, instance)
    judge, parts = Judge(held, CPU), parts_of(instance, held)
    mixed = judge.precision(made.chances(parts_of(made, held), 0.0), parts.labels)
    alone = [judge.precision(blended(parts, weight, 0.0, 0.0), parts.labels) for weight in (0.0, 3.0)]
    assert mixed > max(alone)
    (of_text, of_cluster, of_rarity), _ = made.blend.at(0.0)
    assert of_rarity == 0
    assert (notes.facts["text_weight"], notes.facts["cluster_weight"]) == pytest.approx((of_text, of_cluster))
    assert notes.facts["module"] == "blend"
    assert 0 <= notes.facts["calibration_error"] < 0.03


def informed(held: Held, spread: float) -> Instance:
    """A classifier that weighs the evidence rightly, and knows how frequent labels are."""
    instance = instance_of(held, classifier=0.0, text=0.0)
    size = (1 + spread**2 * LABELS) ** 0.5  # of a picture, about
    bias = torch.as_tensor(np.log(FREQUENCY)).float()
    return replace(instance, ranker=replace(instance.ranker, weights=torch.eye(LABELS) * size / spread**2, bias=bias))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("spread", [0.4, 0.6])
def test_more_tail_finds_more_of_the_rare_and_no_tail_the_most(seed: int, spread: float) -> None:
    held = held_out(seed=seed, spread=spread, documents=3000)
    made, _ = learned(held, informed(held, spread))
    judge, parts = Judge(held, CPU), parts_of(made, held)
    chances = [made.chances(parts, tail) for tail in (0.0, 0.2, 0.5, 1.0)]
    rare = [judge.rare_precision(of, parts.labels) for of in chances]
    all_alike = [judge.precision(of, parts.labels) for of in chances]
    assert min(rare) >= rare[0] - 0.2
    assert rare[-1] > rare[0] + 1
    assert all_alike[0] >= max(all_alike) - 0.2
    assert all_alike[0] > all_alike[-1] + 1


@pytest.mark.parametrize("tail", [0.0, 0.25, 1.0])
def test_chances_are_right_as_often_as_they_say(tail: float) -> None:
    held = held_out(spread=0.4)
    made, _ = learned(held, informed(held, 0.4))
    judge, parts = Judge(held, CPU), parts_of(made, held)
    counted = ~judge.ignored(parts.labels)
    chances = made.chances(parts, tail).exp()[counted].double().numpy()
    right = judge.right(parts.labels)[counted].numpy()
    bins = reliability(chances, right)
    assert len(bins) > 5
    assert sum(abs(chance - share) * count for chance, share, count in bins) / len(right) < 0.02
    assert float(chances.mean()) == pytest.approx(float(right.mean()), abs=0.01)


def test_pairs_that_count_for_nothing_are_no_examples() -> None:
    held = held_out(spread=0.4)
    rows, labels = held.truth.nonzero()
    filtered = replace(held, filters=np.stack([rows, labels], axis=1)[rows % 5 < 2].astype(np.int64))
    made, _ = learned(filtered, informed(filtered, 0.4))
    judge, parts = Judge(filtered, CPU), parts_of(made, filtered)
    counted = ~judge.ignored(parts.labels)
    chances, right = made.chances(parts, 0.0).exp(), judge.right(parts.labels)
    assert int(right.sum()) == 360  # of 600, those that are not filtered
    assert float(chances[counted].sum()) == pytest.approx(360, rel=0.05)


def test_learning_a_blend_leaves_the_instance_as_it_was() -> None:
    held = held_out()
    instance = instance_of(held, classifier=3.0, text=3.0)
    before = {name: tensor.clone() for name, tensor in instance.tensors().items()}
    one, other = (learn_blend("blend", held, instance, Forgetful()) for _ in range(2))
    assert all(torch.equal(tensor, before[name]) for name, tensor in instance.tensors().items())
    assert all(torch.equal(tensor, other.tensors()[name]) for name, tensor in one.tensors().items())
    assert one.tails.tolist() == sorted(one.tails.tolist())
    assert (one.tails[0], one.tails[-1]) == (0, 1)
