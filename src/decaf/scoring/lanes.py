"""Sixteen lanes: products of bytes, of documents with all clusters and of rows with a vector; numbers found again.

Some processors multiply four pairs of bytes and add them up in each of sixteen lanes with one instruction. No compiler
finds it in a loop, so it is named here. Where it is not there, loops give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils as _cgutils
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from decaf.compiled import drop_stale, unowned
from decaf.packed import Floats

__all__ = [
    "LANES",
    "LINE",
    "SHIFT",
    "Four",
    "Places",
    "Table",
    "above_by_lanes",
    "above_by_loop",
    "add_row",
    "bytes_by_lanes",
    "cut",
    "fetch",
    "first_of",
    "halves_by_lanes",
    "in_hardware",
    "planes_of",
    "same",
    "scan_by_lanes",
    "scan_by_loop",
    "shift",
    "width",
]

_AT_ONCE = 4  # documents, or blocks of clusters, that are taken together
_SIDE_BY_SIDE = 2  # blocks, where documents are
LANES = 16  # numbers that are taken at once: clusters of a block, sums of a few labels
_BYTES = 4  # that an instruction takes in each lane
SHIFT = 128  # added to bytes with a sign: of those that are multiplied one side has none
_ONE = np.uint32(1)
LINE = LANES * _BYTES  # bytes that one instruction takes
Places = NDArray[np.int32]
Four = tuple[int, int, int, int]
llvmlite.binding.initialize_native_asmparser()
drop_stale(__file__)


class Table(NamedTuple):
    """Vectors of clusters in blocks of sixteen."""

    blocks: NDArray[np.int8]  # by lanes: four bytes of all clusters, then the next four; else cluster by cluster
    starts: NDArray[np.int32]  # what sums begin with, to make up for the shift, [blocks, lanes]
    scales: Floats  # [blocks, lanes]
    bias: Floats  # the same; -inf for those that fill up the last block

    @classmethod
    def of(cls, rows: NDArray[np.int8], scales: Floats, bias: Floats, *, by_lanes: bool) -> Table:
        """Rows of bytes, what their steps are, and what is added."""
        count, dim = rows.shape
        blocks, quarters = -(-count // (LANES * _AT_ONCE)) * _AT_ONCE, width(dim) // _BYTES
        filled = np.zeros((blocks, LANES, quarters, _BYTES), dtype=np.int8)
        filled.reshape(blocks * LANES, -1)[:count, :dim] = rows
        starts = -SHIFT * filled.sum(axis=(2, 3), dtype=np.int32)
        rest = (0, blocks * LANES - count)
        in_order = np.ascontiguousarray(filled.swapaxes(1, 2)) if by_lanes else filled
        return cls(
            in_order.reshape(blocks, in_order.shape[1], -1),
            starts,
            np.pad(scales, rest).reshape(blocks, LANES),
            np.pad(bias, rest, constant_values=-np.inf).reshape(blocks, LANES),
        )


def in_hardware() -> bool:
    """Whether the processor has the instruction, and is compiled for as it is."""
    config: Any = numba.config
    return (
        config.CPU_NAME is None
        and config.CPU_FEATURES is None
        and bool(llvmlite.binding.get_host_cpu_features().get("avx512vnni"))
    )


def width(dim: int) -> int:
    """How many bytes a document has, with those that fill up the last four."""
    return -(-dim // _BYTES) * _BYTES


@unowned
def shift(whole: NDArray[np.int8], shifted: NDArray[np.uint8]) -> None:
    """Bytes without a sign; what is behind them stays as it is."""
    for at in range(len(whole)):
        shifted[at] = np.uint8(np.int16(whole[at]) + np.int16(SHIFT))


_Any = Any  # types, builders and values of numba, which has no types for them
cgutils: _Any = _cgutils


def _tile(documents: int, blocks: int) -> _Any:
    """A function that scores so many documents with so many blocks at a time, all sums being held in registers."""

    @intrinsic
    def score(typing: _Any, table: _Any, block: _Any, whole: _Any, steps: _Any, document: _Any, scores: _Any) -> _Any:
        del typing, block, document

        def made(context: _Any, builder: _Any, signature: _Any, given: _Any) -> _Any:
            del signature
            parts = dict(zip(Table._fields, cgutils.unpack_tuple(builder, given[0]), strict=True))
            arrays = {name: _Bytes(context, builder, table[at], parts[name]) for at, name in enumerate(Table._fields)}
            of_whole, of_steps, of_scores = (
                _Bytes(context, builder, kind, given[at]) for at, kind in ((2, whole), (3, steps), (5, scores))
            )
            line, quarters = LINE, builder.extract_value(arrays["blocks"].shape, 1)
            width = builder.extract_value(of_whole.shape, 1)
            wide = builder.extract_value(of_scores.shape, 1)
            at_block = [_plus(builder, given[1], at) for at in range(blocks)]
            at_document = [_plus(builder, given[4], at) for at in range(documents)]
            sums = [[cgutils.alloca_once(builder, _INTS) for _ in range(blocks)] for _ in range(documents)]
            for row in sums:
                for slot, at in zip(row, at_block, strict=True):
                    builder.store(arrays["starts"].load(_times(builder, at, line), _INTS), slot)
            with cgutils.for_range(builder, quarters) as loop:
                there = [builder.add(builder.mul(at, quarters), loop.index) for at in at_block]
                of_block = [arrays["blocks"].load(_times(builder, at, line), _INTS) for at in there]
                for row, at in zip(sums, at_document, strict=True):
                    here = builder.add(builder.mul(at, width), _times(builder, loop.index, _BYTES))
                    four = _spread(builder, of_whole.load(here, _INTS.element), _INTS)
                    for slot, bytes_ in zip(row, of_block, strict=True):
                        builder.store(builder.call(_INSTRUCTION, [four, bytes_, builder.load(slot)]), slot)
            for row, at in zip(sums, at_document, strict=True):
                step = _spread(builder, of_steps.load(_times(builder, at, 4), _FLOATS.element), _FLOATS)
                for slot, of in zip(row, at_block, strict=True):
                    place = _times(builder, of, line)
                    scale = builder.fmul(step, arrays["scales"].load(place, _FLOATS))
                    product = builder.fmul(builder.sitofp(builder.load(slot), _FLOATS), scale)
                    total = builder.fadd(product, arrays["bias"].load(place, _FLOATS))
                    of_scores.store(builder.add(_times(builder, builder.mul(at, wide), 4), place), total)
            return context.get_dummy_value()

        return types.void(table, types.intp, whole, steps, types.intp, scores), made

    return score


_INTS, _FLOATS = ir.VectorType(ir.IntType(32), LANES), ir.VectorType(ir.FloatType(), LANES)
_INT, _LONG = ir.IntType(32), ir.IntType(64)
_SQUEEZED = ir.InlineAsm(ir.FunctionType(_INTS, [_INTS, ir.IntType(16)]), "vpcompressd $1, $0 {$2} {z}", "=v,v,^Yk")
_INSTRUCTION = ir.InlineAsm(ir.FunctionType(_INTS, [_INTS] * 3), "vpdpbusd $2, $1, $0", "=v,v,v,0")


class _Bytes:
    """An array whose values are found by how many bytes they are behind the first."""

    def __init__(self, context: _Any, builder: _Any, kind: _Any, value: _Any) -> None:
        array = context.make_array(kind)(context, builder, value)
        self.shape, self._builder = array.shape, builder
        self._first = builder.bitcast(array.data, ir.IntType(8).as_pointer())

    def pointer(self, offset: _Any, kind: _Any) -> _Any:
        return self._builder.bitcast(self._builder.gep(self._first, [offset]), kind.as_pointer())

    def load(self, offset: _Any, kind: _Any) -> _Any:
        return self._builder.load(self.pointer(offset, kind), align=1)

    def store(self, offset: _Any, value: _Any) -> None:
        self._builder.store(value, self.pointer(offset, value.type), align=1)


def _plus(builder: _Any, number: _Any, more: int) -> _Any:
    return builder.add(number, ir.Constant(number.type, more))


def _times(builder: _Any, number: _Any, factor: int) -> _Any:
    return builder.mul(number, ir.Constant(number.type, factor))


def _spread(builder: _Any, number: _Any, lanes: _Any) -> _Any:
    """The same number in all lanes."""
    nothing, zero = ir.Constant(lanes, ir.Undefined), ir.Constant(ir.IntType(32), 0)
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), lanes.count), [0] * lanes.count)
    return builder.shuffle_vector(builder.insert_element(nothing, number, zero), nothing, everywhere)


@intrinsic
def _squeeze(typing: _Any, scores: _Any, document: _Any, count: _Any, least: _Any, places: _Any) -> _Any:
    """The places of a document's scores that are not less, sixteen scores at a time; how many there are."""
    del typing, document, count, least

    def made(context: _Any, builder: _Any, signature: _Any, given: _Any) -> _Any:
        del signature
        of_scores, of_places = (_Bytes(context, builder, kind, given[at]) for at, kind in ((0, scores), (4, places)))
        number = given[1].type
        row = _times(builder, builder.mul(given[1], builder.extract_value(of_scores.shape, 1)), 4)
        bound, end = _spread(builder, given[3], _FLOATS), _spread(builder, builder.trunc(given[2], _INT), _INTS)
        kept = cgutils.alloca_once_value(builder, ir.Constant(number, 0))
        blocks = builder.udiv(_plus(builder, given[2], LANES - 1), ir.Constant(number, LANES))
        with cgutils.for_range(builder, blocks) as loop:
            first = _times(builder, loop.index, LANES)
            at = builder.add(
                _spread(builder, builder.trunc(first, _INT), _INTS), ir.Constant(_INTS, list(range(LANES)))
            )
            of_block = of_scores.load(builder.add(row, _times(builder, first, 4)), _FLOATS)
            enough = builder.fcmp_ordered(">=", of_block, bound)
            mask = builder.bitcast(builder.and_(enough, builder.icmp_unsigned("<", at, end)), ir.IntType(16))
            found = builder.load(kept)
            of_places.store(_times(builder, found, 4), builder.call(_SQUEEZED, [at, mask]))
            builder.store(builder.add(found, builder.zext(builder.ctpop(mask), number)), kept)
        return builder.load(kept)

    return types.intp(scores, types.intp, types.intp, types.float32, places), made


_many, _one = _tile(_AT_ONCE, _SIDE_BY_SIDE), _tile(1, _AT_ONCE)


@unowned
def scan_by_lanes(whole: NDArray[np.uint8], steps: Floats, table: Table, scores: Floats) -> None:
    """The scores of documents with all clusters; what is left when they go by fours is taken one by one."""
    fours = len(whole) // _AT_ONCE * _AT_ONCE
    for block in range(0, len(table.blocks), _SIDE_BY_SIDE):
        for document in range(0, fours, _AT_ONCE):
            _many(table, block, whole, steps, document, scores)
    for document in range(fours, len(whole)):
        for block in range(0, len(table.blocks), _AT_ONCE):
            _one(table, block, whole, steps, document, scores)


@unowned
def scan_by_loop(whole: NDArray[np.uint8], steps: Floats, table: Table, scores: Floats) -> None:
    """The same where the processor has no such instruction."""
    for document in range(len(whole)):
        for block in range(len(table.blocks)):
            for lane in range(LANES):
                total = table.starts[block, lane]
                for at in range(table.blocks.shape[2]):
                    total += np.int32(table.blocks[block, lane, at]) * np.int32(whole[document, at])
                scale = steps[document] * table.scales[block, lane]
                score = np.float32(np.int32(total)) * scale + table.bias[block, lane]
                scores[document, block * LANES + lane] = score


@unowned
def above_by_lanes(scores: Floats, document: int, count: int, least: np.float32, places: Places) -> int:
    """The places of a document's first so many scores that are not less; how many there are.

    There is room for a few more places than there are scores.
    """
    return _squeeze(scores, document, count, np.float32(least), places)  # type: ignore[call-arg] # it has none of its own


@unowned
def above_by_loop(scores: Floats, document: int, count: int, least: np.float32, places: Places) -> int:
    """The same where the processor has no such instruction."""
    kept, bound = 0, np.float32(least)
    for at in range(count):
        places[kept] = at  # written over by the next if it is not kept: a branch would cost more
        kept += scores[document, at] >= bound
    return kept


def planes_of(dim: int) -> int:
    """How many bytes the planes have that a vector of so many whole numbers of two bytes is cut into."""
    return 8 * (-(-dim // (2 * LINE)) * LINE)


@unowned
def cut(values: NDArray[np.int16], planes: NDArray[np.int8]) -> None:
    """Cut whole numbers into lower and higher bytes, each with a sign.

    A quarter of the planes has the lower bytes, the next the higher ones; then come the lower ones of even and of odd
    places, and the higher ones.
    """
    half = np.uint32(len(planes) // 8)
    wide, even, odd = half + half, np.uint32(4) * half, np.uint32(5) * half
    for at in range(np.uint32(len(values))):
        lower = np.int8(values[at])
        planes[at], planes[wide + at] = lower, np.int8((np.int32(values[at]) - np.int32(lower)) >> 8)
    for at in range(np.uint32(len(values) // 2)):
        low, high = at + at, at + at + wide
        planes[even + at], planes[odd + at] = planes[low], planes[low + _ONE]
        planes[even + wide + at], planes[odd + wide + at] = planes[high], planes[high + _ONE]


def _of_rows(*, halves: bool) -> _Any:
    """A function that multiplies four rows with a vector in planes: of bytes, or of halves of bytes."""

    @intrinsic
    def multiply(typing: _Any, rows: _Any, four: _Any, planes: _Any, vector: _Any, less: _Any, found: _Any) -> _Any:
        del typing, vector, less

        def made(context: _Any, builder: _Any, signature: _Any, given: _Any) -> _Any:
            del signature
            of_rows, of_planes, of_found = (
                _Bytes(context, builder, kind, given[at]) for at, kind in ((0, rows), (2, planes), (5, found))
            )
            width, long = (builder.extract_value(array.shape, 1) for array in (of_rows, of_planes))
            half = builder.udiv(long, ir.Constant(long.type, 8))
            numbers = zip(cgutils.unpack_tuple(builder, given[1]), four, strict=True)
            firsts = [builder.mul(context.cast(builder, row, kind, types.intp), width) for row, kind in numbers]
            begin = builder.mul(given[3], long)
            planes_wanted = (4, 5, 6, 7) if halves else (0, 2)  # the lower bytes, then the higher ones
            starts = [builder.add(begin, _times(builder, half, plane)) for plane in planes_wanted]
            sums = [[cgutils.alloca_once_value(builder, _everywhere(0)) for _ in range(2)] for _ in firsts]
            steps = builder.udiv(_plus(builder, width, LINE - 1), ir.Constant(width.type, LINE))
            with cgutils.for_range(builder, steps) as loop:
                at = _times(builder, loop.index, LINE)
                of_vector = [of_planes.load(builder.add(start, at), _INTS) for start in starts]
                for first, slots in zip(firsts, sums, strict=True):
                    line = of_rows.load(builder.add(first, at), _INTS)
                    taken = [builder.xor(line, _everywhere(_SIGNS))]
                    if halves:
                        upper = builder.lshr(line, _everywhere(_HALF))
                        taken = [builder.and_(part, _everywhere(_LOWER)) for part in (line, upper)]
                    for number, bytes_ in enumerate(of_vector):
                        slot = slots[number // len(taken)]
                        part = taken[number % len(taken)]
                        builder.store(builder.call(_INSTRUCTION, [part, bytes_, builder.load(slot)]), slot)
            lanes = [
                builder.add(builder.load(low), builder.shl(builder.load(high), _everywhere(8))) for low, high in sums
            ]
            totals = _added_up(builder, lanes)
            rest = builder.sub(totals, _spread(builder, given[4], totals.type))
            of_found.store(ir.Constant(given[3].type, 0), builder.sitofp(rest, ir.VectorType(ir.FloatType(), 4)))
            return context.get_dummy_value()

        return types.void(rows, four, planes, types.intp, types.int32, found), made

    return multiply


def _added_up(builder: _Any, lanes: list[_Any]) -> _Any:
    """The sums over the lanes of each of four vectors, side by side."""

    def both(one: _Any, other: _Any, lower: list[int], upper: list[int]) -> _Any:
        """The sum of lanes that are picked from two vectors, and of others."""
        picked = (ir.Constant(ir.VectorType(_INT, len(places)), places) for places in (lower, upper))
        return builder.add(*(builder.shuffle_vector(one, other, places) for places in picked))

    def quarters(*wanted: int) -> list[int]:
        """These places of every quarter; from sixteen on they are of the other vector."""
        return [first + place for first in range(0, LANES, 4) for place in wanted]

    left, right = (
        both(one, other, quarters(0, LANES, 1, LANES + 1), quarters(2, LANES + 2, 3, LANES + 3))
        for one, other in (lanes[:2], lanes[2:])
    )
    four = both(left, right, quarters(0, 1, LANES, LANES + 1), quarters(2, 3, LANES + 2, LANES + 3))
    eight = both(four, four, list(range(8)), list(range(8, 16)))
    return both(eight, eight, list(range(4)), list(range(4, 8)))


_LOWER, _SIGNS, _HALF = 0x0F0F0F0F, 0x80808080, 4  # the lower halves of four bytes, their signs, bits of a half


def _everywhere(number: int) -> _Any:
    return ir.Constant(_INTS, [number] * LANES)


@intrinsic
def _same(typing: _Any, one: _Any, other: _Any, row: _Any, number: _Any) -> _Any:
    """A bit for each of the 32 entries of a row of two tables that is this number; those of the other are higher."""
    del typing, row, number

    def made(context: _Any, builder: _Any, signature: _Any, given: _Any) -> _Any:
        del signature
        found, wanted = ir.Constant(_LONG, 0), _spread(builder, given[3], _INTS)
        first = _times(builder, given[2], 2 * LINE)
        for part in range(4):
            rows = _Bytes(context, builder, (one, other)[part // 2], given[part // 2])
            entries = rows.load(_plus(builder, first, part % 2 * LINE), _INTS)
            bits = builder.bitcast(builder.icmp_unsigned("==", entries, wanted), ir.IntType(LANES))
            found = builder.or_(found, builder.shl(builder.zext(bits, _LONG), ir.Constant(_LONG, part * LANES)))
        return found

    return types.uint64(one, other, types.intp, types.uint32), made


@intrinsic
def _fetch(typing: _Any, rows: _Any, first: _Any, count: _Any) -> _Any:
    """Have so many bytes from this one on brought near, for they will be read soon."""
    del typing, first, count

    def made(context: _Any, builder: _Any, signature: _Any, given: _Any) -> _Any:
        del signature
        array = _Bytes(context, builder, rows, given[0])
        lines = builder.udiv(_plus(builder, given[2], LINE - 1), ir.Constant(given[2].type, LINE))
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), _INT, _INT, _INT])
        bring = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch")
        with cgutils.for_range(builder, lines) as loop:
            there = array.pointer(builder.add(given[1], _times(builder, loop.index, LINE)), ir.IntType(8))
            builder.call(bring, [there, *(ir.Constant(_INT, of) for of in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(rows, types.intp, types.intp), made


@intrinsic
def _add_row(typing: _Any, rows: _Any, row: _Any, weight: _Any, sums: _Any) -> _Any:
    """Add a row of sixteen numbers, each times a weight, to sixteen sums."""
    del typing, row, weight

    def made(context: _Any, builder: _Any, signature: _Any, given: _Any) -> _Any:
        del signature
        of_rows, of_sums = (_Bytes(context, builder, kind, given[at]) for at, kind in ((0, rows), (3, sums)))
        numbers = of_rows.load(_times(builder, given[1], 2 * LANES), ir.VectorType(ir.IntType(16), LANES))
        weights, first = _spread(builder, builder.sext(given[2], _INT), _INTS), ir.Constant(given[1].type, 0)
        more = builder.mul(builder.sext(numbers, _INTS), weights)
        of_sums.store(first, builder.add(of_sums.load(first, _INTS), more))
        return context.get_dummy_value()

    return types.void(rows, types.intp, types.int16, sums), made


@intrinsic
def _first_of(typing: _Any, bits: _Any) -> _Any:
    """The place of the lowest bit; there must be one."""
    del typing, bits

    def made(context: _Any, builder: _Any, signature: _Any, given: _Any) -> _Any:
        del context, signature
        return builder.cttz(given[0], ir.Constant(ir.IntType(1), 1))

    return types.intp(types.uint64), made


# As compiled code calls them.
same = cast("Callable[[Places, Places, int, np.uint32], np.uint64]", _same)
first_of = cast("Callable[[np.uint64], int]", _first_of)
add_row = cast("Callable[[NDArray[np.int16], int, np.int16, Places], None]", _add_row)
fetch = cast("Callable[[NDArray[Any], int, int], None]", _fetch)
_of_bytes, _of_halves = _of_rows(halves=False), _of_rows(halves=True)


@unowned
def bytes_by_lanes(
    rows: NDArray[np.int8], four: Four, planes: NDArray[Any], vector: int, less: np.int32, found: Floats
) -> None:
    """The sums of the products of four rows of bytes, `SHIFT` added to each, and a vector in planes, less a number.

    Behind each row there must be others, or room, up to the next multiple of 64 bytes; the vector is 0 there.
    """
    _of_bytes(rows, four, planes, vector, less, found)


@unowned
def halves_by_lanes(
    rows: NDArray[np.uint8], four: Four, planes: NDArray[Any], vector: int, less: np.int32, found: Floats
) -> None:
    """The same of rows of halves of bytes, the lower half first."""
    _of_halves(rows, four, planes, vector, less, found)
