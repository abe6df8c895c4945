"""Tables of our own, mapped into memory: written plainly, and read back only if nothing in them has to be unpacked."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa

__all__ = ["read_arrow", "write_arrow"]

_MAGIC = b"ARROW1\0\0"
_HEADER, _COMPRESSION = 2, 3  # fields of a message, and of a record batch in it (format/Message.fbs)


def write_arrow(table: pa.Table, path: Path) -> None:
    """Write what `read_arrow` reads."""
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)


def read_arrow(path: Path) -> pa.Table:
    """A table whose columns stay in the file; raises ValueError or ArrowException.

    A column that was packed would be unpacked to any size that its header names, so it is refused unread.
    """
    with pa.memory_map(str(path)) as source:
        if source.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("is no Arrow file")
        messages = pa.ipc.MessageReader.open_stream(source)
        first = next(iter(messages), None)
        if first is None or first.type != "schema":
            raise ValueError("has no schema")
        schema = pa.ipc.read_schema(first)
        batches = []
        for message in messages:
            if message.type != "record batch" or _is_packed(message.metadata.to_pybytes()):
                raise ValueError("columns are packed")
            batches.append(pa.ipc.read_record_batch(message, schema))
    table = pa.Table.from_batches(batches, schema)
    table.validate(full=True)  # texts are read later, when nobody looks for damage
    return table


def _is_packed(message: bytes) -> bool:
    """Whether the columns of a record batch are compressed."""
    try:
        (root,) = struct.unpack_from("<I", message)
        header = _field(message, root, _HEADER)
        (offset,) = struct.unpack_from("<I", message, header)
        return _field(message, header + offset, _COMPRESSION) != 0
    except struct.error as error:
        raise ValueError("is damaged (message)") from error


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffer's table is; 0: it is not there."""
    (back,) = struct.unpack_from("<i", data, table)
    (size,) = struct.unpack_from("<H", data, table - back)
    if 4 + 2 * number >= size:
        return 0
    (offset,) = struct.unpack_from("<H", data, table - back + 4 + 2 * number)
    return table + int(offset) if offset else 0
