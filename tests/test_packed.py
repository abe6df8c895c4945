"""Instances as they are stored: arrays out and in again, what eight bits keep, and arrays that do not fit together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import SMALL, Size, encoder, instance, mixed, searched, tree
from numpy.typing import NDArray
from scipy import sparse

from decaf.networks import Instance, LabelTexts, Level, Rows
from decaf.packed import Clusters, Curve, Encoder, Labels, Overlay, Packed, by_place, quantised, whole

Arrays = dict[str, NDArray[Any]]
PARTS = {
    f"{'' if texts else 'no '}texts, {'' if words else 'no '}words": mixed(texts=texts, words=words)
    for texts in (True, False)
    for words in (True, False)
}


def with_text_network(made: Instance) -> Instance:
    """What label texts add to the classifiers is known."""
    _, scale, weight, bias, _ = encoder(torch.Generator().manual_seed(3), unit=True)
    texts = LabelTexts(scale, weight, bias, scale + 1, torch.tensor([True]))
    return replace(made, ranker=replace(made.ranker, texts=texts))


MADE = {
    **{name: instance(mixed=blend) for name, blend in PARTS.items()},
    "no blend": instance(unit=False),
    "tree": tree(),
    "tree, blend": tree(mixed()),
    "graph": searched(),
    "graph, blend": searched(mixed()),
    "texts of the classifiers": with_text_network(instance(mixed=mixed())),
    "one cluster": instance(size=Size(labels=7, clusters=1, tokens=9, dim=4), beam=1),
    "more clusters than labels": instance(size=Size(labels=7, clusters=32)),
    "one label": instance(size=Size(labels=1, clusters=1, tokens=3, dim=2), beam=1),
}
ALL = pytest.mark.parametrize("made", MADE.values(), ids=MADE.keys())
PRECISIONS = pytest.mark.parametrize("precision", ["int4", "int8", "float32"])


def same(one: Instance, other: Instance) -> bool:
    """In every tensor and its type."""
    found, expected = one.tensors(), other.tensors()
    return found.keys() == expected.keys() and all(
        tensor.dtype == expected[name].dtype and torch.equal(tensor, expected[name]) for name, tensor in found.items()
    )


@ALL
def test_single_precision_gives_back_the_very_instance(made: Instance) -> None:
    assert same(Packed.of(made, "float32").instance(), made)


@ALL
@PRECISIONS
def test_arrays_make_the_same_again(made: Instance, precision: str) -> None:
    packed = Packed.of(made, precision)
    arrays = packed.arrays()
    again = Packed.from_arrays({name: array.copy() for name, array in arrays.items()})
    again.check()
    assert again.arrays().keys() == arrays.keys()
    for name, array in again.arrays().items():
        assert (array.dtype, array.shape) == (arrays[name].dtype, arrays[name].shape)
        assert np.array_equal(array, arrays[name]), name
    assert (again.beam, again.searched, len(again.above)) == (made.beam, made.shortlister.searched, len(packed.above))
    assert (again.near.unit, again.far.unit) == (made.shortlister.encoder.unit, made.ranker.encoder.unit)
    assert (again.curve is None, again.texts is None) == (made.blend is None, made.ranker.texts is None)
    assert same(again.instance(), packed.instance())


@ALL
@PRECISIONS
def test_what_was_packed_belongs_together(made: Instance, precision: str) -> None:
    Packed.of(made, precision).check()


def rounded(made: Instance, packed: Packed) -> list[tuple[torch.Tensor, torch.Tensor, NDArray[np.float32]]]:
    """The tables that are kept in eight bits: as they were, as they are, and the scales of their rows."""
    again, labels = packed.instance(), packed.labels
    assert made.blend is not None
    assert again.blend is not None
    order = np.argsort(labels.numbers)
    before, after = (
        [
            *(one.shortlister.encoder.table, one.ranker.encoder.table, one.shortlister.weights, one.ranker.weights),
            *(one.blend.texts, one.blend.words.weights, one.blend.words.shares, one.blend.words.cue_weights),
            one.blend.words.matches,
        ]
        for one in (made, again)
    )
    of_words = (labels.likeness_scales, labels.share_scales, labels.cue_scales, labels.match_scales)
    of_labels = [each[order] for each in (labels.weight_scales, labels.text_scales, *of_words)]
    scales = [packed.near.scales, packed.far.scales, packed.clusters.scales, *of_labels]
    return list(zip(before, after, scales, strict=True))


@pytest.mark.parametrize("precision", ["int4", "int8"])
def test_few_bits_are_within_half_a_scale_and_the_rest_is_as_it_was(precision: str) -> None:
    made = instance(mixed=mixed())
    packed = Packed.of(made, precision)
    for number, (before, after, scales) in enumerate(rounded(made, packed)):
        most = 7 if precision == "int4" and number in (3, 4) else 127  # vectors of labels have four bits
        assert after.dtype == torch.float32
        half = torch.as_tensor(scales)[:, None] / 2
        assert bool(((after - before).abs() <= half * (1 + 1e-4)).all())
        assert float((after - before).abs().max()) > 0.3 * float(half.max())  # something is rounded
        assert torch.allclose(before.abs().max(dim=1).values, most * torch.as_tensor(scales))
    kinds = {name: array.dtype for name, array in packed.arrays().items() if array.dtype in (np.int8, np.uint8)}
    of_labels = np.dtype(np.uint8 if precision == "int4" else np.int8)
    assert kinds == {
        **dict.fromkeys(("labels.weights", "labels.texts"), of_labels),
        **dict.fromkeys(("near.table", "far.table", "clusters.first", "clusters.weights"), np.dtype(np.int8)),
        **dict.fromkeys(
            ("labels.likeness", "labels.shares", "labels.cue_weights", "labels.matches"), np.dtype(np.int8)
        ),
    }
    again = packed.instance().tensors()
    tables = {
        *("shortlister.encoder.table", "ranker.encoder.table", "shortlister.weights", "ranker.weights"),
        *("blend.texts", "blend.words.weights", "blend.words.shares", "blend.words.cue_weights", "blend.words.matches"),
    }
    assert all(torch.equal(tensor, again[name]) == (name not in tables) for name, tensor in made.tensors().items())


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(
    rows=st.lists(st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=3, max_size=3), min_size=1, max_size=5)
)
def test_rows_of_any_size_are_rounded_to_the_nearest(rows: list[list[float]]) -> None:
    given_ = np.array(rows, dtype=np.float32)
    values, scales = quantised(given_, "int8")
    assert (values.dtype, scales.dtype) == (np.int8, np.float32)
    assert int(np.abs(values.astype(int)).max()) <= 127
    error = np.abs(values * scales[:, None].astype(np.float64) - given_)
    assert (error <= scales[:, None] * (0.5 + 1e-4)).all()
    unchanged, ones = quantised(given_, "float32")
    assert np.array_equal(unchanged, given_)
    assert ones.tolist() == [1] * len(rows)
    halves, steps = quantised(given_[:, :2], "int4")
    assert (halves.dtype, halves.shape, steps.dtype) == (np.uint8, (len(rows), 1), np.float32)
    error = np.abs(whole(halves, steps.astype(np.float64)) - given_[:, :2])
    assert (error <= steps[:, None] * (0.5 + 1e-4)).all()


def test_two_numbers_make_a_byte_the_first_in_its_lower_half() -> None:
    halves, scales = quantised(
        np.array([[7, -7, 0, 3], [0, 0, 0, 0], [0.12, -0.2, 1.4, 1.2]], dtype=np.float32), "int4"
    )
    assert halves.tolist() == [[15 + 16 * 1, 8 + 16 * 11], [8 + 16 * 8] * 2, [9 + 16 * 7, 15 + 16 * 14]]
    assert scales[[0, 2]].tolist() == pytest.approx([1, 0.2])
    assert whole(halves, scales)[0].tolist() == [7, -7, 0, 3]


def test_vectors_of_an_odd_length_stay_in_eight_bits() -> None:
    packed = Packed.of(instance(size=Size(dim=15), mixed=mixed(size=Size(dim=15))), "int4")
    packed.check()
    assert (packed.labels.weights.dtype, packed.labels.texts.dtype) == (np.int8, np.int8)


@pytest.mark.parametrize("name", ["labels.weights", "labels.texts"])
@pytest.mark.parametrize(("one", "other"), [("int4", "int8"), ("int4", "float32"), ("float32", "int4")])
def test_vectors_of_one_precision_do_not_go_with_others(name: str, one: str, other: str) -> None:
    made = instance(mixed=mixed())
    arrays = Packed.of(made, one).arrays() | {name: Packed.of(made, other).arrays()[name]}
    with pytest.raises(ValueError, match=r"is not of the model|rows are of several kinds"):
        Packed.from_arrays(arrays).check()
    every = Packed.of(made, other).arrays()
    both = Packed.of(made, one).arrays() | {key: every[key] for key in ("labels.weights", "labels.texts")}
    if {one, other} == {"int4", "int8"}:
        Packed.from_arrays(both).check()  # all that is not of labels has eight bits anyway
    else:
        with pytest.raises(ValueError, match="rows are of several kinds"):
            Packed.from_arrays(both).check()


def test_rows_of_zeros_survive() -> None:
    made = instance(mixed=mixed())
    of_labels = (made.ranker.weights, made.blend.texts, made.blend.words.cue_weights)
    for before in (made.shortlister.encoder.table, *of_labels):
        before[[0, 5]] = 0
    packed = Packed.of(made, "int8")
    assert all(np.isfinite(array).all() for array in packed.arrays().values())
    for before, after, _ in rounded(made, packed):
        assert torch.equal((before == 0).all(dim=1), (after == 0).all(dim=1))
    assert not packed.instance().ranker.weights[[0, 5]].any()
    assert not packed.instance().blend.words.cue_weights[[0, 5]].any()


def test_labels_are_in_the_order_of_their_clusters_with_all_that_is_theirs() -> None:
    made = instance(mixed=mixed())
    packed = Packed.of(made, "float32")
    labels, at = packed.labels, 0
    for cluster, row in enumerate(made.shortlister.members.tolist()):
        assert labels.bounds[cluster] == at
        for label in row:
            if label >= 0:
                assert labels.numbers[at] == label
                assert np.array_equal(labels.weights[at], made.ranker.weights[label])
                assert np.array_equal(labels.texts[at], made.blend.texts[label])
                assert labels.words[at].tolist() == made.blend.words.tokens[label].tolist()
                assert np.array_equal(labels.likeness[at], made.blend.words.weights[label])
                assert np.array_equal(labels.shares[at], made.blend.words.shares[label])
                assert labels.cues[at].tolist() == made.blend.words.cues[label].tolist()
                assert np.array_equal(labels.cue_weights[at], made.blend.words.cue_weights[label])
                assert labels.cue_bias[at] == made.blend.words.cue_bias[label]
                assert np.array_equal(labels.matches[at], made.blend.words.matches[label])
                assert (labels.bias[at], labels.rarity[at]) == (made.ranker.bias[label], made.blend.rarity[label])
                at += 1
    assert labels.bounds[-1] == at == SMALL.labels


def test_gaps_among_the_labels_of_a_cluster_are_closed() -> None:
    made = instance(mixed=mixed())
    members = made.shortlister.members.flip(1)  # those that are none come first
    spread = torch.cat([members, torch.full((len(members), 2), -1)], dim=1)
    packed = Packed.of(replace(made, shortlister=replace(made.shortlister, members=spread)), "float32")
    packed.check()
    found = packed.shortlister().members
    assert found.shape == members.shape
    assert [[label for label in row if label >= 0] for row in members.tolist()] == [
        [label for label in row if label >= 0] for row in found.tolist()
    ]
    assert bool((found.diff(dim=1)[found[:, :-1] < 0] == 0).all())  # behind a gap there is no label


@PRECISIONS
def test_the_first_directions_tell_most_of_the_clusters_apart(precision: str) -> None:
    made = instance(size=Size(clusters=30))
    weights, clusters = made.shortlister.weights.numpy(), Packed.of(made, precision).clusters
    assert (clusters.first.dtype, clusters.first.shape) == (np.int8, (30, SMALL.dim))
    assert np.allclose(clusters.rotation @ clusters.rotation.T, np.eye(SMALL.dim), atol=1e-5)
    turned = weights @ clusters.rotation.T
    error = np.abs(clusters.first * clusters.first_scales[:, None] - turned)
    assert (error <= 0.501 * clusters.first_scales[:, None]).all()
    assert (np.diff((turned**2).sum(axis=0)) <= 1e-3).all()  # the first say the most


def test_where_there_are_many_clusters_fewer_directions_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decaf.packed._NARROW", ((32, 6), (1 << 62, 3)))
    for clusters, narrow in ((31, 6), (32, 6), (33, 3)):
        packed = Packed.of(instance(size=Size(clusters=clusters)), "int8")
        assert packed.clusters.rotation.shape == (narrow, SMALL.dim)
        assert packed.clusters.first.shape == (clusters, narrow)
        packed.check()


@pytest.mark.parametrize("tail", [0.0, 0.3, 1.0])
def test_a_curve_says_what_the_blend_says(tail: float) -> None:
    blend = mixed()
    packed = Packed.of(instance(mixed=blend), "int8")
    assert packed.curve is not None
    weights, chances = blend.at(tail)
    assert packed.curve.at(tail).tolist() == pytest.approx([*weights, *chances])
    assert packed.curve.at(tail).dtype == np.float32


def size_of(made: Instance, precision: str) -> int:
    return sum(array.nbytes for array in Packed.of(made, precision).arrays().values())


def test_eight_bits_take_about_a_third_of_the_room() -> None:
    """Small matrices, bounds and the names of labels and tokens stay as they are."""
    size = Size(tokens=500, dim=64, labels=2000, clusters=512, width=32)
    for blend, most in ((mixed(size=size, words=False), 1 / 3), (mixed(size=size), 0.43), (None, 0.35)):
        made = instance(size=size, mixed=blend)
        assert 0.25 < size_of(made, "int8") / size_of(made, "float32") < most
        vectors = 64 * 2000 * (1 if blend is None else 2)  # of these half is left
        assert size_of(made, "int8") - size_of(made, "int4") == vectors // 2


def wider(array: NDArray[Any]) -> NDArray[Any]:
    """One more in every direction."""
    return np.pad(array, [(0, 1)] * array.ndim)


def longer(array: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([array, array[-1:]])


def shorter(array: NDArray[Any]) -> NDArray[Any]:
    return array[:-1]


SHAPED = [
    *(f"{which}.{name}" for which in ("near", "far") for name in Encoder._fields if name != "unit"),
    *(f"clusters.{name}" for name in Clusters._fields),
    *(f"labels.{name}" for name in Labels._fields),
    *(f"curve.{name}" for name in Curve._fields),
]


def spoiled(name: str, change: Callable[[NDArray[Any]], NDArray[Any]], made: Instance | None = None) -> Packed:
    """An instance, one of its arrays changed."""
    arrays = Packed.of(made or instance(mixed=mixed()), "int8").arrays()
    return Packed.from_arrays(arrays | {name: change(arrays[name].copy())})


@pytest.mark.parametrize("name", SHAPED)
@pytest.mark.parametrize("change", [wider, longer, shorter])
def test_arrays_of_other_sizes_are_refused(name: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    with pytest.raises(ValueError, match="is not of the model"):
        spoiled(name, change).check()


def put(at: int | slice, value: int | NDArray[Any]) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def changed(array: NDArray[Any]) -> NDArray[Any]:
        array[at] = value
        return array

    return changed


@pytest.mark.parametrize(
    "change",
    [
        put(-1, 10_000),
        put(-1, 0),
        put(0, 1),
        put(0, -1),
        put(5, 10_000),
        put(5, -3),
        put(slice(1, 3), np.array([9, 8])),
    ],
    ids=["beyond the end", "before the end", "behind the start", "before the start", "up", "below 0", "down"],
)
def test_bounds_that_do_not_end_where_they_should_are_refused(change: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    with pytest.raises(ValueError, match="do not end where they should"):
        spoiled("labels.bounds", change).check()


@pytest.mark.parametrize(
    ("name", "most"),
    [("labels.numbers", SMALL.labels), ("labels.words", SMALL.tokens), ("labels.cues", SMALL.tokens)],
)
@pytest.mark.parametrize("at", [0, 7, -1])
def test_what_is_named_but_not_there_is_refused(name: str, most: int, at: int) -> None:
    for value in (most, -1, 1 << 30):
        with pytest.raises(ValueError, match="named that are not there"):
            spoiled(name, put(at, value)).check()


def test_a_label_in_two_clusters_is_refused() -> None:
    numbers = Packed.of(instance(mixed=mixed()), "int8").labels.numbers
    with pytest.raises(ValueError, match="a label is in two clusters"):
        spoiled("labels.numbers", put(0, numbers[-1])).check()


FLOATS = [
    *(f"{which}.{name}" for which in ("near", "far") for name in ("scales", "gate", "matrix", "bias")),
    *(f"clusters.{name}" for name in ("rotation", "first_scales", "scales", "bias")),
    *(f"labels.{name}" for name in ("weight_scales", "bias", "rarity")),
    *(f"labels.{name}" for name in ("text_scales", "likeness_scales", "share_scales", "cue_scales", "cue_bias")),
    "labels.match_scales",
    *(f"curve.{name}" for name in Curve._fields),
    *(f"texts.{name}" for name in ("scale", "weight", "bias", "factor")),
]
ROWS = ["near.table", "far.table", "clusters.weights"]
ROWS += [f"labels.{name}" for name in ("weights", "texts", "likeness", "shares", "cue_weights", "matches")]
TOKENS = ["labels.words", "labels.cues"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, np.float64) for name in [*FLOATS, *ROWS]),
        *((name, np.float16) for name in [*FLOATS, *ROWS]),
        *((name, np.int16) for name in ROWS),
        *((name, np.uint8) for name in ROWS if name not in ("labels.weights", "labels.texts")),
        *(("clusters.first", kind) for kind in (np.float32, np.int16, np.uint8)),
        *((f"labels.{name}", kind) for name in ("bounds", "numbers") for kind in (np.int32, np.uint64, np.float64)),
        *((name, kind) for name in TOKENS for kind in (np.int64, np.uint32, np.float32)),
        ("texts.unit", np.int8),
    ],
    ids=lambda value: value if isinstance(value, str) else np.dtype(value).name,
)
def test_arrays_of_other_types_are_refused(name: str, kind: type) -> None:
    made = MADE["texts of the classifiers"]
    spoiled(name, np.copy, made).check()
    with pytest.raises(ValueError, match=f"{name} is not of the model"):
        spoiled(name, lambda array: array.astype(kind), made).check()


@pytest.mark.parametrize("name", [*FLOATS, *ROWS, *TOKENS, "clusters.first", "labels.bounds", "labels.numbers"])
@pytest.mark.parametrize("change", [lambda array: array[None], lambda array: array[..., None]], ids=["above", "below"])
def test_arrays_of_other_dimensions_are_refused(name: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    with pytest.raises(ValueError, match=r"is not of the model|to unpack"):
        spoiled(name, change, MADE["texts of the classifiers"]).check()


@pytest.mark.parametrize("beam", [0, -1])
@pytest.mark.parametrize("kind", ["no blend", "tree, blend", "graph"])
def test_a_beam_of_nothing_is_refused(kind: str, beam: int) -> None:
    with pytest.raises(ValueError, match="no cluster is looked into"):
        spoiled("beam", put(0, beam), MADE[kind]).check()
    spoiled("beam", put(0, 1), MADE[kind]).check()


@pytest.mark.parametrize(
    "change",
    [wider, longer, shorter, lambda array: array.astype(np.float64)],
    ids=["wider", "longer", "shorter", "float64"],
)
@pytest.mark.parametrize("name", ["above.0.weights", "above.0.bias"])
@pytest.mark.parametrize("kind", ["tree", "tree, blend"])
def test_levels_of_a_tree_must_fit(kind: str, name: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    with pytest.raises(ValueError, match=r"above\.0\.\w+ is not of the model"):
        spoiled(name, change, MADE[kind]).check()


@pytest.mark.parametrize("change", [wider, longer, shorter])
@pytest.mark.parametrize("name", [f"texts.{name}" for name in LabelTexts._fields])
def test_label_texts_must_fit(name: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    with pytest.raises(ValueError, match=f"{name} is not of the model"):
        spoiled(name, change, MADE["texts of the classifiers"]).check()


@pytest.mark.parametrize(
    "name", [f"labels.{name}" for name in Labels._fields if name not in ("bounds", "numbers", "weights")]
)
@pytest.mark.parametrize("precision", ["int4", "int8", "float32"])
def test_what_is_emptied_alone_is_refused(name: str, precision: str) -> None:
    """Labels have texts with their scales, and words and cues with theirs, or neither."""
    arrays = Packed.of(instance(mixed=mixed()), precision).arrays()
    with pytest.raises(ValueError, match="is not of the model"):
        Packed.from_arrays(arrays | {name: arrays[name][:0]}).check()


@pytest.mark.parametrize("kind", ["no blend", "tree", "graph"])
@pytest.mark.parametrize("name", ["far.table", "clusters.weights", "labels.bounds", "labels.weights"])
def test_instances_without_a_blend_are_looked_at_too(kind: str, name: str) -> None:
    with pytest.raises(ValueError, match="is not of the model"):
        spoiled(name, longer, MADE[kind]).check()


@pytest.mark.parametrize(
    "name", ["near.unit", "labels.words", "labels.cues", "clusters.rotation", "curve.weights", "beam", "searched"]
)
def test_a_missing_array_makes_no_instance(name: str) -> None:
    arrays = Packed.of(instance(mixed=mixed()), "int8").arrays()
    del arrays[name]
    with pytest.raises(KeyError, match=name):
        Packed.from_arrays(arrays)


@PRECISIONS
def test_what_an_older_version_stored_scores_as_it_did(precision: str) -> None:
    """Format 5 knew nothing of how a text matches a label's; up to 7 the classifier weighed 1 and nothing leaned."""
    made = instance(mixed=mixed())
    arrays = Packed.of(made, precision).arrays()
    weights = arrays["curve.weights"]
    unmatched = {name: array for name, array in arrays.items() if name not in ("labels.matches", "labels.match_scales")}
    for old, known in ((unmatched, 6), (arrays, 7)):
        read = Packed.from_arrays(old | {"curve.weights": weights[:, 1 : 1 + known]})
        read.check()
        again = Packed.from_arrays(arrays | {"curve.weights": np.zeros_like(weights)})
        again.curve.weights[:, 0] = 1
        again.curve.weights[:, 1 : 1 + known] = weights[:, 1 : 1 + known]
        assert np.array_equal(read.curve.weights, again.curve.weights)
        assert read.labels.matches.any() == (known == 7)
        assert read.labels.matches.dtype == again.labels.matches.dtype


@PRECISIONS
def test_packing_leaves_the_instance_as_it_was(precision: str) -> None:
    made = instance(mixed=mixed())
    before = {name: tensor.clone() for name, tensor in made.tensors().items()}
    packed = Packed.of(made, precision)
    packed.instance()
    assert all(torch.equal(tensor, before[name]) for name, tensor in made.tensors().items())


def test_arrays_are_not_copied_on_the_way_in() -> None:
    arrays = Packed.of(instance(mixed=mixed()), "int8").arrays()
    again = Packed.from_arrays(arrays)
    assert np.shares_memory(again.labels.weights, arrays["labels.weights"])
    assert np.shares_memory(again.far.table, arrays["far.table"])


@pytest.mark.parametrize("nodes", [0, 7, 64])
def test_levels_of_a_tree_that_do_not_fit_are_refused(nodes: int) -> None:
    packed = Packed.of(tree(), "float32")
    level = packed.above[0]
    other = Level(level.weights.new_zeros(nodes, level.weights.shape[1]), level.bias.new_zeros(nodes))
    packed.check()
    with pytest.raises(ValueError, match="levels of the tree do not fit"):
        replace(packed, above=(other,)).check()


def test_a_level_that_is_not_whole_is_missed() -> None:
    arrays = Packed.of(tree(), "float32").arrays()
    del arrays["above.0.bias"]
    with pytest.raises(KeyError, match=r"above\.0\.bias"):
        Packed.from_arrays(arrays)


def with_near_texts(made: Instance) -> Instance:
    """What makes label texts vectors among the shortlister's documents is known."""
    ranker = with_text_network(made).ranker
    return replace(made, shortlister=replace(made.shortlister, texts=ranker.texts))


@pytest.mark.parametrize("made", [instance(mixed=mixed()), tree(), searched(mixed())], ids=["blend", "tree", "graph"])
@PRECISIONS
def test_the_shortlister_s_label_texts_are_kept_and_must_fit(made: Instance, precision: str) -> None:
    made = with_near_texts(made)
    packed = Packed.of(made, precision)
    again = Packed.from_arrays(packed.arrays())
    again.check()
    for one in (packed.near_texts, again.near_texts, packed.instance().shortlister.texts):
        assert one is not None
        assert made.shortlister.texts is not None
        assert all(torch.equal(found, given) for found, given in zip(one, made.shortlister.texts, strict=True))
    assert again.texts is None
    for name in LabelTexts._fields:
        with pytest.raises(ValueError, match=f"near_texts.{name} is not of the model"):
            spoiled(f"near_texts.{name}", wider, made).check()


NO_NUMBERS = np.zeros(0, dtype=np.int64)


def rows_of(labels: Labels, place: int) -> list[NDArray[Any] | None]:
    """All that is known of the label at this place."""
    return [array[place] if len(array) else None for array in labels[2:]]


def alike(one: list[NDArray[Any] | None], other: list[NDArray[Any] | None]) -> bool:
    return all((a is None) == (b is None) and np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def some_change(packed: Packed, added: int = 11, seed: int = 3) -> Overlay:
    """A third of the labels are hidden; so many are added to any clusters, made after some that are there."""
    rng, count = np.random.default_rng(seed), len(packed.labels.numbers)
    after, clusters = rng.integers(count, size=added), rng.integers(len(packed.clusters.bias), size=added)
    parts = [packed.labels.take(np.array([place]), NO_NUMBERS, NO_NUMBERS) for place in after]
    parts = [Overlay.nothing(packed.labels).added, *parts]
    made = Labels.joined(parts, clusters, len(packed.clusters.bias), count)
    return Overlay(made, rng.random(count) < 1 / 3)


@ALL
@PRECISIONS
def test_labels_are_taken_as_they_are(made: Instance, precision: str) -> None:
    labels = Packed.of(made, precision).labels
    places = np.array([len(labels.numbers) - 1, 0, 0])
    taken = labels.take(places, np.array([0, 3]), np.array([7, 8, 9]))
    assert (taken.bounds.tolist(), taken.numbers.tolist()) == ([0, 3], [7, 8, 9])
    for at, place in enumerate(places):
        assert alike(rows_of(taken, at), rows_of(labels, place))
    nothing = labels.take(NO_NUMBERS, np.array([0]), NO_NUMBERS)
    for array, own in zip(nothing[2:], labels[2:], strict=True):
        assert (len(array), array.shape[1:], array.dtype) == (0, own.shape[1:], own.dtype)


@ALL
def test_joined_labels_are_in_the_order_of_their_clusters_and_numbered_as_they_came(made: Instance) -> None:
    labels, rng = Packed.of(made, "int8").labels, np.random.default_rng(1)
    sizes, clusters = [0, 3, 1, 0, 4], rng.integers(5, size=8)
    places = [rng.integers(len(labels.numbers), size=size) for size in sizes]
    found = Labels.joined([labels.take(at, NO_NUMBERS, NO_NUMBERS) for at in places], clusters, 5, 100)
    in_order = [place for at in places for place in at]
    at = 0
    for cluster in range(5):
        assert found.bounds[cluster] == at
        for number in range(8):
            if clusters[number] == cluster:
                assert found.numbers[at] == 100 + number
                assert alike(rows_of(found, at), rows_of(labels, in_order[number]))
                at += 1
    assert found.bounds[-1] == at == 8
    assert (found.bounds.dtype, found.numbers.dtype) == (np.int64, np.int64)


@ALL
@PRECISIONS
def test_a_close_up_has_what_is_left_and_what_came_cluster_by_cluster(made: Instance, precision: str) -> None:
    packed = Packed.of(made, precision)
    count, rng = len(packed.clusters.bias), np.random.default_rng(2)
    some = np.sort(rng.choice(count, size=-(-count // 3), replace=False))
    for overlay in (Overlay.nothing(packed.labels), some_change(packed), some_change(packed, added=0)):
        for clusters in (None, some, np.array([0]), np.arange(count)):
            found, known = packed.close_up(overlay, clusters)
            wanted = range(count) if clusters is None else clusters
            at = 0
            for new, cluster in enumerate(wanted):
                assert found.labels.bounds[new] == at
                for labels in (packed.labels, overlay.added):
                    for place in range(labels.bounds[cluster], labels.bounds[cluster + 1]):
                        number = labels.numbers[place]
                        if number < len(overlay.hidden) and overlay.hidden[number]:
                            continue
                        assert known[found.labels.numbers[at]] == number
                        assert alike(rows_of(found.labels, at), rows_of(labels, place))
                        at += 1
            assert found.labels.bounds[-1] == at == len(known) == len(found.labels.numbers)
            assert sorted(found.labels.numbers) == list(range(at))
            assert found.beam == min(packed.beam, len(wanted))
            for name, array in found.clusters._asdict().items():
                own = getattr(packed.clusters, name)
                assert np.array_equal(array, own if name == "rotation" else own[list(wanted)])
            if at and (clusters is None or not packed.above):
                found.check()


def test_a_close_up_without_changes_is_the_very_instance() -> None:
    for made in MADE.values():
        packed = Packed.of(made, "float32")
        found, known = packed.close_up(Overlay.nothing(packed.labels))
        assert known.tolist() == packed.labels.numbers.tolist()
        assert same(replace(found, labels=found.labels._replace(numbers=known), beam=packed.beam).instance(), made)


@ALL
def test_every_label_has_its_place(made: Instance) -> None:
    packed = Packed.of(made, "int8")
    overlay, count = some_change(packed), len(packed.labels.numbers)
    for labels in (packed.labels, overlay.added):
        for cluster in range(len(packed.clusters.bias)):
            for place in range(labels.bounds[cluster], labels.bounds[cluster + 1]):
                assert packed.place(overlay, int(labels.numbers[place])) == (place, cluster)
    with pytest.raises(ValueError, match="not enough values"):
        packed.place(overlay, count + 11)


@ALL
@PRECISIONS
def test_an_instance_of_some_tokens_says_the_same_of_documents_that_have_no_others(
    made: Instance, precision: str
) -> None:
    packed, rng = Packed.of(made, precision), np.random.default_rng(5)
    count = len(packed.far.table)
    tokens = np.sort(rng.choice(count, size=max(1, count // 4), replace=False)).astype(np.int64)
    dense = np.zeros((6, count), dtype=np.float32)
    dense[:, tokens] = rng.random((6, len(tokens))) * (rng.random((6, len(tokens))) < 0.5)
    rows = sparse.csr_array(dense)
    small = packed.of_tokens(tokens)
    narrow = by_place(rows, tokens)
    assert narrow.shape == (6, len(tokens) + 1)
    assert np.array_equal(narrow.toarray()[:, :-1], dense[:, tokens])
    assert not narrow.toarray()[:, -1].any()
    for of_small, own in ((small.near, packed.near), (small.far, packed.far)):
        table = whole(of_small.table, of_small.scales)
        assert np.array_equal(table[:-1], whole(own.table, own.scales)[tokens])
        assert not table[-1].any()
    place = {int(token): at for at, token in enumerate(tokens)}
    for named, before in ((small.labels.words, packed.labels.words), (small.labels.cues, packed.labels.cues)):
        assert named.dtype == np.int32
        assert named.tolist() == [[place.get(token, len(tokens)) for token in row] for row in before.tolist()]
    every = torch.arange(len(packed.labels.numbers)).repeat(6, 1)

    def parts(of: Packed, given: sparse.csr_array) -> list[torch.Tensor]:
        documents = Rows.of(given, torch.device("cpu"))
        return list(of.instance().parts_of(documents.columns, documents.starts, documents.values, every))

    for found, expected in zip(parts(small, narrow), parts(packed, rows), strict=True):
        assert torch.allclose(found, expected, atol=1e-5)
