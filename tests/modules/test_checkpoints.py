"""Keeping a run: read back whole, made again where damaged, refused where it is another's, never half written."""

from __future__ import annotations

import errno
import json
import logging
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from torch import Tensor

from decaf.errors import TrainingError
from decaf.modules import checkpoints
from decaf.modules.checkpoints import Checkpoint, Forgetful

CPU = torch.device("cpu")


class Work:
    """Counts how often it is done."""

    def __init__(self, value: float = 1.0) -> None:
        self.times = 0
        self.value = value

    def __call__(self) -> dict[str, Tensor]:
        self.times += 1
        return {"table": torch.full((3, 2), self.value), "members": torch.tensor([1, -1])}


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the state of a running module whenever it is offered."""
    monkeypatch.setattr(checkpoints, "_SHARE", float("inf"))


def opened(folder: Path, run: str = "run") -> Checkpoint:
    return Checkpoint(folder, run, CPU)


def state(value: float, rows: int = 3) -> dict[str, Tensor]:
    return {"network.table": torch.full((rows, 2), value), "optimizer.0.0.step": torch.tensor(value)}


def test_a_module_is_learned_once_and_read_later(tmp_path: Path) -> None:
    work = Work()
    opened(tmp_path).result("module I", work)
    found = opened(tmp_path).result("module I", work)
    assert work.times == 1
    assert found["table"].tolist() == [[1, 1]] * 3
    assert found["members"].tolist() == [1, -1]
    assert found["members"].dtype == torch.int64


def test_modules_are_kept_apart(tmp_path: Path) -> None:
    names = ["module I", "module II", "module II, instance 1", "module II, instance 2"]
    for value, name in enumerate(names):
        opened(tmp_path).result(name, Work(value))
    for value, name in enumerate(names):
        assert float(opened(tmp_path).result(name, Work(99))["table"][0, 0]) == value


@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_a_damaged_file_is_made_again_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: bytes | None
) -> None:
    work = Work()
    opened(tmp_path).result("module I", work)
    path = tmp_path / "checkpoint" / "module-I.done.safetensors"
    path.write_bytes(path.read_bytes()[:-4] if damage is None else damage)
    with caplog.at_level(logging.WARNING, logger="decaf"):
        found = opened(tmp_path).result("module I", work)
    assert work.times == 2
    assert found["table"].tolist() == [[1, 1]] * 3
    assert "module-I.done.safetensors: is damaged and will be made again" in caplog.text
    opened(tmp_path).result("module I", work)
    assert work.times == 2


def test_the_run_of_another_is_refused(tmp_path: Path) -> None:
    opened(tmp_path, "one").result("module I", Work())
    with pytest.raises(TrainingError, match=r"unfinished run on other data or with other settings; .* another folder"):
        opened(tmp_path, "two")
    work = Work()
    opened(tmp_path, "one").result("module I", work)
    assert not work.times


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00\x00"])
def test_a_run_that_cannot_be_told_is_refused(tmp_path: Path, content: str) -> None:
    opened(tmp_path)
    (tmp_path / "checkpoint" / "run.json").write_text(content, encoding="utf-8")
    with pytest.raises(
        TrainingError, match=r"run\.json: is damaged, .*; remove the folder .* or choose another folder"
    ):
        opened(tmp_path)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), SafetensorError("I/O error")])
def test_a_full_disk_is_told_with_advice_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, often: None, error: Exception
) -> None:
    keeper = opened(tmp_path)
    keeper.keep("module I", state(1.0), 1)
    before = {path.name: path.read_bytes() for path in (tmp_path / "checkpoint").iterdir()}

    def full(tensors: dict[str, Tensor], path: Path) -> None:
        Path(path).write_bytes(b"half")
        raise error

    monkeypatch.setattr(checkpoints, "save_file", full)
    with pytest.raises(TrainingError, match=r"module-I\.running\.safetensors: cannot be written .*; make room and run"):
        keeper.keep("module I", state(2.0), 2)
    assert {path.name: path.read_bytes() for path in (tmp_path / "checkpoint").iterdir()} == before
    target = state(0.0)
    assert opened(tmp_path).restore("module I", target) == 1
    assert target["network.table"].tolist() == [[1, 1]] * 3


def test_a_running_module_is_restored_in_place(tmp_path: Path, often: None) -> None:
    opened(tmp_path).keep("module I", state(7.0), 5)
    target = state(0.0)
    places = {key: tensor.data_ptr() for key, tensor in target.items()}
    assert opened(tmp_path).restore("module I", target) == 5
    assert float(target["network.table"].sum()) == 42
    assert float(target["optimizer.0.0.step"]) == 7
    assert {key: tensor.data_ptr() for key, tensor in target.items()} == places


def test_nothing_kept_restores_nothing(tmp_path: Path) -> None:
    target = state(3.0)
    assert opened(tmp_path).restore("module I", target) == 0
    assert float(target["network.table"].sum()) == 18


@pytest.mark.parametrize("other", [state(3.0, rows=4), {"network.table": torch.zeros(3, 2)}])
def test_a_state_of_another_shape_is_not_restored(tmp_path: Path, often: None, other: dict[str, Tensor]) -> None:
    opened(tmp_path).keep("module I", state(7.0), 5)
    before = {key: tensor.clone() for key, tensor in other.items()}
    assert opened(tmp_path).restore("module I", other) == 0
    assert all(torch.equal(tensor, before[key]) for key, tensor in other.items())


def test_a_damaged_state_begins_again_with_a_warning(
    tmp_path: Path, often: None, caplog: pytest.LogCaptureFixture
) -> None:
    opened(tmp_path).keep("module I", state(7.0), 5)
    (tmp_path / "checkpoint" / "module-I.running.safetensors").write_bytes(b"nonsense")
    with caplog.at_level(logging.WARNING, logger="decaf"):
        assert opened(tmp_path).restore("module I", state(0.0)) == 0
    assert "is damaged" in caplog.text


def test_keeping_states_takes_a_twentieth_of_the_time_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now)
    keeper = opened(tmp_path)
    save = keeper._save

    def save_for_a_second(path: Path, tensors: dict[str, Tensor]) -> None:
        nonlocal now
        save(path, tensors)
        now += 1

    monkeypatch.setattr(keeper, "_save", save_for_a_second)
    kept = {}
    for epoch, start in enumerate((110.0, 120.0, 130.9, 131.0, 151.9, 152.0), start=1):
        now = start
        keeper.keep("module I", state(epoch), epoch)
        kept[epoch] = opened_epochs(tmp_path)
    assert kept == {1: 1, 2: 1, 3: 1, 4: 4, 5: 4, 6: 6}


def opened_epochs(folder: Path) -> int:
    return opened(folder).restore("module I", state(0.0))


def test_the_state_of_a_finished_module_goes(tmp_path: Path, often: None) -> None:
    keeper = opened(tmp_path)
    keeper.keep("module I", state(7.0), 5)
    keeper.result("module I", Work())
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == [
        "module-I.done.safetensors",
        "run.json",
    ]


def test_the_end_of_the_run_leaves_its_record_alone(tmp_path: Path) -> None:
    keeper = opened(tmp_path)
    keeper.note(module="module I", epoch=1, loss=0.5)
    keeper.note(module="module I", epoch=2, loss=0.25)
    keeper.result("module I", Work())
    keeper.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(line["module"], line["epoch"], line["loss"]) for line in lines] == [
        ("module I", 1, 0.5),
        ("module I", 2, 0.25),
    ]
    assert all(line["time"] > 0 for line in lines)


def test_the_record_goes_on_where_it_was(tmp_path: Path) -> None:
    opened(tmp_path).note(epoch=1)
    opened(tmp_path).note(epoch=2)
    assert len((tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()) == 2


def test_a_line_that_was_being_written_is_taken_off(tmp_path: Path) -> None:
    opened(tmp_path).note(epoch=1)
    record = tmp_path / "metrics.jsonl"
    with record.open("a", encoding="utf-8") as stream:
        stream.write('{"time": 1, "epo')
    opened(tmp_path).note(epoch=2)
    assert [json.loads(line)["epoch"] for line in record.read_text(encoding="utf-8").splitlines()] == [1, 2]


def test_a_record_on_a_full_disk_is_told_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = opened(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(
        TrainingError, match=r"metrics\.jsonl: cannot be written .*; make room and run the same command"
    ):
        keeper.note(epoch=1)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_want_of_room_has_several_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    keeper = opened(tmp_path)

    def full(*_: object) -> None:
        raise OSError(code, "no room")

    monkeypatch.setattr(checkpoints, "save_file", full)
    with pytest.raises(TrainingError, match="; make room"):
        keeper.result("module I", Work())


@pytest.mark.parametrize("left", ["labels.arrow", ".instance-12.safetensors.part", ".model.json.part"])
def test_a_run_that_was_stopped_while_its_model_was_written_goes_on(tmp_path: Path, left: str) -> None:
    opened(tmp_path).result("module I", Work(5.0))
    (tmp_path / left).write_bytes(b"half")
    work = Work()
    assert opened(tmp_path).result("module I", work)["table"].tolist() == [[5, 5]] * 3
    assert work.times == 0


@pytest.mark.parametrize("name", ["notes.txt", "labels.arrow.old", "labels.sqlite"])
def test_a_run_with_something_else_beside_it_is_refused(tmp_path: Path, name: str) -> None:
    opened(tmp_path)
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(TrainingError, match="holds something else"):
        opened(tmp_path)


def test_files_of_a_model_without_a_run_are_something_else(tmp_path: Path) -> None:
    (tmp_path / "labels.arrow").write_bytes(b"mine")
    with pytest.raises(TrainingError, match="holds something else"):
        opened(tmp_path)


def test_without_a_folder_nothing_is_kept() -> None:
    keeper, work, target = Forgetful(), Work(), state(3.0)
    keeper.keep("module I", state(7.0), 5)
    keeper.note(epoch=1)
    assert keeper.restore("module I", target) == 0
    assert float(target["network.table"].sum()) == 18
    keeper.result("module I", work)
    keeper.result("module I", work)
    assert work.times == 2


RATES = {"module I": 0.01, "module IV": 0.002}


def test_a_module_that_broke_goes_on_at_another_rate_and_the_record_says_so(
    tmp_path: Path, often: None, caplog: pytest.LogCaptureFixture
) -> None:
    first = Checkpoint(tmp_path, "run", CPU, RATES)
    first.keep("module IV, instance 2", state(3.0), 4)
    first.broke("module IV, instance 2")
    slower = RATES | {"module IV": 0.001}
    again, kept = Checkpoint(tmp_path, "run", CPU, slower), state(0.0)
    assert "module IV: goes on with the rate 0.001; it began with 0.002" in caplog.text
    assert again.restore("module IV, instance 2", kept) == 4
    assert torch.equal(kept["network.table"], state(3.0)["network.table"])
    (line,) = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    noted = json.loads(line)
    assert (noted["module"], noted["rate"], noted["rate_before"]) == ("module IV", 0.001, 0.002)
    with pytest.raises(TrainingError, match="other settings"):  # it has gone on at the new rate
        Checkpoint(tmp_path, "run", CPU, RATES)
    Checkpoint(tmp_path, "run", CPU, slower)


@pytest.mark.parametrize(
    ("broke", "run", "rates"),
    [
        (None, "run", RATES | {"module IV": 0.001}),
        ("module IV", "run", RATES | {"module I": 0.001}),
        ("module IV", "run", {"module I": 0.001, "module IV": 0.001}),
        ("module IV", "other", RATES | {"module IV": 0.001}),
    ],
)
def test_nothing_but_the_rate_of_a_module_that_broke_may_change(
    tmp_path: Path, broke: str | None, run: str, rates: dict[str, float]
) -> None:
    first = Checkpoint(tmp_path, "run", CPU, RATES)
    if broke:
        first.broke(broke)
    with pytest.raises(TrainingError, match="other settings"):
        Checkpoint(tmp_path, run, CPU, rates)
    Checkpoint(tmp_path, "run", CPU, RATES)
