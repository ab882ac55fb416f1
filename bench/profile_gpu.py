#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Profiles ViT engines on the GPU here and checks what CUPTI tells of them: every node of the CUDA graph is there,
kernels lie inside the graph's time, times add up, overlap is seen, and what profiling costs. Each statement is printed
with its numbers; the exit code counts those that do not hold.

  python3 bench/profile_gpu.py [--program build/tessera] [--out FOLDER] [--quick]

FOLDER gets the profiles (*.profile.json), a timeline each (*.trace.json) and all statements (summary.json)."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ENGINES = [  # name, model, options of the build, plans
    ("vit-b-fp16", "vit-b-16", ["--precision", "fp16"], (1, 64)),
    ("vit-b-fp8", "vit-b-16", ["--precision", "fp8", "--attention", "fp8"], (1, 64)),
]
QUICK = [("tiny-fp16", "vit-tiny-test", ["--precision", "fp16"], (1, 8))]


class Checks:
    """Statements with their numbers, printed as they are made."""

    def __init__(self):
        self.all = []

    def say(self, what, holds, **numbers):
        self.all.append({"what": what, "holds": bool(holds), **numbers})
        shown = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in numbers.items())
        print(f"{'ok  ' if holds else 'FAIL'}  {what}: {shown}", flush=True)

    def failed(self):
        return sum(not c["holds"] for c in self.all)


def call(program, *words, **environment):
    done = subprocess.run(
        [program, *map(str, words)], capture_output=True, text=True, env={**os.environ, **environment}
    )
    if done.returncode != 0:
        sys.exit(f"tessera {' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


def overlaps(kernels):
    """Launches that begin before the one before them ends, of all pairs in order."""
    launches = sorted((b, e) for k in kernels for b, e in zip(k.get("begin_us", []), k.get("end_us", [])))
    pairs = list(zip(launches, launches[1:]))
    return sum(b[0] < a[1] for a, b in pairs), len(pairs)


def check_profile(checks, name, p, text, bench, steps):
    inside = not any("outside the CUDA graph" in n for n in p["notes"])
    checks.say(f"{name}: CUPTI timed the CUDA graph's nodes", inside, notes=p["notes"])
    checks.say(f"{name}: every step once", [k["layer"] for k in p["kernels"]] == steps, steps=len(steps))
    median = p["latency"]["median_ms"]
    checks.say(
        f"{name}: latency as bench has it, within 5 %",
        abs(median / bench["median_ms"] - 1) < 0.05,
        profile_ms=median,
        bench_ms=bench["median_ms"],
    )
    checks.say(f"{name}: enqueue takes host time", 0 < p["enqueue_us"] < 1e3, enqueue_us=p["enqueue_us"])
    if not inside:
        return
    sum_us = p["kernel_us"] + p["gap_us"]
    checks.say(
        f"{name}: kernels + gaps = span, within 2 %",
        abs(sum_us / p["span_us"] - 1) < 0.02,
        kernels_us=p["kernel_us"],
        gaps_us=p["gap_us"],
        early_us=p["early_us"],
        span_us=p["span_us"],
    )
    checks.say(
        f"{name}: the span lies inside the profiled run", p["span_us"] <= p["profiled_ms"] * 1e3,
        span_us=p["span_us"], profiled_us=p["profiled_ms"] * 1e3,
    )  # fmt: skip
    checks.say(
        f"{name}: residual within 10 % of the run", abs(p["residual_us"]) < 0.1 * median * 1e3,
        residual_us=p["residual_us"], median_us=median * 1e3,
    )  # fmt: skip
    early, pairs = overlaps(p["kernels"])
    # Kernels are launched programmatically: none that begins early would mean that CUPTI keeps them apart.
    checks.say(f"{name}: overlap is seen inside the graph", early > 0, early=early, pairs=pairs)
    cost = p["profiled_ms"] / median - 1
    said = "profiling    costs" in text
    checks.say(f"{name}: what profiling costs is printed where it is over 5 %", said or cost < 0.06, cost=cost)
    for k in p["kernels"]:
        if k["class"] == "gemm" and k["us"] > 5:
            reached = k["flops_per_s"] / p["ceilings"]["flops_per_s"][k["precision"]]
            if reached > 1.1:
                checks.say(f"{name}: {k['layer']} is below the ceiling", False, share=reached)


def check_ceilings(checks, ceilings):
    data = {"bytes_per_s": 4.8e12, "fp16": 989.4e12, "bf16": 989.4e12, "fp8": 1978.9e12, "int8": 1978.9e12}
    share = ceilings["bytes_per_s"] / data["bytes_per_s"]
    checks.say("ceilings: bandwidth of the H200's data", 0.6 < share < 1.02, share=share)
    for precision in ("fp16", "bf16", "fp8", "int8"):
        share = ceilings["flops_per_s"].get(precision, 0) / data[precision]
        checks.say(f"ceilings: {precision} of the H200's data", 0.4 < share < 1.02, share=share)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/tessera")
    parser.add_argument("--out", default=os.environ.get("OUT", "build/profile_gpu"))
    parser.add_argument("--quick", action="store_true", help="a small model alone")
    args = parser.parse_args()
    program, out = str(pathlib.Path(args.program).resolve()), pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    checks = Checks()
    with tempfile.TemporaryDirectory() as work:
        first = True
        for name, model, options, batches in QUICK if args.quick else ENGINES:
            onnx, engine = f"{work}/{model}.onnx", f"{work}/{name}.tess"
            if not os.path.exists(onnx):
                call(program, "zoo", model, "-o", onnx)
            batch = ",".join(map(str, batches))
            call(program, "build", onnx, "-o", engine, *options, "--batch", batch, "--target", "sm90", "--no-verify")
            plans = json.loads(call(program, "inspect", engine, "--json"))["plans"]
            bench = json.loads(call(program, "bench", engine, "--repeats", 50, "--json"))["plans"]
            for b in batches:
                plan, full = f"batch{b}", f"{name}-b{b}"
                steps = next([s["layer"] for s in p["steps"]] for p in plans if p["name"] == plan)
                words = ("profile", engine, "--plan", plan, "--runs", 50)
                trace = out / f"{full}.trace.json"
                again = ("--ceilings", "again") if first else ()
                p = json.loads(call(program, *words, *again, "--trace", trace, "--json"))
                if first:
                    check_ceilings(checks, p["ceilings"])
                first = False
                (out / f"{full}.profile.json").write_text(json.dumps(p, indent=1))
                text = call(program, *words)
                check_profile(checks, full, p, text, next(t for t in bench if t["plan"] == plan), steps)
                # Without CUPTI: events between the steps, outside the graph. Slower, and never by much less.
                e = json.loads(call(program, *words, "--json", TESSERA_CUPTI="/no/such/library"))
                said = any("CUPTI was not found" in n for n in e["notes"])
                checks.say(
                    f"{full}: without CUPTI events time the steps, and a note says so", said and e["kernel_us"] > 0,
                    events_us=e["kernel_us"], cupti_us=p["kernel_us"],
                )  # fmt: skip
                print(text, flush=True)
    (out / "summary.json").write_text(json.dumps(checks.all, indent=1))
    print(f"{len(checks.all)} statements, {checks.failed()} do not hold")
    return min(checks.failed(), 100)


if __name__ == "__main__":
    sys.exit(main())
