"""Communicators whose ranks lie in a grid, of groups, and of the ranks that share memory: over processes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from intranode import Communicator
from job import run


def test_ranks_are_divided_as_evenly_as_possible() -> None:
    def is_even(found: list[int], number: int) -> bool:
        """Whether no others have a smaller largest one, and so on."""
        divisors = [each for each in range(1, number + 1) if number % each == 0]
        others = itertools.combinations_with_replacement(divisors[::-1], len(found))
        return found == min(list(each) for each in others if math.prod(each) == number)

    assert run("test_cartesian:divided", 1) == [
        {(6, 2): [3, 2], (7, 2): [7, 1], (6, (0, 3, 0)): [2, 3, 1], (102, 3): [17, 3, 2], (4, (2, 2)): [2, 2], (1, 0): []}
    ]
    for number, found in run("test_cartesian:in_three", 1)[0]:
        assert is_even(found, number), (number, found)


def divided(_: Communicator) -> dict[Any, list[int]]:
    from intranode import MPI

    for ranks, dims in ((7, (0, 3, 0)), (4, (2, 0, 3)), (0, 2), (4, (-1, 0)), (4, (2, 1)), (2, 0)):
        with pytest.raises(ValueError, match="cannot be divided"):
            MPI.Compute_dims(ranks, dims)
    cases: list[Any] = [(6, 2), (7, 2), (6, (0, 3, 0)), (102, 3), (4, (2, 2)), (1, 0)]
    return {case: MPI.Compute_dims(*case) for case in cases}


def in_three(_: Communicator) -> list[tuple[int, list[int]]]:
    from intranode import MPI

    return [(number, MPI.Compute_dims(number, 3)) for number in range(1, 61)]


def in_a_grid(comm: Communicator, dims: list[int], periods: list[bool]) -> None:
    """Beside a model: the coordinates of all ranks, the last of which changes first."""
    import numpy

    from intranode import MPI

    grid = MPI.COMM_WORLD.Create_cart(dims, periods, reorder=True)
    all_ = list(itertools.product(*map(range, dims)))
    if comm.rank >= len(all_):
        assert grid == MPI.COMM_NULL
        return
    mine = all_[comm.rank]
    assert isinstance(grid, MPI.Cartcomm) and grid.rank == comm.rank and grid.size == len(all_)
    assert (grid.dim, grid.ndim, grid.Get_dim()) == (len(dims),) * 3
    assert (grid.dims, grid.periods, grid.coords) == grid.topo == (dims, periods, list(mine))
    assert [tuple(grid.Get_coords(rank)) for rank in range(grid.size)] == all_
    assert [grid.Get_cart_rank(coords) for coords in all_] == list(range(grid.size))

    for direction, disp in itertools.product(range(len(dims)), (-3, -1, 0, 1, 2)):
        expected = []
        for sign in (-1, 1):
            place = list(mine)
            place[direction] += sign * disp
            if periods[direction]:
                place[direction] %= dims[direction]
            expected.append(all_.index(tuple(place)) if tuple(place) in all_ else MPI.PROC_NULL)
        assert grid.Shift(direction, disp) == tuple(expected)
        source, dest = expected
        found = numpy.array(-1)
        grid.Sendrecv(numpy.array(grid.rank), dest, 0, found, source, 0)
        assert found == (-1 if source == MPI.PROC_NULL else source)

    for remain in itertools.product((False, True), repeat=len(dims)):
        part = grid.Sub(remain)
        same = [each for each in all_ if all(r or a == b for r, a, b in zip(remain, each, mine, strict=True))]
        assert part.allgather(grid.rank) == [all_.index(each) for each in same]
        kept = [list(itertools.compress(each, remain)) for each in (dims, periods, mine)]
        assert part.topo == tuple(kept)
        part.Free()
    assert grid.Dup().topo == grid.topo
    assert type(grid.Split(grid.rank % 2)) is MPI.Intracomm


@pytest.mark.parametrize(
    ("size", "dims", "periods"),
    [(1, [1], [True]), (4, [2, 2], [True, False]), (7, [3, 2], [False, True]), (6, [1, 3, 2], [True, True, False]), (3, [], [])],
)
def test_a_grid_is_that_of_a_model(size: int, dims: list[int], periods: list[bool]) -> None:
    run("test_cartesian:in_a_grid", size, dims, periods)


def wrong_grids(comm: Communicator) -> list[str]:
    from intranode import MPI

    texts = []
    for dims, periods in (([2, 2], None), ([0, 0], None), ([2], [True, False]), ([2.0], None)):
        with pytest.raises((TypeError, ValueError)) as failed:
            MPI.COMM_WORLD.Create_cart(dims, periods)  # type: ignore[arg-type]
        texts.append(str(failed.value))
    grid = MPI.COMM_WORLD.Create_cart([3], True)
    assert grid.Get_cart_rank([-1]) == 2 and grid.periods == [True]
    for call in (
        lambda: grid.Shift(1, 1),
        lambda: grid.Get_coords(3),
        lambda: grid.Get_cart_rank([0, 0]),
        lambda: MPI.COMM_WORLD.Create_cart([3]).Get_cart_rank([3]),
    ):
        with pytest.raises(ValueError) as failed:
            call()
        texts.append(str(failed.value))
    with pytest.raises(ValueError, match="2 remain_dims for 1 dimensions"):
        grid.Sub([True, False])
    # Nobody waits.
    assert comm.allreduce(1) == grid.allreduce(1) == 3
    return texts


def test_a_wrong_grid_is_refused() -> None:
    texts = run("test_cartesian:wrong_grids", 3)[0]
    for text, part in zip(
        texts,
        ("grid of 2 × 2 ranks of 3", "Compute_dims", "2 periods for 1 dimensions", "'float'", "dimension 1 is not one of 1", "rank 3 is not", "2 coordinates for 1", "[3] are not in a grid of 3"),
        strict=True,
    ):  # fmt: skip
        assert part in text, text


def of_one_machine(comm: Communicator) -> list[Any]:
    from intranode import MPI

    node = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED, key=-comm.rank)
    none = MPI.COMM_WORLD.Split_type(MPI.UNDEFINED)
    with pytest.raises(ValueError, match="neither COMM_TYPE_SHARED"):
        MPI.COMM_WORLD.Split_type(7)
    return [node.allgather(comm.rank), none == MPI.COMM_NULL, node.Clone().allgather(node.rank)]


def test_all_ranks_share_memory() -> None:
    assert run("test_cartesian:of_one_machine", 3) == [[[2, 1, 0], True, [0, 1, 2]]] * 3


def in_groups(comm: Communicator) -> list[Any]:
    from intranode import MPI

    world, size = MPI.COMM_WORLD, comm.size
    group = world.Get_group()
    evens, turned = group.Range_incl([(0, size - 1, 2)]), group.Incl(range(size)[::-1])
    assert (group.size, group.rank, world.group == group, bool(MPI.GROUP_NULL)) == (size, comm.rank, True, False)
    assert (turned.rank, turned.size) == (size - 1 - comm.rank, size)
    odds = group.Excl(range(0, size, 2))
    assert odds == MPI.Group.Difference(group, evens) == group.Range_excl([(0, size - 1, 2)])
    assert MPI.Group.Union(odds, evens).Translate_ranks(None, group) == [*range(1, size, 2), *range(0, size, 2)]
    assert MPI.Group.Intersection(turned, odds).Translate_ranks() == list(range(1, size, 2))[::-1]
    assert evens.rank == (MPI.UNDEFINED if comm.rank % 2 else comm.rank // 2)
    assert group.Translate_ranks([0, 1], odds) == [MPI.UNDEFINED, 0]

    results: list[Any] = [world.Create(turned).allgather(comm.rank)]
    some = world.Create(evens)
    results.append(some == MPI.COMM_NULL if comm.rank % 2 else some.allgather(comm.rank))
    # Groups that have no rank in common.
    results.append(world.Create(odds if comm.rank % 2 else evens).allgather(comm.rank))
    for wrong in (lambda: group.Incl([0, 0]), lambda: group.Excl([size]), lambda: world.Create(MPI.GROUP_NULL)):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(ValueError, match="different groups"):
        world.Create(group if comm.rank else group.Incl([0]))
    evens.Free()
    assert not evens and world.allreduce(1) == size
    return results


def test_groups_make_communicators() -> None:
    evens, odds, all_ = [0, 2, 4], [1, 3], [4, 3, 2, 1, 0]
    for rank, found in enumerate(run("test_cartesian:in_groups", 5)):
        assert found == [all_, True if rank % 2 else evens, odds if rank % 2 else evens]


def by_comparisons(comm: Communicator) -> list[int]:
    import numpy

    from intranode import MPI

    with pytest.raises(TypeError, match="split: a color is an integer, not 'red'"):
        MPI.COMM_WORLD.Split("red")  # type: ignore[arg-type]
    part = MPI.COMM_WORLD.Split(numpy.array([comm.rank])[0] > 0)
    found: list[int] = part.allgather(comm.rank)
    return found


def test_a_color_may_be_a_truth_value_of_numpy() -> None:
    assert run("test_cartesian:by_comparisons", 3) == [[0], [1, 2], [1, 2]]
