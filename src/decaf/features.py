"""Text features: words, cut at camel case, digits and punctuation, into pieces, pairs, and shapes, by tf-idf."""

from __future__ import annotations

import json
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from decaf.compounds import Compounds
from decaf.config import FeatureSettings
from decaf.datasets import Dataset, Items
from decaf.errors import DataError, FeatureError
from decaf.progress import Advance, progress

__all__ = [
    "Features",
    "Learned",
    "read_tokenizer",
    "shape_of",
    "split_words",
    "texts_of",
    "unit_values",
    "with_features",
]

_T = TypeVar("_T")

_LARGEST = 128_000  # tokens, however large the dataset
_SMALLEST = 2_000
_LONGEST = 64  # characters of a word that are looked at: longer ones are codes, not words
_PAIR_COUNT = 3  # texts that must hold a pair of words before it gets a token of its own
_BEGIN, _END = "^", "$"  # of a text; no word holds them
_SHAPE_COUNT = 3  # texts that must have a shape before it gets a token of its own
_SEEN, _SHAPE = 256, 40  # characters of a text that its shape is made of, and of a shape
_ALPHABET = 5_000  # characters that may be pieces of their own
_UNKNOWN = "[UNK]"
_CONTINUED = "##"  # WordPiece's mark of a piece inside a word
_WORD_PIECE = {  # all that a tokenizer says beside its pieces
    "type": "WordPiece",
    "unk_token": _UNKNOWN,
    "continuing_subword_prefix": _CONTINUED,
    "max_input_chars_per_word": _LONGEST,
}
_STOP_WORDS = frozenset(
    "a about an and are as at be by can do for from has have how if in into is it its not of on or that the their this "
    "to was were what when which will with you your".split()
)

_ACCENTS = re.compile("[\u0300-\u036f]+")
_ASCII_WORDS = re.compile("[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def split_words(text: str) -> list[str]:
    """The words of a text in lower case: "IVideoProcAmp::get_Gain2" -> i video proc amp get gain 2."""
    if text.isascii():
        return [word.lower() for word in _ASCII_WORDS.findall(text)]
    text = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", text)))
    return [word.lower() for word in _unicode_words().findall(text)]


@cache
def _unicode_words() -> re.Pattern[str]:
    """The ASCII pattern for all scripts: cased words cut at camel case, others whole, Han and emoji one by one."""
    characters = [chr(code) for code in range(0x10000) if not 0xD800 <= code < 0xE000]
    upper = "".join(c for c in characters if c.isupper() and c.isalpha())
    lower = "".join(c for c in characters if c.islower() and c.isalpha())
    marks = "".join(c for c in characters if unicodedata.category(c)[0] == "M")  # vowel signs of many scripts
    han = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
    emoji = "\u2600-\u27bf\U0001f000-\U0001faff"
    return re.compile(
        f"[{upper}]{{2,}}s(?![{lower}])|[{upper}]+(?![{lower}])|[{upper}]?[{lower}]+|\\d+|[{han}{emoji}]"
        f"|(?:(?![{upper}{lower}{han}])[^\\W\\d_])(?:(?![{upper}{lower}{han}])[^\\W\\d_]|[{marks}])*"
    )


def shape_of(text: str) -> str:
    """What kinds of characters a text is made of: "IVideoProcAmp::get_Gain (vidcap.h)" -> C::x_C (x.x).

    X stands for capitals, x for letters without case or small ones, C for capitalised words joined, 9 for digits;
    x+ and C+ for several words of the kind.
    """
    text = " ".join(text[:_SEEN].split())
    kinds = text.translate(_ASCII_KINDS) if text.isascii() else "".join(map(_kind, text))
    for sign, pattern, short in _SHORTER:
        if sign in kinds:
            kinds = pattern.sub(short, kinds)
    return kinds[:_SHAPE]


@lru_cache(maxsize=1 << 14)  # a server sees whatever it is sent
def _kind(character: str) -> str:
    """What a character counts as in a shape."""
    if character.isupper():
        return "X"
    category = unicodedata.category(character)
    return {"L": "x", "M": "", "N": "9"}.get(category[0], character)


_ASCII_KINDS = str.maketrans({character: _kind(character) for character in map(chr, range(128)) if character.isalnum()})
_SHORTER = [  # where a text has the sign, what is found becomes shorter
    (sign, re.compile(pattern), short)
    for sign, pattern, short in (
        ("XX", "XX+", "X"),
        ("xx", "xx+", "x"),
        ("99", "99+", "9"),
        ("Xx", "(?:Xx)+", "C"),
        (" x x", "( x){2,}", " x+"),
        (" C C", "( C){2,}", " C+"),
    )
]


class Features:
    """Learned features: any text becomes a row of token weights of unit length, or an empty row."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        words: Sequence[str],
        idf: NDArray[np.float32],
        settings: FeatureSettings,
        pairs: Sequence[str] = (),
        shapes: Sequence[str] = (),
        known: Mapping[str, int] | None = None,
    ) -> None:
        self.tokenizer = tokenizer  # cuts one word into pieces; the last token stands for unknown characters
        self.words = words  # whole words with a token of their own behind the pieces
        # Two words with a space between, or one and the beginning or end of a text, with tokens behind the words.
        self.pairs = pairs
        self.shapes = shapes  # of texts, with tokens behind the pairs
        self.idf = idf  # [tokens]
        self.settings = settings
        self.known = known or {}  # how often words were seen that others are cut into
        self._pieces = tokenizer.get_vocab_size() - 1
        singles = self._pieces + len(words)
        alone = singles + len(pairs)
        if len(idf) != alone + len(shapes):
            raise FeatureError(f"{len(idf)} weights for {alone + len(shapes)} tokens; learn the features again")
        self._tokens = _OfWords(self._cut)
        self._parts = _OfWords(Compounds(self.known).cut)
        self._whole = {word: self._pieces + row for row, word in enumerate(words)}
        self._paired = {tuple(pair.split(" ")): singles + row for row, pair in enumerate(pairs)}
        self._shaped = {shape: alone + row for row, shape in enumerate(shapes)}

    @classmethod
    def learn(cls, documents: Sequence[str], labels: Sequence[str], settings: FeatureSettings) -> Features:
        """Learn pieces, whole words and weights from training documents and labels together."""
        return cls.learned(documents, labels, settings).features

    @classmethod
    def learned(cls, documents: Sequence[str], labels: Sequence[str], settings: FeatureSettings) -> Learned:
        """The same, and with it the rows of these very texts, which are counted on the way."""
        with progress("learning tokens", 3) as advance:
            return cls._learned(documents, labels, settings, advance)

    @classmethod
    def _learned(
        cls, documents: Sequence[str], labels: Sequence[str], settings: FeatureSettings, advance: Advance
    ) -> Learned:
        texts = [_read(text, settings) for text in chain(documents, labels)]
        words = Counter(word[:_LONGEST] for text in texts for word in text.words)
        known: Mapping[str, int] = {}
        if settings.compounds:
            compounds = Compounds.learn(words)
            known, parts = compounds.counts, _OfWords(compounds.cut)
            texts = [text.cut(parts) for text in texts]
            words = Counter(word[:_LONGEST] for text in texts for word in text.words)
        advance(1)
        if settings.stop_words:
            words = Counter({word: count for word, count in words.items() if word not in _STOP_WORDS})
        if not words:
            raise FeatureError("the texts hold no word to learn from; check which column holds the text")
        tokenizer = _learn_pieces(words, settings)
        whole = _whole_words(words, tokenizer, settings) if settings.words else []
        pairs = _frequent_pairs(texts, words, settings) if settings.pairs else []
        shapes = _frequent_shapes(texts)
        advance(1)
        tokens = tokenizer.get_vocab_size() - 1 + len(whole) + len(pairs) + len(shapes)
        if not tokens:
            raise FeatureError(f"a vocabulary of {settings.vocabulary} has room for no token; allow more")
        counts = cls(tokenizer, whole, np.ones(tokens, np.float32), settings, pairs, shapes)._count(texts)
        frequency = np.bincount(counts.indices, minlength=tokens)
        idf = np.log((len(texts) + 1) / (frequency + 1)) + 1
        features = cls(tokenizer, whole, idf.astype(np.float32), settings, pairs, shapes, known)
        rows = features._weighted(counts)
        return Learned(features, rows[: len(documents)], rows[len(documents) :])

    @property
    def count(self) -> int:
        """How many tokens there are."""
        return len(self.idf)

    @property
    def vocabulary(self) -> list[str]:
        """The tokens in column order; pieces inside a word begin with ##."""
        pieces = sorted(self.tokenizer.get_vocab().items(), key=lambda item: item[1])
        kinds = {"word": self.words, "pair": self.pairs, "shape": self.shapes}
        named = [f"{kind}:{name}" for kind, names in kinds.items() for name in names]
        return [piece for piece, row in pieces if row < self._pieces] + named

    def transform(self, texts: Sequence[str]) -> sparse.csr_array:
        """Weights of the tokens of each text -> [texts, tokens], rows of unit length."""
        read = (_read(text, self.settings) for text in texts)
        return self._weighted(self._count((text.cut(self._parts) for text in read) if self.known else read))

    def _weighted(self, counts: sparse.csr_array) -> sparse.csr_array:
        """The weights of counted tokens."""
        counts.data = unit_values(counts, counts.data * self.idf[counts.indices])
        return counts

    def _count(self, texts: Iterable[_Read]) -> sparse.csr_array:
        """How often each token is in each text -> [texts, tokens]."""
        tokens, bounds = array("i"), array("q", [0])
        tokens_of, paired, shaped, settings = self._tokens.__getitem__, self._paired, self._shaped, self.settings
        for words, shape in texts:
            tokens.extend(chain.from_iterable(map(tokens_of, words)))
            if paired:
                tokens.extend([paired[pair] for pair in _pairs_of(words, settings) if pair in paired])
            if shape in shaped and len(tokens) > bounds[-1]:  # a shape alone says nothing
                tokens.append(shaped[shape])
            bounds.append(len(tokens))
        indices = np.array(tokens, dtype=np.int32)
        counts = sparse.csr_array(
            (np.ones(len(indices), np.float32), indices, np.array(bounds)), shape=(len(bounds) - 1, self.count)
        )
        counts.sum_duplicates()
        return counts

    def _cut(self, word: str) -> tuple[int, ...]:
        """The tokens of a word: its pieces, and itself where it has a token of its own."""
        word = word[:_LONGEST]
        if self.settings.stop_words and word in _STOP_WORDS:
            return ()
        pieces = tuple(token for token in self.tokenizer.encode(word).ids if token < self._pieces)
        return (*pieces, self._whole[word]) if word in self._whole else pieces


class Learned(NamedTuple):
    """Features, and the rows of the texts that they were learned on."""

    features: Features
    documents: sparse.csr_array  # [documents, tokens]
    labels: sparse.csr_array  # [labels, tokens]


class _Read(NamedTuple):
    """What features are made of."""

    words: list[str]
    shape: str  # empty where it does not count

    def cut(self, parts: _OfWords[str]) -> _Read:
        """The same with words that are made of known ones cut into them."""
        return _Read(list(chain.from_iterable(map(parts.__getitem__, self.words))), self.shape)


def _read(text: str, settings: FeatureSettings) -> _Read:
    words = split_words(text)
    return _Read(words, shape_of(text) if settings.shapes and words else "")


class _OfWords(dict[str, tuple[_T, ...]]):
    """Word -> its parts; cut when first seen, and forgotten all at once when too many have been seen."""

    _MOST = 1_000_000

    def __init__(self, cut: Callable[[str], tuple[_T, ...]]) -> None:
        self._cut = cut

    def __missing__(self, word: str) -> tuple[_T, ...]:
        if len(self) >= self._MOST:
            self.clear()
        parts = self[word] = self._cut(word)
        return parts


def unit_values(matrix: sparse.csr_array, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """These values for the matrix's entries, scaled so that every row has unit length.

    A row comes out the same in whatever company: sums run over its own entries alone.
    """
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    norms = np.sqrt(np.bincount(rows, weights=values.astype(np.float64) ** 2, minlength=matrix.shape[0]))
    scaled: NDArray[np.float32] = (values / np.maximum(norms, 1e-30)[rows]).astype(np.float32)
    return scaled


def texts_of(items: Items, settings: FeatureSettings) -> Sequence[str]:
    """The texts to make features of: titles, with the content behind them where the settings ask for it."""
    if items.texts is None:
        raise DataError("these documents or labels have no text; the dataset holds ready features or ids alone")
    if not settings.content or items.contents is None:
        return items.texts
    return [f"{title} {content}" for title, content in zip(items.texts, items.contents, strict=True)]


def with_features(dataset: Dataset, settings: FeatureSettings, features: Features | None = None) -> Dataset:
    """The dataset with features for documents and labels, learned on it unless given; ready ones stay."""
    parts = (dataset.train.documents, dataset.test.documents, dataset.labels)
    if all(items.features is not None or not items.count for items in parts):
        return dataset
    if features is None:
        features = Features.learn(texts_of(parts[0], settings), texts_of(parts[2], settings), settings)
    train, test, labels = (replace(items, features=features.transform(texts_of(items, settings))) for items in parts)
    return replace(
        dataset,
        train=replace(dataset.train, documents=train),
        test=replace(dataset.test, documents=test),
        labels=labels,
    )


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a file that decaf wrote, made anew of its pieces.

    The library's own reader would take any part that a file names, also such as take all time and memory there is.
    """
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        model = stored["model"]
        pieces = model.pop("vocab")
        plain = not any(value for name, value in stored.items() if name not in ("version", "model"))
        numbered = all(type(row) is int for row in pieces.values())
        if not plain or model != _WORD_PIECE or not numbered or sorted(pieces.values()) != list(range(len(pieces))):
            raise ValueError("it was not written by decaf")
        if pieces.get(_UNKNOWN) != len(pieces) - 1:
            raise ValueError(f"{_UNKNOWN} is not the last piece")
        return Tokenizer(models.WordPiece(pieces, unk_token=_UNKNOWN, max_input_chars_per_word=_LONGEST))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FeatureError(f"{path}: is no tokenizer ({error})") from error


def _learn_pieces(words: Counter[str], settings: FeatureSettings) -> Tokenizer:
    """WordPiece over the words; the same words give the same pieces, whatever their order."""
    frequent = sum(count >= settings.min_count for count in words.values())
    size = settings.vocabulary or min(max(frequent, _SMALLEST), _LARGEST)
    letters: Counter[str] = Counter()
    for word, count in words.items():
        letters.update({letter: count * word.count(letter) for letter in set(word)})
    alphabet = sorted(letters, key=lambda letter: (-letters[letter], letter))[: min(_ALPHABET, size // 2)]
    inside = sorted({letter for word in words for letter in word[1:]} & set(alphabet))
    tokenizer = Tokenizer(models.WordPiece(unk_token=_UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size + 1,
        min_frequency=settings.min_count,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        # Named up front, letters inside words get fixed numbers; the trainer would number them in the order of a hash
        # table that differs from run to run, and break ties between pieces by number.
        special_tokens=[_UNKNOWN, *(_CONTINUED + letter for letter in inside)],
        show_progress=False,
    )
    in_order = sorted(words)
    tokenizer.train_from_iterator((" ".join([word] * words[word]) for word in in_order), trainer)
    used = {piece for encoding in tokenizer.encode_batch(in_order) for piece in encoding.tokens} - {_UNKNOWN}
    vocabulary = {piece: row for row, piece in enumerate([*sorted(used), _UNKNOWN])}
    return Tokenizer(models.WordPiece(vocabulary, unk_token=_UNKNOWN, max_input_chars_per_word=_LONGEST))


def _whole_words(words: Counter[str], tokenizer: Tokenizer, settings: FeatureSettings) -> list[str]:
    """Words seen often enough that are cut into several pieces."""
    frequent = sorted(word for word, count in words.items() if count >= settings.min_count)
    cut = tokenizer.encode_batch(frequent)
    return [word for word, encoding in zip(frequent, cut, strict=True) if len(encoding.ids) > 1]


def _pairs_of(words: Sequence[str], settings: FeatureSettings) -> Iterable[tuple[str, str]]:
    """Words that follow each other; the beginning and the end of a text are words too, where the settings say so."""
    return pairwise((_BEGIN, *words, _END) if settings.ends and words else words)


def _frequent_shapes(texts: Iterable[_Read]) -> list[str]:
    """The shapes of enough texts, the most frequent where there are too many."""
    counts = Counter(text.shape for text in texts if text.shape)
    frequent = sorted((-count, shape) for shape, count in counts.items() if count >= _SHAPE_COUNT)
    return sorted(shape for _, shape in frequent[:_LARGEST])


def _frequent_pairs(texts: Iterable[_Read], words: Container[str], settings: FeatureSettings) -> list[str]:
    """Known words that follow each other in enough texts, the most frequent where there are too many."""
    counts = Counter(chain.from_iterable(set(_pairs_of(text.words, settings)) for text in texts))

    def known(word: str) -> bool:
        return word in words or word in (_BEGIN, _END)

    frequent = sorted(
        (-count, pair) for pair, count in counts.items() if count >= _PAIR_COUNT and all(map(known, pair))
    )
    return sorted(" ".join(pair) for _, pair in frequent[:_LARGEST])
