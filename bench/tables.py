#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the README's tables from bench/results, so that no figure stands there that was not measured.

  python3 bench/tables.py [--check] [README.md]

Between `<!-- figures: NAME -->` and `<!-- end -->` the README is this script's; the rest is written by hand, and its
figures are compared with the results (tests/readme_test.py). --check changes nothing and fails where the README is
not what the results say."""

import argparse
import difflib
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from goals import WORKS, number, short_check  # noqa: E402

UNITS = {"ms": "ms", "us": "us", "tflops": "TFLOP/s"}
ACCURACY = [  # rows of the README: what it is called there, options of the build
    ("fp16", "--precision fp16"),
    ("bf16", "--precision bf16"),
    ("fp8", "--precision fp8"),
    ("fp8, fp8 attention", "--precision fp8 --attention fp8"),
    ("mxfp8", "--precision mxfp8"),
    ("w4a16", "--precision w4a16"),
    ("w4a8", "--precision w4a8"),
    ("nvfp4", "--precision nvfp4"),
    ("int8", "--precision int8"),
    ("recipe default (MLPs nvfp4, the rest fp8)", "--recipe default"),
    ("fp8, 2:4 by the Hessian method", "--precision fp8 --sparsity 2:4"),
    ("w4a16, compensated", "--precision w4a16 --refine compensate"),
]
HIGHLIGHTS = [  # first screen
    "ViT-B/16 b64 FP16",
    "ViT-B/16 b64 FP8, FP8 attention",
    "ViT-B/16 b1 FP8",
    "attention b64 h12 s197 d64 FP8",
    "attention b1 8q/1kv d256 s968 FP8",
]


class Results:
    """All files of bench/results that tables are made of."""

    def __init__(self, root=os.path.join(HERE, "results")):
        for name in ("summary", "vit", "ops", "growth", "peers", "known_peers", "policy"):
            with open(os.path.join(root, "h200", f"{name}.json")) as f:
                setattr(self, name, json.load(f))
        with open(os.path.join(root, "accuracy.json")) as f:
            self.accuracy = json.load(f)


def run_text(run):
    """A run in a line."""
    if run["commit"]:
        code = f"commit {run['commit'][:10]}" + (" with changes" if run["dirty"] else "")
    else:
        code = f"recorded with commit {run['committed_with']}" if "committed_with" in run else ""
    gpu = "driver" in run
    clock = run.get("clocks", {})
    start, samples = clock.get("start", {}), [s for n, s in clock.items() if n != "start" and s.get("sm_mhz")]
    clocks = ""
    if samples:
        low, high = (f(s["sm_mhz"] for s in samples) for f in (min, max))
        clocks = f"SM clock {low:.0f}{f' to {high:.0f}' if high > low else ''} MHz after the sections"
        clocks += f" (highest {start['max_sm_mhz']:.0f})" if start.get("max_sm_mhz") else ""
    power = f"power limit {start['power_limit_w']:.0f} W" if start.get("power_limit_w") else ""
    driver = f"driver {run['driver']}" if run.get("driver") else ""
    versions = ", ".join(f"{k} {v}" for k, v in sorted(run.get("versions", {}).items()) if v)
    by = f"measured by {run['measured_by']}" if gpu and not run["measured_by"].startswith("bench/") else ""
    lacks = "driver and clocks not recorded" if gpu and not driver else ""
    words = [
        w
        for w in (
            run["date"][:10],
            by or run["machine"],
            code,
            driver,
            clocks,
            power,
            versions,
            lacks,
            f"`{run['command']}`" if not by else "",
        )
        if w
    ]
    return ", ".join(words)


class Sources:
    """Letters for the runs of peers, in the order in which they are met."""

    def __init__(self, runs):
        self.runs, self.letters = runs, {}

    def letter(self, name):
        return self.letters.setdefault(name, chr(ord("a") + len(self.letters)))

    def lines(self, ours):
        return [
            f"- ({letter}) {'the same run' if name in ours else run_text(self.runs[name])}."
            for name, letter in self.letters.items()
        ]


def figure(row, value):
    return f"{number(value)} {UNITS[row['unit']]}"


def peer_cell(row, sources=None):
    """The peers of a row, each with the letter of its run where the table lists runs."""
    same, other = row["best_peer"], row["faster_peer"]
    source = lambda peer: f" ({sources.letter(peer['run'])})" if sources else ""
    words = []
    if same and "value" in same:
        words.append(f"{same['peer']}: {figure(row, same['value'])}{source(same)}")
    elif same:
        words.append(f"none in {row['precision'].upper()}: {same['refused']}{source(same)}")
    else:
        words.append(f"none known in {row['precision'].upper()}")
    if other:
        words.append(f"{other['peer']}: {figure(row, other['value'])}{source(other)}")
    return "; ".join(words)


def ratio_cell(row):
    if row["ours"] is None:
        return ""
    words = []
    for peer in (row["best_peer"], row["faster_peer"]):
        if peer and "value" in peer:
            times = row["ours"] / peer["value"] if row["unit"] == "tflops" else peer["value"] / row["ours"]
            words.append(f"{times:.2f} x" if times >= 1 else f"**{times:.2f} x, peer ahead**")
    return ", ".join(words)


def cosine_cell(results, work):
    row = next(
        (
            r
            for r in results.vit["cosine"]
            if (r.get("model"), r.get("batch"), r.get("precision")) == (*work.where[1:], work.precision)
            and "cos_mean" in r
        ),
        None,
    )
    return f"{row['cos_mean']:.5f} / {row['cos_min']:.5f}" if row else ""


def run_lines(rows, runs, sources):
    """Where the figures of a table come from: ours, then the peers' by their letters."""
    ours = sorted({r["run"] for r in rows if r.get("run")})
    return [f"- Tessera: {run_text(runs[name])}." for name in ours] + sources.lines(ours if len(ours) == 1 else [])


def highlights_block(results):
    """The first screen: a few rows of the tables below, without those that a peer leads."""
    rows = {r["work"]: r for r in results.summary["rows"]}
    lines = ["| on one H200 | precision | Tessera | best known peer | speedup |", "|---|---|---|---|---|"]
    for work in (w for w in WORKS if w.name in HIGHLIGHTS):
        row, ratio = rows[work.name], ratio_cell(rows[work.name])
        if ratio and "peer ahead" not in ratio:
            batch = f", batch {work.where[2]}" if work.where[0] == "vit" else ""
            ours = figure(row, row["ours"])
            name = f"{work.label()}{batch}"
            lines.append(f"| {name} | {work.precision.upper()} | {ours} | {peer_cell(row)} | {ratio} |")
    return lines


def vit_block(results):
    rows = {r["work"]: r for r in results.summary["rows"]}
    sources = Sources(results.summary["runs"])
    lines = [
        "| model | batch | precision | Tessera | best known peer | speedup | cosine, mean / worst |",
        "|---|---|---|---|---|---|---|",
    ]
    shown = []
    for work in WORKS:
        if work.where[0] != "vit":
            continue
        row, batch = rows[work.name], work.where[2]
        shown.append(row)
        ours = (
            "not measured again"
            if row["ours"] is None
            else f"{figure(row, row['ours'])}" + (f", {batch / row['ours'] * 1e3:,.0f} images/s" if batch > 1 else "")
        )
        lines.append(
            f"| {work.label()} | {batch} | {work.precision.upper()} | {ours} | {peer_cell(row, sources)} | "
            f"{ratio_cell(row)} | {cosine_cell(results, work)} |"
        )
    torch = [
        f"{r['cos_mean']:.5f} / {r['cos_min']:.5f} ({'197' if r['model'] == 'vit-b-16' else '256'} tokens)"
        for r in results.vit["cosine"]
        if r.get("peer") and "cos_mean" in r
    ]
    return (
        lines
        + ["", *run_lines(shown, results.summary["runs"], sources)]
        + (["", f"The cosine of PyTorch's FP8 on the same weights and images: {', '.join(torch)}."] if torch else [])
    )


def kernels_block(results):
    rows = {r["work"]: r for r in results.summary["rows"]}
    sources = Sources(results.summary["runs"])
    lines = ["| kernel | precision | Tessera | best known peer | speedup | check |", "|---|---|---|---|---|---|"]
    shown = []
    for work in WORKS:
        if work.where[0] == "vit":
            continue
        row = rows[work.name]
        shown.append(row)
        ours = "not measured" if row["ours"] is None else figure(row, row["ours"])
        lines.append(
            f"| {work.label()} | {work.precision.upper()} | {ours} | {peer_cell(row, sources)} | {ratio_cell(row)} | "
            f"{short_check(row['check'])} |"
        )
    return lines + ["", *run_lines(shown, results.summary["runs"], sources)]


def left_out_block(results):
    """Rows without a figure, and what the runs say that they could not do."""
    found = {}
    for part, name in (
        (results.vit["rows"], "time of"),
        (results.vit["cosine"], "cosine of"),
        (results.ops["rows"], "kernel"),
        (results.growth["rows"], "growth over"),
    ):
        for r in part:
            if "error" in r:
                what = " ".join(
                    str(r[k]) for k in ("model", "op", "form", "variant", "axis", "x", "precision") if k in r
                ) + (f" b{r['batch']}" if "batch" in r and "axis" not in r else "")
                found.setdefault(
                    r["error"].replace("exit ", "failed with exit code ", 1)
                    if r["error"].startswith("exit ")
                    else r["error"],
                    [],
                ).append(f"{name} {what}")
    lines = [f"- {', '.join(what)}: {error.rstrip('.')}." for error, what in found.items()]
    for run in results.peers["runs"].values():  # those whose rows still stand, and the newest
        lines += [f"- peer {what.rstrip('.')} (run of {run['date'][:10]})." for what in run["failed"] + run["left_out"]]
    return lines or ["- nothing."]


def bars_block(results):
    rows = [r for r in results.summary["rows"] if r["at_least"] is not None and r["ours"] is not None]
    sign = lambda r: "at least" if r["unit"] == "tflops" else "at most"
    text = lambda r, bar: f"{r['work']} {r['ours']:.4g} {UNITS[r['unit']]} ({sign(r)} {r[bar]:.4g})"
    missed = [text(r, "at_least") for r in rows if r["verdict"] == "missed"]
    short = [text(r, "goal") for r in rows if r["verdict"] == "at least"]
    return [
        f"- Minimum missed: {'; '.join(missed) or 'none'}.",
        f"- Minimum met, goal not reached: {'; '.join(short) or 'none'}.",
    ]


def accuracy_block(results):
    rows = {r["options"]: r for r in results.accuracy["rows"] if r["model"] == "CIFAR-10 ViT" and "error" not in r}
    lines = ["| precision | mean cosine | worst cosine | top-1 | engine |", "|---|---|---|---|---|"]
    names = set()
    for name, options in ACCURACY:
        r = rows.get(options)
        if r is None:
            lines.append(f"| {name} | not measured | | | |")
            continue
        names.add(r["run"])
        lines.append(
            f"| {name} | {r['cosine']:.5f} | {r['cosine_worst']:.4f} | {100 * r['top1']:.2f} % | "
            f"{r['engine_bytes'] / 1e6:.1f} MB |"
        )
    return lines + [""] + [f"- {run_text(results.accuracy['runs'][n])}." for n in sorted(names)]


BLOCKS = {
    "highlights": highlights_block,
    "vit": vit_block,
    "kernels": kernels_block,
    "left-out": left_out_block,
    "bars": bars_block,
    "accuracy": accuracy_block,
}
BLOCK = re.compile(r"(<!-- figures: ([a-z-]+) -->\n).*?(<!-- end -->)", re.S)


def filled(text, results):
    """The README with its blocks made anew."""
    return BLOCK.sub(lambda m: m[1] + "\n".join(BLOCKS[m[2]](results)) + "\n" + m[3], text)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readme", nargs="?", default=os.path.join(HERE, "..", "README.md"))
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args(argv)
    with open(args.readme) as f:
        text = f.read()
    new = filled(text, Results())
    if args.check:
        sys.stdout.writelines(
            difflib.unified_diff(text.splitlines(True), new.splitlines(True), "README.md", "bench/results")
        )
        return 1 if new != text else 0
    with open(args.readme, "w") as f:
        f.write(new)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
