"""Instances: the best labels against an obvious, slow computation, and arrays out and in again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from modules import random_rows
from scipy import sparse
from torch import Tensor
from torch.nn.functional import normalize

from decaf.networks import (
    Blend,
    FrozenEncoder,
    Instance,
    Level,
    Parts,
    Ranker,
    Shortlister,
    Words,
    blended,
    first_blend,
)

DIM, TOKENS = 5, 12
Documents = tuple[Tensor, Tensor, Tensor]


def encoder(seed: int, *, unit: bool = False) -> FrozenEncoder:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((TOKENS, DIM), (DIM,), (DIM, DIM), (DIM,))
    return FrozenEncoder(*(torch.randn(shape, generator=generator) for shape in shapes), unit)


def make(*, labels: int = 22, clusters: int = 8, beam: int = 3, unit: bool = False) -> Instance:
    """Clusters of three labels or two."""
    generator = torch.Generator().manual_seed(9)
    members = torch.full((clusters, -(-labels // clusters)), -1)
    for label, place in enumerate(torch.randperm(labels, generator=generator).tolist()):
        members[label % clusters, label // clusters] = place
    shortlister = Shortlister(
        encoder(1, unit=unit),
        torch.randn(clusters, DIM, generator=generator),
        torch.randn(clusters, generator=generator),
        members,
    )
    weights, bias = torch.randn(labels, DIM, generator=generator), torch.randn(labels, generator=generator)
    return Instance(shortlister, Ranker(encoder(2, unit=unit), weights, bias), beam)


def documents(rows: int = 9) -> tuple[sparse.csr_array, Documents]:
    matrix = random_rows(rows, TOKENS, seed=6)
    indices, starts = matrix.indices.astype(np.int64), matrix.indptr[:-1].astype(np.int64)
    return matrix, (torch.as_tensor(indices), torch.as_tensor(starts), torch.as_tensor(matrix.data))


def log_sigmoid(value: float) -> float:
    return -math.log1p(math.exp(-value))


def obvious_vectors(frozen: FrozenEncoder, matrix: sparse.csr_array) -> np.ndarray:
    table, scale, weight, bias = (array.double().numpy() for array in frozen[:4])
    bags = matrix.toarray().astype(np.float64) @ table
    vectors = scale * bags + np.maximum(0, bags) @ weight.T + bias
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if frozen.unit else np.maximum(0, vectors)


def obvious_top(instance: Instance, matrix: sparse.csr_array, top: int) -> list[list[tuple[int, float]]]:
    """log sigmoid(w.x + b) + log sigmoid(h.x + b), one label after another."""
    found = []
    shortlister, ranker = instance.shortlister, instance.ranker
    of_cluster = obvious_vectors(shortlister.encoder, matrix) @ shortlister.weights.double().numpy().T
    of_label = obvious_vectors(ranker.encoder, matrix) @ ranker.weights.double().numpy().T
    for row in range(matrix.shape[0]):
        clusters = {m: float(of_cluster[row, m] + shortlister.bias[m]) for m in range(len(shortlister.bias))}
        chances = {}
        for cluster in sorted(clusters, key=clusters.__getitem__, reverse=True)[: instance.beam]:
            for label in shortlister.members[cluster].tolist():
                if label >= 0:
                    logit = float(of_label[row, label] + ranker.bias[label])
                    chances[label] = log_sigmoid(logit) + log_sigmoid(clusters[cluster])
        found.append(sorted(chances.items(), key=lambda item: -item[1])[:top])
    return found


@pytest.mark.parametrize("labels", [22, 400])
@pytest.mark.parametrize("beam", [1, 3, 8, 50])
def test_the_best_labels_are_the_obvious_ones(labels: int, beam: int) -> None:
    instance = make(labels=labels, beam=beam)
    matrix, arguments = documents()
    ids, scores = instance.top(*arguments, 5)
    for row, expected in enumerate(obvious_top(instance, matrix, 5)):
        there = torch.isfinite(scores[row])
        assert ids[row][there].tolist() == [label for label, _ in expected]
        assert scores[row][there].tolist() == pytest.approx([score for _, score in expected], rel=1e-4)


def test_fewer_labels_than_asked_for_are_all_the_shortlist_has() -> None:
    ids, scores = make(labels=5, clusters=2, beam=1).top(*documents()[1], 10)
    assert ids.shape == scores.shape == (9, 3)  # one cluster of three, or of two and nobody
    assert torch.equal(ids < 0, torch.isneginf(scores))


def test_a_shortlist_is_best_first_with_its_scores() -> None:
    instance = make()
    matrix, arguments = documents()
    clusters, scores = instance.shortlister.top(*arguments, 3)
    logits = obvious_vectors(instance.shortlister.encoder, matrix) @ instance.shortlister.weights.double().numpy().T
    logits += instance.shortlister.bias.double().numpy()
    assert clusters.tolist() == np.argsort(-logits, axis=1)[:, :3].tolist()
    expected = [sorted(row, reverse=True)[:3] for row in logits.tolist()]
    assert scores.tolist() == [pytest.approx(row, rel=1e-4) for row in expected]


def test_labels_are_scored_alike_few_at_a_time_and_all_at_once() -> None:
    ranker = make(labels=400).ranker
    matrix, arguments = documents()
    vectors = ranker.encoder(*arguments)
    generator = torch.Generator().manual_seed(0)
    listed = torch.randint(-1, 400, (9, 60), generator=generator)  # so many that all labels are scored
    together = ranker.scores(vectors, listed)
    pieces = torch.cat([ranker.scores(vectors, piece) for piece in listed.split(6, dim=1)], dim=1)
    assert torch.allclose(together, pieces, atol=1e-5)
    logits = obvious_vectors(ranker.encoder, matrix) @ ranker.weights.double().numpy().T + ranker.bias.double().numpy()
    there = listed >= 0
    expected = torch.as_tensor(logits).gather(1, listed.clamp(min=0))
    assert torch.allclose(together[there].double(), expected[there], atol=1e-4)


def test_arrays_make_the_same_instance_again() -> None:
    instance = make()
    again = Instance.of(instance.tensors())
    assert again.beam == instance.beam
    assert all(torch.equal(tensor, again.tensors()[name]) for name, tensor in instance.tensors().items())
    _, arguments = documents()
    for found, expected in zip(again.top(*arguments, 4), instance.top(*arguments, 4), strict=True):
        assert torch.equal(found, expected)
    moved = instance.to(torch.device("cpu"))
    assert all(torch.equal(tensor, moved.tensors()[name]) for name, tensor in instance.tensors().items())


@pytest.mark.parametrize(
    "name",
    [
        *("ranker.encoder.scale", "ranker.bias", "shortlister.members", "blend.rarity", "blend.words.shares"),
        "blend.words.cue_bias",
    ],
)
def test_a_missing_array_makes_no_instance(name: str) -> None:
    tensors = replace(make(), blend=blend()).tensors()
    del tensors[name]
    with pytest.raises((KeyError, TypeError), match=name.split(".")[-1]):
        Instance.of(tensors)


def test_a_search_down_a_tree_multiplies_probabilities_and_follows_only_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("decaf.networks.instance._TREE_BEAM", 2)
    flat = make().shortlister  # 8 clusters below 4 nodes, two under each
    generator = torch.Generator().manual_seed(3)
    level = Level(torch.randn(4, DIM, generator=generator), torch.randn(4, generator=generator))
    tree = Shortlister(flat.encoder, flat.weights, flat.bias, flat.members, (level,))
    matrix, inputs = documents()
    clusters, scores = tree.top(*inputs, 3)
    for row, vector in enumerate(obvious_vectors(flat.encoder, matrix)):
        above = [log_sigmoid(float(vector @ w.double().numpy()) + float(b)) for w, b in zip(*level, strict=True)]
        followed = sorted(range(4), key=lambda node: -above[node])[:2]
        paths = {
            cluster: above[cluster // 2]
            + log_sigmoid(float(vector @ flat.weights[cluster].double().numpy()) + float(flat.bias[cluster]))
            for node in followed
            for cluster in (2 * node, 2 * node + 1)
        }
        expected = sorted(paths, key=lambda cluster: -paths[cluster])[:3]
        assert clusters[row].tolist() == expected
        np.testing.assert_allclose(scores[row].numpy(), [paths[cluster] for cluster in expected], rtol=1e-4, atol=1e-5)


def test_a_tree_survives_as_arrays() -> None:
    made = make()
    level = Level(torch.ones(4, DIM), torch.zeros(4))
    tree = Shortlister(
        made.shortlister.encoder,
        made.shortlister.weights,
        made.shortlister.bias,
        made.shortlister.members,
        (level, level),
    )
    again = Instance.of(Instance(tree, made.ranker, 3).tensors())
    assert len(again.shortlister.above) == 2
    assert torch.equal(again.shortlister.above[1].weights, level.weights)


WEIGHTS = [
    [1.0, 0.5, 0.25, 4.0, 0.5, 1.5, 0.0, -2.0, 0.25, -1.0, 0.5, 0.0, 1.0],
    [0.5, 1.0, 0.5, 2.0, 0.0, 0.5, 0.25, 0.0, 0.25, 0.0, 1.5, 0.5, 0.0],
    [1.0, 3.0, 0.0, 10.0, 1.0, 1.0, 1.0, 3.0, 0.5, -2.0, 0.0, 1.0, -1.0],
]


def words_of(labels: int) -> Words:
    """Three tokens of every label, and two cues."""
    generator = torch.Generator().manual_seed(7)
    tokens = torch.stack([torch.randperm(TOKENS, generator=generator)[:3] for _ in range(labels)])
    weights, shares = (torch.rand(labels, 3, generator=generator) for _ in range(2))
    cues = torch.stack([torch.randperm(TOKENS, generator=generator)[:2] for _ in range(labels)])
    of_cues = torch.randn(labels, 2, generator=generator), torch.randn(labels, generator=generator)
    return Words(tokens.int(), weights, shares, cues.int(), *of_cues, torch.rand(labels, 2, generator=generator))


def blend(*, labels: int = 22, texts: bool = True, words: bool = True) -> Blend:
    generator = torch.Generator().manual_seed(4)
    return Blend(
        torch.tensor([0.0, 0.5, 1.0]),
        torch.tensor(WEIGHTS),
        torch.tensor([[1.0, -1.0, 0.0], [0.5, -0.25, 0.5], [2.0, -1.5, -1.0]]),
        torch.randn(labels, generator=generator),
        torch.randn(labels, DIM, generator=generator) if texts else None,
        words_of(labels) if words else None,
    )


@pytest.mark.parametrize(
    ("tail", "weights", "chances"),
    [
        (0.0, WEIGHTS[0], [1.0, -1.0, 0.0]),
        (0.25, [0.75, 0.75, 0.375, 3.0, 0.25, 1.0, 0.125, -1.0, 0.25, -0.5, 1.0, 0.25, 0.5], [0.75, -0.625, 0.25]),
        (0.5, WEIGHTS[1], [0.5, -0.25, 0.5]),
        (0.6, [0.6, 1.4, 0.4, 3.6, 0.2, 0.6, 0.4, 0.6, 0.3, -0.4, 1.2, 0.6, -0.2], [0.8, -0.5, 0.2]),
        (1.0, WEIGHTS[2], [2.0, -1.5, -1.0]),
        (-1.0, WEIGHTS[0], [1.0, -1.0, 0.0]),
        (2.0, WEIGHTS[2], [2.0, -1.5, -1.0]),
    ],
)
def test_between_the_points_of_a_blend_there_are_lines(tail: float, weights: list[float], chances: list[float]) -> None:
    found = blend().at(tail)
    assert found[0] == pytest.approx(weights)
    assert found[1] == pytest.approx(chances)


@pytest.mark.parametrize("tail", [-1.0, 0.0, 0.3, 1.0])
def test_a_blend_of_one_point_is_the_same_everywhere(tail: float) -> None:
    values = (torch.tensor([0.0]), torch.tensor(WEIGHTS[:1]), torch.tensor([[1.0, -1.0, 0.0]]))
    assert Blend(*values, torch.zeros(2), None).at(tail) == (WEIGHTS[0], [1.0, -1.0, 0.0])


def obvious_words(words: Words | None, document: np.ndarray, label: int) -> tuple[float, float, float, float]:
    """Likeness to the label's documents, the logarithm of its share, what its classifier says, match with its text."""
    if words is None:
        return 0.0, 0.0, 0.0, 0.0
    tokens, weights, shares, cues, cue_weights, bias, matches = (array[label].tolist() for array in words)
    document = document / (float((document.astype(np.float64) ** 2).sum()) ** 0.5 or 1.0)
    likeness = sum(float(document[token]) * weight for token, weight in zip(tokens, weights, strict=True))
    share = sum(float(document[token]) * part for token, part in zip(tokens, shares, strict=True))
    linear = bias + sum(float(document[token]) * weight for token, weight in zip(cues, cue_weights, strict=True))
    match = sum(float(document[token]) * weight for token, weight in zip(cues, matches, strict=True))
    return likeness, math.log(share + 0.001), linear, match


def obvious_blend(instance: Instance, matrix: sparse.csr_array, top: int, tail: float) -> list[list[tuple[int, float]]]:
    """One label after another: weighted parts, their company in the document, and the logistic of both."""
    shortlister, ranker, mixed = instance.shortlister, instance.ranker, instance.blend
    assert mixed is not None
    weights, (slope, company, constant) = mixed.at(tail)
    of_classifier, of_text, of_cluster, of_likeness, of_share, of_linear, of_rarity, of_match = weights[:8]
    by_classifier, by_text, by_cluster, by_share, by_linear = weights[8:]
    vectors = obvious_vectors(shortlister.encoder, matrix)
    clusters = vectors @ shortlister.weights.double().numpy().T + shortlister.bias.double().numpy()
    of_labels = (
        obvious_vectors(ranker.encoder, matrix) @ ranker.weights.double().numpy().T + ranker.bias.double().numpy()
    )
    of_texts = np.zeros_like(of_labels) if mixed.texts is None else vectors @ mixed.texts.double().numpy().T
    found = []
    for row in range(matrix.shape[0]):
        scores = {}
        for cluster in sorted(range(len(clusters[row])), key=lambda m: -clusters[row, m])[: instance.beam]:
            for label in shortlister.members[cluster].tolist():
                if label >= 0:
                    rarity = float(mixed.rarity[label])
                    likeness, share, linear, match = obvious_words(mixed.words, matrix[[row]].toarray()[0], label)
                    scores[label] = (of_classifier + by_classifier * rarity) * of_labels[row, label]
                    scores[label] += (of_text + by_text * rarity) * of_texts[row, label]
                    scores[label] += (of_cluster + by_cluster * rarity) * clusters[row, cluster]
                    scores[label] += of_likeness * likeness + (of_share + by_share * rarity) * share
                    scores[label] += (of_linear + by_linear * rarity) * linear + of_rarity * rarity + of_match * match
        together = math.log(sum(math.exp(score) for score in scores.values()))
        chances = {label: log_sigmoid(slope * score + company * together + constant) for label, score in scores.items()}
        found.append(sorted(chances.items(), key=lambda item: -item[1])[:top])
    return found


@pytest.mark.parametrize("tail", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("texts", "words"), [(True, True), (False, True), (True, False), (False, False)])
@pytest.mark.parametrize("labels", [22, 400])
def test_a_blend_of_scores_is_the_obvious_one(tail: float, texts: bool, words: bool, labels: int) -> None:
    instance = replace(make(labels=labels, unit=True), blend=blend(labels=labels, texts=texts, words=words))
    matrix, arguments = documents()
    ids, scores = instance.top(*arguments, 5, tail=tail)
    for row, expected in enumerate(obvious_blend(instance, matrix, 5, tail)):
        assert ids[row].tolist() == [label for label, _ in expected]
        assert scores[row].tolist() == pytest.approx([score for _, score in expected], rel=1e-3, abs=1e-5)


def test_another_tail_gives_other_chances() -> None:
    instance = replace(make(), blend=blend())
    _, arguments = documents()
    scores = [instance.top(*arguments, 5, tail=tail)[1] for tail in (0.0, 0.5, 1.0)]
    assert not torch.allclose(scores[0], scores[1])
    assert not torch.allclose(scores[1], scores[2])
    assert torch.equal(instance.top(*arguments, 5)[1], scores[0])


def test_places_without_a_label_are_never_chosen_and_count_for_nothing() -> None:
    instance = replace(make(labels=5, clusters=2, beam=2), blend=blend(labels=5))
    _, arguments = documents()
    ids, scores = instance.top(*arguments, 10)
    assert ids.shape == (9, 6)
    assert torch.equal(ids < 0, torch.isneginf(scores))
    assert [sorted(row) for row in ids.tolist()] == [[-1, 0, 1, 2, 3, 4]] * 9
    full = Parts(*(torch.randn(1, 3, generator=torch.Generator().manual_seed(1)) for _ in Parts._fields))
    gap = torch.tensor([[0, 1, -1]])
    parts = full._replace(labels=gap)
    short = Parts(*(part[:, :2] for part in parts))
    long_chances, short_chances = instance.chances(parts, 0.5), instance.chances(short, 0.5)
    assert torch.allclose(long_chances[:, :2], short_chances, atol=1e-6)
    assert float(blended(parts, [1.0] * 13)[0, 2]) == -1e4


def test_each_part_has_its_own_weight_and_some_lean_on_rarity() -> None:
    rows = {name: torch.full((1, 2), 10.0**at, dtype=torch.float64) for at, name in enumerate(Parts._fields[1:])}
    parts = Parts(labels=torch.tensor([[3, -1]]), **rows)
    # Classifier, text, cluster, likeness, ... in the weights' order: digits tell them apart.
    assert blended(parts, [1, 2, 3, 4, 5, 6, 7, 8, *[0] * 5]).tolist() == [[87654321, -1e4]]
    # And what leans on rarity, a million here: classifier, text, cluster, share, linear.
    assert blended(parts, [*[0] * 8, 1, 2, 3, 4, 5]).tolist() == [[540321e6, -1e4]]
    assert Parts._fields[1:] == ("classifier", "text", "cluster", "likeness", "share", "linear", "rarity", "match")
    for wrong in ([1.0] * 12, [1.0] * 14):
        with pytest.raises(ValueError, match="zip"):
            blended(parts, wrong)


def test_parts_that_a_blend_does_not_have_are_nothing() -> None:
    _, arguments = documents()
    with_all = replace(make(), blend=blend()).parts(*arguments)
    with_none = replace(make(), blend=blend(texts=False, words=False)).parts(*arguments)
    assert all(bool((getattr(with_all, name) != 0).any()) for name in Parts._fields)
    for name in ("text", "likeness", "share", "linear", "match"):
        assert not getattr(with_none, name).any()
    assert not any(getattr(make().parts(*arguments), name).any() for name in Parts._fields[-5:])


@pytest.mark.parametrize("words", [True, False])
def test_before_any_was_chosen_a_chance_follows_the_share_among_all(words: bool) -> None:
    labels = 22
    texts = torch.randn(labels, DIM, generator=torch.Generator().manual_seed(1))
    blend = first_blend(torch.zeros(labels), texts, words_of(labels) if words else None)
    instance = replace(make(beam=8), blend=blend)
    _, arguments = documents()
    assert (blend.at(0.0)[0], blend.at(1.0)[0]) == (
        [1, 0.5, 0, 10, 0, 5, 0, 0, *[0] * 5],
        [1, 0.5, 0, 10, 0, 5, 1, 0, *[0] * 5],
    )
    parts = instance.parts(*arguments)
    expected = torch.zeros_like(parts.classifier)
    for row in range(len(parts.labels)):
        scores = parts.classifier[row] + 0.5 * parts.text[row] + 10 * parts.likeness[row] + 5 * parts.linear[row]
        for at in range(parts.labels.shape[1]):
            if parts.labels[row, at] >= 0:
                total = sum(math.exp(float(scores[j])) for j in range(len(scores)) if parts.labels[row, j] >= 0)
                expected[row, at] = math.exp(float(scores[at])) / total
    odds = instance.chances(parts, 0.0).exp()
    there = parts.labels >= 0
    # sigmoid(score - log-sum-exp) is share / (1 + share)
    assert torch.allclose(odds[there], (expected / (1 + expected))[there], rtol=1e-4)
    assert bool(parts.likeness.any()) == bool(parts.linear.any()) == words


@pytest.mark.parametrize(("texts", "words"), [(True, True), (False, True), (True, False), (False, False)])
def test_arrays_make_the_same_blend_again(texts: bool, words: bool) -> None:
    instance = replace(make(unit=True), blend=blend(texts=texts, words=words))
    again = Instance.of(instance.tensors())
    assert again.shortlister.encoder.unit
    assert again.blend is not None
    assert (again.blend.texts is None) is not texts
    assert (again.blend.words is None) is not words
    if words:
        assert all(torch.equal(one, other) for one, other in zip(again.blend.words, words_of(22), strict=True))
    assert again.tensors().keys() == instance.tensors().keys()
    _, arguments = documents()
    for tail in (0.0, 0.7):
        for found, expected in zip(
            again.top(*arguments, 4, tail=tail), instance.top(*arguments, 4, tail=tail), strict=True
        ):
            assert torch.equal(found, expected)
    assert Instance.of(make().tensors()).blend is None


def test_the_paths_down_a_tree_are_logarithms_already() -> None:
    """Without a blend, the chance of a label is that of the path to its cluster times its own."""
    flat = make()
    level = Level(torch.randn(4, DIM, generator=torch.Generator().manual_seed(3)), torch.zeros(4))
    above = (level,)
    tree = Shortlister(*(getattr(flat.shortlister, name) for name in ("encoder", "weights", "bias", "members")), above)
    instance = Instance(tree, flat.ranker, 8)
    _, arguments = documents()
    ids, scores = instance.top(*arguments, 5)
    clusters, paths = tree.top(*arguments, 8)
    cluster_of = {label: m for m, row in enumerate(tree.members.tolist()) for label in row if label >= 0}
    logits = flat.ranker.scores(flat.ranker.encoder(*arguments), ids)
    for row in range(9):
        for at in range(5):
            place = clusters[row].tolist().index(cluster_of[int(ids[row, at])])
            expected = log_sigmoid(float(logits[row, at])) + float(paths[row, place])
            assert float(scores[row, at]) == pytest.approx(expected, rel=1e-4)


def test_a_graph_finds_the_clusters_of_a_look_at_all_and_survives_as_arrays() -> None:
    flat = make(unit=True)
    shortlister = replace(flat.shortlister, bias=torch.zeros(8))
    searched = replace(shortlister, searched=True)
    _, arguments = documents()
    for found, expected in zip(searched.top(*arguments, 8), shortlister.top(*arguments, 8), strict=True):
        assert torch.allclose(found, expected, atol=1e-5)
    again = Instance.of(replace(flat, shortlister=searched).tensors())
    assert again.shortlister.searched
    assert not Instance.of(flat.tensors()).shortlister.searched
    assert torch.equal(again.shortlister.top(*arguments, 3)[0], searched.top(*arguments, 3)[0])


def with_tree(made: Instance) -> Instance:
    """Eight clusters under four nodes under two."""
    generator = torch.Generator().manual_seed(3)
    above = tuple(
        Level(torch.randn(nodes, DIM, generator=generator), torch.randn(nodes, generator=generator)) for nodes in (2, 4)
    )
    return replace(made, shortlister=replace(made.shortlister, above=above))


def with_graph(made: Instance) -> Instance:
    return replace(made, shortlister=replace(made.shortlister, bias=torch.zeros(8), searched=True))


def obvious_clusters(shortlister: Shortlister, matrix: sparse.csr_array, row: int) -> dict[int, float]:
    """What the cluster of each label scores; in a tree the path to it."""
    vector = obvious_vectors(shortlister.encoder, matrix)[row]

    def logit(level: Level, node: int) -> float:
        return float(vector @ level.weights[node].double().numpy()) + float(level.bias[node])

    leaves, scores = Level(shortlister.weights, shortlister.bias), {}
    for cluster, members in enumerate(shortlister.members.tolist()):
        found = logit(leaves, cluster)
        if shortlister.above:
            found, node = log_sigmoid(found), cluster
            for level in reversed(shortlister.above):
                node //= 2
                found += log_sigmoid(logit(level, node))
        scores |= {label: found for label in members if label >= 0}
    return scores


@pytest.mark.parametrize("listed", [1, 12, 30], ids=["few", "some", "more than there are"])
@pytest.mark.parametrize("kind", [lambda made: made, with_tree, with_graph], ids=["clusters", "tree", "graph"])
def test_clusters_of_labels_score_the_obvious_way(kind: Callable[[Instance], Instance], listed: int) -> None:
    shortlister = kind(make(unit=True)).shortlister
    matrix, arguments = documents()
    labels = torch.randint(22, (9, listed), generator=torch.Generator().manual_seed(2))
    scores = shortlister.scores(shortlister.encoder(*arguments), labels)
    for row in range(9):
        expected = obvious_clusters(shortlister, matrix, row)
        assert scores[row].tolist() == pytest.approx([expected[label] for label in labels[row].tolist()], abs=1e-4)


@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("kind", [lambda made: made, with_tree, with_graph], ids=["clusters", "tree", "graph"])
def test_parts_of_shortlisted_labels_are_those_of_the_shortlist(
    kind: Callable[[Instance], Instance], words: bool
) -> None:
    instance = kind(replace(make(labels=21, unit=True), blend=blend(labels=21, words=words)))
    _, arguments = documents()
    listed = instance.parts(*arguments)
    assert bool((listed.labels < 0).any())  # some clusters have two labels, not three
    order = torch.randperm(listed.labels.shape[1], generator=torch.Generator().manual_seed(5))
    for chosen in (order, order[:4], order.sort().values):
        found = instance.parts_of(*arguments, listed.labels[:, chosen])
        assert torch.equal(found.labels, listed.labels[:, chosen])
        there = found.labels >= 0
        for name in Parts._fields[1:]:
            expected = getattr(listed, name)[:, chosen]
            assert torch.allclose(getattr(found, name)[there], expected[there], atol=1e-5), name


def test_parts_of_labels_that_are_not_shortlisted_are_those_of_a_wider_look() -> None:
    instance = replace(make(beam=1, unit=True), blend=blend())
    _, arguments = documents()
    everything = replace(instance, beam=8).parts(*arguments)
    found = instance.parts_of(*arguments, everything.labels)
    there = everything.labels >= 0
    assert int((everything.labels >= 0).sum()) == 9 * 22
    for name in Parts._fields[1:]:
        assert torch.allclose(getattr(found, name)[there], getattr(everything, name)[there], atol=1e-5), name


def test_parts_of_an_instance_without_a_blend_are_its_classifier_and_clusters() -> None:
    instance = make(beam=8)
    _, arguments = documents()
    listed = instance.parts(*arguments)
    found = instance.parts_of(*arguments, listed.labels)
    there = listed.labels >= 0
    for name in ("classifier", "cluster"):
        assert torch.allclose(getattr(found, name)[there], getattr(listed, name)[there], atol=1e-4)
    assert not any(getattr(found, name).any() for name in ("text", "likeness", "share", "linear", "rarity"))


def test_what_a_graph_did_not_find_lists_no_label_twice() -> None:
    """Labels that share their documents have one centre, and a graph of such loses some of them."""
    labels = 3000
    centres = normalize(encoder(5).table[:10], dim=1)[torch.arange(labels) % 10]
    shortlister = Shortlister(
        encoder(1, unit=True), centres, torch.zeros(labels), torch.arange(labels)[:, None], searched=True
    )
    ranker = Ranker(encoder(2, unit=True), torch.ones(labels, DIM), torch.zeros(labels))
    instance = Instance(shortlister, ranker, 300, first_blend(torch.zeros(labels), None))
    for row in instance.parts(*documents()[1]).labels.tolist():
        there = [label for label in row if label >= 0]
        assert len(there) == len(set(there))
