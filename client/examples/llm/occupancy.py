#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tier occupancy over time, as a picture.

    hmmctl events --type occupancy --occupancy 100 -o json > occupancy.jsonl &   # while a model runs
    occupancy.py occupancy.jsonl occupancy.svg        # afterwards; also prints it as text

Reads the samples of Inspection.Watch; other events in the file are passed over. One line a tier: bytes
used, from the first byte in any tier on. Standard library alone.
"""

import json
import re
import sys

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 36
COLOURS = {"hbm": "#b3261e", "ddr": "#1f6fb2", "flash": "#5f6368"}
BARS = " ▁▂▃▄▅▆▇█"


def read(path):
    """[(seconds, {tier: used bytes})], {tier: capacity}; idle time at both ends cut off."""
    points, tiers = [], {}
    with open(path, "rb") as lines:  # json decodes a line, so that one that is no text is named
        for number, line in enumerate(lines, 1):
            try:
                event = json.loads(line)
                if event["type"] != "occupancy":
                    continue
                tiers.update((tier["tier"], tier["capacity_bytes"]) for tier in event["tiers"])
                points.append((event["time_us"] / 1e6,
                               {tier["tier"]: tier["used_bytes"] for tier in event["tiers"]}))
            except (ValueError, KeyError, TypeError):
                if line.endswith(b"\n"):
                    sys.exit(f"{path}:{number}: not a line of `hmmctl events -o json`")
                break  # cut off in the middle of its last line
    if not points:
        sys.exit(f"{path}: no samples; watch with `hmmctl events --occupancy 100 -o json`")
    busy = [i for i, (_, used) in enumerate(points) if any(used.values())]
    if not busy:
        sys.exit(f"{path}: no tier was ever used")
    first, last = max(busy[0] - 1, 0), len(points)
    while last - first > 2 and points[last - 2][1] == points[last - 1][1]:
        last -= 1
    start = points[first][0]
    return [(at - start, used) for at, used in points[first:last]], tiers


def size(number):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:.0f} {unit}" if number >= 10 or number == int(number) \
                else f"{number:.1f} {unit}"
        number /= 1024


def svg(points, tiers):
    most = max(max(used.values()) for _, used in points)
    span = points[-1][0] or 1.0

    def x(at):
        return LEFT + at / span * (WIDTH - LEFT - RIGHT)

    def y(used):
        return HEIGHT - BOTTOM - used / most * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
           'font-family="sans-serif" font-size="12">',
           "<title>Bytes used in each tier over time</title>",
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>']
    for step in range(5):
        used = most * step / 4
        out.append(f'<path d="M{LEFT} {y(used):.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>'
                   f'<text x="{LEFT - 6}" y="{y(used) + 4:.1f}" text-anchor="end">{size(used)}</text>')
        at = span * step / 4
        anchor = "end" if step == 4 else "middle"
        out.append(f'<text x="{x(at):.1f}" y="{HEIGHT - 14}" text-anchor="{anchor}">{at:.1f} s</text>')
    legend = LEFT
    for name, capacity in tiers.items():
        colour = COLOURS.get(re.match("[a-z]*", name).group(), "#333333")  # "hbm0" is hbm
        line = " ".join(f"{x(at):.1f},{y(used.get(name, 0)):.1f}" for at, used in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<rect x="{legend}" y="10" width="12" height="12" fill="{colour}"/>'
                   f'<text x="{legend + 18}" y="20">{name}, of {size(capacity)}</text>')
        legend += 200
    return "\n".join(out + ["</svg>", ""])


def text(points, tiers, columns=60):
    lines = []
    for name, capacity in tiers.items():
        cells = []
        for column in range(columns):
            at = points[-1][0] * column / max(columns - 1, 1)
            used = max((p for p in points if p[0] <= at), key=lambda p: p[0])[1].get(name, 0)
            level = 0 if used == 0 else 1 + min(int(used / capacity * (len(BARS) - 1)), len(BARS) - 2)
            cells.append(BARS[level])
        lines.append(f"{name:8} {''.join(cells)} {size(points[-1][1].get(name, 0))} of {size(capacity)}")
    return "\n".join(lines)


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)
    try:
        points, tiers = read(sys.argv[1])
    except OSError as error:
        sys.exit(f"{sys.argv[1]}: {error.strerror}")
    print(text(points, tiers))
    if len(sys.argv) == 3:
        try:
            with open(sys.argv[2], "w", encoding="utf-8") as out:
                out.write(svg(points, tiers))
        except OSError as error:
            sys.exit(f"{sys.argv[2]}: {error.strerror}")


if __name__ == "__main__":
    main()
