"""Rounds of kills, full disks and files that are cut short; after each, nothing that was acknowledged is lost.

    python -m tools.crash --rounds 50 --seed 0 --seconds 1500
    python -m tools.crash --seed 0 --only 17            # one round again

The seed and a round's number decide what is done in it. Kills come before a step on the disk that the seed names, or
after a time, which a machine can only keep to roughly. The folder of a round that fails is kept, and its path printed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from tools.crash.commands import kill_predict, kill_train
from tools.crash.cut import cut_checkpoint, cut_input, cut_labels, cut_model, cut_part, cut_record, cut_state
from tools.crash.full import full_labels, full_predict, full_save, full_train
from tools.crash.rounds import Round, Stand, drawn
from tools.crash.server import kill_server, kill_worker

KINDS: dict[str, list[Callable[[Round], None]]] = {
    "kill training": [kill_train],
    "kill prediction": [kill_predict],
    "kill a server": [kill_server, kill_worker],
    "fill a disk": [full_train, full_save, full_predict, full_labels],
    "cut a file": [cut_checkpoint, cut_part, cut_model, cut_state, cut_record, cut_labels, cut_input],
}
_DOCUMENTS = 21_000  # to predict, three parts


def chosen(number: int) -> Callable[[Round], None]:
    """What is done in a round: each kind in its turn, and of a kind each variant."""
    variants = list(KINDS.values())[number % len(KINDS)]
    return variants[number // len(KINDS) % len(variants)]


def play(stand: Stand, folder: Path, seed: int, number: int) -> dict[str, Any]:
    """One round, and what became of it."""
    act = chosen(number)
    place = folder / f"round-{number:03d}-{act.__name__.replace('_', '-')}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    round_ = Round(stand, place, drawn(f"{seed} {number}"), {})
    started = time.monotonic()
    problem = ""
    try:
        act(round_)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        told = f"python -m tools.crash --seed {seed} --only {number}\n{json.dumps(round_.facts)}\n"
        (place / "failure.txt").write_text(told + traceback.format_exc(), encoding="utf-8")
    else:
        shutil.rmtree(place)
    seconds = round(time.monotonic() - started, 1)
    found = {"round": number, "what": act.__name__, "passed": not problem, "seconds": seconds, **round_.facts}
    return found | ({"problem": problem, "folder": str(place)} if problem else {})


def main() -> int:
    """Play the rounds; 0 if all went well."""
    parser = argparse.ArgumentParser(prog="python -m tools.crash", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50, help="how many [50]")
    parser.add_argument("--seed", type=int, default=0, help="what decides all of them [0]")
    parser.add_argument("--seconds", type=float, default=1500, help="after which no other round begins [1500]")
    parser.add_argument("--only", type=int, help="play this round alone")
    parser.add_argument("--folder", type=Path, help="where to work [a new folder for temporary files]")
    parser.add_argument("--no-mount", action="store_true", help="mount no disks; limit the size of files instead")
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")
    wishes = parser.parse_args()
    if wishes.rounds < 1 or (wishes.only is not None and wishes.only < 0):
        parser.error("--rounds begins at 1, and --only at 0")
    signal.signal(signal.SIGTERM, _interrupt)
    folder: Path = (wishes.folder or Path(tempfile.mkdtemp(prefix="decaf-crash-"))).resolve()
    started = time.monotonic()
    stand = Stand(folder / "stand", _DOCUMENTS, mount=not wishes.no_mount)
    shutil.rmtree(stand.folder, ignore_errors=True)
    stand.prepare(_say)
    _say(f"ready after {time.monotonic() - started:.0f} s; a training has {len(stand.steps['train'])} steps")
    numbers = range(wishes.rounds) if wishes.only is None else [wishes.only]
    results: list[dict[str, Any]] = []
    for number in numbers:
        if time.monotonic() - started > wishes.seconds:
            _say(f"{wishes.seconds:.0f} s are over: {len(numbers) - len(results)} rounds were not played")
            break
        results.append(play(stand, folder, wishes.seed, number))
        _say(_line(results[-1], wishes.seed))
    failed = [one for one in results if not one["passed"]]
    if wishes.json:
        print(json.dumps({"seed": wishes.seed, "rounds": results, "failed": len(failed)}, indent=1))
    else:
        print(_table(results))
    shutil.rmtree(folder if not failed and wishes.folder is None else stand.folder)
    return 1 if failed or not results else 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _line(result: dict[str, Any], seed: int) -> str:
    """A round in one line; one that failed with what it takes to look into it."""
    own = ("round", "what", "passed", "seconds", "problem", "folder")
    shown = ", ".join(f"{name} {result[name]}" for name in result if name not in own)
    head = f"round {result['round']:3d}  {result['what']:<15} {result['seconds']:6.1f} s  "
    if result["passed"]:
        return f"{head}good  {shown}"
    again = f"again: python -m tools.crash --seed {seed} --only {result['round']}"
    return f"{head}FAILED: {result['problem']}\n  {shown}\n  kept in {result['folder']}; {again}"


def _table(results: list[dict[str, Any]]) -> str:
    """What was done how often."""
    counted = ("kills", "full", "swaps", "writes", "answers")
    lines = [f"{'':<15} {'rounds':>6} {'failed':>6} {'seconds':>8} " + " ".join(f"{name:>8}" for name in counted)]
    for name in [*sorted({one["what"] for one in results}), "all"]:
        of = [one for one in results if name in ("all", one["what"])]
        sums = " ".join(f"{sum(one.get(what, 0) for one in of):8d}" for what in counted)
        failed, seconds = sum(not one["passed"] for one in of), sum(one["seconds"] for one in of)
        lines.append(f"{name:<15} {len(of):6d} {failed:6d} {seconds:8.0f} {sums}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
