#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws how time grows with batch, sequence and depth, from growth.json of bench/gpu_bench.py, as an SVG that needs
no library.

python3 bench/plot_growth.py bench/results/h200/growth.json [-o bench/results/h200/growth.svg]"""

import argparse
import html
import json
import math
import os

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 380, 300, 58, 34, 46, 14
COLOURS = {"fp16": "#3465a4", "fp8": "#cc4400", "int8": "#4e9a06"}
# axis of the data: title, label of x, what is drawn over it, its label, both axes logarithmic
PANELS = [
    (
        "batch",
        "ViT-B/16 over the batch",
        "images per launch",
        lambda r: r["batch"] / r["ms"] * 1e3,
        "images per second",
    ),
    ("sequence", "ViT-B over the sequence, batch {batch}", "tokens", lambda r: r["ms"], "milliseconds"),
    ("depth", "ViT-B/16 over the depth, batch {batch}", "blocks", lambda r: r["ms"], "milliseconds"),
]


def tidy(x):
    return f"{x:g}" if x < 1000 else f"{x / 1000:g}k"


def ticks(low, high):
    """1, 2, 5 times powers of ten within the range."""
    found = []
    for power in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1):
        found += [m * 10.0**power for m in (1, 2, 5) if low <= m * 10.0**power <= high]
    return found


def panel(rows, title, x_label, value, y_label, left):
    """One plot with logarithmic axes; the slope 1 is growth in proportion."""
    points = {}
    for r in rows:
        points.setdefault(r["precision"], []).append((r["x"], value(r)))
    xs = sorted({x for p in points.values() for x, _ in p})
    ys = [y for p in points.values() for _, y in p]
    low, high = min(ys) / 1.15, max(ys) * 1.15
    x0, x1 = (xs[0] / 1.1, xs[-1] * 1.1)
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    at_x = lambda x: left + LEFT + wide * math.log(x / x0) / math.log(x1 / x0)
    at_y = lambda y: TOP + tall - tall * math.log(y / low) / math.log(high / low)
    out = [f'<text x="{left + LEFT}" y="20" class="title">{html.escape(title)}</text>']
    for y in ticks(low, high):
        out.append(
            f'<path class="grid" d="M{left + LEFT} {at_y(y):.1f}h{wide}"/><text class="tick" text-anchor="end" '
            f'x="{left + LEFT - 6}" y="{at_y(y) + 4:.1f}">{tidy(y)}</text>'
        )
    for x in xs:
        out.append(
            f'<path class="grid" d="M{at_x(x):.1f} {TOP}v{tall}"/><text class="tick" text-anchor="middle" '
            f'x="{at_x(x):.1f}" y="{TOP + tall + 15}">{x}</text>'
        )
    out.append(
        f'<text class="label" text-anchor="middle" x="{left + LEFT + wide / 2}" '
        f'y="{HEIGHT - 10}">{html.escape(x_label)}</text>'
    )
    out.append(
        f'<text class="label" text-anchor="middle" transform="translate({left + 13} {TOP + tall / 2}) '
        f'rotate(-90)">{html.escape(y_label)}</text>'
    )
    for i, (precision, line) in enumerate(sorted(points.items())):
        colour = COLOURS.get(precision, "#555")
        line.sort()
        path = " ".join(f"{'M' if n == 0 else 'L'}{at_x(x):.1f} {at_y(y):.1f}" for n, (x, y) in enumerate(line))
        out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [
            f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3" fill="{colour}"><title>{precision}: {x}: '
            f"{y:.4g}</title></circle>"
            for x, y in line
        ]
        out.append(
            f'<text class="tick" x="{left + LEFT + 8}" y="{TOP + 16 + 15 * i}" '
            f'style="fill:{colour}">{html.escape(precision)}</text>'
        )
    return "\n".join(out)


def run_text(run):
    return f"{run['date'][:10]}, {(run['commit'] or run['committed_with'])[:10]}: {run['command']}"


def draw(record):
    panels = []
    for axis, title, x_label, value, y_label in PANELS:
        rows = [r for r in record["rows"] if r["axis"] == axis and "ms" in r]
        if len({r["x"] for r in rows}) > 1:
            panels.append(
                panel(rows, title.format(batch=rows[0]["batch"]), x_label, value, y_label, WIDTH * len(panels))
            )
    if not panels:
        raise SystemExit("growth.json holds no axis with two points")
    style = (
        "text{font-family:sans-serif;fill:#222}.title{font-size:13px;font-weight:bold}"
        ".tick{font-size:11px}.label{font-size:12px}"
        ".grid{stroke:#ddd;stroke-width:1;fill:none}"
    )
    wide, tall = WIDTH * len(panels), HEIGHT + 20
    shown = sorted({r["run"] for r in record["rows"] if "ms" in r})
    source = "; ".join([record["gpu"], *(run_text(record["runs"][name]) for name in shown)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{tall}" viewBox="0 0 {wide} {tall}">\n'
        f'<style>{style}</style>\n<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(panels)
        + f'\n<text class="tick" x="{LEFT}" y="{HEIGHT + 12}">{html.escape(source)}</text>\n</svg>\n'
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("growth")
    parser.add_argument("-o", "--output", default="")
    args = parser.parse_args()
    with open(args.growth) as f:
        record = json.load(f)
    path = args.output or os.path.splitext(args.growth)[0] + ".svg"
    with open(path + ".new", "w") as f:
        f.write(draw(record))
    os.replace(path + ".new", path)
    print(f"written: {path}")


if __name__ == "__main__":
    main()
