"""Derived datatypes, beside a model that lists all of their items."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy
import pytest

from intranode import _datatype
from intranode._datatype import DOUBLE, INT, ORDER_C, ORDER_FORTRAN, SHORT, Datatype


class Model:
    """The items of an element, one by one."""

    def __init__(self, width: int) -> None:
        self.width, self.offsets, self.lower, self.extent = width, [0], 0, width

    def of_blocks(self, blocks: list[tuple[int, int]]) -> Model:
        """Of pairs: where a block begins, in bytes, and how many of these elements it has."""
        new = Model(self.width)
        places = [start + element * self.extent for start, length in blocks for element in range(length)]
        new.offsets = [place + offset for place in places for offset in self.offsets]
        if places:
            new.lower = min(places) + self.lower
            new.extent = max(places) + self.lower + self.extent - new.lower
        else:
            new.lower = new.extent = 0
        return new


def derived(datatype: Datatype, model: Model, numbers: random.Random) -> tuple[Datatype, Model]:
    """One more level of both."""
    few = numbers.randrange
    places = [few(-4, 9) for _ in range(few(4))]
    match few(8):
        case 0:
            count = few(4)
            return datatype.Create_contiguous(count), model.of_blocks([(0, count)])
        case 1:
            count, length, stride = few(4), few(4), few(-3, 5)
            blocks = [(index * stride * model.extent, length) for index in range(count)]
            return datatype.Create_vector(count, length, stride), model.of_blocks(blocks)
        case 2:
            lengths = [few(3) for _ in places]
            blocks = [(place * model.extent, length) for place, length in zip(places, lengths, strict=True)]
            return datatype.Create_indexed(lengths, places), model.of_blocks(blocks)
        case 3:
            length = few(3)
            blocks = [(place * model.extent, length) for place in places]
            return datatype.Create_indexed_block(length, places), model.of_blocks(blocks)
        case 4:
            count, length, stride = few(4), few(4), few(-20, 40)
            return datatype.Create_hvector(count, length, stride), model.of_blocks([(at * stride, length) for at in range(count)])
        case 5:
            lengths = [few(3) for _ in places]
            return datatype.Create_hindexed(lengths, places), model.of_blocks(list(zip(places, lengths, strict=True)))
        case 6:
            length = few(3)
            return datatype.Create_hindexed_block(length, places), model.of_blocks([(place, length) for place in places])
        case _:
            model.lower, model.extent = few(-9, 9), few(-20, 40)
            return datatype.Create_resized(model.lower, model.extent), model


def test_datatypes_have_the_items_of_a_model() -> None:
    numbers = random.Random(31)
    memory = memoryview(bytes(numbers.randrange(256) for _ in range(20_000)))
    packed = 0
    for _ in range(3000):
        base = numbers.choice([_datatype.BYTE, _datatype.SHORT, _datatype.DOUBLE])
        datatype, model = base, Model(base.width)
        for _ in range(numbers.randrange(1, 4)):
            datatype, model = derived(datatype, model, numbers)
        assert datatype.Get_extent() == (model.lower, model.extent)
        assert (datatype.Get_size(), datatype.items) == (model.width * len(model.offsets), len(model.offsets))
        dense = list(range(0, datatype.size, model.width))
        assert datatype.is_plain == (datatype.extent == datatype.size and model.offsets == dense)
        if not model.offsets:
            assert datatype.runs == []
            continue
        assert datatype.bounds == (min(model.offsets), max(model.offsets) + model.width)
        ends = [element * model.extent + bound for element in (0, 2) for bound in datatype.bounds]
        if max(map(abs, ends)) < len(memory) // 2:
            middle = len(memory) // 2
            places = [middle + element * model.extent + offset for element in range(3) for offset in model.offsets]
            expected = b"".join(bytes(memory[place : place + model.width]) for place in places)
            assert datatype.pack(memory, middle, 3) == expected
            packed += 1
    assert packed > 1000


@pytest.mark.parametrize(
    "derive",
    [
        lambda datatype: datatype.Create_contiguous(1 << 70),
        lambda datatype: datatype.Create_vector(1 << 70, 1, 1),
        lambda datatype: datatype.Create_vector(1 << 70, 1, 2),
        lambda datatype: datatype.Create_indexed([1 << 70], [0]),
    ],
)
def test_a_datatype_has_no_more_bytes_than_there_are_addresses(derive: Callable[[Datatype], Datatype]) -> None:
    with pytest.raises(ValueError, match="the most is"):
        derive(_datatype.DOUBLE)


def test_a_long_datatype_without_gaps_takes_no_memory_for_its_items() -> None:
    datatype = _datatype.DOUBLE.Create_vector(1 << 40, 1 << 10, 1 << 10).Create_contiguous(4)
    assert datatype.is_plain and datatype.items == 1 << 52 and len(datatype.runs) == 1


def test_a_subarray_is_a_part_of_an_array() -> None:
    numbers = random.Random(5)
    for _ in range(300):
        sizes = [numbers.randrange(1, 6) for _ in range(numbers.randrange(1, 5))]
        starts = [numbers.randrange(size) for size in sizes]
        subsizes = [numbers.randrange(1, size - start + 1) for size, start in zip(sizes, starts, strict=True)]
        part = tuple(slice(start, start + length) for start, length in zip(starts, subsizes, strict=True))
        # Two elements.
        both = numpy.arange(2 * numpy.prod(sizes), dtype="i2").reshape(2, *sizes)
        for order, letter in ((ORDER_C, "C"), (ORDER_FORTRAN, "F")):
            datatype = SHORT.Create_subarray(sizes, subsizes, starts, order)
            memory = b"".join(each.tobytes(letter) for each in both)
            expected = b"".join(each[part].tobytes(letter) for each in both)
            assert (datatype.lower, datatype.extent) == (0, len(memory) // 2)
            assert datatype.pack(memoryview(memory), 0, 2) == expected
            again = bytearray(len(memory))
            datatype.unpack(expected, memoryview(again), 0, 2)
            assert datatype.pack(memoryview(again), 0, 2) == expected
            assert sum(again) == sum(expected)


def test_rows_of_an_array_are_one_run() -> None:
    rows = DOUBLE.Create_subarray([8, 1000, 1000], [2, 1000, 1000], [3, 0, 0])
    assert rows.runs == [(3 * 8_000_000, 2 * 8_000_000)]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([4], [3], [2]), "3 elements from 2 on are no part of a dimension of 4"),
        (([4], [1], [-1]), "no part"),
        (([4], [0], [1]), "at least one"),
        (([], [], []), "at least one dimension"),
        (([4, 4], [1], [0]), "zip"),
        (([4], [1], [0], 7), "neither ORDER_C nor ORDER_FORTRAN"),
        (([1 << 40, 1 << 40], [1, 1], [0, 0]), "the most is"),
    ],
)
def test_what_is_no_part_of_an_array(arguments: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        DOUBLE.Create_subarray(*arguments)


def test_a_struct_is_a_record_of_numpy() -> None:
    record = numpy.dtype([("number", "i4"), ("values", "f8", 3), ("short", "i2")], align=True)
    assert record.fields is not None
    places = [record.fields[name][1] for name in ("number", "values", "short")]
    datatype = Datatype.Create_struct([1, 3, 1], places, [INT, DOUBLE, SHORT])
    assert datatype.Get_extent() == (0, record.itemsize) and datatype.Get_size() == 4 + 24 + 2
    assert datatype.Get_true_extent() == (0, places[2] + 2) and datatype.ub == record.itemsize
    records = numpy.zeros(3, record)
    records["number"], records["values"], records["short"] = [1, 2, 3], numpy.arange(9).reshape(3, 3), [7, 8, 9]
    packed = datatype.pack(memoryview(records.tobytes()), 0, 3)
    unaligned = records.astype(numpy.dtype([("number", "i4"), ("values", "f8", 3), ("short", "i2")]))
    assert packed == unaligned.tobytes()
    # Of one type they can be combined.
    same = Datatype.Create_struct([1, 2], [8, 24], [INT, INT.Create_contiguous(2)])
    assert (same.format, same.width, same.items, same.lower) == ("i", 4, 5, 8)
    assert not Datatype.Create_struct([], [], []).size
    with pytest.raises(TypeError, match="a datatype is needed"):
        Datatype.Create_struct([1], [0], [Datatype()])
    with pytest.raises(ValueError, match="zip"):
        Datatype.Create_struct([1], [0], [INT, DOUBLE])


def test_elements_are_packed_and_unpacked() -> None:
    column, second = numpy.arange(12.0).reshape(4, 3), numpy.zeros((4, 3))
    datatype = DOUBLE.Create_vector(4, 1, 3).Create_resized(0, 8)
    buffer = bytearray(INT.Pack_size(2, None) + datatype.Pack_size(1, None))
    at = INT.Pack(numpy.array([4, 5], "i4"), buffer, 0, None)
    assert at == 8
    first = DOUBLE.Create_subarray([4, 3], [4, 1], [0, 1])
    assert first.Pack(column, buffer, at, None) == 40 == len(buffer)
    numbers = numpy.zeros(2, "i4")
    at = INT.Unpack(buffer, 0, numbers, None)
    assert numbers.tolist() == [4, 5]
    assert first.Unpack(buffer, at, second, None) == 40
    assert second.tolist() == [[0, 1, 0], [0, 4, 0], [0, 7, 0], [0, 10, 0]]
    for position in (-1, 9):
        with pytest.raises(ValueError, match="are not in a buffer of 40 bytes"):
            first.Pack(column, buffer, position, None)
        with pytest.raises(ValueError, match="are not in a buffer of 40 bytes"):
            first.Unpack(buffer, position, second, None)
    with pytest.raises(BufferError, match="read-only"):
        first.Unpack(buffer, 8, second.tobytes(), None)
