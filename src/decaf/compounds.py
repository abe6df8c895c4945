"""Words that nobody wrote apart, cut where known words meet: ivideoprocamp -> i video proc amp."""

from __future__ import annotations

import math
from collections.abc import Mapping

__all__ = ["Compounds"]

_KNOWN = 3  # times that a word must be seen to be one that others are made of
_SHORTEST, _LONGEST = 4, 64  # characters of a word that is cut
_LETTER = math.log(26)  # what a letter costs by itself: words must say more than that
_SINGLE = 2.0  # what a word of one letter costs more


class Compounds:
    """Knows how often each word was seen, and cuts others into those that are likeliest to stand side by side."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = counts
        total = sum(counts.values())
        self._costs = {word: math.log(total / count) + _SINGLE * (len(word) == 1) for word, count in counts.items()}
        self._longest = max(map(len, counts), default=0)

    @classmethod
    def learn(cls, words: Mapping[str, int]) -> Compounds:
        """From how often each word is in the texts."""
        return cls({word: words[word] for word in sorted(words) if words[word] >= _KNOWN and not word[0].isdigit()})

    def cut(self, word: str) -> tuple[str, ...]:
        """The known words that a word is made of; the word itself where it is known, or no known words say it well."""
        if word in self._costs or not _SHORTEST <= len(word) <= _LONGEST or word[0].isdigit():
            return (word,)
        cheapest, begins = [0.0], [0]  # of what stands before each place: its cost, and where its last word begins
        for end in range(1, len(word) + 1):
            best, at = math.inf, 0
            for begin in range(max(0, end - self._longest), end):
                cost = self._costs.get(word[begin:end])
                if cost is not None and cheapest[begin] + cost < best:
                    best, at = cheapest[begin] + cost, begin
            cheapest.append(best)
            begins.append(at)
        if cheapest[-1] >= _LETTER * len(word):
            return (word,)
        parts, end = [], len(word)
        while end:
            parts.append(word[begins[end] : end])
            end = begins[end]
        return tuple(reversed(parts))
