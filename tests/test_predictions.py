"""Predictions: ranked like sorted() would, filtered like a loop would, and read from files that may be anything."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from decaf import DataError, Match, Predictions
from decaf.datasets.parts import no_pairs
from decaf.predictions import drop_pairs, load_scores, save_scores

Rows = list[dict[int, float]]  # label -> score of each document

LABELS = 12
few_scores = st.sampled_from([-2.5, -1.0, 0.0, 0.5, 1.0, 3.0])  # exact in float32; ties are common
score_rows: st.SearchStrategy[Rows] = st.lists(
    st.dictionaries(st.integers(0, LABELS - 1), few_scores, max_size=LABELS), max_size=8
)
some_pairs = st.sets(st.tuples(st.integers(0, 7), st.integers(0, LABELS - 1)), max_size=20)


def matrix(rows: Rows, labels: int = LABELS, dtype: type = np.float32) -> sparse.csr_array:
    """Entries in the order they were given, zeros stored."""
    data = np.array([score for row in rows for score in row.values()], dtype=dtype)
    indices = np.array([label for row in rows for label in row], dtype=np.int32)
    indptr = np.cumsum([0, *(len(row) for row in rows)])
    return sparse.csr_array((data, indices, indptr), shape=(len(rows), labels))


def slow_ranking(row: dict[int, float], top: int) -> list[Match]:
    best = sorted(row.items(), key=lambda item: (item[1], item[0]), reverse=True)
    return [Match(label, score) for label, score in best if score != -np.inf][:top]


def as_pairs(pairs: set[tuple[int, int]], documents: int) -> np.ndarray:
    return np.array([pair for pair in sorted(pairs) if pair[0] < documents], dtype=np.int64).reshape(-1, 2)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(score_rows, st.integers(1, 15))
def test_ranking_is_that_of_sorted_with_the_higher_label_first_among_equals(rows: Rows, top: int) -> None:
    predictions = Predictions.from_csr(matrix(rows), top)
    assert list(predictions) == [slow_ranking(row, top) for row in rows]
    assert predictions.ids.shape == predictions.scores.shape == (len(rows), top)
    assert np.array_equal(predictions.ids < 0, np.isneginf(predictions.scores))


@pytest.mark.parametrize("block", [1, 8, 100, 5000, 1 << 22])
def test_rows_of_very_different_lengths_rank_the_same_in_any_block(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    rng = np.random.default_rng(1)
    lengths = [0, 1, 3, 2000, 0, 2, 2000, 1, 7, 64, 3, 900, 0]
    rows: Rows = [
        dict(
            zip(
                rng.permutation(3000)[:length].tolist(),
                rng.integers(0, max(length // 4, 1), size=length).astype(float).tolist(),
                strict=True,
            )
        )
        for length in lengths
    ]
    monkeypatch.setattr("decaf.predictions._BLOCK", block)
    predictions = Predictions.from_csr(matrix(rows, 3000), 20)
    assert list(predictions) == [slow_ranking(row, 20) for row in rows]


@settings(deadline=None, derandomize=True)
@given(score_rows)
def test_a_matrix_comes_back_from_its_ranking(rows: Rows) -> None:
    scores = matrix(rows)
    scores.sort_indices()
    back = Predictions.from_csr(scores, LABELS).to_csr(LABELS)
    assert back.shape == scores.shape
    assert np.array_equal(back.indptr, scores.indptr)
    assert np.array_equal(back.indices, scores.indices)
    assert np.array_equal(back.data, scores.data)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(score_rows, some_pairs, st.integers(1, 15))
def test_what_is_behind_a_pair_taken_out_moves_up(rows: Rows, pairs: set[tuple[int, int]], top: int) -> None:
    predictions = Predictions.from_csr(matrix(rows), top)
    filtered = predictions.without(as_pairs(pairs, len(rows)), LABELS)
    slow = [
        [match for match in slow_ranking(row, top) if (at, match.label) not in pairs] for at, row in enumerate(rows)
    ]
    assert list(filtered) == slow
    assert filtered.ids.shape == predictions.ids.shape
    for ids in filtered.ids.tolist():
        assert sorted(ids, key=lambda label: label < 0) == ids  # all gaps stand behind


def test_what_is_left_of_a_long_ranking_keeps_its_order() -> None:
    predictions = Predictions.from_csr(matrix([{label: float(label) for label in range(500)}] * 3, labels=500), 400)
    out = {(row, label) for row in range(3) for label in range(0, 500, 2 + row)}
    for row, matches in enumerate(predictions.without(as_pairs(out, 3), 500)):
        assert [match.label for match in matches] == [label for label in range(499, 99, -1) if (row, label) not in out]


@settings(deadline=None, derandomize=True)
@given(score_rows, some_pairs)
def test_pairs_dropped_from_a_matrix_are_those_and_no_others(rows: Rows, pairs: set[tuple[int, int]]) -> None:
    left = drop_pairs(matrix(rows), as_pairs(pairs, len(rows)))
    slow = [{label: score for label, score in row.items() if (at, label) not in pairs} for at, row in enumerate(rows)]
    expected = matrix(slow)
    assert left.shape == expected.shape
    assert np.array_equal(left.indptr, expected.indptr)
    assert np.array_equal(left.indices, expected.indices)
    assert np.array_equal(left.data, expected.data)


def test_a_pair_of_one_document_spares_its_neighbours() -> None:
    predictions = Predictions.from_csr(matrix([{2: 1.0}, {0: 1.0}, {2: 1.0}], labels=3), 2)
    assert [len(row) for row in predictions.without(np.array([[1, 0]]), 3)] == [1, 0, 1]
    assert [len(row) for row in predictions.without(no_pairs(), 3)] == [1, 1, 1]


def test_a_stored_zero_is_a_prediction_and_a_stored_minus_infinity_is_none() -> None:
    predictions = Predictions.from_csr(matrix([{4: 0.0, 1: -np.inf}, {2: -np.inf}, {3: -1.0, 9: -np.inf}]), 3)
    assert list(predictions) == [[Match(4, 0.0)], [], [Match(3, -1.0)]]
    assert predictions.ids.tolist() == [[4, -1, -1], [-1, -1, -1], [3, -1, -1]]


def test_iteration_and_indexing_give_labels_with_scores() -> None:
    predictions = Predictions.from_csr(matrix([{4: 0.5, 7: 2.0}, {}]), 3)
    assert len(predictions) == 2
    assert predictions.top == 3
    assert predictions[0] == [Match(label=7, score=2.0), Match(label=4, score=0.5)]
    assert predictions[-1] == []
    label, score = predictions[0][0]
    assert (type(label), type(score)) == (int, float)
    with pytest.raises(IndexError):
        predictions[2]


def test_take_gives_the_first_labels_of_the_documents_asked_for() -> None:
    predictions = Predictions.from_csr(matrix([{0: 3.0, 1: 2.0}, {2: 1.0}, {5: 4.0}]), 3)
    assert list(predictions.take([2, 0], 1)) == [[Match(5, 4.0)], [Match(0, 3.0)]]
    assert list(predictions.take(range(0, 3, 2), 2)) == [[Match(5, 4.0)], [Match(0, 3.0), Match(1, 2.0)]][::-1]


@pytest.mark.parametrize(("ids", "scores"), [((2, 3), (2, 2)), ((3,), (3,))])
def test_ids_and_scores_of_other_shapes_are_refused(ids: tuple[int, ...], scores: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="two-dimensional shape"):
        Predictions(np.zeros(ids, np.int64), np.zeros(scores, np.float32))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.int64, np.uint16, bool])
def test_scores_of_any_number_type_rank(dtype: type) -> None:
    predictions = Predictions.from_csr(matrix([{0: 1, 3: 0, 5: 1}], dtype=dtype), 3)
    assert predictions[0] == [Match(5, 1.0), Match(0, 1.0), Match(3, 0.0)]


def test_double_precision_scores_rank_by_their_own_precision() -> None:
    row = {0: 1.0 + 2e-10, 1: 1.0, 2: 1.0 + 1e-10, 3: 1e-60, 4: 0.0}
    found = [match.label for match in Predictions.from_csr(matrix([row], dtype=np.float64), 5)[0]]
    assert found == [0, 2, 1, 3, 4]


def test_whole_numbers_rank_by_their_own_precision() -> None:
    found = Predictions.from_csr(matrix([{0: 2**24 + 1, 1: 2**24}], dtype=np.int64), 2)[0]
    assert [match.label for match in found] == [0, 1]


def test_a_finite_score_beyond_single_precision_is_still_a_prediction() -> None:
    found = Predictions.from_csr(matrix([{0: -1e300, 1: 1e300, 2: 1e299}], dtype=np.float64), 3)[0]
    assert [match.label for match in found] == [1, 2, 0]


def test_ranking_leaves_the_matrix_as_it_was() -> None:
    scores = matrix([{7: 1.0, 2: 3.0}])
    Predictions.from_csr(scores, 2)
    assert scores.indices.tolist() == [7, 2]
    assert scores.data.tolist() == [1.0, 3.0]


def test_a_read_only_matrix_ranks() -> None:
    scores = matrix([{7: 1.0, 2: 3.0}])
    scores.data.flags.writeable = scores.indices.flags.writeable = False
    assert Predictions.from_csr(scores, 2)[0] == [Match(2, 3.0), Match(7, 1.0)]


def test_saved_scores_come_back(tmp_path: Path) -> None:
    scores = matrix([{0: 0.5, 3: 0.0}, {}, {11: -1.0}])
    save_scores(scores, tmp_path / "scores.npz")
    back = load_scores(tmp_path / "scores.npz", 3, LABELS)
    assert back.nnz == 3
    assert back.dtype == np.float32
    assert list(Predictions.from_csr(back, 3)) == list(Predictions.from_csr(scores, 3))
    assert [path.name for path in tmp_path.iterdir()] == ["scores.npz"]


def test_the_file_is_called_what_was_asked_for(tmp_path: Path) -> None:
    save_scores(matrix([{0: 1.0}]), tmp_path / "no-suffix")
    assert load_scores(tmp_path / "no-suffix", 1, LABELS).nnz == 1


def test_a_failed_save_keeps_the_old_file_and_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "scores.npz"
    target.write_bytes(b"old")

    def fail(stream: object, scores: object) -> None:
        stream.write(b"half")  # type: ignore[attr-defined]
        raise OSError("disk full")

    monkeypatch.setattr(sparse, "save_npz", fail)
    with pytest.raises(OSError, match="disk full"):
        save_scores(matrix([{0: 1.0}]), target)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["scores.npz"]


@pytest.mark.parametrize("layout", ["csc", "coo", "bsr", "dia"])
def test_other_sparse_layouts_are_read_too(tmp_path: Path, layout: str) -> None:
    sparse.save_npz(tmp_path / "scores.npz", matrix([{1: 2.0, 0: 1.0}, {1: 3.0}], labels=2).asformat(layout))
    scores = load_scores(tmp_path / "scores.npz", 2, 2)
    assert scores.toarray().tolist() == [[1.0, 2.0], [0.0, 3.0]]


@pytest.mark.parametrize("layout", [sparse.coo_array, sparse.csr_array])
def test_entries_stored_twice_count_as_one(tmp_path: Path, layout: type) -> None:
    twice = sparse.csr_array((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 2))
    sparse.save_npz(tmp_path / "scores.npz", layout(twice))
    assert Predictions.from_csr(load_scores(tmp_path / "scores.npz", 1, 2), 2)[0] == [Match(1, 3.0)]


@pytest.mark.parametrize(("documents", "labels"), [(3, 2), (2, 4), (3, 3)])
def test_scores_of_another_shape_are_refused(tmp_path: Path, documents: int, labels: int) -> None:
    save_scores(matrix([{0: 1.0}, {}], labels=3), tmp_path / "scores.npz")
    with pytest.raises(DataError, match=r"scores\.npz: is 2 x 3; expected"):
        load_scores(tmp_path / "scores.npz", documents, labels)


@pytest.mark.parametrize("value", [np.nan, 1j])
def test_scores_that_are_no_real_numbers_are_refused(tmp_path: Path, value: complex) -> None:
    sparse.save_npz(tmp_path / "scores.npz", sparse.csr_array(np.array([[1.0, value]])))
    with pytest.raises(DataError, match=r"scores\.npz: expected real numbers"):
        load_scores(tmp_path / "scores.npz", 1, 2)


def bad_file(kind: str, path: Path) -> None:
    """Write something that is no sparse matrix."""
    save_scores(matrix([{0: 1.0, 5: 2.0}, {3: 1.0}]), path)
    good = path.read_bytes()
    with np.load(path) as stored:
        arrays = dict(stored)
    if kind == "missing":
        path.unlink()
    elif kind == "folder":
        path.unlink()
        path.mkdir()
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("document,label,score\n", encoding="utf-8")
    elif kind == "cut short":
        path.write_bytes(good[: len(good) // 2])
    elif kind == "damaged":
        path.write_bytes(good[:60] + bytes(byte ^ 0xFF for byte in good[60:90]) + good[90:])
    elif kind == "dense npz":
        np.savez(path, scores=np.eye(2))
    elif kind == "npy":
        with path.open("wb") as stream:
            np.save(stream, np.eye(2))
    elif kind == "pickle":
        path.write_bytes(pickle.dumps({"scores": [1.0]}))
    elif kind == "labels out of range":
        np.savez(path, **(arrays | {"indices": arrays["indices"] + LABELS}))
    elif kind == "lists of other lengths":
        np.savez(path, **(arrays | {"data": arrays["data"][:1]}))
    elif kind == "a layout that cannot be stored":
        np.savez(path, **(arrays | {"format": np.array(b"dok")}))
    elif kind == "one dimension":
        sparse.save_npz(path, sparse.coo_array(np.array([1.0, 0.0, 2.0])))
    elif kind == "encrypted":
        at = good.index(b"PK\x01\x02") + 8  # flags of the first entry in the zip's directory
        path.write_bytes(good[:at] + bytes([good[at] | 1]) + good[at + 1 :])


@pytest.mark.parametrize(
    "kind",
    [
        "missing",
        "folder",
        "empty",
        "text",
        "cut short",
        "damaged",
        "dense npz",
        "npy",
        "pickle",
        "labels out of range",
        "lists of other lengths",
        "a layout that cannot be stored",
        "one dimension",
        "encrypted",
    ],
)
def test_a_file_that_is_no_score_matrix_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "scores.npz"
    bad_file(kind, path)
    with pytest.raises(DataError, match=r"scores\.npz: "):
        load_scores(path, 2, LABELS)


class Trap:
    """Says so when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("a pickle was opened",)


@pytest.mark.parametrize("field", ["data", "indices", "format", "shape"])
def test_pickled_objects_in_a_score_file_are_refused_unopened(tmp_path: Path, field: str) -> None:
    path = tmp_path / "scores.npz"
    save_scores(matrix([{0: 1.0}]), path)
    with np.load(path) as stored:
        arrays = dict(stored)
    np.savez(path, **(arrays | {field: np.array([Trap()], dtype=object)}))
    assert f"{field}.npy" in zipfile.ZipFile(path).namelist()
    with pytest.raises(DataError, match=r"scores\.npz: .*pickle"):
        load_scores(path, 1, LABELS)


def test_a_byte_changed_anywhere_gives_scores_or_a_data_error(tmp_path: Path) -> None:
    path = tmp_path / "scores.npz"
    save_scores(matrix([{0: 1.0}]), path)
    good = path.read_bytes()
    for at in range(0, len(good), 3):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x81]) + good[at + 1 :])
        try:
            assert load_scores(path, 1, LABELS).shape == (1, LABELS)
        except DataError as error:
            assert "scores.npz" in str(error)  # noqa: PT017 - either outcome is right


def test_labels_below_a_threshold_are_left_out() -> None:
    ids, scores = np.array([[3, 1, 0], [2, -1, -1]]), np.array([[0.9, 0.5, 0.1], [0.2, -np.inf, -np.inf]])
    predictions = Predictions(ids, scores.astype(np.float32))
    found = predictions.above(0.5)
    assert found.ids.tolist() == [[3, 1, -1], [-1, -1, -1]]
    assert found.scores.tolist() == [[pytest.approx(0.9), 0.5, -np.inf], [-np.inf] * 3]
    assert list(predictions.above(0.0)) == list(predictions)
    assert list(predictions.above(-np.inf)) == list(predictions)
    assert list(predictions.above(2.0)) == [[], []]
    assert predictions.ids.tolist() == ids.tolist()
