"""Commands that are killed: training and batch prediction."""

from __future__ import annotations

import shutil
from pathlib import Path

from tools.crash.rounds import Moment, Round, check, check_model, model_or_none

__all__ = ["FORMATS", "check_output", "kill_predict", "kill_train"]

FORMATS = (".jsonl", ".csv", ".parquet")


def kill_train(round_: Round, *moments: Moment) -> None:
    """Training that is killed, once or several times, ends as if it had not been."""
    folder = round_.folder / "model"
    for moment in moments or _moments(round_, "train"):
        if round_.decaf(*round_.train(folder), at=moment).status == 0 and not round_.facts.get("kills"):
            shutil.rmtree(folder)  # it was quicker than its time: a step is never missed
            round_.decaf(*round_.train(folder), at=round_.step("train"))
        model_or_none(folder)
    round_.finish(*round_.train(folder))
    check_model(folder, round_.stand.model)


def kill_predict(round_: Round, *moments: Moment, kinds: tuple[str, str] | None = None) -> None:
    """A file that is predicted with kills loses nothing and has nothing twice."""
    read, written = kinds or (round_.rng.choice(FORMATS), round_.rng.choice(FORMATS))
    round_.facts["formats"] = f"{read} to {written}"
    output = round_.folder / f"out{written}"
    command = round_.predict(round_.stand.source(read), output)
    for moment in moments or _moments(round_, "predict"):
        if output.exists() and not output.with_name(f"{output.name}.parts").exists():
            break  # all is done
        if round_.decaf(*command, at=moment).status == 0 and not round_.facts.get("kills"):
            output.unlink()  # it was quicker than its time: a step is never missed
            round_.decaf(*command, at=round_.step("predict"))
        if output.exists():
            check_output(round_, output, tidy=False)
    if output.exists() and not output.with_name(f"{output.name}.parts").exists():
        check_output(round_, output)
        return
    round_.finish(*command)
    check_output(round_, output)


def check_output(round_: Round, output: Path, *, tidy: bool = True) -> None:
    """An output is that of the undisturbed run; `tidy`: and nothing else is left."""
    wanted = round_.stand.wanted(output.suffix).read_bytes()
    check(output.read_bytes() == wanted, f"{output.name}: is not as without the kill")
    if tidy:
        left = sorted(path.name for path in output.parent.iterdir() if path.name not in (output.name, ".ballast"))
        left = [name for name in left if name not in ("steps", "log.txt")]
        check(not left, f"left beside the output: {left}")


def _moments(round_: Round, name: str) -> list[Moment]:
    return [round_.moment(name) for _ in range(round_.rng.choice([1, 1, 2]))]
