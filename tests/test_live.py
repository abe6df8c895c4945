"""Live labels: their scores by hand, what they leave alone, and answers as if they had been trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from live_models import KINDS, SPARE, changes_of, merged, model_of
from modules import topics
from numpy.typing import NDArray
from scipy import sparse

from decaf import Model, ModelError, Predictions, Predictor
from decaf.datasets import Items
from decaf.live import Live
from decaf.networks import LEANING, Instance, LabelTexts, Parts, Rows, blended
from decaf.packed import Encoder, Labels, Overlay, Packed, whole
from decaf.scoring.exact import ExactScorer
from decaf.scoring.fast import FastScorer
from decaf.scoring.scorer import Changes

CPU = torch.device("cpu")
Numbers = NDArray[Any]
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
OF_ONE_INSTANCE = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "two instances"])
PRECISIONS = pytest.mark.parametrize("precision", ["float32", "int8", "int4"])
# New ones, one without a word the model knows, one as it was never trained; changed ones; hidden ones.
MANY: dict[str, str | None] = {
    "new": "topic zq of the",
    "twin": "topic zq of the",
    "other": "and topic",
    "odd/id ?": "the of and",
    "unknown": "漢",
    "L0": "topic aa",
    "L5": "the topic of af",
    "L3": "topic and the other",
    "L7": "of",
    "L9": None,
    "L11": None,
}


@pytest.fixture(scope="module")
def texts() -> list[str]:
    found = list(topics().test.documents.texts or [])[:20]
    return [*found, *(text for text in MANY.values() if text is not None), "topic ac", "", "漢"]


def all_found(predictor: Predictor, texts: list[str]) -> list[dict[str, float]]:
    """Labels of each text by id, the best first, and their chances."""
    labels = predictor.labels
    return [{labels.id(row): score for row, score in matches} for matches in predictor.predict(texts, top=30)]


def found(predictor: Predictor, text: str) -> dict[str, float]:
    return all_found(predictor, [text])[0]


def same(one: Predictions, other: Predictions) -> bool:
    return np.array_equal(one.ids, other.ids) and np.array_equal(one.scores, other.scores)


def close(one: Predictions, other: Predictions) -> bool:
    """Labels of equal chances, but for rounding, may come in any order."""
    if not np.allclose(one.scores, other.scores, atol=1e-5):
        return False
    for row, scores in enumerate(other.scores):
        for at in np.flatnonzero(one.ids[row] != other.ids[row]):
            if not np.any(np.abs(np.delete(scores, at) - scores[at]) < 1e-5):
                return False
    return True


# By hand.


def row_of(model: Model, text: str) -> Numbers:
    assert model.features is not None
    return model.features.transform([text]).toarray()[0].astype(np.float64)


def vector_of(model: Model, made: LabelTexts | None, encoder: Encoder, text: str) -> Numbers:
    """A text by a network of label texts."""
    table = whole(encoder.table, encoder.scales).astype(np.float64)
    if made is None:
        return np.zeros(table.shape[1])
    bag = row_of(model, text) @ table
    vector = made.scale.numpy() * bag + made.weight.numpy() @ np.maximum(bag, 0) + made.bias.numpy()
    if bool(made.unit[0]):
        vector /= np.linalg.norm(vector)
    return made.factor.numpy() * vector


def text_part(model: Model, packed: Packed, text: str) -> Numbers:
    """What a text makes of a classifier."""
    if packed.texts is None:
        return vector_of(model, packed.near_texts, packed.near, text)
    return vector_of(model, packed.texts, packed.far, text)


def rows_of(row: Numbers) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows = Rows.of(sparse.csr_array(row[None].astype(np.float32)), CPU)
    return rows.columns, rows.starts, rows.values


def parts_of(instance: Instance, row: Numbers, label: int) -> dict[str, float]:
    values = instance.parts_of(*rows_of(row), torch.tensor([[label]]))
    return {name: float(value[0, 0]) for name, value in zip(Parts._fields, values, strict=True)}


def score_by_hand(model: Model, packed: Packed, instance: Instance, text: str) -> dict[str, float]:
    """The parts of the score of a label that has the text and nothing else, for a document that is the text too.

    Each is what it is for the trained labels and their own texts, in the mean.
    """
    own = [model.labels.text(int(row)) for row in model.kept]
    each = [parts_of(instance, row_of(model, one), label) for label, one in enumerate(own)]
    mean = {name: float(np.mean([parts[name] for parts in each])) for name in Parts._fields[1:]}
    bias = float(instance.ranker.bias.mean())
    far = [instance.ranker.encoder(*rows_of(row_of(model, one)))[0].numpy() for one in own]
    of_texts = np.mean([text_part(model, packed, one) @ vector for one, vector in zip(own, far, strict=True)])
    factor = (mean["classifier"] - bias) / of_texts if of_texts > 0 else 1.0
    row = row_of(model, text)
    document = instance.ranker.encoder(*rows_of(row))[0].numpy()
    near = instance.shortlister.encoder(*rows_of(row))[0].numpy()
    _, of_cluster = instance.shortlister.nearest(torch.as_tensor(near)[None], instance.beam)
    share = max(0.0, np.mean([np.exp(parts["share"]) for parts in each]) - 1e-3)
    return {
        "classifier": factor * text_part(model, packed, text) @ document + bias,
        "text": vector_of(model, packed.near_texts, packed.near, text) @ near,
        "cluster": float(of_cluster.max()),
        "likeness": 1.0,  # the same words
        "share": float(np.log(share + 1e-3)),
        "linear": mean["linear"],
        "rarity": max(parts["rarity"] for parts in each),
        "match": 1.0,
    }


@pytest.mark.parametrize("kind", ["contrastive", "no words", "hnsw"])
@pytest.mark.parametrize("tail", [0.0, 0.8])
@pytest.mark.parametrize("text", ["topic zq", "of the topic and of topic", "the"])
def test_an_added_label_scores_for_its_own_text_what_rare_labels_score_for_theirs(
    kind: str, tail: float, text: str
) -> None:
    model = model_of(kind)
    ((packed,), (instance,)) = model.packed, model.instances
    parts = instance.parts(*rows_of(row_of(model, text)))
    assert instance.blend is not None
    weights, (slope, company, constant) = instance.blend.at(tail)
    if kind == "no words":
        for at in (3, 4, 5, 7, 11, 12):  # likeness, share, linear and match; share and linear by rarity
            weights[at] = 0.0
    by_hand = score_by_hand(model, packed, instance, text)
    own = sum(w * by_hand[name] for w, name in zip(weights[:8], Parts._fields[1:], strict=True))
    own += by_hand["rarity"] * sum(w * by_hand[name] for w, name in zip(weights[8:], LEANING, strict=True))
    listed = parts.labels[0] >= 0
    others = dict(zip(parts.labels[0, listed].tolist(), blended(parts, weights)[0, listed].tolist(), strict=True))
    scores = {model.labels.id(int(model.kept[number])): score for number, score in others.items()} | {"new": own}
    total = np.logaddexp.reduce(list(scores.values()))
    expected = {
        label: 1 / (1 + np.exp(-(slope * score + company * total + constant))) for label, score in scores.items()
    }
    answer = found(Predictor(model, tail=tail, changes=changes_of({"new": text})), text)
    assert answer == pytest.approx(expected, rel=1e-3, abs=1e-7)


@pytest.mark.parametrize("kind", ["paper", "refinement alone"])
@pytest.mark.parametrize("text", ["topic zq", "of the topic and of topic", "the"])
def test_in_the_paper_s_way_its_chance_is_its_own_times_its_cluster_s(kind: str, text: str) -> None:
    model = model_of(kind)
    ((packed,), (instance,)) = model.packed, model.instances
    by_hand = score_by_hand(model, packed, instance, text)
    expected = np.prod([1 / (1 + np.exp(-by_hand[name])) for name in ("classifier", "cluster")])
    answer = found(Predictor(model, changes=changes_of({"new": text})), text)
    assert answer["new"] == pytest.approx(expected, rel=1e-3)


@EVERY_KIND
@PRECISIONS
def test_an_added_label_is_found_for_its_own_text(kind: str, precision: str) -> None:
    predictor = Predictor(model_of(kind, precision), changes=changes_of({"new": "the other topic of zq"}))
    assert "new" in list(found(predictor, "the other topic of zq"))[:5]
    if KINDS[kind][0] == "contrastive":
        assert next(iter(found(predictor, "the other topic of zq"))) == "new"
    assert found(predictor, "") == {}


# What was trained and not changed.


@OF_ONE_INSTANCE
def test_trained_labels_stay_in_their_order(kind: str, texts: list[str]) -> None:
    model = model_of(kind)
    before, after = Predictor(model), Predictor(model, changes=changes_of({"new": "topic zq", "other": "of the"}))
    for one, other in zip(all_found(before, texts), all_found(after, texts), strict=True):
        assert [label for label in other if label not in ("new", "other")] == list(one)


@pytest.mark.parametrize("kind", ["paper", "refinement alone", "tree as in the paper"])
def test_and_where_chances_do_not_depend_on_the_company_theirs_stay_to_the_last_bit(
    kind: str, texts: list[str]
) -> None:
    model = model_of(kind)
    before, after = Predictor(model), Predictor(model, changes=changes_of({"new": "topic zq", "L3": None, "L4": None}))
    for one, other in zip(all_found(before, texts), all_found(after, texts), strict=True):
        expected = {label: score for label, score in one.items() if label not in ("L3", "L4")}
        assert {label: score for label, score in other.items() if label != "new"} == expected


@EVERY_KIND
@pytest.mark.parametrize("fast", [True, False])
def test_hidden_labels_never_come_and_the_others_stay_in_their_order(kind: str, fast: bool, texts: list[str]) -> None:
    model, hidden = model_of(kind), {"L1", "L2", "L8", "L0"}
    before = Predictor(model, fast=fast)
    after = Predictor(model, fast=fast, changes=changes_of(dict.fromkeys(hidden)))
    came = set()
    for one, other in zip(all_found(before, texts), all_found(after, texts), strict=True):
        came |= one.keys() & hidden
        expected = [label for label in one if label not in hidden]
        if kind == "two instances":  # each has its company, and the mean of the chances another order
            assert set(other) == set(expected)
        else:
            assert list(other) == expected
    assert came == hidden - {"L0"}  # which was not trained


@EVERY_KIND
@pytest.mark.parametrize("fast", [True, False])
def test_where_all_labels_are_hidden_there_are_no_answers(kind: str, fast: bool, texts: list[str]) -> None:
    model = model_of(kind)
    everything = dict.fromkeys(f"L{row}" for row in range(24))
    nothing = Predictor(model, fast=fast, changes=changes_of(everything)).predict(texts, top=3)
    assert (nothing.ids == -1).all()
    one = Predictor(model, fast=fast, changes=changes_of(everything | {"new": "topic zq"}))
    assert list(found(one, "topic zq")) == ["new"]


@EVERY_KIND
def test_without_changes_nothing_changes_by_a_bit(kind: str, texts: list[str]) -> None:
    model = model_of(kind)
    assert model.features is not None
    rows = model.features.transform(texts)
    expected, exact = FastScorer(model).top(rows, 9), ExactScorer(model, CPU).top(rows, 9)
    own = {"L3": "topic ad", "gone": None}  # its own text; one that never was
    for changes in ({}, own):
        live = Live(model, changes_of(changes))
        assert not live.labels.changed
        assert live.changes.rows is model.kept
        assert same(FastScorer(model, changes=live.changes).top(rows, 9), expected)
        assert same(Predictor(model, changes=changes_of(changes)).predict(texts, top=9), expected)
        assert same(Predictor(model, changes=changes_of(changes), fast=False).predict(texts, top=9), exact)
    back = Predictor(model, changes=changes_of(MANY)).updated([])
    assert same(back.predict(texts, top=9), expected)


# Changed texts.


def by_token(labels: Labels, values: str, scales: str, at: int) -> dict[int, float]:
    """What the cues of a label weigh, but for nothing."""
    weights = whole(getattr(labels, values), getattr(labels, scales))[at]
    return {int(token): float(weight) for token, weight in zip(labels.cues[at], weights, strict=True) if weight}


@pytest.mark.parametrize("kind", ["contrastive", "two instances", "no words", "paper", "tree", "hnsw"])
@PRECISIONS
def test_a_changed_text_takes_the_place_of_the_old_one_and_what_was_learned_stays(kind: str, precision: str) -> None:
    model = model_of(kind, precision)
    changes = Live(model, changes_of({"L3": "of the topic"})).changes
    number = model.kept.tolist().index(3)
    assert changes.rows.tolist() == [*model.kept.tolist(), 3]
    for packed, overlay in zip(model.packed, changes.overlays, strict=True):
        place, cluster = packed.place(overlay, number)
        old, new = packed.labels, overlay.added
        assert packed.place(overlay, len(model.kept)) == (0, cluster)
        assert overlay.hidden.tolist() == [row == 3 for row in model.kept]
        expected = whole(old.weights, old.weight_scales)[place].astype(np.float64)
        expected += text_part(model, packed, "of the topic") - text_part(model, packed, "topic ad")
        step = 0 if precision == "float32" else new.weight_scales[0] / 2
        assert np.abs(whole(new.weights, new.weight_scales)[0] - expected).max() <= step + 1e-4
        assert np.abs(expected - whole(old.weights, old.weight_scales)[place]).max() > 0.1
        for name, array in old._asdict().items():
            changed = ("bounds", "numbers", "weights", "weight_scales", "texts", "text_scales")
            if name not in changed and not name.startswith(("cue", "match")):
                assert np.array_equal(getattr(new, name), array[place : place + 1]), name
        if len(old.cues):
            assert new.cue_bias[0] == old.cue_bias[place]
            was, learned = (by_token(of, "cue_weights", "cue_scales", at) for of, at in ((old, place), (new, 0)))
            error = 0 if precision == "float32" else 2 * old.cue_scales[place]
            assert all(abs(was[token] - weight) <= error for token, weight in learned.items())
            text = {
                token: float(weight) for token, weight in enumerate(row_of(model, "of the topic").ravel()) if weight
            }
            assert by_token(new, "matches", "match_scales", 0) == pytest.approx(text, abs=0.005)
        if len(old.texts):
            vector = vector_of(model, packed.near_texts, packed.near, "of the topic")
            step = 0 if precision == "float32" else new.text_scales[0] / 2
            assert np.abs(whole(new.texts, new.text_scales)[0] - vector).max() <= step + 1e-4


def test_a_refinement_alone_has_no_text_to_change(texts: list[str]) -> None:
    model = model_of("refinement alone")
    changed = Predictor(model, changes=changes_of({"L3": "of the topic"}))
    assert changed.labels.text(3) == "of the topic"
    for one, other in zip(all_found(Predictor(model), texts), all_found(changed, texts), strict=True):
        assert other == pytest.approx(one)


def test_a_changed_label_is_still_found_by_what_it_learned() -> None:
    model = model_of()
    predictor = Predictor(model, changes=changes_of({"L3": "the of and"}))
    rows = [row for row in range(120) if row % 24 == 3]  # test documents of this topic
    documents = [(topics(spare=SPARE).test.documents.texts or [])[row] for row in rows]
    given = (Predictor(model), predictor)
    before, after = ([one["L3"] for one in all_found(by, documents)] for by in given)
    assert len(before) == len(after) == 5
    assert np.mean(after) > 0.5 * np.mean(before)


# As if they had been trained.


@EVERY_KIND
@PRECISIONS
def test_answers_are_those_of_a_model_that_has_the_labels_as_its_own(
    kind: str, precision: str, texts: list[str]
) -> None:
    model = model_of(kind, precision)
    live = Live(model, changes_of(MANY))
    assert model.features is not None
    rows, one = model.features.transform(texts), merged(live)
    expected = ExactScorer(one, CPU).top(rows, 9)
    fast, exact = FastScorer(model, changes=live.changes), ExactScorer(model, CPU, changes=live.changes)
    assert close(exact.top(rows, 9), expected)
    of_fast = FastScorer(one).top(rows, 9)
    if precision == "float32":  # or documents are rounded too, and clusters that are as good as equal change places
        assert close(of_fast, expected)
    assert close(fast.top(rows, 9), of_fast)
    for at in range(0, len(texts), 7):  # the way that one document goes
        assert close(fast.top(rows[at : at + 1], 9), Predictions(of_fast.ids[at][None], of_fast.scores[at][None]))
    assert fast.labels == exact.labels == live.labels.count == 29
    came = {live.labels.id(int(row)) for row in np.unique(expected.ids) if row >= 0}
    assert came >= {"new", "twin", "L0", "L5"}
    assert not came & {"unknown", "L9", "L11"}


@pytest.mark.parametrize("tail", [0.0, 1.0])
def test_and_they_lean_as_told_for_each_call(tail: float, texts: list[str]) -> None:
    model = model_of("two instances")
    live = Live(model, changes_of(MANY))
    assert model.features is not None
    rows, expected = model.features.transform(texts), ExactScorer(merged(live), CPU, tail=tail)
    for scorer in (FastScorer(model, changes=live.changes), ExactScorer(model, CPU, changes=live.changes)):
        assert close(scorer.top(rows, 9, tail=tail), expected.top(rows, 9))
        assert not close(scorer.top(rows, 9), expected.top(rows, 9))


def test_labels_of_one_text_are_equal_and_the_later_goes_first() -> None:
    for order in (["a", "b", "c"], ["c", "a", "b"]):
        predictor = Predictor(model_of(), changes=changes_of(dict.fromkeys(order, "topic zq")))
        (a, b, c), _ = zip(*list(found(predictor, "topic zq").items())[:3], strict=True)
        assert [a, b, c] == order[::-1]


def arrays_of(changes: Changes) -> list[Numbers]:
    overlays = [array for one in changes.overlays for array in (*one.added, one.hidden)]
    return [*overlays, changes.rows, np.array(changes.labels)]


@EVERY_KIND
@PRECISIONS
def test_updates_end_where_a_new_beginning_does_to_the_last_bit(kind: str, precision: str, texts: list[str]) -> None:
    model = model_of(kind, precision)
    without = {label: text for label, text in MANY.items() if label not in ("new", "L3", "L9")}
    steps: list[dict[str, str | None]] = [
        {"twin": "and topic"},
        MANY,
        without | {"a": "the first"},
        {"L3": None, "L9": "topic", **without},
        dict(reversed(MANY.items())),
        {},
        MANY,
    ]
    predictor = Predictor(model)
    for step in steps:
        predictor = predictor.updated(changes_of(step))
        fresh = Predictor(model, changes=changes_of(step))
        given = zip(arrays_of(predictor._live.changes), arrays_of(fresh._live.changes), strict=True)
        assert all(one.dtype == other.dtype and np.array_equal(one, other) for one, other in given)
        assert same(predictor.predict(texts), fresh.predict(texts))
        count = predictor.labels.count
        assert [predictor.labels.id(row) for row in range(count)] == [fresh.labels.id(row) for row in range(count)]


def test_an_update_leaves_the_one_before_as_it_was_and_makes_nothing_twice(
    texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Predictor(model_of(), changes=changes_of(MANY))
    before, seen = first.predict(texts), []
    (explained, *_) = first.explain("topic zq of the")
    maker = type(first._live._maker)
    made = maker.made

    def watched(self: Any, texts: list[str], rows: list[int | None]) -> Any:  # noqa: ANN401
        seen.extend(texts)
        return made(self, texts, rows)

    monkeypatch.setattr(maker, "made", watched)
    second = first.updated(changes_of(MANY | {"new": "another text", "last": "and topic", "L3": None}))
    assert seen == ["another text", "and topic"]
    assert same(first.predict(texts), before)
    assert first.explain("topic zq of the")[0] == explained
    assert second.labels.text(second.labels.row("new")) == "another text"
    assert first.labels.find("last") is None


# What labels are called.


def test_labels_say_what_they_are() -> None:
    labels = Live(model_of(), changes_of(MANY)).labels
    assert (labels.count, labels.added, labels.hidden_count) == (29, 5, 2)
    for row in range(24):
        assert labels.find(f"L{row}") == labels.row(f"L{row}") == row
        assert labels.id(row) == f"L{row}"
        assert labels.trained(row)
    new = [label for label in MANY if not label.startswith("L")]
    for label in new:
        row = labels.row(label)
        assert (labels.id(row), labels.text(row), labels.frequency(row)) == (label, MANY[label], 0)
        assert labels.live(row)
        assert not labels.trained(row)
    assert sorted(labels.row(label) for label in new) == list(range(24, 24 + len(new)))
    frequency = model_of().frequency
    assert frequency is not None
    assert [labels.frequency(row) for row in range(24)] == frequency.tolist()
    assert {labels.id(row) for row in range(labels.count) if labels.hidden(row)} == {"L9", "L11"}
    assert {labels.id(row) for row in range(labels.count) if labels.live(row)} == set(MANY) - {"L9", "L11"}
    assert (labels.text(3), labels.text(9), labels.text(4)) == ("topic and the other", "topic aj", "topic ae")
    assert labels.find("missing") is None
    with pytest.raises(KeyError, match="missing"):
        labels.row("missing")


def test_a_text_is_a_label_s_own_only_where_it_was_trained_with_it() -> None:
    labels = Live(model_of(), changes_of(MANY)).labels
    assert labels.is_own("L3", "topic ad")
    assert not labels.is_own("L3", "topic and the other")
    assert not labels.is_own("new", "topic zq of the")
    assert not labels.is_own("L0", "topic aa")  # without training documents: it can be added


def test_a_label_without_training_documents_can_be_added_with_its_own_text() -> None:
    model = model_of()
    assert "L0" not in found(Predictor(model), "topic aa")
    predictor = Predictor(model, changes=changes_of({"L0": "topic aa"}))
    assert next(iter(found(predictor, "topic aa"))) == "L0"
    assert (predictor.labels.added, predictor.labels.count) == (0, 24)
    assert predictor.labels.live(0)


ODD = ["a b", "ä/ß?#%", "日本", "'; --", '"', "\\", "0", "3", "-", "🙂", ".*", "(", "%", "_", "L3 ", "l3", "a" * 512]


def test_ids_may_be_anything() -> None:
    texts = {label: f"topic {chr(97 + at)} of the" for at, label in enumerate(ODD)}
    predictor = Predictor(model_of(), changes=changes_of(dict(texts)))
    assert predictor.labels.added == len(ODD)
    for label, text in texts.items():
        row = predictor.labels.row(label)
        assert (predictor.labels.id(row), predictor.labels.text(row)) == (label, text)
        assert set(found(predictor, text)) & set(ODD)
        if len(label.split()) == 1 and label == label.strip():
            assert predictor.labels.search(label)[0] >= 1
            assert row in predictor.labels.search(label, limit=99)[1]


def test_texts_without_a_word_the_model_knows_are_kept_but_never_predicted(texts: list[str]) -> None:
    live = Live(model_of(), changes_of({"unknown": "漢", "also": "?!"}))
    assert [live.knows(text) for text in ("漢", "?!", "", "topic", "漢 topic")] == [False, False, False, True, True]
    assert live.labels.added == 2
    assert live.labels.text(live.labels.row("unknown")) == "漢"
    assert live.labels.neighbours(live.labels.row("unknown")) == []
    predictor = Predictor(model_of(), changes=changes_of({"unknown": "漢", "also": "?!"}))
    assert same(predictor.predict(texts, top=24), Predictor(model_of()).predict(texts, top=24))


def test_without_ids_labels_go_by_their_rows() -> None:
    model = model_of()
    texts = [model.labels.text(row) for row in range(24)]
    labels = Live(
        replace(model, labels=Items(24, None, texts)), changes_of({"3": "of topic", "24": "topic", "4": None})
    ).labels
    assert [labels.find(label) for label in ("0", "23", "3", "24")] == [0, 23, 3, 24]
    assert [labels.find(label) for label in ("25", "-1", "03", "+3", " 3", "3.0", "³", "٣", "")] == [None] * 9
    assert (labels.text(3), labels.text(24), labels.id(24), labels.added) == ("of topic", "topic", "24", 1)
    assert labels.hidden(4)
    assert labels.search("7") == (1, [7])
    assert labels.search("ah") == (1, [7])


def test_without_texts_labels_go_by_their_ids() -> None:
    model = model_of("refinement alone")
    ids = [f"topic {row}" for row in range(24)]
    labels = Live(replace(model, labels=Items(24, ids, None)), changes_of({"new": "of topic"})).labels
    assert labels.text(3) == "topic 3"
    assert labels.search("of") == (1, [24])


def test_a_model_of_ready_features_takes_no_texts_but_hides(texts: list[str]) -> None:
    model = model_of()
    bare = replace(model, features=None)
    with pytest.raises(ModelError, match="trained on ready features and knows no words; labels cannot be added"):
        Live(bare, changes_of({"new": "topic"}))
    live = Live(bare, changes_of({"L3": None}))
    assert not live.knows("topic")
    assert model.features is not None
    answers = FastScorer(bare, changes=live.changes).top(model.features.transform(texts), 24)
    assert same(answers, Predictor(model, changes=changes_of({"L3": None})).predict(texts, top=24))
    assert 3 not in answers.ids
    assert 3 in Predictor(model).predict(texts, top=24).ids


def test_labels_of_a_loaded_model_are_the_same(tmp_path: Path, texts: list[str]) -> None:
    model = model_of("contrastive", "int8")
    model.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    one, other = (Predictor(given, changes=changes_of(MANY)) for given in (model, loaded))
    assert same(one.predict(texts), other.predict(texts))
    for words in ("topic", "TOPIC and", "L3", "l3", "zq", ".*"):
        assert one.labels.search(words) == other.labels.search(words)


# Search and neighbours.


def obvious_search(live: Live, words: str, *, only_live: bool = False) -> list[int]:
    labels = live.labels
    return [
        row
        for row in range(labels.count)
        if (not only_live or labels.live(row) or labels.hidden(row))
        and all(word.lower() in labels.text(row).lower() or word == labels.id(row) for word in words.split())
    ]


@pytest.mark.parametrize(
    "words",
    ["", "  ", "topic", "TOPIC Zq", "zq topic", "ad", "L3", "l3", "L9", "L9 topic", "L3 ad", "new", "a", "missing"],
)
def test_search_finds_what_has_all_the_words_or_one_as_its_id(words: str) -> None:
    live = Live(model_of(), changes_of(MANY))
    for only_live in (False, True):
        expected = obvious_search(live, words, only_live=only_live)
        assert live.labels.search(words, limit=99, live=only_live) == (len(expected), expected)
        for offset, limit in ((0, 3), (3, 3), (2, 0), (len(expected), 5), (1000, 5)):
            page = live.labels.search(words, offset=offset, limit=limit, live=only_live)
            assert page == (len(expected), expected[offset : offset + limit])


def test_search_knows_the_new_text_and_not_the_old_one() -> None:
    labels = Live(model_of(), changes_of({"L3": "something else"})).labels
    assert labels.search("else") == (1, [3])
    assert labels.search("ad") == (0, [])
    assert labels.search("", live=True) == (1, [3])


def vectors_by_hand(live: Live) -> dict[int, Numbers]:
    """What labels that can be predicted are like, in the first instance: their texts, or what was learned."""
    model, packed, overlay = live.model, live.model.packed[0], live.changes.overlays[0]
    found = {}
    for labels in (packed.labels, overlay.added):
        given = (
            (labels.texts, labels.text_scales) if len(packed.labels.texts) else (labels.weights, labels.weight_scales)
        )
        for number, vector in zip(labels.numbers, whole(*given), strict=True):
            found[int(live.changes.rows[number])] = vector.astype(np.float64)  # of a changed label the later counts
    assert set(found) >= set(model.kept.tolist())
    return found


@pytest.mark.parametrize("kind", ["contrastive", "two instances", "no words", "paper", "refinement alone"])
@PRECISIONS
def test_neighbours_are_those_of_the_largest_cosine(kind: str, precision: str) -> None:
    live = Live(model_of(kind, precision), changes_of(MANY))
    vectors = vectors_by_hand(live)
    for row, own in vectors.items():
        cosines = {
            other: vector @ own / max(np.linalg.norm(vector) * np.linalg.norm(own), 1e-12)
            for other, vector in vectors.items()
            if other != row and not live.labels.hidden(other)
        }
        everything = live.labels.neighbours(row, top=99)
        assert dict(everything) == pytest.approx(cosines, abs=1e-4)
        assert [cosine for _, cosine in everything] == sorted((cosine for _, cosine in everything), reverse=True)
        assert live.labels.neighbours(row, top=4) == everything[:4]
    if kind != "refinement alone":
        nearest, cosine = live.labels.neighbours(live.labels.row("new"), top=1)[0]
        assert (live.labels.id(nearest), cosine) == ("twin", pytest.approx(1, abs=1e-5))


@pytest.mark.parametrize("kind", ["tree", "hnsw"])
def test_where_there_are_many_clusters_those_that_are_alike_are_looked_at(kind: str) -> None:
    live = Live(model_of(kind), changes_of(MANY))
    vectors = vectors_by_hand(live)
    for row, own in vectors.items():
        near = live.labels.neighbours(row, top=99)
        assert len(near) < len(vectors) - 1
        for other, cosine in near:
            expected = vectors[other] @ own / (np.linalg.norm(vectors[other]) * np.linalg.norm(own))
            assert cosine == pytest.approx(expected, abs=1e-4)
            assert other != row
            assert not live.labels.hidden(other)


def test_a_label_that_cannot_be_predicted_has_no_neighbours() -> None:
    live = Live(model_of(), changes_of({"L9": None}))
    assert live.labels.neighbours(0) == []  # never trained
    assert len(live.labels.neighbours(9)) == 10  # hidden: it can be looked at all the same


# Explanations.


def test_a_label_that_is_hidden_has_nothing_to_explain() -> None:
    model = model_of()
    (matches,) = Predictor(model).predict(["topic ac"])
    hidden = Predictor(model, changes=changes_of({model.labels.id(matches[0].label): None}))
    assert len(hidden.explain("topic ac", matches[1:])) == 4
    with pytest.raises(ValueError, match="is hidden"):
        hidden.explain("topic ac", matches)


@EVERY_KIND
def test_live_labels_are_explained_as_if_they_had_been_trained(kind: str, texts: list[str]) -> None:
    live = Live(model_of(kind), changes_of(MANY))
    one, other = Predictor(live.model, changes=changes_of(MANY)), Predictor(merged(live))
    for text in ("topic zq of the", "and topic", "topic and the other", *texts[:3]):
        (matches,) = one.predict([text])
        assert matches
        for found, expected in zip(one.explain(text, matches), other.explain(text, matches), strict=True):
            assert found.label == expected.label
            assert found.parts == pytest.approx(expected.parts, abs=1e-4)
            assert found.tokens == pytest.approx(expected.tokens, abs=1e-4)


def test_no_overlay_is_an_empty_one() -> None:
    for packed in model_of("two instances").packed:
        nothing = Overlay.nothing(packed.labels)
        assert len(nothing.added.numbers) == len(nothing.hidden) == 0
        assert nothing.added.bounds.tolist() == [0] * len(packed.labels.bounds)
        for array, own in zip(nothing.added[2:], packed.labels[2:], strict=True):
            assert (array.dtype, array.shape[1:]) == (own.dtype, own.shape[1:])
