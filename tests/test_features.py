"""Text features: words of any script, tf-idf by hand, and the same answers in any company, order or process."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from decaf import DataError, Dataset, FeatureError, Features, FeatureSettings, with_features
from decaf.datasets import Items, Part
from decaf.datasets.parts import empty_part, no_pairs
from decaf.features import (
    _ASCII_KINDS,
    _ASCII_WORDS,
    _kind,
    _OfWords,
    _unicode_words,
    shape_of,
    split_words,
    texts_of,
)

EVERY_WORD = FeatureSettings(min_count=1)
CORPUS = ["getGain2 of HTTPServer", "red apple pie", "a green apple", "Ärger im Büro", "中文 red", "हिन्दी pie", "apple"]
TRICKY = ["", "   ", "...", "apple", "red apple pie", "zzz", "中文", "apple " * 50, "😀", "Ärger apple", "x" * 10_000]


@pytest.fixture(scope="module")
def features() -> Features:
    return Features.learn(CORPUS, ["apple", "server"], EVERY_WORD)


def row_of(features: Features, text: str) -> dict[str, float]:
    row = features.transform([text])
    return dict(zip([features.vocabulary[at] for at in row.indices], row.data.tolist(), strict=True))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        (" \t\n", ""),
        ("?!... --- ::", ""),
        ("apple", "apple"),
        ("Apple", "apple"),
        ("APPLE", "apple"),
        ("getGain", "get gain"),
        ("IVideoProcAmp::get_Gain2", "i video proc amp get gain 2"),
        ("HTTPServer", "http server"),
        ("parseHTTPResponse", "parse http response"),
        ("URLs and PDFs", "urls and pdfs"),
        ("URLset", "ur lset"),
        ("iOS", "i os"),
        ("aB", "a b"),
        ("A", "a"),
        ("https://www.Example.com/a_b?x=1#top", "https www example com a b x 1 top"),
        ("snake_case__name_", "snake case name"),
        ("utf8mb4 2024-01-31 v1.2", "utf 8 mb 4 2024 01 31 v 1 2"),
        ("don't re-use (it)", "don t re use it"),
        ("café Crème NAÏVE", "cafe creme naive"),
        ("cafe\u0301", "cafe"),
        ("GroßeStraße", "große straße"),
        ("ÜberGröße", "uber große"),
        ("éléphantRose", "elephant rose"),
        ("ΑλφαΒήτα", "αλφα βητα"),
        ("МоскваСити", "москва сити"),
        ("НТТРСервер", "нттр сервер"),
        ("中文字", "中 文 字"),
        ("中文ABC和def", "中 文 abc 和 def"),
        ("東京タワー", "東 京 タワー"),
        ("がぎぐ", "がぎぐ"),
        ("हिन्दी भाषा", "हिन्दी भाषा"),
        ("ภาษาไทย ที่นี่", "ภาษาไทย ที่นี่"),
        ("مرحبا بالعالم", "مرحبا بالعالم"),
        ("안녕하세요 세계", "안녕하세요 세계"),
        ("hi😀🚀there", "hi 😀 🚀 there"),
        ("✈️ 👨‍👩‍👧", "✈ 👨 👩 👧"),
        ("ＦｕｌｌＷｉｄｔｈ１２", "full width 12"),
        ("ﬁne x² ½", "fine x 2 1 2"),
        ("٣٤ ملف", "٣٤ ملف"),
        ("foo\u200bbar\u00a0baz", "foo bar baz"),
    ],
)
def test_words(text: str, words: str) -> None:
    assert split_words(text) == words.split()


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.text(st.characters(max_codepoint=127)) | st.text("aAbBsS01_ -"))
def test_both_patterns_find_the_same_words_in_ascii(text: str) -> None:
    assert _unicode_words().findall(text) == _ASCII_WORDS.findall(text)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.text("aAbBsS01_ -"), st.sampled_from(["é", "中", "😀", "д"]))
def test_a_foreign_word_beside_it_changes_no_ascii_word(text: str, foreign: str) -> None:
    assert split_words(f"{text} {foreign}")[:-1] == split_words(text)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.text())
def test_any_text_has_words_of_lower_case_without_white_space(text: str) -> None:
    for word in split_words(text):
        assert word
        assert word == word.lower()
        assert word.split() == [word]


def test_weights_by_hand() -> None:
    features = Features.learn(["apple apple pear", "pear"], ["apple", "plum"], EVERY_WORD)
    assert features.vocabulary == ["apple", "pear", "plum"]
    # n = 2 documents + 2 labels; apple and pear are in two of the four texts, plum in one.
    # idf = ln(5/3) + 1 = 1.510826 for apple and pear, ln(5/2) + 1 = 1.916291 for plum.
    assert features.idf.tolist() == pytest.approx([log(5 / 3) + 1, log(5 / 3) + 1, log(5 / 2) + 1])
    # Twice apple, once pear, of the same idf: (2, 1) / sqrt(5).
    assert row_of(features, "apple apple pear") == pytest.approx({"apple": 2 / sqrt(5), "pear": 1 / sqrt(5)})
    # 1.510826 and 1.916291 over sqrt(1.510826^2 + 1.916291^2) = 2.440238.
    assert row_of(features, "plum, Apple!") == pytest.approx({"apple": 0.619130, "plum": 0.785288}, abs=1e-6)


def test_a_word_not_seen_often_is_cut_into_pieces_that_were() -> None:
    features = Features.learn(["sun sun flower flower", "sunflower"], [], FeatureSettings(min_count=2))
    row = row_of(features, "sunflower")
    assert "sunflower" not in row
    assert "sun" in row
    assert sum(value**2 for value in row.values()) == pytest.approx(1)


@pytest.mark.parametrize("text", ["", "   ", "?!", "жжж", "漢", "😀"])
def test_empty_and_unknown_texts_have_empty_rows(features: Features, text: str) -> None:
    rows = features.transform([text, "apple"])
    assert np.diff(rows.indptr).tolist() == [0, 1]


def test_no_texts_have_no_rows(features: Features) -> None:
    assert features.transform([]).shape == (0, features.count)


def test_rows_have_unit_length_and_sorted_tokens(features: Features) -> None:
    rows = features.transform(CORPUS + TRICKY)
    assert rows.shape == (len(CORPUS) + len(TRICKY), features.count)
    assert rows.dtype == np.float32
    lengths = np.sqrt(rows.multiply(rows).sum(axis=1))
    assert np.allclose(lengths[np.diff(rows.indptr) > 0], 1, atol=1e-6)
    assert rows.has_canonical_format


def test_a_batch_gives_bitwise_what_its_texts_give_one_by_one(features: Features) -> None:
    texts = (CORPUS + TRICKY) * 3
    batch = features.transform(texts)
    for at, text in enumerate(texts):
        alone, span = features.transform([text]), slice(batch.indptr[at], batch.indptr[at + 1])
        assert alone.indices.tolist() == batch.indices[span].tolist()
        assert alone.data.tobytes() == batch.data[span].tobytes()


@settings(deadline=None, derandomize=True, max_examples=300)
@given(text=st.text())
def test_any_text_has_finite_weights_of_at_least_zero(features: Features, text: str) -> None:
    row = features.transform([text])
    assert row.shape == (1, features.count)
    assert np.all(np.isfinite(row.data))
    assert np.all(row.data >= 0)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=6))
def test_anything_with_a_word_can_be_learned_from(texts: list[str]) -> None:
    if any(map(split_words, texts)):
        features = Features.learn(texts, ["label"], EVERY_WORD)
        rows = features.transform(texts)
        assert [len(split_words(text)) > 0 for text in texts] == (np.diff(rows.indptr) > 0).tolist()


def test_a_lone_surrogate_is_no_word(features: Features) -> None:
    assert features.transform(["\ud800apple\udfff"]).nnz == 1


def test_a_very_long_word_has_the_tokens_of_its_beginning() -> None:
    features = Features.learn(["ab", "ba", "aabb"], ["label"], FeatureSettings(min_count=9))  # letters alone
    long, start = features.transform(["ab" * 5000]), features.transform(["ab" * 32])
    assert long.nnz > 0
    assert long.indices.tolist() == start.indices.tolist()
    assert long.data.tolist() == start.data.tolist()


@pytest.mark.parametrize("length", [64, 65, 80, 100, 101, 10_000])
def test_a_long_word_that_was_learned_is_known(length: int) -> None:
    features = Features.learn(["x" * length, "x" * length], ["label"], FeatureSettings())
    assert features.transform(["x" * length]).nnz > 0


def test_texts_in_another_order_give_the_same_features() -> None:
    rng = random.Random(3)
    documents, labels = CORPUS * 4 + TRICKY, ["red", "Apple", "server gain", "pie"]
    first = Features.learn(documents, labels, FeatureSettings())
    rng.shuffle(documents)
    rng.shuffle(labels)
    second = Features.learn(documents, labels, FeatureSettings())
    assert first.vocabulary == second.vocabulary
    assert first.idf.tobytes() == second.idf.tobytes()


LEARN = """
import json, random, sys
from decaf import Features, FeatureSettings
rng = random.Random(5)
words = ["".join(rng.choices("abcdeéßдж中", k=rng.randint(1, 9))) for _ in range(400)]
texts = [" ".join(rng.choices(words, k=4)) for _ in range(600)]
features = Features.learn(texts, words, FeatureSettings(vocabulary=150, words=True))
json.dump([features.vocabulary, features.idf.tolist()], sys.stdout)
"""


def test_every_process_learns_the_same() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", LEARN], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        )
        for seed in ("1", "2", "3")
    ]
    vocabulary, idf = json.loads(runs[0].stdout)
    assert len(vocabulary) == len(idf) > 100
    assert {run.stdout for run in runs} == {runs[0].stdout}


def many_words() -> list[str]:
    rng = random.Random(2)
    return ["".join(rng.choices("abcdefgh", k=6)) for _ in range(200)] * 2


@pytest.mark.parametrize("most", [7, 10, 16, 17, 40, 100])
def test_the_vocabulary_keeps_its_limit(most: int) -> None:
    assert Features.learn(many_words(), ["abc"], FeatureSettings(vocabulary=most)).count <= most


@pytest.mark.parametrize("most", [1, 2])
def test_a_vocabulary_without_room_for_a_token_is_refused(most: int) -> None:
    with pytest.raises(FeatureError, match="room for no token"):
        Features.learn(many_words(), ["abc"], FeatureSettings(vocabulary=most))


def test_whole_words_get_tokens_of_their_own_beside_their_pieces() -> None:
    words = [*many_words(), "abcdefgh"]
    pieces = Features.learn(words, [], FeatureSettings(vocabulary=40))
    whole = Features.learn(words, [], FeatureSettings(vocabulary=40, words=True))
    assert whole.vocabulary[: pieces.count] == pieces.vocabulary
    added = whole.vocabulary[pieces.count :]
    assert added == sorted(f"word:{word}" for word in set(many_words()) if pieces.transform([word]).nnz > 1)
    row = row_of(whole, words[0])
    assert row.keys() - {f"word:{words[0]}"} == row_of(pieces, words[0]).keys()
    assert f"word:{words[0]}" in row
    assert "word:abcdefgh" not in added  # seen once


def test_stop_words_are_dropped_where_asked() -> None:
    texts = ["the apple and the pear", "the pear"]
    kept = Features.learn(texts, [], EVERY_WORD)
    dropped = Features.learn(texts, [], replace(EVERY_WORD, stop_words=True))
    assert kept.vocabulary == ["and", "apple", "pear", "the"]
    assert dropped.vocabulary == ["apple", "pear"]
    assert row_of(dropped, "The apple") == row_of(dropped, "apple") == {"apple": 1.0}
    assert dropped.transform(["the"]).nnz == 0


PAIRS = replace(EVERY_WORD, pairs=True)


def test_pairs_of_words_in_three_texts_get_tokens_of_their_own() -> None:
    # red apple is in three texts, one of them a label; apple pie in two, though four times; pie red in none.
    texts = ["red apple pie apple pie", "Red apple! pie red", "apple pie apple pie"]
    learned = Features.learn(texts, ["a red-apple"], PAIRS)
    assert learned.pairs == ["apple pie", "red apple"]
    fewer = Features.learn(texts[:2], ["a red apple"], PAIRS)
    assert fewer.pairs == ["red apple"]
    assert Features.learn(texts[:2], [], PAIRS).pairs == []


def test_a_pair_within_one_text_counts_once() -> None:
    assert Features.learn(["red apple " * 9, "red apple"], [], PAIRS).pairs == []


def test_pairs_stand_behind_the_words_by_name() -> None:
    texts = [*many_words(), *["red apple pie"] * 3]
    without = Features.learn(texts, [], FeatureSettings(vocabulary=40, words=True))
    learned = Features.learn(texts, [], FeatureSettings(vocabulary=40, words=True, pairs=True))
    assert learned.vocabulary == [*without.vocabulary, "pair:apple pie", "pair:red apple"]
    assert learned.count == without.count + 2
    assert without.pairs == []
    row = row_of(learned, "a red apple")
    assert row.keys() - {"pair:red apple"} == row_of(without, "a red apple").keys()


def test_weights_of_pairs_by_hand() -> None:
    learned = Features.learn(["red apple"] * 3, ["red"], PAIRS)
    assert learned.vocabulary == ["apple", "red", "pair:red apple"]
    # Of four texts red is in all, apple and the pair in three.
    idf = {"apple": log(5 / 4) + 1, "red": log(5 / 5) + 1, "pair:red apple": log(5 / 4) + 1}
    assert learned.idf.tolist() == pytest.approx(list(idf.values()))
    counts = {"apple": 2, "red": 3, "pair:red apple": 2}
    size = sqrt(sum((counts[name] * idf[name]) ** 2 for name in idf))
    expected = {name: counts[name] * idf[name] / size for name in idf}
    assert row_of(learned, "red, apple RED apple? red") == pytest.approx(expected)
    assert "pair:red apple" not in row_of(learned, "apple red")
    assert "pair:red apple" not in row_of(learned, "red green apple")


def test_pairs_are_the_same_in_any_order_and_the_most_frequent_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = ["red apple pie", "green apple pie", "old red apple pie", "old red wine", "old red wine", "red wine bar"]
    assert Features.learn(texts, [], PAIRS).pairs == ["apple pie", "old red", "red wine"]
    assert Features.learn(texts[::-1], [], PAIRS).pairs == ["apple pie", "old red", "red wine"]
    monkeypatch.setattr("decaf.features._LARGEST", 2)
    more = [*texts, "very old red", "a red wine"]
    assert Features.learn(more, [], replace(PAIRS, vocabulary=40)).pairs == ["old red", "red wine"]


def test_pairs_in_any_script() -> None:
    learned = Features.learn(["中文 red"] * 3, [], PAIRS)
    assert learned.pairs == ["中 文", "文 red"]
    assert "pair:中 文" in row_of(learned, "中文")


def test_rows_with_pairs_have_unit_length() -> None:
    learned = Features.learn(["red apple"] * 3, [], PAIRS)
    batch = learned.transform(["red apple", "apple red", ""])
    assert np.diff(batch.indptr).tolist() == [3, 2, 0]
    assert np.allclose(np.sqrt(batch.multiply(batch).sum(axis=1))[:2], 1)


def test_stop_words_make_no_pairs_where_they_are_dropped() -> None:
    texts = ["the apple of the eye"] * 3
    assert Features.learn(texts, [], PAIRS).pairs == ["apple of", "of the", "the apple", "the eye"]
    dropped = Features.learn(texts, [], replace(PAIRS, stop_words=True))
    assert not any({"the", "of"} & set(pair.split()) for pair in dropped.pairs)
    assert dropped.transform(["of the"]).nnz == 0


ENDS = replace(PAIRS, ends=True)


def test_words_that_three_texts_begin_or_end_with_get_tokens_of_their_own() -> None:
    texts = ["red apple", "Red pie", "apple, red apple", ""]
    learned = Features.learn(texts, ["red"], ENDS)
    # Three begin with red, one of them a label; two end with apple. A lone word is beginning and end.
    assert learned.pairs == ["^ red"]
    assert Features.learn([*texts, "an apple"], ["red"], ENDS).pairs == ["^ red", "apple $"]
    assert "pair:^ red" in row_of(learned, "red wine")
    assert "pair:^ red" not in row_of(learned, "old red")
    assert Features.learn(texts, ["red"], PAIRS).pairs == []


def test_a_text_that_is_one_word_begins_and_ends_with_it() -> None:
    learned = Features.learn(["apple"] * 3, [], ENDS)
    assert learned.pairs == ["^ apple", "apple $"]
    assert row_of(learned, "apple").keys() == {"apple", "pair:^ apple", "pair:apple $"}
    assert learned.transform(["", "^ $", "^ apple $"]).toarray()[:2].sum() == 0  # marks of a text are no words


def test_a_text_of_nothing_has_no_beginning() -> None:
    learned = Features.learn([*["..."] * 5, "apple"], [], ENDS)
    assert learned.pairs == []
    assert learned.vocabulary == ["apple"]


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("", ""),
        (" \t\n", ""),
        ("apple", "x"),
        ("Apple", "C"),
        ("A", "X"),
        ("WM_PAINT message", "X_X x"),
        ("IVideoProcAmp::get_Gain (vidcap.h)", "C::x_C (x.x)"),
        ("HTTPServer2", "C9"),
        ("How to bake a pie in C#", "C x+ X#"),
        ("Red Apple Pie", "C C+"),
        ("  a \t b", "x x"),
        ("a b c d", "x x+"),
        ("python3-numpy 1.26", "x9-x 9.9"),
        ("Ärger im Büro", "C x C"),
        ("中文字 ABC", "x X"),
        ("हिन्दी pie", "x x"),
        ("e\u0301te\u0301", "x"),
        ("½ apple", "9 x"),
        ("a." * 500, "x." * 20),
    ],
)
def test_shapes(text: str, shape: str) -> None:
    assert shape_of(text) == shape


def test_ascii_is_a_short_cut_to_the_same_shapes() -> None:
    for code in range(128):
        assert chr(code).translate(_ASCII_KINDS) == _kind(chr(code))


SHAPES = replace(EVERY_WORD, shapes=True)


def test_shapes_of_three_texts_get_tokens_of_their_own() -> None:
    texts = ["red apple", "an old  pie", "Apple", "...", "...", "...", "apple red"]
    learned = Features.learn(texts, ["a pie"], SHAPES)
    assert learned.shapes == ["x x"]  # of two texts and a label; nothing is looked at where there is no word
    assert learned.vocabulary[-1] == "shape:x x"
    assert "shape:x x" in row_of(learned, "green\tapple")
    assert "shape:x x" not in row_of(learned, "Green apple")
    assert Features.learn(texts, ["a pie"], EVERY_WORD).shapes == []
    idf = log((8 + 1) / (3 + 1)) + 1
    assert learned.idf[-1] == pytest.approx(idf)


def test_a_shape_needs_a_known_word() -> None:
    learned = Features.learn(["red apple"] * 3, [], replace(SHAPES, pairs=True, ends=True))
    assert learned.shapes == ["x x"]
    assert learned.pairs == ["^ red", "apple $", "red apple"]
    assert learned.transform(["...", "中 文"]).nnz == 0
    again = learned.transform(["red apple", "", "Red Apple"])
    assert np.diff(again.indptr).tolist() == [6, 0, 5]


def test_only_words_seen_often_enough_stay_whole() -> None:
    texts = ["banana banana banana", "cherry cherry", "damson"]
    for least, whole in ((1, {"banana", "cherry", "damson"}), (2, {"banana", "cherry"}), (3, {"banana"})):
        vocabulary = Features.learn(texts, [], FeatureSettings(min_count=least)).vocabulary
        assert {"banana", "cherry", "damson"} & set(vocabulary) == whole


def test_words_forgotten_by_the_cache_are_cut_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Features.learn(CORPUS, ["apple"], EVERY_WORD).transform(CORPUS * 2)
    monkeypatch.setattr(_OfWords, "_MOST", 3)
    small = Features.learn(CORPUS, ["apple"], EVERY_WORD)
    found = small.transform(CORPUS * 2)
    assert len(small._tokens) <= 3
    assert found.indices.tolist() == expected.indices.tolist()
    assert found.data.tobytes() == expected.data.tobytes()


@pytest.mark.parametrize("texts", [[], [""], ["?!", "  "]])
def test_texts_without_a_word_cannot_be_learned_from(texts: list[str]) -> None:
    with pytest.raises(FeatureError, match="no word"):
        Features.learn(texts, ["..."], FeatureSettings())


def test_texts_of_stop_words_alone_cannot_be_learned_from() -> None:
    with pytest.raises(FeatureError, match="no word"):
        Features.learn(["the", "and the"], [], FeatureSettings(stop_words=True))


def test_weights_for_other_tokens_are_refused(features: Features) -> None:
    with pytest.raises(FeatureError, match="learn the features again"):
        Features(features.tokenizer, features.words, features.idf[1:], features.settings)


def test_content_is_read_where_asked_and_there() -> None:
    items = Items(2, texts=["red", "green"], contents=["apple", ""])
    assert list(texts_of(items, FeatureSettings())) == ["red", "green"]
    assert list(texts_of(items, FeatureSettings(content=True))) == ["red apple", "green "]
    assert list(texts_of(Items(1, texts=["red"]), FeatureSettings(content=True))) == ["red"]


def test_items_without_text_have_nothing_to_make_features_of() -> None:
    with pytest.raises(DataError, match="no text"):
        texts_of(Items(1, features=sparse.csr_array((1, 1))), FeatureSettings())


def small_dataset() -> Dataset:
    def part(*texts: str) -> Part:
        return Part(Items(len(texts), texts=texts), sparse.csr_array((len(texts), 2), dtype=np.float32), no_pairs())

    return Dataset("small", part("red apple", "green pear"), part("red pear"), Items(2, texts=["apple", "pear"]))


def test_a_dataset_gets_features_learned_on_training_documents_and_labels() -> None:
    dataset = with_features(small_dataset(), EVERY_WORD)
    learned = Features.learn(["red apple", "green pear"], ["apple", "pear"], EVERY_WORD)
    for items, texts in (
        (dataset.train.documents, ["red apple", "green pear"]),
        (dataset.test.documents, ["red pear"]),
        (dataset.labels, ["apple", "pear"]),
    ):
        assert items.need_features().toarray().tolist() == learned.transform(texts).toarray().tolist()
        assert list(items.texts or []) == texts


def test_given_features_are_used_as_they_are() -> None:
    given_features = Features.learn(["quite other words"], ["red"], EVERY_WORD)
    dataset = with_features(small_dataset(), EVERY_WORD, given_features)
    assert dataset.train.documents.need_features().shape == (2, given_features.count)
    assert dataset.test.documents.need_features().nnz == 1  # red alone is known


def test_ready_features_stay_as_they_are() -> None:
    dataset = with_features(small_dataset(), EVERY_WORD)
    assert with_features(dataset, FeatureSettings()) is dataset
    untested = replace(dataset, test=empty_part(2))
    assert with_features(untested, FeatureSettings()).train is dataset.train
