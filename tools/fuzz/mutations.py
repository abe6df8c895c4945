"""Ways to spoil a file: bytes, numbers in headers, the structure of JSON, whole formats, and what a file is."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import random
import re
import shutil
import socket
import sqlite3
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tools.fuzz.seeds import MODELS

__all__ = ["make_case"]

_HUGE = (0, 1, 2, 255, *(1 << bits for bits in (16, 20, 31, 32, 40, 62)), *((1 << bits) - 1 for bits in (31, 32, 63)))
_NUMBERS = ["0", "-1", "1e999", "NaN", "Infinity", "1.5", "18446744073709551616", "9" * 400, *map(str, _HUGE)]
_BYTES = [b"\n", b" ", b",", b":", b'"', b"\x00", b"\xff", b"\r", b"[", b"}", b"\\ud800", b"\xef\xbb\xbf", b"{" * 50]
_NAMES = ["", ".", "..", "../../etc/passwd", "/etc/passwd", "a\0b", "x" * 300, "\ud800", "instance-0.safetensors"]
_VALUES: list[Any] = [None, True, False, 0, -1, 1.5, 1e308, float("nan"), float("inf"), 1 << 70, [], {}, [[]], *_NAMES]
_FLOATS = [float("nan"), float("inf"), -float("inf"), 3e38, -3e38, 1e-40, 0.0, -1.0]
_STATEMENTS = [
    "drop table labels",
    "drop table counters",
    "delete from counters",
    "update counters set value = 'many'",
    "update counters set value = null",
    "pragma user_version = 0",
    "pragma user_version = 2000000000",
    "insert into labels values (x'ff00', 'text', '')",
    "insert into labels values ('blob', x'ff00', '')",
    "insert into labels values (7, 8, 9)",
    "insert into labels values ('many', 'amber', x'00')",
    "insert into labels values ('', '', '')",
    "insert into labels values ('surrogate', cast(x'eda080' as text), '')",
    "insert into labels select value, 'amber kelp', '' from generate_series(1, 9)",
    "alter table labels add column more text default 'x'",
    "alter table labels rename column text to words",
    "create table filler as with recursive c(x) as (select 1 union all select x + 1 from c limit 500) select x from c",
    "create trigger own after insert on labels begin delete from labels; end",
    "alter table labels rename to kept; create view labels as select id, text, at from kept, kept as b, kept as c",
    "drop table labels; create view labels as with recursive c(x) as (select 1 union all select x + 1 from c) "
    "select cast(x as text) as id, 'amber' as text, '' as at from c",
    "drop table labels; create table labels (id text, text text as (hex(zeroblob(450000000))), at text); "
    "insert into labels (id, at) values ('bomb', '')",
    "update labels set text = replace(hex(zeroblob(20000)), '00', 'amber ')",
]


def make_case(seeds: Path, kind: str, seed: int, number: int, target: Path) -> dict[str, Any]:
    """Write a spoiled copy of a valid folder; the same numbers give the same files. What was done is told."""
    rng = random.Random(f"{seed} {kind} {number}")  # noqa: S311 - to be repeated
    variant = rng.choice(sorted(path.name for path in (seeds / kind).iterdir() if path.is_dir()))
    names: list[str] = json.loads((seeds / kind / f"{variant}.json").read_text(encoding="utf-8"))
    shutil.copytree(seeds / kind / variant, target)
    name = rng.choice(names)
    path = target / name
    before = path.read_bytes()
    done = []
    if rng.random() < 0.04:
        done.append(_special(path, rng))
    else:
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            spoil = rng.choice(_ways(path))
            with suppress(*_CANNOT):  # what was spoiled before may not be read as its format any more
                spoil(path, rng)
                done.append(spoil.__name__.strip("_"))
    made = {"kind": kind, "seed": seed, "number": number, "variant": variant, "file": name, "done": done}
    made["way"] = rng.randrange(1 << 16)  # which of the ways to read it
    if kind in MODELS:
        remade = kind != "model.json" and rng.random() < 0.75 and _remade(target, name)
        changed = path.is_symlink() or not path.is_file() or path.read_bytes() != before
        made |= {"remade": remade, "verify": rng.random() < 0.7, "changed": changed}
    return made


_CANNOT = (
    *(ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, NotImplementedError, MemoryError),
    *(OSError, EOFError, struct.error, zlib.error, zipfile.BadZipFile, sqlite3.Error, pa.ArrowException),
)
Spoil = Callable[[Path, random.Random], None]


def _ways(path: Path) -> list[Spoil]:
    """What can be done to a file of this name; what is special to its format is done more often."""
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    special: dict[str, list[Spoil]] = {
        ".json": [_json],
        ".jsonl": [_json_lines],
        ".safetensors": [_tensor_header, _tensor_values],
        ".npz": [_npz_member, _npz_header],
        ".arrow": [_arrow],
        ".parquet": [_parquet],
        ".sqlite": [_sql],
        ".npy": [_npy],
    }
    found = special.get(suffix, [])
    if path.name.endswith(("trn.json", "tst.json", "lbl.json", ".json.gz")):
        found = [_json_lines]
    packed = [_inside_gzip] * 3 if path.suffix == ".gz" else []
    return [_bytes, _bytes, _digits, *found * 3, *packed]


def _spoiled(data: bytes, rng: random.Random) -> bytes:
    """Bytes that were flipped, cut, put in, taken out, doubled or made huge numbers."""
    at, size = rng.randrange(len(data) + 1), rng.choice([1, 2, 8, 64, 1000])
    kind = rng.randrange(8)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + rng.choice(_BYTES) + data[at:]
    if kind == 2:
        return data[:at] + rng.randbytes(size) + data[at:]
    if kind == 3:
        return data[:at] + data[at + size :]
    if kind == 4:
        return data[:at] + data[max(0, at - size) : at] * rng.choice([1, 2, 50]) + data[at:]
    changed = bytearray(data)
    if kind == 5 and len(data) >= 8:
        at -= at % 4
        huge = rng.choice(_HUGE) * rng.choice([1, 1, -1])
        changed[at : at + 8] = struct.pack("<q" if at % 8 == 0 else ">q", huge)
    else:
        for _ in range(rng.choice([1, 1, 2, 8])):
            if changed:
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _bytes(path: Path, rng: random.Random) -> None:
    path.write_bytes(_spoiled(path.read_bytes(), rng))


def _another_number(data: bytes, rng: random.Random) -> bytes:
    found = list(re.finditer(rb"-?[0-9]+(\.[0-9]+)?", data[: 1 << 16]))
    if not found:
        return data
    match = rng.choice(found[:3] if rng.random() < 0.3 else found)  # headers come first
    return data[: match.start()] + rng.choice(_NUMBERS).encode() + data[match.end() :]


def _digits(path: Path, rng: random.Random) -> None:
    path.write_bytes(_another_number(path.read_bytes(), rng))


def _inside_gzip(path: Path, rng: random.Random) -> None:
    """What is spoiled is the text, so that it is reached; or much more comes out than went in."""
    data = gzip.decompress(path.read_bytes())
    if rng.random() < 0.05:
        line = data[: data.find(b"\n") + 1]
        data += line * ((1 << 24) // max(1, len(line)))
    else:
        data = (_another_number if rng.random() < 0.3 else _spoiled)(data, rng)
    path.write_bytes(gzip.compress(data, 1, mtime=0))


def _changed_json(value: Any, rng: random.Random, depth: int = 0) -> Any:  # noqa: ANN401 - JSON values
    """The value with one part of it replaced, taken out, doubled, renamed, or buried deep."""
    if isinstance(value, dict | list) and value and depth < 6 and rng.random() < 0.8:
        if isinstance(value, dict):
            key = rng.choice(list(value))
            kind = rng.randrange(10)
            if kind == 0:
                return {name: of for name, of in value.items() if name != key}
            if kind == 1:
                return {(rng.choice(_NAMES) if name == key else name): of for name, of in value.items()}
            if kind == 2:
                return value | {rng.choice(_NAMES): rng.choice(list(value.values()))}
            return value | {key: _changed_json(value[key], rng, depth + 1)}
        at = rng.randrange(len(value))
        kind = rng.randrange(6)
        if kind == 0:
            return value[:at] + value[at + 1 :]
        if kind == 1:
            return value[:at] + [value[at]] * rng.choice([2, 50]) + value[at + 1 :]
        return [*value[:at], _changed_json(value[at], rng, depth + 1), *value[at + 1 :]]
    kind = rng.randrange(4)
    if kind == 0 and isinstance(value, int | float) and not isinstance(value, bool):
        return rng.choice([-value, value + 1, *_HUGE, *_FLOATS])
    if kind == 1:
        for _ in range(rng.choice([1, 20, 900])):
            value = [value]
        return value
    return rng.choice(_VALUES)


def _json(path: Path, rng: random.Random) -> None:
    path.write_text(json.dumps(_changed_json(json.loads(path.read_bytes()), rng)), encoding="utf-8")


def _json_lines(path: Path, rng: random.Random) -> None:
    packed = path.suffix == ".gz"
    data = path.read_bytes()
    lines = (gzip.decompress(data) if packed else data).splitlines()
    at = rng.randrange(len(lines))
    lines[at] = json.dumps(_changed_json(json.loads(lines[at]), rng)).encode()
    text = b"\n".join(lines) + b"\n"
    path.write_bytes(gzip.compress(text, 1, mtime=0) if packed else text)


def _tensor_header(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    name = rng.choice(list(header))
    kind = rng.randrange(5)
    if kind == 0:
        header[name]["dtype"] = rng.choice("F64 F32 I64 I8 U8 BOOL F16 BF16 I32 F8_E4M3 X".split())
    elif kind == 1:
        header[name]["shape"] = rng.choice([[], [0], [0, 1 << 40], [1 << 62, 4], header[name]["shape"][::-1], [1]])
    elif kind == 2:  # the same bytes, seen otherwise
        other = rng.choice([one for one in header if "shape" in header[one]])
        header[name] = header[other]
    else:
        header = _changed_json(header, rng)
    text = json.dumps(header).encode()
    size = rng.choice(_HUGE) if rng.random() < 0.05 else len(text)
    path.write_bytes(struct.pack("<Q", size & (2**64 - 1)) + text + data[8 + struct.unpack_from("<Q", data)[0] :])


_CODES = {"F32": "<f", "I64": "<q", "I32": "<i", "I8": "<b"}


def _tensor_values(path: Path, rng: random.Random) -> None:
    """Numbers that are none, too large, or not there, in arrays that are whole."""
    data = bytearray(path.read_bytes())
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    name = rng.choice([one for one in header if header[one].get("dtype") in _CODES])
    code, (first, last) = _CODES[header[name]["dtype"]], header[name]["data_offsets"]
    step = struct.calcsize(code)
    for _ in range(rng.choice([1, 1, 5, 1000])):
        if first < last:
            at = 8 + size + first + step * rng.randrange((last - first) // step)
            bits = 8 * step - 1
            value = rng.choice(_FLOATS) if code == "<f" else rng.choice([-1, 0, 1, 7, 2**bits - 1, -(2**bits)])
            struct.pack_into(code, data, at, value)
    path.write_bytes(bytes(data))


def _rezipped(path: Path, rng: random.Random, change: Callable[[bytes], bytes]) -> None:
    with zipfile.ZipFile(path) as stored:
        members = {name: stored.read(name) for name in stored.namelist()}
    name = rng.choice(list(members))
    members[name] = change(members[name])
    with zipfile.ZipFile(path, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as out:
        for each, data in members.items():
            out.writestr(each, data)


def _npz_member(path: Path, rng: random.Random) -> None:
    _rezipped(path, rng, lambda data: _spoiled(data, rng))


def _changed_npy(data: bytes, rng: random.Random) -> bytes:
    (size,) = struct.unpack_from("<H", data, 8)
    header = data[10 : 10 + size].decode("latin1").strip()
    kind = rng.randrange(4)
    if kind == 0:
        shapes = ["(1099511627776,)", "(4611686018427387904, 4)", "(-1,)", "(0,)", "()", "(2, 2)", "(268435456,)"]
        header = re.sub(r"'shape': \([^)]*\)", f"'shape': {rng.choice(shapes)}", header)
    elif kind == 1:
        types = ["|O", "<f8", "<f4", "<i8", "<i4", "|b1", "<c16", "|S400", "<U4", "<M8[s]", "<f2", "|V8", "<u8"]
        header = re.sub(r"'descr': '[^']*'", f"'descr': '{rng.choice(types)}'", header)
    elif kind == 2:
        header = _another_number(header.encode(), rng).decode()
    else:
        header = _spoiled(header.encode("latin1"), rng).decode("latin1")
    text = header.encode("latin1") + b"\n"
    return data[:8] + struct.pack("<H", len(text) & 0xFFFF) + text + data[10 + size :]


def _npz_header(path: Path, rng: random.Random) -> None:
    _rezipped(path, rng, lambda data: _changed_npy(data, rng))


def _npy(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    if rng.random() < 0.5:
        path.write_bytes(_changed_npy(data, rng))
        return
    (size,) = struct.unpack_from("<H", data, 8)
    changed = bytearray(data)
    for _ in range(3):  # values of an array that is whole
        at = 10 + size + 4 * rng.randrange(max(1, (len(data) - 10 - size) // 4))
        struct.pack_into("<i", changed, at, rng.choice([-1, 0, 7, 2**31 - 1, -(2**31)]))
    path.write_bytes(bytes(changed))


def _other_table(table: pa.Table, rng: random.Random) -> pa.Table:
    """A column of another type, taken out, doubled, or with nothing in it."""
    at = rng.randrange(table.num_columns)
    name, rows = table.column_names[at], table.num_rows
    kind = rng.randrange(7)
    if kind == 0:
        return table.remove_column(at)
    if kind == 1:
        return table.append_column(name, table.column(at))
    if kind == 2:
        return table.slice(0, rng.choice([0, 1, max(0, rows - 1)]))
    columns = [
        pa.nulls(rows),
        pa.array([rng.choice(_FLOATS) for _ in range(rows)]),
        pa.array([rng.choice([0, -1, 1 << 62]) for _ in range(rows)]),
        pa.array([None] * rows, pa.large_string()),
        pa.array([b"\xff"] * rows, pa.large_binary()),
        pa.array([["a", None]] * rows),
        pa.array([{"a": 1}] * rows),
        pa.array(["same"] * rows).dictionary_encode(),
        pa.array(["x" * 100_000] * rows, pa.large_string()),
    ]
    return table.set_column(at, name, rng.choice(columns))


def _arrow(path: Path, rng: random.Random) -> None:
    table = pa.ipc.open_file(path.read_bytes()).read_all()
    table.validate(full=True)
    table = _other_table(table, rng)
    options = pa.ipc.IpcWriteOptions(compression=rng.choice([None, None, "zstd", "lz4"]))
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rng.choice([1, 1000]))


def _parquet(path: Path, rng: random.Random) -> None:
    table = pq.read_table(io.BytesIO(path.read_bytes()))
    table.validate(full=True)
    many = rng.random() < 0.03
    if many:  # a small file of very many rows
        table = pa.concat_tables([table.slice(0, 1)] * 10).combine_chunks()
        table = table.take(pa.array([0] * 200_000))
    else:
        table = _other_table(table, rng)
    pq.write_table(table, path, compression=rng.choice(["none", "snappy", "zstd", "gzip"]))


def _sql(path: Path, rng: random.Random) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript(rng.choice(_STATEMENTS))
        database.execute("pragma wal_checkpoint(truncate)")


def _special(path: Path, rng: random.Random) -> str:
    """Something that is no file, or leads elsewhere, or is not there."""
    kinds = ["fifo", "folder", "loop", "device", "outside", "socket", "missing", "empty"]
    kind = rng.choice(kinds)
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "device":
        path.symlink_to(rng.choice(["/dev/zero", "/dev/full", "/dev/stdin"]))
    elif kind == "outside":
        path.symlink_to(rng.choice(["/etc/passwd", "../../outside", "/proc/self/mem", "/proc/self/environ"]))
    elif kind == "socket":
        here = os.open(path.parent, os.O_RDONLY)  # a socket's path may be 108 bytes long
        try:
            with closing(socket.socket(socket.AF_UNIX)) as made:
                made.bind(f"/proc/self/fd/{here}/{path.name}")
        finally:
            os.close(here)
    elif kind == "empty":
        path.write_bytes(b"")
    return kind


def _remade(folder: Path, name: str) -> bool:
    """Write the checksum of what is there now, so that the readers are reached."""
    if (folder / name).is_symlink() or not (folder / name).is_file():
        return False
    header = folder / "model.json"
    content = json.loads(header.read_text(encoding="utf-8"))
    content["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    header.write_text(json.dumps(content), encoding="utf-8")
    return True


if __name__ == "__main__":
    given = sys.argv[1:]
    print(json.dumps(make_case(Path(given[0]), given[1], int(given[2]), int(given[3]), Path(given[4])), indent=1))
