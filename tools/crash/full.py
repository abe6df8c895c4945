"""Disks that fill up: in training, while a model is saved, in batch output, and where labels are written."""

from __future__ import annotations

import httpx

from tools.crash.commands import FORMATS, check_output
from tools.crash.disk import Disk, open_disk
from tools.crash.rounds import (
    PATIENCE,
    Moment,
    Round,
    check,
    check_model,
    check_refused,
    model_or_none,
    topic_name,
    until,
)
from tools.crash.server import TEXTS, Server, check_shown, kept_by

__all__ = ["full_labels", "full_predict", "full_save", "full_train"]

_WRITES = 600  # until a disk must be full


def full_train(round_: Round, left: int | None = None) -> None:
    """Training on a disk that is full says so, and goes on when there is room."""
    size = sum(path.stat().st_size for path in round_.stand.model.iterdir())
    with open_disk(round_.folder / "disk", mount=round_.stand.mount) as disk:
        _train(round_, disk, round_.rng.randrange(round(2.5 * size)) if left is None else left)


def full_save(round_: Round, left: int | None = None) -> None:
    """So does the writing of a model that has been learned."""
    largest = max(path.stat().st_size for path in round_.stand.model.iterdir())
    with open_disk(round_.folder / "disk", mount=round_.stand.mount) as disk:
        round_.decaf(*round_.train(disk.folder / "model"), at=Moment(step=1, word="os.rename .labels.arrow.part"))
        _train(round_, disk, round_.rng.randrange(largest) if left is None else left)


def full_predict(round_: Round, kind: str = "", left: int | None = None) -> None:
    """A file that is predicted onto a full disk is told of, and goes on when there is room."""
    kind = kind or round_.rng.choice(FORMATS)
    size = 2 * round_.stand.wanted(kind).stat().st_size
    with open_disk(round_.folder / "disk", mount=round_.stand.mount) as disk:
        round_.facts["disk"] = disk.kind
        output = disk.folder / f"out{kind}"
        command = round_.predict(round_.stand.source(kind), output)
        disk.fill(round_.rng.randrange(size) if left is None else left)
        done = round_.decaf(*command, most=disk.most)
        if done.status:
            round_.count("full")
            check_refused(done, "make room")
            check(not output.exists(), "there is an output, but not all of it")
        disk.free()
        if done.status:
            round_.finish(*command)
        check_output(round_, output)


def _train(round_: Round, disk: Disk, left: int) -> None:
    round_.facts["disk"] = disk.kind
    model = disk.folder / "model"
    disk.fill(left)
    done = round_.decaf(*round_.train(model), most=disk.most)
    if done.status:
        round_.count("full")
        check_refused(done, "make room")
        model_or_none(model)
    disk.free()
    round_.finish(*round_.train(model))
    check_model(model, round_.stand.model)


def full_labels(round_: Round, workers: int = 0) -> None:
    """A server whose disk is full takes no labels, says so, answers on, and takes them when there is room."""
    rng = round_.rng
    workers = workers or rng.choice([1, 2])
    round_.facts["workers"] = workers
    with open_disk(round_.folder / "disk", mount=round_.stand.mount) as disk:
        round_.facts["disk"] = disk.kind
        (disk.folder / "tmp").mkdir()
        labels = disk.folder / "labels.sqlite"
        server = Server(round_, round_.stand.model, labels, "--workers", workers, TMPDIR=str(disk.folder / "tmp"))
        try:
            server.begin()
            _write_until_full(round_, server, disk)
        finally:
            server.close()


def _replace_worker(round_: Round, server: Server) -> None:
    """A worker that dies while the disk is full is replaced, and nobody is turned away meanwhile."""
    count = len(server.workers())
    if not count:
        return
    loads = server.loads()
    server.kill_worker(round_.rng)

    def answered() -> bool:
        answer = httpx.post(f"{server.address}/v1/predict", json={"texts": TEXTS, "top": 3}, timeout=PATIENCE)
        check(answer.status_code == 200, f"no answers while a worker is replaced: {answer.status_code}: {answer.text}")
        return server.loads() > loads and len(server.workers()) == count

    until(answered, "another worker on a full disk")


def _write_until_full(round_: Round, server: Server, disk: Disk) -> None:
    rng = round_.rng
    kept: dict[str, str | None] = {}

    def write(number: int) -> httpx.Response:
        """One label; without an answer that it was kept, it was not."""
        label, text = f"full-{number}", f"{topic_name(rng.randrange(40))}{' the' * rng.randrange(1_500)}"
        answer = client.put(f"/v1/labels/{label}", json={"text": text})
        if answer.status_code in (200, 201):
            kept[label] = text
        return answer

    with httpx.Client(base_url=server.address, timeout=PATIENCE) as client:
        for number in range(5):
            check(write(number).status_code == 201, "a label was not taken")
        disk.fill(rng.randrange(200_000), [server.pid, *server.workers()])
        refused = next((answer for number in range(5, _WRITES) if (answer := write(number)).status_code != 201), None)
        if refused is None:
            check(not disk.own, f"{_WRITES} labels were written onto a full disk")
        else:
            round_.count("full")
            told = refused.json()
            check((told["status"], told["code"]) == (503, "labels_unavailable"), f"not told clearly: {told}")
            check("make room" in server.said(), "the log does not say what to do")
        for path in ("/v1/model", "/healthz", "/readyz", "/metrics", "/v1/labels?q=topic", "/nothing", "/openapi.json"):
            answer = client.get(path)
            check(answer.status_code == (404 if path == "/nothing" else 200), f"{path}: {answer.status_code}")
        for _ in range(20):
            with httpx.Client(base_url=server.address, timeout=PATIENCE) as another:
                answer = another.post("/v1/predict", json={"texts": TEXTS, "top": 3})
                check(answer.status_code == 200, f"no answers on a full disk: {answer.status_code}: {answer.text}")
        check(kept_by(client) == kept, "the labels are not those that were acknowledged")
    _replace_worker(round_, server)
    with httpx.Client(base_url=server.address, timeout=PATIENCE) as client:
        check(kept_by(client) == kept, "the labels are not those that were acknowledged, after a worker's end")
        disk.free([server.pid, *server.workers()])
        check(write(_WRITES).status_code == 201, "a label was not taken when there was room again")
        round_.count("writes", len(kept))
    server.kill()
    round_.count("kills")
    server.begin()
    with httpx.Client(base_url=server.address, timeout=PATIENCE) as client:
        check(kept_by(client) == kept, "the labels are not those that were acknowledged, after a kill")
        check_shown(client, kept)
