"""Compounds: the likeliest known words by hand and against every way to cut, and what features make of them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decaf import Features, FeatureSettings
from decaf.compounds import Compounds

COUNTS = {
    "i": 50,
    "video": 100,
    "proc": 40,
    "amp": 20,
    "get": 500,
    "gain": 30,
    "id": 400,
    "eo": 3,
    "größe": 9,
    "am": 90,
}
KNOWN = Compounds(COUNTS)


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("video", "video"),
        ("getgain", "get gain"),
        ("ivideoprocamp", "i video proc amp"),
        ("videogröße", "video größe"),
        ("getgetget", "get get get"),
        ("getx", "getx"),  # no known words hold an x
        ("idi", "idi"),  # too short to be cut
        ("idid", "id id"),
        ("eoeo", "eo eo"),  # twice log(1242 / 3) is 12.05, four letters at log(26) each are 13.03
        ("gain2", "gain2"),
        ("2222", "2222"),
        ("", ""),
    ],
)
def test_the_likeliest_known_words(word: str, parts: str) -> None:
    assert KNOWN.cut(word) == tuple(parts.split(" "))


def test_words_must_cost_less_than_their_letters() -> None:
    # log(4 / 1) for each of four letters, and two more for each: 4 x 3.386 is more than 4 x 3.258; of pairs it is less.
    letters = Compounds({"a": 1, "b": 1, "c": 1, "d": 1})
    assert 4 * (math.log(4) + 2) > 4 * math.log(26)
    assert letters.cut("abcd") == ("abcd",)
    assert Compounds({"ab": 1, "cd": 1, "a": 1, "b": 1}).cut("abcd") == ("ab", "cd")


def test_words_seen_three_times_are_known_and_numbers_are_not() -> None:
    learned = Compounds.learn({"video": 3, "amp": 2, "2": 9, "proc": 30})
    assert learned.counts == {"proc": 30, "video": 3}
    assert learned.cut("videoproc") == ("video", "proc")
    assert learned.cut("videoamp") == ("videoamp",)


def test_a_word_of_more_than_64_letters_stays_whole() -> None:
    assert KNOWN.cut("get" * 21) == ("get",) * 21
    assert KNOWN.cut("get" * 22) == ("get" * 22,)


def obvious(word: str, counts: dict[str, int]) -> float:
    """What the cheapest of all ways to cut costs."""
    total, best = sum(counts.values()), math.inf
    for cuts in range(len(word)):
        for places in combinations(range(1, len(word)), cuts):
            parts = [word[begin:end] for begin, end in zip((0, *places), (*places, len(word)), strict=True)]
            if all(part in counts for part in parts):
                best = min(best, sum(math.log(total / counts[part]) + 2 * (len(part) == 1) for part in parts))
    return best


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    st.text("abc", min_size=4, max_size=9),
    st.dictionaries(st.text("abc", min_size=1, max_size=4), st.integers(1, 1000), min_size=1, max_size=12),
)
def test_no_other_way_to_cut_is_cheaper(word: str, counts: dict[str, int]) -> None:
    parts, total = Compounds(counts).cut(word), sum(counts.values())
    assert "".join(parts) == word
    cheapest = obvious(word, counts)
    if word in counts or cheapest >= math.log(26) * len(word):
        assert parts == (word,)
    else:
        cost = sum(math.log(total / counts[part]) + 2 * (len(part) == 1) for part in parts)
        assert cost == pytest.approx(cheapest)


SETTINGS = FeatureSettings(min_count=1, pairs=True, ends=True, compounds=True)
TEXTS = [
    "getGain of a videoProc",
    "set gain",
    "Get a Video",
    "video proc get",
    "gain of video",
    "proc",
    "old videoproc",
]


def test_a_text_without_its_capitals_is_the_same_text() -> None:
    features = Features.learn(TEXTS, ["gain"], SETTINGS)
    assert features.known == {"gain": 4, "get": 3, "proc": 3, "video": 4}
    texts = ["getGain of a videoProc", "getgain of a videoproc", "GETGAIN OF A VIDEOPROC"]
    rows = features.transform(texts).toarray()
    assert (rows[0] == rows[1]).all()
    assert (rows[0] == rows[2]).all()
    without = Features.learn(TEXTS, ["gain"], replace(SETTINGS, compounds=False))
    assert without.known == {}
    rows = without.transform(texts).toarray()
    assert (rows[0] != rows[1]).any()


def test_the_rows_that_are_learned_on_are_those_that_are_made_later() -> None:
    features, documents, labels = Features.learned(TEXTS, ["gain", "", "videogain"], SETTINGS)
    for rows, texts in ((documents, TEXTS), (labels, ["gain", "", "videogain"])):
        again = features.transform(texts)
        assert rows.shape == again.shape
        assert rows.indptr.tolist() == again.indptr.tolist()
        assert rows.indices.tolist() == again.indices.tolist()
        assert rows.data.tobytes() == again.data.tobytes()


def test_words_of_a_compound_count_as_seen() -> None:
    # video proc is in two texts as two words or in camel case, and in one as a word that is cut.
    assert "video proc" in Features.learn(TEXTS, ["gain"], SETTINGS).pairs
    assert "video proc" not in Features.learn(TEXTS, ["gain"], replace(SETTINGS, compounds=False)).pairs


def test_a_word_of_known_letters_alone_is_read_by_its_pieces() -> None:
    texts = ["sun sun flower flower", "sunflower", "flow"]  # sun and flower are seen twice, too seldom to be known
    features = Features.learn(texts, [], FeatureSettings(compounds=True))
    assert features.known == {}
    assert "sun" in [features.vocabulary[token] for token in features.transform(["sunflower"]).indices]
