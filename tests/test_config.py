"""Settings: JSON both ways, assignments from the command line, and every mistake named."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decaf import Config, ConfigError, FeatureSettings, SplitSettings, TableSettings
from decaf.config import RECIPES, recipe

tables = st.builds(
    TableSettings, text=st.text(), labels=st.text(), id=st.text(), separator=st.text(), label_file=st.text()
)
splits = st.builds(
    SplitSettings, train=st.floats(0.01, 0.99), validation=st.floats(0.0, 0.9), seed=st.integers(0, 2**70)
)
feature_settings = st.builds(
    FeatureSettings,
    vocabulary=st.integers(0, 1_000_000),
    words=st.booleans(),
    pairs=st.booleans(),
    min_count=st.integers(1, 10**9),
    stop_words=st.booleans(),
    content=st.booleans(),
)
configs = st.builds(Config, table=tables, split=splits, features=feature_settings)


@settings(deadline=None, derandomize=True)
@given(configs)
def test_a_configuration_comes_back_from_json(config: Config) -> None:
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config


@settings(deadline=None, derandomize=True)
@given(configs)
def test_a_configuration_comes_back_from_assignments(config: Config) -> None:
    assignments = [f"{stage}.{key}={value}" for stage, keys in config.to_json().items() for key, value in keys.items()]
    assert Config().with_settings(assignments) == config


def test_what_json_does_not_name_keeps_its_default() -> None:
    assert Config.from_json({}) == Config()
    assert Config.from_json({"split": {"seed": 3}}) == Config(split=SplitSettings(seed=3))


def test_every_setting_is_described_with_its_value() -> None:
    described = Config().with_settings(["split.seed=4", "table.separator=|"]).describe()
    names = [name for name, _, _ in described]
    assert names[:5] == ["table.text", "table.labels", "table.id", "table.separator", "table.label_file"]
    assert len(names) == len(set(names)) == sum(len(stage) for stage in Config().to_json().values())
    values = {name: value for name, value, _ in described}
    assert (values["split.seed"], values["table.separator"], values["features.words"]) == ("4", '"|"', "false")
    assert all(help_text for _, _, help_text in described)


@pytest.mark.parametrize(
    ("assignment", "stage", "key", "value"),
    [
        ("split.seed=7", "split", "seed", 7),
        ("split.train=0.8", "split", "train", 0.8),
        ("split.train=8e-1", "split", "train", 0.8),
        ("split.validation=0", "split", "validation", 0.0),
        ("features.words=true", "features", "words", True),
        ("features.words=YES", "features", "words", True),
        ("features.words=1", "features", "words", True),
        ("features.words=false", "features", "words", False),
        ("features.words=no", "features", "words", False),
        ("features.words=0", "features", "words", False),
        ("table.separator==", "table", "separator", "="),
        ("table.separator= ", "table", "separator", " "),
        ("table.text=", "table", "text", ""),
        ("table.text=1.5", "table", "text", "1.5"),
        (" split.seed =7", "split", "seed", 7),
    ],
)
def test_an_assignment_is_read_as_its_settings_type(assignment: str, stage: str, key: str, value: object) -> None:
    found = getattr(getattr(Config().with_settings([assignment]), stage), key)
    assert (found, type(found)) == (value, type(value))


def test_later_assignments_win_and_the_original_stays() -> None:
    config = Config()
    changed = config.with_settings(["split.seed=1", "features.words=true", "split.seed=2"])
    assert (changed.split.seed, changed.features.words) == (2, True)
    assert config == Config()
    assert config.with_settings([]) == config


@pytest.mark.parametrize("assignment", ["", "split", "split.seed", "seed=7", "=7"])
def test_what_is_no_assignment_is_refused(assignment: str) -> None:
    with pytest.raises(ConfigError, match=r"write stage\.key=value"):
        Config().with_settings([assignment])


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("splt.seed=7", "unknown stage 'splt'; nearest: 'split'"),
        ("feature.words=true", "unknown stage 'feature'; nearest: 'features'"),
        ("split.sead=7", "unknown setting of 'split' 'sead'; nearest: 'seed'"),
        ("features.word=true", "unknown setting of 'features' 'word'; nearest: 'words'"),
        (
            "qqq.seed=7",
            "unknown stage 'qqq'; "
            "there are: table, split, features, model, tokens, shortlister, ranker, blend, ensemble",
        ),
        ("split.=7", "unknown setting of 'split' ''; there are: train, validation, seed"),
        ("split.seed.x=7", "unknown setting of 'split' 'seed.x'; nearest: 'seed'"),
    ],
)
def test_a_typo_in_an_assignment_names_the_nearest(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config().with_settings([assignment])
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"splits": {}}, "unknown stage 'splits'; nearest: 'split'"),
        ({"split": {"sed": 1}}, "unknown setting 'sed'; nearest: 'seed'"),
        ({"split": {"zzzzzz": 1}}, "unknown setting 'zzzzzz'; there are: train, validation, seed"),
        ({"split": 3}, "stage 'split' must be an object of settings, not 3"),
        ({"split": None}, "stage 'split' must be an object of settings, not None"),
    ],
)
def test_a_typo_in_json_names_the_nearest(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_json(values)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("split.train=0", "at least 0.01"),
        ("split.train=1", "at most 0.99"),
        ("split.validation=-0.1", "at least 0.0"),
        ("split.validation=0.91", "at most 0.9"),
        ("split.seed=-1", "at least 0"),
        ("features.vocabulary=1000001", "at most 1000000"),
        ("features.vocabulary=-1", "at least 0"),
        ("features.min_count=0", "at least 1"),
        ("split.train=nan", "must be finite"),
        ("split.train=inf", "must be finite"),
        ("split.train=-inf", "must be finite"),
        ("split.train=1e999", "must be finite"),
    ],
)
def test_a_value_out_of_range_is_refused(assignment: str, message: str) -> None:
    key = assignment.partition("=")[0]
    with pytest.raises(ConfigError, match=f"'{key}' {'must be ' * message.startswith('at')}{message}"):
        Config().with_settings([assignment])


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("split.seed=seven", "'split.seed' must be a whole number, not 'seven'"),
        ("split.seed=1.0", "'split.seed' must be a whole number, not '1.0'"),
        ("split.seed=true", "'split.seed' must be a whole number, not 'true'"),
        ("split.seed=", "'split.seed' must be a whole number, not ''"),
        ("split.train=much", "'split.train' must be a number, not 'much'"),
        ("features.words=maybe", "'features.words' must be true or false, not 'maybe'"),
        ("features.words=", "'features.words' must be true or false, not ''"),
    ],
)
def test_text_of_another_type_is_refused(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config().with_settings([assignment])
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("stage", "values", "message"),
    [
        (SplitSettings, {"seed": True}, "'split.seed' must be a whole number, not True"),
        (SplitSettings, {"seed": 1.0}, "'split.seed' must be a whole number, not 1.0"),
        (SplitSettings, {"seed": "1"}, "'split.seed' must be a whole number, not '1'"),
        (SplitSettings, {"seed": None}, "'split.seed' must be a whole number, not None"),
        (SplitSettings, {"train": True}, "'split.train' must be a number, not True"),
        (SplitSettings, {"train": "0.5"}, "'split.train' must be a number, not '0.5'"),
        (SplitSettings, {"train": float("nan")}, "'split.train' must be finite, not nan"),
        (FeatureSettings, {"words": 1}, "'features.words' must be true or false, not 1"),
        (FeatureSettings, {"words": "true"}, "'features.words' must be true or false, not 'true'"),
        (TableSettings, {"text": 5}, "'table.text' must be a text, not 5"),
        (TableSettings, {"text": None}, "'table.text' must be a text, not None"),
    ],
)
def test_json_of_another_type_is_refused(stage: Any, values: dict[str, Any], message: str) -> None:  # noqa: ANN401
    for make in (stage.from_json, lambda given: stage(**given)):
        with pytest.raises(ConfigError) as caught:
            make(values)
        assert str(caught.value) == message


def test_a_whole_number_passes_for_a_share() -> None:
    validation = SplitSettings.from_json({"validation": 0}).validation
    assert (validation, type(validation)) == (0.0, float)


def test_a_whole_number_too_large_for_a_float_is_out_of_range() -> None:
    with pytest.raises(ConfigError, match=r"'split\.train' must be"):
        SplitSettings.from_json({"train": 10**400})


def test_recipes_are_whole_settings_and_their_names_are_checked() -> None:
    assert list(RECIPES) == ["contrastive", "paper", "paper-lite"]
    assert all(recipe(name) is config for name, config in RECIPES.items())
    assert recipe() is RECIPES["contrastive"]
    assert all(Config.from_json(json.loads(json.dumps(config.to_json()))) == config for config in RECIPES.values())
    with pytest.raises(ConfigError) as caught:
        recipe("papr")
    assert str(caught.value) == "there is no recipe 'papr'; there are: contrastive, paper, paper-lite"


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("tokens.kind=words", "'tokens.kind' must be one of texts, clusters, fixed, not 'words'"),
        ("model.loss=hinge", "'model.loss' must be one of softmax, logistic, not 'hinge'"),
        ("blend.tail=1.1", "'blend.tail' must be at most 1, not 1.1"),
        ("blend.tail=-1.1", "'blend.tail' must be at least -1, not -1.1"),
        (
            "tokens.gamma=false",
            "unknown setting of 'tokens' 'gamma'; there are: kind, epochs, batch, rate, dropout",
        ),
    ],
)
def test_settings_of_the_recipes_are_checked(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        recipe().with_settings([assignment])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("stage", "key"), [("split", "seed"), ("features", "words"), ("table", "text")])
def test_settings_are_frozen(stage: str, key: str) -> None:
    config = Config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(getattr(config, stage), key, getattr(getattr(config, stage), key))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, stage, getattr(config, stage))


def test_equal_settings_are_one_key() -> None:
    assert len({Config(), Config(), Config().with_settings(["split.seed=1"])}) == 2


@pytest.mark.parametrize(
    ("name", "assignments", "idle"),
    [
        ("contrastive", ["blend.tail=0.9", "tokens.refresh=0", "ranker.hard=5"], []),
        ("contrastive", ["ranker.forced=true"], ["ranker.forced"]),
        ("contrastive", ["blend.words=false"], []),
        ("contrastive", ["blend.linear=false"], []),
        ("contrastive", ["model.loss=logistic", "blend.words=false"], ["blend.words"]),
        ("contrastive", ["model.loss=logistic", "blend.linear=false"], ["blend.linear"]),
        ("contrastive", ["tokens.kind=clusters", "tokens.related=false"], ["tokens.related"]),
        ("paper", [], []),
        ("paper", ["ranker.forced=true", "model.lite=true"], []),
        ("paper", ["blend.tail=0.9", "ranker.hard=5"], ["blend.tail", "ranker.hard"]),
    ],
)
def test_settings_that_say_nothing_are_named(name: str, assignments: list[str], idle: list[str]) -> None:
    assert recipe(name).with_settings(assignments).without_effect() == idle


def test_what_differs_between_settings_is_named() -> None:
    other = recipe().with_settings(["blend.tail=0.9", "split.seed=3"])
    assert recipe().changed(other) == ["split.seed", "blend.tail"]
    assert recipe().changed(recipe()) == []
