#!/usr/bin/env python3
"""Requires of a timeline what its viewers require: known phases, times that are numbers, no slices of a track that overlap."""

import json
import sys
from collections import defaultdict


def main():
    with open(sys.argv[1]) as file:
        trace = json.load(file)
    names, tracks = {}, defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                names[event["tid"]] = event["args"]["name"]
            continue
        assert event["ph"] == "X" and event["dur"] >= 0 and event["ts"] >= 0, event
        tracks[event["tid"]].append(event)
    for track, slices in tracks.items():
        slices.sort(key=lambda event: event["ts"])
        for before, event in zip(slices, slices[1:]):
            # Times have three digits behind the point.
            assert before["ts"] + before["dur"] <= event["ts"] + 0.001, (before, event)
        seconds = (slices[-1]["ts"] + slices[-1]["dur"]) / 1e6
        print(f"{names[track]}: {len(slices)} calls, the last ends at {seconds:.2f} s of {trace['otherData']['seconds']:.2f} s")


if __name__ == "__main__":
    main()
