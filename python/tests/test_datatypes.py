"""Derived datatypes, beside a model that lists all of their items."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from intranode import _datatype
from intranode._datatype import Datatype


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
    match few(5):
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
