#!/usr/bin/env python3
"""Race results as text: the table of ratios, the cells below the goal, the limits.

    benches/race/report.py RACE.json...    several runs of the same race side by side
"""

import json
import math
import statistics
import sys

import composed
import machine
from peers import OURS, OURS_SHARED

# When the payload of a collective is written: before each call, or once.
DEFINITIONS = ["renewed", "unchanged"]
# If a library's blocks differ by more than that, their cell is measured again.
UNSTEADY = 3

# Processors are near each other if a line takes at most that many times what it took at least.
NEAR = 2

# The goals for each cell's ratio and for their geometric mean: with a core for each rank, and without.
GOALS = {True: (1.5, 2.5), False: (1.0, 3.0)}


# What is not compared: in a wake-up our receiver sleeps, and theirs polls.
ALONE = {"wake-up"}


def size(count):
    """A size with its unit."""
    if count == 0:
        return ""
    for unit, name in [(1 << 20, "MiB"), (1 << 10, "KiB")]:
        if count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count / 1e6:g} MB" if count >= 1_000_000 else f"{count} B"


def number(value):
    """Rounded to three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cells(results):
    """By (ranks, operation, bytes, definition): the medians by library, each by block. Those of a cell that was measured again
    are all there."""
    table = {}
    for row in results["rows"]:
        by_library = table.setdefault((row["ranks"], row["op"], row["bytes"], row.get("buffers", "renewed")), {})
        by_library.setdefault(row["library"], {})[row["block"]] = row["median_us"]
    return table


def unsteady(rows):
    """The cells of which a library's blocks differ too much."""
    table = cells({"rows": rows})
    differ = lambda blocks: max(blocks.values()) > UNSTEADY * min(blocks.values())  # noqa: E731
    return [cell for cell, by_library in table.items() if any(map(differ, by_library.values()))]


def is_again(results, by_library):
    """Whether a cell was measured again."""
    return any(block >= results.get("blocks", math.inf) for blocks in by_library.values() for block in blocks)


def limit(results, cell):
    """The composed limit of a cell, in words."""
    ranks, operation, count, buffers = cell
    least = composed.composed(results["limits"], results["machine"]["processors"], ranks, operation, count, buffers)
    return number(least) if least else "–"


def compare(by_library, ours=OURS):
    """The fastest of the others, its median, ours, and the ratio in each block; `None` if one is missing."""
    typical = {name: statistics.median(blocks.values()) for name, blocks in by_library.items()}
    if ours not in typical:
        return None
    mine, own = by_library[ours], typical[ours]
    typical = {name: time for name, time in typical.items() if name not in (OURS, OURS_SHARED)}
    if not typical:
        return None
    best = min(typical, key=typical.get)
    ratios = [by_library[best][block] / mine[block] for block in mine if block in by_library[best]]
    return (best, typical[best], own, sorted(ratios)) if ratios else None


def placement(row, least):
    """Whether the processors were near each other or distant while a row was measured; `None` if they moved, or nobody knows."""
    near = {time <= NEAR * least for time in row.get("line_us", [])}
    return {frozenset({True}): "near", frozenset({False}): "distant"}.get(frozenset(near))


def placed(runs):
    """By (cell, placement): the medians of all runs by library, of what was measured while the processors stayed where they were."""
    table = {}
    for results in runs:
        least = min((time for row in results["rows"] for time in row.get("line_us", [])), default=0)
        for row in results["rows"]:
            where = placement(row, least)
            if where:
                cell = row["ranks"], row["op"], row["bytes"], row.get("buffers", "renewed")
                by_library = table.setdefault((cell, where), {})
                by_library.setdefault(row["library"], []).append(row["median_us"])
    return table


def with_spread(times):
    """A median, the least and the most, and how many they are."""
    return f"{number(statistics.median(times))} ({number(min(times))}–{number(max(times))}; {len(times)})"


def placed_text(runs):
    """The same comparison for each placement of the processors by itself: by medians, where both were measured at least twice."""
    lines, ratios = [], {}
    for ((cell, where), by_library) in sorted(placed(runs).items()):
        ranks, operation, count, buffers = cell
        others = {name: times for name, times in by_library.items() if name not in IN_WORDS and len(times) > 1}
        if operation in ALONE or not others:
            continue
        best = min(others, key=lambda name: statistics.median(others[name]))
        for kind in IN_WORDS:
            ours = by_library.get(kind, [])
            if len(ours) < 2:
                continue
            ratio = statistics.median(others[best]) / statistics.median(ours)
            ratios.setdefault((where, buffers, kind), []).append(ratio)
            lines.append(
                f"| {ranks} | {operation} | {size(count)} | {buffers}{IN_WORDS[kind]} | {where} | {with_spread(ours)} | "
                f"{with_spread(others[best])} {best} | {ratio:.2f} |"
            )
    if not lines:
        return []
    means = [
        f"* Processors {where}, {buffers}{IN_WORDS[kind]}: geometric mean {geometric_mean(some):.2f}, least {min(some):.2f}."
        for (where, buffers, kind), some in sorted(ratios.items())
    ]
    return [
        "Only what was measured while the processors stayed where they were, near each other or distant: the line before and the line "
        "after took alike. Medians in µs, with the least, the most, and how many they are; the ratio is that of the medians.",
        "",
        "| ranks | operation | size | buffers | processors | intranode | fastest other | ratio |",
        "| --: | --- | --: | --- | --- | --: | --: | --: |",
        *lines,
        "",
        *means,
        "",
    ]


IN_WORDS = {OURS: "", OURS_SHARED: ", shared"}


def in_words(fit, buffers, kind):
    """A kind of cells."""
    return f"{'A core for each rank' if fit else 'More ranks than cores'}, {buffers}{IN_WORDS[kind]}"


def named(cell):
    """A cell without its ranks. A definition is named where there are two."""
    _, operation, count, buffers = cell
    return " ".join(filter(None, [operation, size(count), buffers if buffers != "renewed" else ""]))


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def report(results):
    """The whole text of one run."""
    table = cells(results)
    cores = results["machine"]["processors"]
    libraries = [name for name in results["libraries"] if name != OURS]
    kinds = [OURS, *([OURS_SHARED] if OURS_SHARED in libraries else [])]
    lines = [
        f"Median time per call in µs, and how many times faster intranode is than the fastest of the others (median over "
        "the blocks, minimum and maximum in parentheses). Buffers: renewed before each call, or unchanged. Limit: composed from "
        "what the same run measured of the machine (composed.py). ↻: blocks differed by more than three times, and the cell was "
        "measured again; all of its blocks count.",
        "",
        f"Machine: {machine.in_words(results['machine'])}. "
        f"Load average before and after: {results['load'][0]:.1f}, {results['load'][1]:.1f}.",
        "",
        "| ranks | operation | size | buffers | limit | intranode | " + " | ".join([*libraries, *("ratio" + kind.removeprefix(OURS) for kind in kinds)]) + " |",
        "| --: | --- | --: | --- | --: | --: |" + " --: |" * (len(libraries) + len(kinds)),
    ]
    ratios = {}
    short = []
    for cell, by_library in table.items():
        ranks, operation, count, buffers = cell
        typical = {name: statistics.median(blocks.values()) for name, blocks in by_library.items()}
        shown = [number(typical[name]) if name in typical else "–" for name in [OURS, *libraries]]
        fit = ranks <= cores
        for kind in kinds:
            compared = None if operation in ALONE else compare(by_library, kind)
            verdict = "–"
            if compared:
                spread = compared[3]
                ratio = statistics.median(spread)
                ratios.setdefault((fit, buffers, kind), []).append(ratio)
                verdict = f"{ratio:.2f} ({spread[0]:.2f}–{spread[-1]:.2f})"
                if ratio < GOALS[fit][0]:
                    verdict = f"**{verdict}**"
                    short.append(f"{named(cell)} at {ranks} ranks{IN_WORDS[kind]}: {ratio:.2f}")
            shown.append(verdict)
        mark = " ↻" if is_again(results, by_library) else ""
        lines.append(
            f"| {ranks} | {operation} | {size(count)} | {buffers}{mark} | {limit(results, cell)} | " + " | ".join(shown) + " |"
        )
    lines.append("")
    for (fit, buffers, kind), some in ratios.items():
        least, mean = GOALS[fit]
        lines.append(
            f"{in_words(fit, buffers, kind)}: geometric mean {geometric_mean(some):.2f} (goal {mean}), "
            f"least {min(some):.2f} (goal {least})."
        )
        lines.append("")
    lines += ["", "Below the goal: " + ("; ".join(short) if short else "none") + ".", ""]
    lines += placed_text([results])
    lines += limits_text(results, table)
    lines += ["", "| library | version | settings |", "| --- | --- | --- |"]
    lines += [f"| {name} | {about['version']} | {about['settings']} |" for name, about in results["libraries"].items()]
    lines += [f"\nLeft out: {name} ({why})." for name, why in results.get("left_out", {}).items()]
    return "\n".join(lines) + "\n"


def limits_text(results, table):
    """The machine's limits, and our times in multiples of them."""
    lines = ["| limit | size | median µs | least µs |", "| --- | --: | --: | --: |"]
    least = {}
    for row in results["limits"]:
        least[row["limit"], row["bytes"]] = row["median_us"]
        shown = f"{number(row['median_us'])} | {number(row['min_us'])}"
        lines.append(f"| {row['limit']} | {size(row['bytes'])} | {shown} |")
    lines.append("")
    lines_then = {(line["block"], line["ranks"], line["op"]): line["median_us"] for line in results["lines"]}
    during = sorted(lines_then.values())
    if during:
        lines.append(
            f"- While the libraries were measured, a line took {number(during[0])} to {number(during[-1])} µs, "
            f"{number(statistics.median(during))} at the median."
        )
    compared = [
        ((2, "barrier", 0), 1, ("line", 64), " (goal 1.8)"),
        ((2, "allreduce", 32), 1, ("line", 64), " (goal 1.8)"),
        ((2, "ping-pong", 8), 1, ("line", 64), " (goal 1.5)"),
        ((2, "ping-pong", 65536), 1, ("remote-copy", 65536), " (goal 1.1)"),
        ((2, "ping-pong", 1 << 20), 1, ("remote-copy", 1 << 20), " (goal 1.1)"),
        ((2, "wake-up", 16), 1, ("wake-late", 64), ""),
        ((2, "allgatherv", 65536), 1, ("remote-copy", 65536), ""),
        ((2, "allgatherv", 206_000_000), 1, ("streaming-copy-by-all", 206_000_000), " (goal 1.3)"),
    ]
    # Each rank has to run once a round. The last rank of a round is the first of the next.
    switches = {ranks: math.ceil(ranks / results["machine"]["processors"]) - 1 for ranks in (4, 8)}
    compared += [((ranks, "barrier", 0), count, ("switch", 0), "") for ranks, count in switches.items() if count > 0]
    for cell, count, limit, goal in compared:
        blocks = table.get((*cell, "renewed"), {}).get(OURS)
        if blocks and limit in least:
            # Compared with the line's transfer directly before, since that changes while the libraries are measured.
            then = least[limit]
            before = {block: lines_then.get((block, *cell[:2]), then) if limit[0] == "line" else then for block in blocks}
            times = statistics.median(took / before[block] / count for block, took in blocks.items())
            what = f"{cell[1]} {size(cell[2])}".strip()
            of = f"`{limit[0]}`" if count == 1 else f"{count} × `{limit[0]}`"
            lines.append(f"- {what} at {cell[0]} ranks takes {times:.2f} times the limit {of}{goal}.")
    return lines + shapes(least)


def shapes(limits):
    """Estimates a barrier from the times of many lines: flat, and with about √n groups of √n ranks."""
    points = [(count, limits.get((name, 64 * count))) for name, count in [("line", 1)] + [("lines", n) for n in (4, 16, 64)]]
    if not all(time for _, time in points):
        return []

    def waiting(lines):
        """Linear interpolation between the points, and extrapolation after the last."""
        index = next((index for index in range(1, len(points)) if lines <= points[index][0]), len(points) - 1)
        (before, least), (after, most) = points[index - 1], points[index]
        return least + (most - least) * (lines - before) / (after - before)

    def grouped(ranks):
        members = math.isqrt(ranks - 1) + 1
        return waiting(members - 1) + waiting(math.ceil(ranks / members) - 1) + waiting(1)

    sides = [f"{ranks} ranks {number(waiting(ranks - 1))} and {number(grouped(ranks))} µs" for ranks in (16, 32, 64, 128, 256)]
    return [f"- Estimated from `lines`, waiting for all ranks takes, flat and hierarchical: {', '.join(sides)}."]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with open(name) as file:
            print(report(json.load(file)))
