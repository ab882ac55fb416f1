#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What builds cost on a CPU: time of three batches against one, peak memory per parameter, start of the program, and
load of a large engine.

    python3 bench/build_costs.py [build/release/bin/tessera] [--rows batches,vit-l,start,large] [--work FOLDER]

One command, a table, and <out>/cpu-<machine>/build.json, in which rows that are not measured stay. Times of builds are
CPU seconds (user and system, all threads), which say something on a machine that others use, too; beside wall times
stands how many cores others used. The models are those of `tessera zoo` in seeded weights. `large` writes 14 GB of
model and wants 60 GB of disk in --work. Wants numpy."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import machine_load

REPO = pathlib.Path(__file__).resolve().parent.parent
ROWS = ("batches", "vit-l", "start", "large")
LARGE = ("vit-l-16", "--depth", 269, "--image", 64)  # 3.4 G parameters
MOST_RATIO, MOST_BYTES, MOST_MEMORY, MOST_START, MOST_LOAD = 1.3, 6, 24 * 2**30, 0.030, 1.0


class Bench:
    def __init__(self, program, folder):
        self.program, self.folder, self.rows = program.resolve(), pathlib.Path(folder), []

    def call(self, *words):
        """Seconds of CPU and of the clock, peak bytes, what was printed."""
        words = [str(w) for w in words]
        with tempfile.TemporaryFile() as out, machine_load.Others() as others:
            begin = time.monotonic()
            child = subprocess.Popen([self.program, *words], stdout=out, stderr=subprocess.STDOUT, cwd=self.folder,
                                     env={**os.environ, "TMPDIR": str(self.folder)})  # fmt: skip
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            wall = time.monotonic() - begin
            out.seek(0)
            text = out.read().decode()
        if child.returncode != 0:
            sys.exit(f"tessera {' '.join(words)}: exit {child.returncode}\n{text}")
        return {"cpu_s": round(used.ru_utime + used.ru_stime, 3), "wall_s": round(wall, 4),
                "peak_bytes": used.ru_maxrss * 1024, "others_cores": round(others.cores, 2)}, text  # fmt: skip

    def row(self, what, value, unit, most=None, **more):
        row = {"what": what, "value": value, "unit": unit, **more}
        if most is not None:
            row.update(asked_at_most=most, met=value <= most)
        verdict = "" if most is None else f"   asked: at most {most:g}, {'met' if row['met'] else 'missed'}"
        print(f"{what:64} {value:12.4g} {unit}{verdict}", flush=True)
        self.rows.append(row)

    def model(self, name, *words):
        """The file, and its parameters: all of them are f32."""
        file = self.folder / f"{name}.onnx"
        if not file.exists():
            self.call("zoo", *(words or (name,)), "-o", file.name)
        return file.name, sum(f.stat().st_size for f in self.folder.glob(f"{name}.onnx*")) // 4

    def build(self, what, model, parameters, *words, most_bytes=MOST_BYTES):
        """CPU seconds and memory of one build."""
        engine = "".join(c if c.isalnum() else "_" for c in what) + ".tess"
        command = ("build", model, *words, "-o", engine, "--quiet")
        used, _ = self.call(*command)
        more = {**used, "parameters": parameters, "command": " ".join(["tessera", *map(str, command)])}
        self.row(f"{what}: CPU seconds", used["cpu_s"], "s", **more)
        self.row(f"{what}: peak memory per parameter", used["peak_bytes"] / parameters, "B", most_bytes)
        return engine, used


def batches(bench):
    """Default golden samples, as a user has them."""
    model, parameters = bench.model("vit-b-16")
    for target in ("cpu", "sm90"):
        seconds = {}
        for batch in ("1", "1,8,64"):
            words = ("--precision", "fp8", "--target", target, "--batch", batch)
            _, used = bench.build(f"ViT-B/16 fp8 {target} batch {batch}", model, parameters, *words)
            seconds[batch] = used["cpu_s"]
        bench.row(
            f"ViT-B/16 fp8 {target}: three batches against one", seconds["1,8,64"] / seconds["1"], "x", MOST_RATIO
        )


def vit_l(bench):
    """Small images: memory is asked for by the parameters, and golden runs of 17 tokens take less time."""
    model, parameters = bench.model("vit_l", "vit-l-16", "--image", 64)
    words = ("--precision", "fp8", "--target", "cpu", "--batch", "1")
    bench.build("ViT-L/16 of 64 x 64 images fp8 cpu", model, parameters, *words)


def large(bench):
    model, parameters = bench.model("large", *LARGE)
    words = ("--precision", "fp8_token", "--target", "cpu", "--batch", "1")
    engine, used = bench.build(f"{parameters / 1e9:.1f} G parameters fp8_token cpu", model, parameters, *words)
    bench.row("its peak memory", used["peak_bytes"], "B", MOST_MEMORY)
    best = min((loaded(bench, engine) for _ in range(3)), key=lambda t: t[0])
    size = (bench.folder / engine).stat().st_size
    bench.row(f"load and bind of its engine ({size / 1e9:.1f} GB)", best[0], "s", MOST_LOAD, others_cores=best[1])


def loaded(bench, engine):
    used, text = bench.call("bench", engine, "--repeats", 1, "--warmup", 0, "--json")
    figures = json.loads(text)
    return (figures["load_ms"] + sum(p["bind_ms"] for p in figures["plans"])) / 1e3, used["others_cores"]


def start(bench):
    """The program from its start to its end: one image through the bundled model, its golden check included."""
    import numpy as np

    with np.load(REPO / "assets/digits/test.npz") as arrays:
        np.save(bench.folder / "one.npy", arrays["image"][:1])
    bench.call("build", REPO / "assets/digits/vit.onnx", "-o", "digits.tess", "--precision", "fp16", "--quiet")
    words = ("run", "digits.tess", "--inputs", "one.npy", "--outputs", "out.npz", "--quiet")
    runs = [bench.call(*words)[0] for _ in range(40)]
    best = min(runs, key=lambda r: r["wall_s"])
    bench.row("start of the program: tessera run of the digits model, whole", best["wall_s"], "s", MOST_START,
              median_s=statistics.median(r["wall_s"] for r in runs), cpu_s=min(r["cpu_s"] for r in runs),
              others_cores=statistics.median(r["others_cores"] for r in runs))  # fmt: skip


def write(bench, options):
    """Rows of an earlier run stay: each says when and by which command it was measured."""
    path = options.out / f"cpu-{os.uname().machine}" / "build.json"
    known = json.loads(path.read_text())["rows"] if path.exists() else []
    fresh = {r["what"] for r in bench.rows}
    measured = {"date": time.strftime("%Y-%m-%d"), "measured_by": f"bench/build_costs.py --rows {options.rows}"}
    result = {
        "machine": machine_load.processor(),
        "cores": machine_load.cores(),
        "rows": [r for r in known if r["what"] not in fresh] + [{**r, **measured} for r in bench.rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1) + "\n")
    part.rename(path)
    print(f"written to {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", type=pathlib.Path, default=REPO / "build/release/bin/tessera")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--work", type=pathlib.Path, help="a folder for models and engines that stay")
    parser.add_argument("--out", type=pathlib.Path, default=REPO / "bench" / "results")
    options = parser.parse_args()
    chosen = options.rows.split(",")
    if unknown := [r for r in chosen if r not in ROWS]:
        parser.error(f"--rows {unknown[0]}: some of {','.join(ROWS)}, with commas")
    if not options.program.exists():
        parser.error(f"{options.program}: no such program; ./run build makes build/release/bin/tessera")
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options.program, options.work or scratch)
        for name, measure in (("batches", batches), ("vit-l", vit_l), ("start", start), ("large", large)):
            if name in chosen:
                measure(bench)
                write(bench, options)


if __name__ == "__main__":
    main()
