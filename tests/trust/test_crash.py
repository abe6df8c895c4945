"""A few rounds of tools/crash: commands and servers that are killed, files that may not grow, files that are cut short.

Kills are of real processes; commands that nobody kills run in this process, which is quicker.
"""

from __future__ import annotations

import io
import os
import random
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import pytest

from decaf.cli import main
from tools.crash.__main__ import KINDS, chosen, play
from tools.crash.child import Steps
from tools.crash.commands import kill_predict, kill_train
from tools.crash.cut import cut_labels, cut_model
from tools.crash.disk import open_disk
from tools.crash.full import full_predict, full_train
from tools.crash.rounds import BrokenPromiseError, Done, Moment, Round, Stand, check_model, check_refused, model_or_none
from tools.crash.server import Answers, kill_server


class Here(Round):
    """A round whose commands run in this process, unless they are killed."""

    def decaf(self, *words: object, at: Moment | None = None, most: int | None = None, **variables: str) -> Done:
        if at is not None:
            done = super().decaf(*words, at=at, most=most, **variables)
            assert done.status == -signal.SIGKILL, done.said
            return done
        with pytest.MonkeyPatch.context() as patch, redirect_stderr(io.StringIO()) as told, limited(most):
            patch.setattr(sys, "argv", ["decaf", *map(str, words)])
            try:
                main()
            except SystemExit as end:
                said = f"{told.getvalue()}{end.code}" if isinstance(end.code, str) else told.getvalue()
                return Done(1 if isinstance(end.code, str) else int(end.code or 0), said)
            return Done(0, told.getvalue())


@contextmanager
def limited(most: int | None) -> Iterator[None]:
    """Let no file of this process grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft if most is None else most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="session")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Stand:
    """What rounds begin with, made in this process."""
    stand = Stand(tmp_path_factory.mktemp("crash") / "stand", documents=300, mount=False)
    stand.write_files(texts=200)
    alone = Here(stand, stand.folder, random.Random(0), {})
    for folder, seed in ((stand.model, 0), (stand.other, 1)):
        alone.finish(*alone.train(folder), "--seed", seed)
    for kind in (".jsonl", ".csv", ".parquet"):
        alone.finish(*alone.predict(stand.source(kind), stand.wanted(kind)))
    return stand


@pytest.fixture
def here(stand: Stand, tmp_path: Path) -> Here:
    return Here(stand, tmp_path, random.Random(7), {})


def test_training_that_is_killed_while_its_model_is_written_goes_on(here: Here) -> None:
    kill_train(here, Moment(step=1, word="os.rename .instance-0.safetensors.part"))
    assert here.facts["kills"] == 1


def test_a_prediction_that_is_killed_when_its_output_is_whole_is_tidied_up(here: Here) -> None:
    kill_predict(here, Moment(step=1, word="os.remove part-"), kinds=(".csv", ".parquet"))
    assert here.facts["kills"] == 1


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")
def test_a_server_that_is_killed_keeps_what_it_acknowledged(here: Here) -> None:
    kill_server(here, workers=1, seconds=0.5)
    assert here.facts["writes"] > 0
    assert here.facts["answers"] > 0


def test_training_on_a_full_disk_says_so_and_goes_on(here: Here) -> None:
    full_train(here, left=10_000)
    assert here.facts["full"] == 1


@pytest.mark.parametrize("share", [0, 0.1, 0.99])
@pytest.mark.parametrize("kind", [".jsonl", ".csv", ".parquet"])
def test_an_output_on_a_full_disk_says_so_and_goes_on(here: Here, kind: str, share: float) -> None:
    full_predict(here, kind, round(share * here.stand.wanted(kind).stat().st_size))
    assert here.facts["full"] == 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("verb", ["predict", "train"])
def test_a_model_that_is_cut_short_is_refused(stand: Stand, tmp_path: Path, verb: str, seed: int) -> None:
    cut_model(Here(stand, tmp_path, random.Random(seed), {}), verb)


@pytest.mark.parametrize("seed", range(20))
def test_labels_that_are_cut_short_are_whole_or_refused(stand: Stand, tmp_path: Path, seed: int) -> None:
    cut_labels(Here(stand, tmp_path, random.Random(seed), {}))


# The rounds can fail.


def test_a_model_of_another_seed_or_with_something_beside_it_is_told(stand: Stand, tmp_path: Path) -> None:
    check_model(stand.model, stand.model)
    with pytest.raises(BrokenPromiseError, match=r"model\.json"):
        check_model(stand.other, stand.model)
    copy = tmp_path / "model"
    copy.mkdir()
    for path in stand.model.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    check_model(copy, stand.model)
    (copy / ".labels.arrow.part").write_bytes(b"half")
    with pytest.raises(BrokenPromiseError, match=r"left, or are missing: \['\.labels\.arrow\.part'\]"):
        check_model(copy, stand.model)


def test_an_error_that_is_not_clear_is_told() -> None:
    check_refused(Done(1, "info: begun\ndecaf: m: is damaged; restore it\n"), "damaged")
    for done in (Done(0, "decaf: x"), Done(1, "Traceback\ndecaf: x"), Done(1, "OSError: x"), Done(-9, "")):
        with pytest.raises(BrokenPromiseError):
            check_refused(done)
    with pytest.raises(BrokenPromiseError, match="'make room' is not said"):
        check_refused(Done(1, "decaf: no space"), "make room")


def test_answers_of_two_models_mixed_are_told(stand: Stand) -> None:
    from tools.crash.server import TEXTS  # with what the models say of them

    answers = Answers([stand.model, stand.other], set())
    first, second = answers._known
    said = {
        version: [{"labels": [{"id": k, "score": v, "live": False} for k, v in one.items()]} for one in known]
        for version, known in answers._known.items()
    }
    assert len(said[first]) == len(TEXTS)
    assert answers.check({"model": first, "predictions": said[first]}) == first
    assert answers.check({"model": second, "predictions": said[second]}) == second
    assert answers.compared
    known = answers._known
    gaps = [
        max(abs(one.get(name, 0.0) - other.get(name, 0.0)) for name in {*one, *other})
        for one, other in zip(known[first], known[second], strict=True)
    ]
    at = gaps.index(max(gaps))  # where the models differ most
    for mixed in (said[second], [*said[first][:at], said[second][at], *said[first][at + 1 :]]):
        with pytest.raises(BrokenPromiseError, match="chances are off"):
            answers.check({"model": first, "predictions": mixed})
    with pytest.raises(BrokenPromiseError, match="never there"):
        answers.check({"model": "other", "predictions": said[first]})


def test_a_folder_without_a_model_is_none(stand: Stand, tmp_path: Path) -> None:
    assert model_or_none(tmp_path) is None
    assert model_or_none(stand.model) is not None


def test_a_failing_round_is_kept_and_says_how_to_play_it_again(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tools.crash import __main__ as program

    def bad(round_: Round) -> None:
        (round_.folder / "trace").write_text(str(round_.rng.random()), encoding="ascii")
        round_.facts["workers"] = 2
        raise BrokenPromiseError("lost")

    monkeypatch.setattr(program, "chosen", lambda _: bad)
    found = play(stand, tmp_path, 3, 17)
    assert (found["passed"], found["problem"]) == (False, "BrokenPromiseError: lost")
    place = Path(found["folder"])
    drawn = (place / "trace").read_text(encoding="ascii")
    kept = (place / "failure.txt").read_text(encoding="utf-8")
    for told in (kept, program._line(found, 3)):
        assert "BrokenPromiseError: lost" in told
        assert "python -m tools.crash --seed 3 --only 17" in told
        assert "workers" in told
    play(stand, tmp_path, 3, 17)
    assert (place / "trace").read_text(encoding="ascii") == drawn  # the same round again


@pytest.mark.parametrize("mount", [False, True])  # True: where that is allowed
def test_what_was_on_a_disk_is_kept_when_a_round_fails(tmp_path: Path, mount: bool) -> None:
    def lose() -> None:
        with open_disk(tmp_path / "disk", mount=mount) as disk:
            (disk.folder / "labels.sqlite").write_bytes(b"labels")
            disk.fill(1_000)
            raise BrokenPromiseError("lost")

    with pytest.raises(BrokenPromiseError, match="lost"):
        lose()
    kept = tmp_path / "disk-kept" if (tmp_path / "disk-kept").is_dir() else tmp_path / "disk"
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == {"labels.sqlite": b"labels"}


def test_rounds_come_to_every_variant() -> None:
    assert {chosen(number) for number in range(50)} == {act for acts in KINDS.values() for act in acts}


def test_steps_are_counted_below_a_folder_and_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _, number: killed.append(number))
    steps = Steps("2 part-", tmp_path)
    for event, *arguments in (
        ("open", str(tmp_path / "part-0"), "rb", 0),  # read
        ("open", "/elsewhere/part-0", "wb", 0),
        ("open", str(tmp_path / "part-0"), "wb", 0),
        ("os.rename", str(tmp_path / "state.json"), "x", -1, -1),
        ("import", "part-"),
    ):
        steps(event, tuple(arguments))
    assert steps.names == ["open part-0", "os.rename state.json"]
    assert killed == []
    steps("os.remove", ("part-0", 5))
    assert killed == [signal.SIGKILL]
