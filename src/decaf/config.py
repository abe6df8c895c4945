"""Settings: one frozen dataclass a stage, JSON both ways, and a typo is an error that names the nearest setting."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, get_type_hints

from decaf.errors import ConfigError

__all__ = [
    "RECIPES",
    "BlendSettings",
    "Config",
    "EnsembleSettings",
    "FeatureSettings",
    "ModelSettings",
    "RankerSettings",
    "ShortlisterSettings",
    "SplitSettings",
    "TableSettings",
    "TokenSettings",
    "recipe",
    "recipe_of",
    "too_deep",
]

_DEEPEST = 32


def _setting(
    default: Any,  # noqa: ANN401 - the field's own annotation is the type
    help_text: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
) -> Any:  # noqa: ANN401 - so that `name: int = _setting(...)` type-checks
    return field(default=default, metadata={"help": help_text, "low": low, "high": high, "choices": choices})


@dataclass(frozen=True)
class _Stage:
    """What all stages share: values are checked once, when the object is made."""

    def __post_init__(self) -> None:
        types = get_type_hints(type(self))
        stage = next((name for name, cls in _stages().items() if cls is type(self)), type(self).__name__)
        for spec in dataclasses.fields(self):
            name = f"{stage}.{spec.name}"
            value = _as_type(getattr(self, spec.name), types[spec.name], name)
            _check_range(value, spec.metadata, name)
            object.__setattr__(self, spec.name, value)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The stage with these values; what is not named keeps its default."""
        _reject_unknown(values, [spec.name for spec in dataclasses.fields(cls)], "setting")
        return cls(**values)


@dataclass(frozen=True)
class TableSettings(_Stage):
    """How to read your own CSV, JSON lines or Parquet."""

    text: str = _setting("", "column of the document text; empty: text, title, name, query or document")
    labels: str = _setting("", "column of the labels; empty: labels, label, targets, target, tags or categories")
    id: str = _setting("", "column of the document or label id; empty: id or uid where there is one")
    separator: str = _setting(";", "what stands between two labels in one cell (lists and JSON arrays need none)")
    label_file: str = _setting("", "label table (columns id and text) for a single file of documents")


@dataclass(frozen=True)
class SplitSettings(_Stage):
    """How documents are shared out between training, test and validation."""

    train: float = _setting(0.7, "share of the documents that train", low=0.01, high=0.99)
    validation: float = _setting(0.05, "share of the training documents kept for validation", low=0.0, high=0.9)
    seed: int = _setting(0, "seed of the random choice", low=0)


@dataclass(frozen=True)
class FeatureSettings(_Stage):
    """How text becomes weighted tokens."""

    vocabulary: int = _setting(0, "most word pieces; 0: by the number of distinct words", low=0, high=1_000_000)
    words: bool = _setting(False, "keep whole words beside the word pieces they are cut into")
    pairs: bool = _setting(False, "keep pairs of words that follow each other in several texts")
    ends: bool = _setting(False, "with features.pairs: the beginning and the end of a text count as words")
    shapes: bool = _setting(False, "keep what several texts look like: capitals, digits, punctuation, not which words")
    compounds: bool = _setting(
        False, "cut words seen less than three times into words seen more: setgain is set gain, as setGain is"
    )
    min_count: int = _setting(2, "a word or piece seen less often is not kept whole", low=1)
    stop_words: bool = _setting(False, "drop English function words such as 'and' and 'the'")
    content: bool = _setting(False, "read the longer content behind the title too, where a dataset has it")


@dataclass(frozen=True)
class ModelSettings(_Stage):
    """The size and the parts of the model."""

    dim: int = _setting(0, "length D of all vectors; 0: 300, or 512 above a million labels", low=0, high=4096)
    loss: str = _setting(
        "softmax",
        "softmax: each true label against the others' (unit vectors); logistic: each label alone",
        choices=("softmax", "logistic"),
    )
    text: bool = _setting(True, "classifiers use the label text (z1)")
    refinement: bool = _setting(True, "classifiers use a refinement vector of their own (z2)")
    precision: str = _setting(
        "int4",
        "weights are kept in: int4, a quarter of the size (vectors of labels in four bits, the rest in eight); "
        "int8, under a third; float32",
        choices=("int4", "int8", "float32"),
    )
    lite: bool = _setting(False, "token embeddings stay as module I left them, shared by all instances")


@dataclass(frozen=True)
class TokenSettings(_Stage):
    """Module I: token embeddings."""

    kind: str = _setting(
        "texts",
        "learned on: texts of labels (contrastive), clusters of labels (the paper); fixed: not learned",
        choices=("texts", "clusters", "fixed"),
    )
    epochs: int = _setting(8, "passes over the documents", low=0)
    batch: int = _setting(0, "documents a step; 0: by size", low=0)
    rate: float = _setting(0.01, "learning rate, halved at 1/2 and 3/4 of the epochs", low=0)
    dropout: float = _setting(0.4, "share of components dropped", low=0, high=0.95)
    own_texts: bool = _setting(True, "a label's text is a document of the label too (kind texts)")
    related: bool = _setting(True, "and of labels that are often given together with it (kind texts)")
    refresh: int = _setting(3, "epochs between searches for labels that are hard to tell apart; 0: none", low=0)


@dataclass(frozen=True)
class ShortlisterSettings(_Stage):
    """Module II: which clusters of labels a document should look into."""

    kind: str = _setting(
        "clusters",
        "clusters, or the paper's rivals: hnsw (neighbours by a graph), neighbours (all looked at), tree",
        choices=("clusters", "hnsw", "neighbours", "tree"),
    )
    clusters: int = _setting(0, "number K of clusters, a power of two; 0: about four labels in each", low=0)
    beam: int = _setting(0, "clusters B that a document looks into; 0: by size and by what is found", low=0)
    epochs: int = _setting(2, "passes over the documents", low=0)
    batch: int = _setting(0, "documents a step; 0: by size", low=0)
    rate: float = _setting(0.004, "learning rate, halved at 1/2 of the epochs", low=0)
    dropout: float = _setting(0.0, "share of components dropped", low=0, high=0.95)


@dataclass(frozen=True)
class RankerSettings(_Stage):
    """Modules III and IV: a classifier for every label, learned on the shortlists."""

    from_text: bool = _setting(True, "refinement vectors begin as the label's text; otherwise at random (no-init)")
    forced: bool = _setting(False, "add true labels that the shortlist missed (loss logistic)")
    negatives: int = _setting(
        0, "random labels that a step adds to those of its documents (loss softmax); 0: by size, at most all", low=0
    )
    hard: int = _setting(2, "labels of its shortlist that each document adds to them", low=0, high=1000)
    epochs: int = _setting(8, "passes over the documents", low=0)
    batch: int = _setting(0, "documents a step; 0: by size", low=0)
    rate: float = _setting(0.002, "learning rate, halved at 1/2 of the epochs", low=0)
    dropout: float = _setting(0.4, "share of components dropped", low=0, high=0.95)


@dataclass(frozen=True)
class BlendSettings(_Stage):
    """The final score: classifier, label text, cluster and words together (kind texts, loss softmax)."""

    words: bool = _setting(True, "count how like a document is to the documents of a label, by their tokens")
    linear: bool = _setting(True, "and what a linear classifier over the tokens says of each label (blend.words)")
    lean: bool = _setting(True, "let what classifiers and texts say count for more or less the rarer a label is")
    tail: float = _setting(
        -1.0,
        "from 0, the most right answers, to 1, the most for rare labels; -1: by the data",
        low=-1,
        high=1,
    )


@dataclass(frozen=True)
class EnsembleSettings(_Stage):
    """Several instances of the model that answer together."""

    instances: int = _setting(1, "instances whose probabilities are averaged; they share module I", low=1, high=64)


@dataclass(frozen=True)
class Config:
    """All settings of all stages, as the recipes begin with them; `recipe` has them whole."""

    table: TableSettings = field(default_factory=TableSettings)
    split: SplitSettings = field(default_factory=SplitSettings)
    features: FeatureSettings = field(default_factory=FeatureSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    tokens: TokenSettings = field(default_factory=TokenSettings)
    shortlister: ShortlisterSettings = field(default_factory=ShortlisterSettings)
    ranker: RankerSettings = field(default_factory=RankerSettings)
    blend: BlendSettings = field(default_factory=BlendSettings)
    ensemble: EnsembleSettings = field(default_factory=EnsembleSettings)

    @property
    def learns_tokens(self) -> bool:
        """Whether modules II and IV go on learning token embeddings."""
        return not self.model.lite and self.tokens.kind != "fixed"

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The configuration from nested JSON; what is not named keeps its default."""
        stages = _stages()
        _reject_unknown(values, list(stages), "stage")
        for name, stage in values.items():
            if not isinstance(stage, Mapping):
                raise ConfigError(f"stage {name!r} must be an object of settings, not {stage!r}")
        made: dict[str, Any] = {name: stages[name].from_json(stage) for name, stage in values.items()}
        return cls(**made)

    def to_json(self, only: str | None = None) -> dict[str, dict[str, Any]]:
        """Nested JSON that `from_json` turns back into an equal configuration; or one stage of it."""
        _reject_unknown([] if only is None else [only], list(_stages()), "stage")
        return {stage: values for stage, values in dataclasses.asdict(self).items() if only in (None, stage)}

    def with_settings(self, assignments: Iterable[str]) -> Self:
        """A copy with `stage.key=value` assignments applied, the later ones over the earlier."""
        changed: dict[str, dict[str, Any]] = {}
        stages = _stages()
        for assignment in assignments:
            path, equals, text = assignment.partition("=")
            stage, dot, key = path.strip().partition(".")
            if not equals or not dot:
                raise ConfigError(f"{assignment!r} is not a setting; write stage.key=value, e.g. split.seed=7")
            _reject_unknown([stage], list(stages), "stage")
            types = get_type_hints(stages[stage])
            _reject_unknown([key], [spec.name for spec in dataclasses.fields(stages[stage])], f"setting of {stage!r}")
            changed.setdefault(stage, {})[key] = _from_text(text, types[key], f"{stage}.{key}")
        return dataclasses.replace(
            self, **{stage: dataclasses.replace(getattr(self, stage), **values) for stage, values in changed.items()}
        )

    def without_effect(self) -> list[str]:
        """Settings that are not as they were to begin with and say nothing beside the others."""
        softmax = self.model.loss == "softmax"
        blend = [f"blend.{spec.name}" for spec in dataclasses.fields(BlendSettings)]
        idle = ["ranker.forced"] if softmax else [*blend, "ranker.negatives", "ranker.hard"]
        if self.tokens.kind != "texts":
            idle += ["tokens.own_texts", "tokens.related", "tokens.refresh"]
        return [name for name in idle if self._value(name) != type(self)()._value(name)]

    def changed(self, other: Config) -> list[str]:
        """The settings that are not the same in another configuration."""
        return [
            name
            for (name, value, _), (_, past, _) in zip(self.describe(), other.describe(), strict=True)
            if value != past
        ]

    def _value(self, name: str) -> object:
        stage, _, key = name.partition(".")
        return getattr(getattr(self, stage), key)

    def describe(self, only: str | None = None) -> list[tuple[str, str, str]]:
        """Every setting, or those of one stage, as (stage.key, value as JSON, what it does)."""
        stages = _stages()
        _reject_unknown([only] if only is not None else [], list(stages), "stage")
        return [
            (f"{stage}.{spec.name}", json.dumps(getattr(getattr(self, stage), spec.name)), spec.metadata["help"])
            for stage, cls in stages.items()
            if only in (None, stage)
            for spec in dataclasses.fields(cls)
        ]


def too_deep(value: object) -> bool:
    """Whether JSON is nested deeper than anything of ours: what walks through it would come to its limits."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())
        ]
    return bool(level)


def _stages() -> dict[str, type[_Stage]]:
    types = get_type_hints(Config)
    return {spec.name: types[spec.name] for spec in dataclasses.fields(Config)}


def _reject_unknown(names: Iterable[str], known: list[str], what: str) -> None:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
            hint = f"nearest: {near[0]!r}" if near else f"there are: {', '.join(known)}"
            raise ConfigError(f"unknown {what} {name!r}; {hint}")


def _as_type(value: Any, kind: type, name: str) -> Any:  # noqa: ANN401 - JSON values
    """`value` if it is of `kind`; a whole number passes for a float, a bool never for a number."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(f"{name!r} must be finite, not a number of {len(hex(value))} hex digits") from None
    if type(value) is not kind:
        raise ConfigError(f"{name!r} must be {_NAMES[kind]}, not {value!r}")
    return value


def _from_text(text: str, kind: type, name: str) -> Any:  # noqa: ANN401 - JSON values
    try:
        return _PARSERS[kind](text)
    except (ValueError, KeyError):
        raise ConfigError(f"{name!r} must be {_NAMES[kind]}, not {text!r}") from None


def _check_range(value: Any, rules: Mapping[str, Any], name: str) -> None:  # noqa: ANN401 - JSON values
    low, high, choices = rules["low"], rules["high"], rules["choices"]
    if choices is not None and value not in choices:
        raise ConfigError(f"{name!r} must be one of {', '.join(choices)}, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name!r} must be finite, not {value!r}")
    if low is not None and value < low:
        raise ConfigError(f"{name!r} must be at least {low}, not {value!r}")
    if high is not None and value > high:
        raise ConfigError(f"{name!r} must be at most {high}, not {value!r}")


_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_PARSERS: dict[type, Callable[[str], Any]] = {
    int: int,
    float: float,
    bool: lambda text: {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()],
    str: str,
}

_PAPER = [
    *("model.loss=logistic", "model.dim=512", "split.validation=0"),
    "ensemble.instances=3",
    *("tokens.kind=clusters", "tokens.epochs=20", "tokens.batch=255", "tokens.rate=0.01", "tokens.dropout=0.5"),
    *("shortlister.epochs=10", "shortlister.batch=255", "shortlister.rate=0.008", "shortlister.dropout=0.2"),
    *("ranker.epochs=10", "ranker.batch=255", "ranker.rate=0.008", "ranker.dropout=0.2"),
]
RECIPES = {
    "contrastive": Config().with_settings(
        [f"features.{kind}=true" for kind in ("pairs", "ends", "shapes", "compounds")]
    ),
    "paper": Config().with_settings(_PAPER),
    "paper-lite": Config().with_settings([*_PAPER, "model.lite=true"]),
}


def recipe_of(config: Config) -> str:
    """The name of the recipe that settings are nearest to."""
    return min(RECIPES, key=lambda name: len(config.changed(RECIPES[name])))


def recipe(name: str = "contrastive") -> Config:
    """The settings of a recipe."""
    if name not in RECIPES:
        raise ConfigError(f"there is no recipe {name!r}; there are: {', '.join(RECIPES)}")
    return RECIPES[name]
