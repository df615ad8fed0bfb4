"""Latency over size, a panel for each operation and number of ranks: `picture.py RACE.json PICTURE.svg`."""

import json
import statistics
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from report import cells  # noqa: E402

with open(sys.argv[1]) as file:
    results = json.load(file)
table = cells(results)
operations = [op for op in ["allreduce", "allgatherv", "broadcast", "ping-pong"] if any(cell[1] == op for cell in table)]
if not operations:
    sys.exit()
ranks = sorted({cell[0] for cell in table})
libraries = list(results["libraries"])
# The same picture from the same results.
plt.rcParams["svg.hashsalt"] = "race"
figure, panels = plt.subplots(
    len(operations), len(ranks), figsize=(4 * len(ranks), 3.2 * len(operations)), sharex="row", squeeze=False
)
for row, operation in zip(panels, operations):
    for panel, count in zip(row, ranks):
        for index, library in enumerate(libraries):
            points = sorted(
                (cell[2], statistics.median(by_library[library].values()))
                for cell, by_library in table.items()
                if cell[:2] == (count, operation) and library in by_library
            )
            if points:
                ours = library == "intranode"
                style = {"linewidth": 2.5, "color": "black"} if ours else {"linewidth": 1, "color": f"C{index - 1}"}
                panel.plot(*zip(*points), marker="o", markersize=4, label=library, **style)
        panel.set(xscale="log", yscale="log", title=f"{operation}, {count} ranks", xlabel="bytes", ylabel="µs")
        panel.grid(True, which="major", alpha=0.3)
handles = {handle.get_label(): handle for panel in panels.flat for handle in panel.get_legend_handles_labels()[0]}
figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=len(handles), frameon=False)
figure.tight_layout(rect=(0, 0.04, 1, 1))
figure.savefig(sys.argv[2], metadata={"Date": None})
