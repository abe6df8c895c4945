"""Peers in an environment of their own: what is sent to them, what comes back, and what cannot be installed."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from modules import topics

from decaf import Dataset, evaluate
from decaf.errors import DecafError
from decaf.experiments.peers import PACKAGES, FeatureTimes, featured, install, launched, of_peer

# A package like omikuji that predicts the labels of the nearest training document.
STUB = """
    import pathlib, types
    __version__ = "0"

    class Model:
        @staticmethod
        def default_hyper_param():
            return types.SimpleNamespace(n_trees=1)

        @classmethod
        def train_on_data(cls, path, settings, n_threads):
            made, lines = cls(), pathlib.Path(path).read_text().splitlines()[1:]
            made.trees, made.rows = settings.n_trees, []
            for line in lines:
                labels, *tokens = line.split(" ")
                bag = {int(token.split(":")[0]): float(token.split(":")[1]) for token in tokens}
                made.rows.append(([int(label) for label in labels.split(",") if label], bag))
            print("this is not an answer", flush=True)
            return made

        def save(self, path):
            folder = pathlib.Path(path)
            folder.mkdir()
            (folder / "weights").write_bytes(b"x" * 1_500_000)

        def init_prediction_thread_pool(self, threads):
            assert threads == 2

        def predict(self, document, top_k):
            near = sorted(self.rows, key=lambda row: -sum(weight * row[1].get(token, 0) for token, weight in document))
            found = {}
            for place, (labels, _) in enumerate(near[: 4 * self.trees]):
                for label in labels:
                    found.setdefault(label, 1 / (1 + place))
            return list(found.items())[:top_k]
"""
BROKEN = """
    class Model:
        @staticmethod
        def default_hyper_param():
            raise RuntimeError("it fell over")
"""


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return topics(labels=24, train=120, test=40)


def environment(folder: Path, source: str) -> Path:
    """One whose interpreter is this one, with a package made of this source."""
    (folder / "bin").mkdir(parents=True)
    packages = folder / "packages"
    packages.mkdir()
    (packages / "omikuji.py").write_text(textwrap.dedent(source), encoding="utf-8")
    about = packages / "omikuji-0.5.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: omikuji\nVersion: 0.5.2\n", encoding="utf-8")
    return script(folder / "bin" / "python", f'PYTHONPATH={packages} exec {sys.executable} "$@"')


def script(path: Path, line: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_a_peer_learns_from_our_features_and_is_judged_by_our_ruler(dataset: Dataset, tmp_path: Path) -> None:
    python = environment(tmp_path / "peers", STUB)
    assert install(tmp_path / "peers", ["omikuji"]) == (python, {})
    ready, _ = featured(dataset)
    found, facts = of_peer(ready, FeatureTimes(100.0, 0.0), "omikuji-parabel", python, threads=2, seed=0)

    documents, truth = ready.train.documents.need_features(), ready.train.truth
    for row, test in enumerate(ready.test.documents.need_features()):
        near = np.argsort(-np.asarray((documents @ test.T).todense()).ravel(), kind="stable")[:12]
        wanted: dict[int, float] = {}
        for place, other in enumerate(near):
            for label in truth.indices[truth.indptr[other] : truth.indptr[other + 1]].tolist():
                wanted.setdefault(label, 1 / (1 + place))
        left = {pair[1] for pair in dataset.test.filters.tolist() if pair[0] == row}
        assert dict(found[row]) == pytest.approx({label: of for label, of in wanted.items() if label not in left})
    assert evaluate(found, dataset.test.truth, dataset.inverse_propensity, dataset.test.filters)["P@1"] > 30
    assert facts["model_mb"] == 1.5
    assert facts["training_seconds"] >= 100
    assert facts["version"] == "0.5.2"
    assert facts["settings"] == {"n_trees": 3}
    assert facts["tokens"] == documents.shape[1]


def test_a_peer_that_falls_over_says_why_and_leaves_no_process(dataset: Dataset, tmp_path: Path) -> None:
    python = environment(tmp_path / "peers", BROKEN)
    ready, _ = featured(dataset)
    with (
        pytest.raises(DecafError, match=r"(?s)omikuji-bonsai failed with status 1.*it fell over"),
        launched(ready, "omikuji-bonsai", python, threads=1, seed=0) as worker,
    ):
        worker.predict()
    assert worker.process.poll() is not None
    assert not worker.folder.exists()


def test_a_peer_that_cannot_be_installed_is_named_without_addresses(tmp_path: Path) -> None:
    line = 'case "$*" in *pip*) echo "no omikuji at https://somewhere.example/simple or /a/path" >&2;; esac; exit 1'
    script(tmp_path / "peers" / "bin" / "python", line)
    _, failed = install(tmp_path / "peers", list(PACKAGES))
    assert failed == dict.fromkeys(PACKAGES, "no omikuji at ... or ...")


@pytest.mark.skipif(os.name != "posix", reason="folders without permission")
def test_an_environment_that_cannot_be_made_is_why_all_peers_are_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    _, failed = install(tmp_path / "file" / "peers", ["pecos", "omikuji"])
    assert set(failed) == {"pecos", "omikuji"}
    assert all(failed.values())


def test_features_of_a_dataset_that_has_its_own_are_kept(dataset: Dataset) -> None:
    ready, _ = featured(dataset)
    from dataclasses import replace

    def bare(items: object) -> object:
        return replace(items, texts=None)  # type: ignore[type-var]

    own = replace(
        ready,
        train=replace(ready.train, documents=bare(ready.train.documents)),  # type: ignore[arg-type]
        test=replace(ready.test, documents=bare(ready.test.documents)),  # type: ignore[arg-type]
        labels=bare(ready.labels),  # type: ignore[arg-type]
    )
    again, times = featured(own)
    assert again.labels.need_features() is ready.labels.need_features()
    assert times == FeatureTimes(0.0, 0.0)
