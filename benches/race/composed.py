"""The limit of a cell, composed from what limits.c has measured in the same run.

A call takes at least as long as its slowest rank needs for:

* in calls in which every rank waits for all, a line from every rank to every other: `line`, and `lines` where more than one
  is awaited; in the others, which let ranks run ahead, one line;
* each byte of other ranks that it needs, read once: at the speed of `remote-copy` where another core has just written it, at
  that of `copy` where the reader still has it in its caches, since nobody has written it since the last call ("unchanged");
* each own byte that it has to copy to the result, at the speed of `copy`;
* where it pays to share the work of a reduction, a second line, and the results that the others have made.

Non-temporal copies count where they are faster: from 32 MiB on those of all cores at a time, if more than one rank receives.
Arithmetic costs nothing. Between the sizes that were measured, times are interpolated, on a logarithmic scale.

With more ranks than cores, each core makes the results of its ranks one after another, at the speed of `copy`, since what is
read may be in its caches; and where every rank waits for all it switches once to each of its ranks but the first.

So the limit is what no library of processes can undercut on the machine as it was then; it is no prediction.
"""

import math

# The bytes that a header of a small call carries with its line.
LINE = 64
# In which every rank waits for all.
SYNCHRONISING = {"barrier", "allreduce", "allgatherv", "alltoall", "reduce-scatter"}

# What has the limit of another operation.
ALIKE = {"allreduce-with": "allreduce", "gatherv": "gather", "scatterv": "scatter", "alltoallv": "alltoall"}


class Limits:
    def __init__(self, rows):
        self.points = {}
        for row in rows:
            self.points.setdefault(row["limit"], {})[row["bytes"]] = row["median_us"]
        self.small = self.points.get("line", {}) | self.points.get("lines", {})

    def known(self):
        return bool(self.small and self.points.get("copy") and self.points.get("remote-copy"))

    def copy(self, count, kind="copy", receivers=1):
        """To copy this number of bytes."""
        names = [kind, "streaming-copy"]
        if receivers > 1 and count >= 32 << 20:
            names = [name for name in ["streaming-copy-by-all", kind] if name in self.points]
        return min(between(self.points[name], count) for name in names if name in self.points)

    def remote(self, count, receivers=1):
        """A line of another rank, and behind it this number of bytes that it has just written."""
        line = self.small[LINE]
        if count <= LINE:
            return line
        largest = max(self.small)
        if count <= largest:
            return between(self.small, count)
        return line + self.copy(count, "remote-copy", receivers)

    def source(self, count, buffers, receivers=1):
        """The same for bytes of the callers, which are remote only if they were written before the call."""
        if buffers == "renewed" or count <= LINE:
            return self.remote(count, receivers)
        return min(self.small[LINE] + self.copy(count, receivers=receivers), self.remote(count, receivers))


def between(points, count):
    """The time of a size between those that were measured; beyond them in proportion."""
    sizes = sorted(points)
    if count <= 0:
        return 0.0
    if count <= sizes[0]:
        return points[sizes[0]] * count / sizes[0]
    if count >= sizes[-1]:
        return points[sizes[-1]] * count / sizes[-1]
    above = next(size for size in sizes if size >= count)
    below = max(size for size in sizes if size <= count)
    if above == below:
        return points[above]
    part = math.log(count / below) / math.log(above / below)
    return math.exp((1 - part) * math.log(points[below]) + part * math.log(points[above]))


def composed(rows, cores, ranks, operation, size, buffers):
    """The limit in microseconds; `None` for what has none."""
    limits = Limits(rows)
    if not limits.known():
        return None
    others = ranks - 1
    all_words = limits.remote(LINE * others)

    def folded(everywhere):
        """All contributions, by each rank that needs them; or a slice each, and then the results of the others."""
        receivers = ranks if everywhere else 1
        alone = limits.source(others * size, buffers, receivers)
        results = limits.remote(others * size // ranks, receivers)
        return min(alone, limits.source(others * size // ranks, buffers, ranks) + results)

    costs = {
        "barrier": lambda: all_words,
        "allreduce": lambda: folded(True),
        "reduce-scatter": lambda: limits.source(others * size, buffers, ranks),
        "allgatherv": lambda: limits.source(size - size // ranks, buffers, ranks) + limits.copy(size // ranks, receivers=ranks),
        "broadcast": lambda: limits.source(size, buffers, others),
        "reduce": lambda: folded(False),
        "gather": lambda: limits.source(others * size, buffers) + limits.copy(size),
        "scatter": lambda: limits.source(size, buffers, others),
        "alltoall": lambda: limits.source(others * size, buffers, ranks) + limits.copy(size, receivers=ranks),
        "exscan": lambda: limits.source(others * size, buffers, ranks),
    }
    operation = ALIKE.get(operation, operation)
    if operation not in costs:
        return None
    share = math.ceil(ranks / cores)
    if share == 1:
        return max(costs[operation](), all_words if operation in SYNCHRONISING else 0.0)
    # What a rank receives may be in the caches of its core, since another rank there has read it: at the speed of a copy.
    received = {"barrier": 0, "gather": ranks * size, "alltoall": ranks * size}.get(operation, size)
    one = {"gather", "reduce", "exscan"}
    work = limits.copy(received) * (1 if operation in one else share)
    switches = share - 1 if operation in SYNCHRONISING else 0
    return max(switches * limits.points.get("switch", {}).get(0, 0.0) + work, limits.small[LINE])
