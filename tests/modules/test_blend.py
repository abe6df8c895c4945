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
from decaf.networks import LEANING, FrozenEncoder, Instance, Parts, Ranker, Rows, Shortlister, Words, first_blend

from . import truth_of

CPU = torch.device("cpu")
LABELS, DOCUMENTS = 24, 600
FREQUENCY = 1 / np.arange(1, LABELS + 1) / (1 / np.arange(1, LABELS + 1)).sum()
GAIN = 1 + 20 * np.arange(1, LABELS + 1) / LABELS  # inverse propensities
NAMES = Parts._fields[1:]
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


def held_out(*, seed: int = 0, spread: float = 0.5, documents: int = DOCUMENTS, positive: bool = False) -> Held:
    """Documents are noisy pictures of their label; some labels are frequent, most are rare."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(LABELS, size=documents, p=FREQUENCY)
    pictures = np.eye(LABELS)[labels] + spread * rng.standard_normal((documents, LABELS))
    pictures = np.maximum(pictures, 0) if positive else pictures  # as the tokens of a text weigh
    filters = np.array([[row, (labels[row] + 1) % LABELS] for row in range(0, documents, 3)])
    truth = truth_of([[label] for label in labels.tolist()], LABELS)
    return Held(sparse.csr_array(pictures.astype(np.float32)), truth, filters, GAIN, np.ones(documents))


def instance_of(
    held: Held,
    *,
    classifier: float,
    text: float | None = None,
    cluster: float = 0.0,
    words: tuple[float, float, float] | None = None,
) -> Instance:
    """Classifier, text, cluster and words each know the label as well as their number says, and noise besides."""
    generator = torch.Generator().manual_seed(3)

    def guess(knowledge: float) -> torch.Tensor:
        return knowledge * torch.eye(LABELS) + 0.7 * torch.randn(LABELS, LABELS, generator=generator)

    nothing = torch.zeros(LABELS, LABELS)
    encoder = FrozenEncoder(torch.eye(LABELS), torch.ones(LABELS), nothing, torch.zeros(LABELS), True)
    shortlister = Shortlister(encoder, guess(cluster), torch.zeros(LABELS), torch.arange(LABELS)[:, None])
    ranker = Ranker(encoder, guess(classifier), torch.zeros(LABELS))
    rarity = torch.as_tensor(np.log(held.inverse_propensity)).float()
    texts = None if text is None else guess(text)
    known = None if words is None else words_of(*words)
    return Instance(shortlister, ranker, LABELS, first_blend(rarity, texts, known))


def words_of(likeness: float, share: float, linear: float, match: float = 0.0) -> Words:
    """Every label has all tokens, its own above the others as much as it is known by it."""
    noise = torch.Generator().manual_seed(5)
    weights = likeness * torch.eye(LABELS) + 0.07 * torch.randn(LABELS, LABELS, generator=noise)
    shares = share * torch.eye(LABELS) + 0.3 * torch.rand(LABELS, LABELS, generator=noise)
    cue_weights = linear * torch.eye(LABELS) + 0.2 * torch.randn(LABELS, LABELS, generator=noise)
    every = torch.arange(LABELS, dtype=torch.int32).repeat(LABELS, 1)
    bias = 0.1 * torch.randn(LABELS, generator=noise)
    matches = match * torch.eye(LABELS) + 0.1 * torch.rand(LABELS, LABELS, generator=noise)
    return Words(every, weights, shares, every, cue_weights, bias, matches)


def parts_of(instance: Instance, held: Held) -> Parts:
    rows = Rows.of(held.documents, CPU)
    return instance.parts(rows.columns, rows.starts, rows.values)


def learned(held: Held, instance: Instance, *, tail: float = 0.0) -> tuple[Instance, Notes]:
    notes = Notes()
    assert instance.blend is not None
    standing = replace(instance, blend=replace(instance.blend, tail=tail))
    return replace(instance, blend=learn_blend("blend", held, standing, notes)), notes


def head(held: Held, instance: Instance) -> dict[str, float]:
    """What each part weighs at the head, for a label of usual rarity."""
    made, _ = learned(held, instance)
    return weights_at(made, 0.0)


def weights_at(made: Instance, tail: float) -> dict[str, float]:
    assert made.blend is not None
    weights, _ = made.blend.at(tail)
    usual = float(made.blend.rarity.mean())
    found = dict(zip(NAMES, weights[: len(NAMES)], strict=True))
    return found | {name: found[name] + usual * by for name, by in zip(LEANING, weights[len(NAMES) :], strict=True)}


def test_text_weighs_more_the_more_it_knows() -> None:
    held = held_out()
    useless, equal, better = (
        head(held, instance_of(held, classifier=classifier, text=text))["text"]
        for classifier, text in ((5.0, 0.0), (3.0, 3.0), (0.5, 5.0))
    )
    assert useless < 0.5
    assert useless + 0.1 < equal < better - 0.1
    assert better > 1.1


def test_clusters_weigh_more_the_more_they_know() -> None:
    held = held_out()
    useless, better = (head(held, instance_of(held, classifier=1.5, cluster=cluster)) for cluster in (0.0, 5.0))
    assert useless["cluster"] < 0.6 * useless["classifier"]
    assert better["cluster"] > 1.2 * better["classifier"]


def test_words_weigh_more_the_more_they_know() -> None:
    held = held_out(positive=True)
    useless, alike, shared, told = (
        head(held, instance_of(held, classifier=1.5, words=words))
        for words in ((0.0, 0.0, 0.0), (0.5, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.5))
    )
    assert max(useless["likeness"], shared["likeness"]) < 8
    assert alike["likeness"] > 12
    assert useless["share"] + 0.3 < shared["share"]
    assert max(words["linear"] for words in (useless, alike, shared)) < 5
    assert told["linear"] > 6


def test_a_match_of_words_may_speak_for_a_label_or_against_it() -> None:
    held = held_out(positive=True)

    def weight(match: float) -> float:
        instance = instance_of(held, classifier=1.5)
        assert instance.blend is not None
        blend = replace(instance.blend, words=words_of(0.0, 0.0, 0.0, match))
        return head(held, replace(instance, blend=blend))["match"]

    assert weight(1.0) > 0 > weight(-1.0)
    assert weight(-1.0) < -5


def test_where_the_linear_classifier_alone_tells_labels_apart_it_is_what_counts() -> None:
    held = held_out(positive=True)
    instance = instance_of(held, classifier=0.0, text=0.0, words=(0.0, 0.0, 1.5))
    made, _ = learned(held, instance)
    assert weights_at(made, 0.0)["linear"] > 7
    judge, parts = Judge(held, CPU), parts_of(made, held)
    found = judge.figures(made.chances(parts, 0.0), parts.labels)
    others = judge.figures(made.chances(parts._replace(linear=torch.zeros_like(parts.linear)), 0.0), parts.labels)
    assert found.p1 > others.p1 + 25


def test_parts_that_are_not_there_weigh_nothing() -> None:
    held = held_out(positive=True)
    for text, words in ((None, None), (3.0, None), (None, (0.5, 0.5, 0.5)), (3.0, (0.5, 0.5, 0.5))):
        made, notes = learned(held, instance_of(held, classifier=3.0, text=text, words=words))
        assert (made.blend.texts is None, made.blend.words is None) == (text is None, words is None)
        there = {"classifier", "cluster", "rarity"} | ({"text"} if text else set())
        there |= {"likeness", "share", "linear", "match"} if words else set()
        for weights in made.blend.weights.tolist():
            named = zip((*NAMES, *LEANING), weights, strict=True)
            assert all((weight != 0) == (name in there) for name, weight in named)
        assert all(notes.facts[name] == 0 for name in NAMES if name not in there)


@pytest.mark.parametrize("tail", [0.0, 0.4, 1.0])
def test_the_blend_is_better_than_its_parts_alone_and_says_what_it_chose(tail: float) -> None:
    held = held_out(positive=True)
    instance = instance_of(held, classifier=3.0, text=3.0, cluster=2.0, words=(0.3, 0.3, 0.5))
    made, notes = learned(held, instance, tail=tail)
    judge, parts = Judge(held, CPU), parts_of(instance, held)
    chances = made.chances(parts_of(made, held), tail)
    alone = [judge.figures(part, parts.labels) for part in parts[1:]]
    figures = judge.figures(chances, parts.labels)
    assert all(more > max(others) for more, *others in zip(figures, *alone, strict=True))
    weights, _ = made.blend.at(tail)
    by_rarity = [f"{name} by rarity" for name in LEANING]
    assert set(notes.facts) == {*NAMES, *by_rarity, "module", "tail", "calibration_error", "P@1", "PSP@1"}
    assert (notes.facts["module"], notes.facts["tail"]) == ("blend", tail)
    assert [notes.facts[name] for name in (*NAMES, *by_rarity)] == pytest.approx(weights)
    assert (notes.facts["P@1"], notes.facts["PSP@1"]) == pytest.approx((figures.p1, figures.psp1))
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
    held = held_out(seed=seed, spread=spread, documents=2000)
    made, _ = learned(held, informed(held, spread))
    judge, parts = Judge(held, CPU), parts_of(made, held)
    found = [judge.figures(made.chances(parts, tail), parts.labels) for tail in (0.0, 0.2, 0.5, 1.0)]
    rare, all_alike = [each.psp1 + each.psp5 for each in found], [each.p1 + each.p5 for each in found]
    assert max(rare) < rare[-1] + 0.2
    assert rare[-1] > rare[0] + 1
    assert max(all_alike) < all_alike[0] + 0.4
    assert all_alike[0] > all_alike[-1] + 1
    first, last = (weights_at(made, tail) for tail in (0.0, 1.0))
    assert last["rarity"] > first["rarity"] + 0.5


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


def test_a_bounded_tail_goes_as_far_as_it_costs_little() -> None:
    held = held_out(seed=1, spread=0.5, documents=2000)
    instance = informed(held, 0.5)
    assert instance.blend is not None

    def stands(held: Held, tail: float) -> float:
        standing = replace(instance, blend=replace(instance.blend, tail=tail))
        return learn_blend("blend", held, standing, Forgetful(), bounded=True).tail

    assert stands(held, 0.0) == 0
    costly = stands(held, 1.0)  # the tail pays with right answers here
    assert 0 < costly < 0.8
    assert stands(replace(held, inverse_propensity=np.ones(LABELS)), 0.7) == 0.7  # all labels are worth the same
    made, _ = learned(held, instance, tail=1.0)
    assert made.blend.tail == 1.0  # as it was asked for
    judge, parts = Judge(held, CPU), parts_of(made, held)
    precise = [judge.figures(made.chances(parts, tail), parts.labels).p1 for tail in (0.0, costly, 1.0)]
    assert precise[0] - precise[1] < 2 < precise[0] - precise[2]
