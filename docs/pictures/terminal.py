#!/usr/bin/env python3
"""Draws what `tmux capture-pane -e` has written as an SVG: text in the colours and styles of a terminal."""

import re
import sys
from html import escape

WIDTH, HEIGHT, MARGIN = 8.43, 18, 10
# Spaces stay, where browsers would make one of several.
NO_BREAK = "\u00a0"
FOREGROUND, BACKGROUND = "#d8d8d8", "#1c1c1c"
COLOURS = ["#1c1c1c", "#ff5f5f", "#87d787", "#ffd75f", "#5fafff", "#d787ff", "#5fd7d7", "#d8d8d8"]


def cells(line, style):
    """`(character, style)` of a line, whose styles go on to the next one."""
    found = []
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if not part.startswith("\x1b["):
            found += [(character, dict(style)) for character in part]
            continue
        for code in map(int, (part[2:-1] or "0").split(";")):
            if code == 0:
                style.clear()
            elif code in (1, 7):
                style[{1: "bold", 7: "reversed"}[code]] = True
            elif 30 <= code <= 37:
                style["colour"] = COLOURS[code - 30]
            elif code == 39:
                style.pop("colour", None)
    return found


def main():
    style, rows = {}, []
    for line in sys.stdin.read().rstrip("\n").split("\n"):
        rows.append(cells(line, style))
    columns = max(len(row) for row in rows)
    width, height = columns * WIDTH + 2 * MARGIN, len(rows) * HEIGHT + 2 * MARGIN
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}">')
    print(f'<rect width="100%" height="100%" rx="6" fill="{BACKGROUND}"/>')
    print('<g font-family="ui-monospace,DejaVu Sans Mono,Menlo,Consolas,monospace" font-size="14">')
    for number, row in enumerate(rows):
        start = 0
        while start < len(row):
            end = start
            while end < len(row) and row[end][1] == row[start][1]:
                end += 1
            run(number, start, "".join(character for character, _ in row[start:end]), row[start][1])
            start = end
    print("</g>\n</svg>")


def run(row, column, text, style):
    """Text of one style, as wide as it is in a terminal, whatever the font."""
    x, y, width = MARGIN + column * WIDTH, MARGIN + row * HEIGHT, len(text) * WIDTH
    colour = style.get("colour", FOREGROUND)
    if style.get("reversed"):
        print(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{HEIGHT}" fill="{colour}"/>')
        colour = BACKGROUND
    if text.strip():
        weight = ' font-weight="bold"' if style.get("bold") else ""
        shown = escape(text).replace(" ", NO_BREAK)
        place = f'x="{x:.1f}" y="{y + 13.5}" textLength="{width:.1f}"'
        print(f'<text {place} fill="{colour}"{weight}>{shown}</text>')


if __name__ == "__main__":
    main()
