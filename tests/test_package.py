"""The package: its public names, what importing it costs, and that imports go one way."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from types import FunctionType

import pytest

import decaf

SOURCE = Path(decaf.__file__).parent

PUBLIC = [
    "Config",
    "ConfigError",
    "DataError",
    "Dataset",
    "DecafClassifier",
    "DecafError",
    "FeatureError",
    "FeatureSettings",
    "Features",
    "LabelTextScorer",
    "Match",
    "Model",
    "ModelError",
    "Predictions",
    "Predictor",
    "Propensity",
    "Scorer",
    "SplitSettings",
    "TableSettings",
    "TrainingError",
    "evaluate",
    "evaluate_model",
    "frequency_quantiles",
    "recipe",
    "statistics",
    "train",
    "with_features",
]

# A module imports only modules that stand before it.
ORDER = [
    "decaf.errors",
    "decaf.config",
    "decaf.progress",
    "decaf.compiled",
    "decaf.datasets.parts",
    "decaf.datasets.arrow",
    "decaf.datasets.files",
    "decaf.datasets.columns",
    "decaf.datasets.pairs",
    "decaf.datasets.raw",
    "decaf.datasets.sparse_text",
    "decaf.datasets.sparse_files",
    "decaf.datasets.tables",
    "decaf.datasets.splits",
    "decaf.datasets.catalogue",
    "decaf.datasets.cache",
    "decaf.datasets.dataset",
    "decaf.datasets.statistics",
    "decaf.datasets",
    "decaf.predictions",
    "decaf.metrics",
    "decaf.compounds",
    "decaf.features",
    "decaf.devices",
    "decaf.ranks",
    "decaf.networks.rows",
    "decaf.networks.products",
    "decaf.networks.encoder",
    "decaf.networks.classifier",
    "decaf.networks.network",
    "decaf.networks.graph",
    "decaf.networks.words",
    "decaf.networks.instance",
    "decaf.networks",
    "decaf.clusters",
    "decaf.modules.batches",
    "decaf.modules.finite",
    "decaf.modules.loop",
    "decaf.modules.checkpoints",
    "decaf.modules.problem",
    "decaf.modules.judge",
    "decaf.modules.linear",
    "decaf.modules.words",
    "decaf.modules.meta",
    "decaf.modules.softmax",
    "decaf.modules.tokens",
    "decaf.modules.shortlister",
    "decaf.modules.ranker",
    "decaf.modules.weighing",
    "decaf.modules.blend",
    "decaf.modules",
    "decaf.packed",
    "decaf.header",
    "decaf.model",
    "decaf.plots",
    "decaf.training",
    "decaf.scoring.scorer",
    "decaf.scoring.label_text",
    "decaf.scoring.exact",
    "decaf.scoring.lanes",
    "decaf.scoring.arithmetic",
    "decaf.scoring.nearest",
    "decaf.scoring.ranking",
    "decaf.scoring.meeting",
    "decaf.scoring.fast",
    "decaf.scoring.explain",
    "decaf.scoring",
    "decaf.stores.changes",
    "decaf.stores.sqlite",
    "decaf.stores.postgres",
    "decaf.stores",
    "decaf.live",
    "decaf.labels",
    "decaf.predictor",
    "decaf.documents",
    "decaf.batch",
    "decaf.bulk",
    "decaf.cluster",
    "decaf.evaluation",
    "decaf.estimator",
    "decaf.console",
    "decaf.serving.settings",
    "decaf.serving.problems",
    "decaf.serving.telemetry",
    "decaf.serving.connections",
    "decaf.serving.bodies",
    "decaf.serving.engine",
    "decaf.serving.batching",
    "decaf.serving.service",
    "decaf.serving.guard",
    "decaf.serving.labels",
    "decaf.serving.answers",
    "decaf.serving.app",
    "decaf.serving.worker",
    "decaf.serving.server",
    "decaf.serving",
    "decaf.experiments",
    "decaf.experiments.systems",
    "decaf.experiments.provenance",
    "decaf.experiments.plan",
    "decaf.experiments.peers_worker",
    "decaf.experiments.peers",
    "decaf.experiments.judging",
    "decaf.experiments.metadata",
    "decaf.experiments.theorem",
    "decaf.experiments.work",
    "decaf.experiments.runs",
    "decaf.experiments.tables",
    "decaf.experiments.figures",
    "decaf.experiments.examples",
    "decaf.experiments.report",
    "decaf.experiments.cli",
    "decaf.demo",
    "decaf.cli.options",
    "decaf.cli.models",
    "decaf.cli.data",
    "decaf.cli.serving",
    "decaf.cli",
    "decaf.__main__",
]

HEAVY = {"numpy", "scipy", "pyarrow", "tokenizers", "torch"}


def module_name(file: Path) -> str:
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(file): file for file in sorted(SOURCE.rglob("*.py"))}


def imports_at_run_time(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports, those inside functions too, but for the ones only type checkers see."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node
    seen_by_checkers_only = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
    for child in node.orelse if seen_by_checkers_only else ast.iter_child_nodes(node):
        yield from imports_at_run_time(child)


def imported_modules(source: str) -> set[str]:
    """The modules of decaf that this source imports, by full name."""
    found = set()
    for node in imports_at_run_time(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            assert node.level == 0, "imports are written out in full"
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                found.add(inside if inside in MODULES else str(node.module))
    return {name for name in found if name.split(".")[0] == "decaf"}


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_public_names_are_these() -> None:
    assert sorted(decaf.__all__) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_can_be_imported_and_says_what_it_is(name: str) -> None:
    found = getattr(decaf, name)
    assert found.__name__ == name
    assert inspect.getdoc(found)
    assert name in vars(importlib.import_module(found.__module__))["__all__"]


@pytest.mark.parametrize("name", PUBLIC)
def test_the_methods_of_a_public_class_say_what_they_do(name: str) -> None:
    found = getattr(decaf, name)
    if inspect.isclass(found):
        kinds = property | cached_property | classmethod | staticmethod | FunctionType
        methods = {key: member for key, member in vars(found).items() if isinstance(member, kinds)}
        assert [key for key, member in methods.items() if key[0] != "_" and not inspect.getdoc(member)] == []


def test_dir_lists_the_public_names() -> None:
    assert set(PUBLIC) <= set(dir(decaf))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'decaf' has no attribute 'nonsense'"):
        decaf.nonsense  # noqa: B018


def test_names_for_type_checkers_are_the_public_ones() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    assert len(blocks) == 1
    shown = [alias.name for node in blocks[0].body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(shown) == sorted(PUBLIC)


def test_the_version_is_that_of_the_installed_package() -> None:
    assert decaf.__version__ == version("decaf")


def test_the_package_is_marked_as_typed() -> None:
    assert (SOURCE / "py.typed").is_file()


@pytest.mark.parametrize("module", ORDER)
def test_all_names_of_a_module_are_there_and_its_own_have_docstrings(module: str) -> None:
    loaded = importlib.import_module(module)
    assert loaded.__doc__
    assert len(set(loaded.__all__)) == len(loaded.__all__)
    for name in loaded.__all__:
        value = getattr(loaded, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{module}.{name} has no docstring"


def test_importing_decaf_imports_nothing_heavy() -> None:
    loaded = set(run_python("import sys, decaf; print(*sys.modules)").split())
    assert "decaf" in loaded
    assert not loaded & (HEAVY | {"rich", "typer"})


@pytest.mark.parametrize("arguments", [["--help"], ["metrics", "--help"]])
def test_asking_for_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
import atexit, sys
atexit.register(lambda: print("LOADED", *sys.modules))
sys.argv = ["decaf", *{arguments!r}]
from decaf.cli import main
main()
"""
    shown, _, loaded = run_python(code).partition("LOADED")
    assert "Usage" in shown
    assert "decaf.cli" in loaded.split()
    assert not set(loaded.split()) & HEAVY


def test_every_module_has_its_place_in_the_order() -> None:
    assert sorted(ORDER) == sorted(set(MODULES) - {"decaf"})


@pytest.mark.parametrize("module", ORDER)
def test_imports_go_one_way(module: str) -> None:
    imported = imported_modules(MODULES[module].read_text(encoding="utf-8"))
    late = imported - set(ORDER[: ORDER.index(module)]) - {"decaf"}  # which itself imports nothing
    assert not late, f"{module} imports {sorted(late)}, which do not stand before it"


def test_the_package_itself_imports_no_module_of_its_own() -> None:
    assert imported_modules((SOURCE / "__init__.py").read_text(encoding="utf-8")) == set()


def test_the_search_for_imports_sees_functions_and_passes_over_type_checking() -> None:
    source = """
import decaf.errors
from decaf import console
from decaf.datasets import Dataset
if TYPE_CHECKING:
    from decaf.demo import run_demo
else:
    from decaf import config
def late():
    from decaf.datasets.parts import Items
"""
    assert imported_modules(source) == {
        "decaf.errors",
        "decaf.console",
        "decaf.datasets",
        "decaf.config",
        "decaf.datasets.parts",
    }
