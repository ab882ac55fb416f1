#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts false alarms: right engines that `verify` calls wrong. There should be none.

Builds an engine of one export of each family in tests/data/models (--all: of every file), in every precision, and
verifies it on this machine with fresh seeds, four kinds of random inputs each. A precision that a model cannot have
is a refusal and is counted as such. Exit code 0: no alarm.

  python3 tools/false_alarms.py build/tessera --target sm90 --seeds 20 --json alarms.json
"""

import argparse
import concurrent.futures
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy

REPO = Path(__file__).resolve().parent.parent
PRECISIONS = {
    "cpu": ["fp32", "fp16", "bf16", "fp8", "fp8 --attention fp8", "mxfp8", "nvfp4", "w4a16", "w4a8", "int8"],
    "sm90": ["fp32", "fp16", "bf16", "fp8", "fp8 --attention fp8", "int8"],
}
FINE, REFUSED = 0, 4  # exit codes of the program
KINDS = 4  # of random inputs that one call of verify draws: a run each


def models(every):
    files = sorted((REPO / "tests/data/models").glob("*.onnx"))
    if every:
        return files
    return list({re.sub(r"_(ts|dyn)\d+$", "", f.stem): f for f in files}.values())


def input_shapes(model):
    """As the words of the command line: fixtures keep their inputs beside them, and what they should give as
    expected_*."""
    arrays = numpy.load(model.with_suffix(".npz"))
    return [
        w
        for name in arrays
        if not name.startswith("expected_")
        for w in ("--shape", f"{name}={','.join(map(str, arrays[name].shape))}")
    ]


def call(words):
    done = subprocess.run(words, capture_output=True, text=True)
    return done.returncode, " ".join((done.stderr or done.stdout).split())[-400:]


def one_engine(args, folder, model, precision):
    """{runs, alarms: [sentence], refused: sentence or None}"""
    name = f"{model.stem} {precision}"
    engine = folder / (re.sub(r"\W+", "_", name) + ".tess")
    words = [
        args.program,
        "build",
        model,
        "-o",
        engine,
        "--target",
        args.target,
        "--precision",
        *precision.split(),
        *input_shapes(model),
    ]
    if precision.startswith(("fp8", "int8", "w4a8")):
        words += ["--calib", model.with_suffix(".npz")]
    code, text = call([str(w) for w in words])
    if code != FINE:
        return {
            "name": name,
            "runs": 0,
            "alarms": [f"build, exit {code}: {text}"] if code != REFUSED else [],
            "refused": text if code == REFUSED else None,
        }
    alarms = []
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        code, text = call([args.program, "verify", str(engine), "--seed", str(seed)])
        if code != FINE:
            alarms.append(f"seed {seed}, exit {code}: {text}")
    engine.unlink()
    return {"name": name, "runs": KINDS * args.seeds, "alarms": alarms, "refused": None}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--target", choices=PRECISIONS, default="cpu")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--all", action="store_true", help="every export of a family")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which no engine is begun")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    start, rows = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:

        def work(model, precision):
            if time.monotonic() - start > args.limit:
                return None
            return one_engine(args, Path(folder), model, precision)

        jobs = [pool.submit(work, m, p) for m in models(args.all) for p in PRECISIONS[args.target]]
        for done in concurrent.futures.as_completed(jobs):
            row = done.result()
            if row is None:
                continue
            rows.append(row)
            for sentence in row["alarms"]:
                print(f"{row['name']}: {sentence}", flush=True)
            if sys.stderr.isatty():
                print(f"\r{len(rows)} of {len(jobs)} engines", end="", file=sys.stderr)
    runs, alarms = sum(r["runs"] for r in rows), sum(len(r["alarms"]) for r in rows)
    refused = {r["name"]: r["refused"] for r in rows if r["refused"]}
    built = sum(r["runs"] > 0 for r in rows)
    print(
        f"{args.target}: {alarms} false alarms in {runs} runs of {built} engines, {len(refused)} refused, "
        f"{len(jobs) - len(rows)} not begun, {time.monotonic() - start:.0f} s"
    )
    if args.json:
        args.json.write_text(
            json.dumps(
                {
                    "target": args.target,
                    "runs": runs,
                    "alarms": alarms,
                    "engines": built,
                    "seeds": args.seeds,
                    "refused": refused,
                },
                indent=1,
            )
            + "\n"
        )
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
