"""Latency over size, a panel for each operation and number of ranks: `picture.py RACE.json PICTURE.svg`."""

import json
import statistics
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from report import DEFINITIONS, OURS, OURS_SHARED, cells  # noqa: E402

with open(sys.argv[1]) as file:
    results = json.load(file)
table = cells(results)
operations = [op for op in ["allreduce", "allgatherv", "broadcast", "ping-pong"] if any(cell[1] == op for cell in table)]
if not operations:
    sys.exit()
# A row of panels for each definition.
shown = [(op, buffers) for op in operations for buffers in DEFINITIONS if any(cell[1::2] == (op, buffers) for cell in table)]
ranks = sorted({cell[0] for cell in table})
libraries = list(results["libraries"])
others = [library for library in libraries if library not in (OURS, OURS_SHARED)]
OWN = {OURS: {"color": "black", "linewidth": 2.5}, OURS_SHARED: {"color": "black", "linewidth": 1.5, "linestyle": "--"}}
# The same picture from the same results.
plt.rcParams["svg.hashsalt"] = "race"
figure, panels = plt.subplots(
    len(shown), len(ranks), figsize=(4 * len(ranks), 3.2 * len(shown)), sharex="row", squeeze=False
)
for row, (operation, buffers) in zip(panels, shown):
    for panel, count in zip(row, ranks):
        for library in libraries:
            points = sorted(
                (cell[2], statistics.median(by_library[library].values()))
                for cell, by_library in table.items()
                if cell[:2] == (count, operation) and cell[3] == buffers and library in by_library
            )
            if points:
                style = OWN.get(library) or {"linewidth": 1, "color": f"C{others.index(library)}"}
                panel.plot(*zip(*points), marker="o", markersize=4, label=library, **style)
        panel.set(xscale="log", yscale="log", title=f"{operation}, {count} ranks, {buffers}", xlabel="bytes", ylabel="µs")
        panel.grid(True, which="major", alpha=0.3)
handles = {handle.get_label(): handle for panel in panels.flat for handle in panel.get_legend_handles_labels()[0]}
# As many columns as fit below the panels, whose number follows from the ranks.
columns = min(len(handles), 2 * len(ranks))
height = 0.22 * -(-len(handles) // columns) + 0.1
figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=columns, frameon=False)
figure.tight_layout(rect=(0, height / figure.get_figheight(), 1, 1))
figure.savefig(sys.argv[2], metadata={"Date": None})
