#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the library costs on a CPU, measured from Python: a call with numpy and with torch, contexts side by side, the
GIL, `import tessera`, and whole models beside ONNX Runtime, from Python both.

    python3 bench/library_calls.py [build/release] [--sections calls,import,contexts,gil,peers] [--out bench/results]
    python3 bench/library_calls.py --installed       # of `pip install .`, in this Python

One command, a table, and <out>/cpu-<machine>/library.json. Wants numpy and onnx; what needs torch or onnxruntime is
left out without them, and the table says so. It keeps to two cores, and takes less than ten minutes. It is a
measurement, no test, and refuses to begin on a machine that others keep busy; --busy measures all the same. A row
during which others were at work is marked. src/library/call_bench.cc measures calls from C."""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import timeit

import library_gil
import library_peers
import machine_load

REPO = pathlib.Path(__file__).resolve().parent.parent
SECTIONS = ("calls", "import", "contexts", "gil", "peers")
ROUNDS, CALLS = 20, 20_000
CORES = 2


class Bench:
    """Where things are, and the rows that were measured."""

    def __init__(self, options, folder):
        self.options, self.folder, self.rows, self.left_out = options, pathlib.Path(folder), [], []
        if options.installed:
            self.environment, self.program = dict(os.environ), shutil.which("tessera") or "tessera"
        else:
            build = options.build.resolve()
            sys.path.insert(0, str(build / "python"))
            self.environment = {**os.environ, "PYTHONPATH": str(build / "python")}
            self.program = str(build / "bin" / "tessera")
        import tessera

        self.tessera = tessera

    def call(self, *words):
        done = subprocess.run([self.program, *map(str, words)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{self.program} {' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def row(self, what, value, unit, others, wanted=None, at_most=True, **more):
        """`wanted`: a limit, from above or from below."""
        row = {"what": what, "value": value, "unit": unit, "others_cores": round(others.cores, 3), **more}
        if wanted is not None:
            row |= {"wanted": wanted, "at_most": at_most, "met": value <= wanted if at_most else value >= wanted}
        row["disturbed"] = others.cores > machine_load.QUIET
        self.rows.append(row)
        print(text_of(row), flush=True)

    def leave_out(self, what):
        self.left_out.append(what)
        print(f"left out: {what}", flush=True)


def text_of(row):
    wanted = ""
    if "wanted" in row:
        wanted = (
            f"wanted {'at most' if row['at_most'] else 'at least'} {row['wanted']:g}: {'yes' if row['met'] else 'NO'}"
        )
    noise = f"  (others used {row['others_cores']:.2f} cores)" if row["disturbed"] else ""
    return f"{row['what']:<58} {row['value']:9.2f} {row['unit']:<8} {wanted}{noise}"


def small_engine(bench):
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    w = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "small", ports[:1], ports[1:], [w])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), bench.folder / "small.onnx")
    path = bench.folder / "small.tess"
    bench.tessera.build(bench.folder / "small.onnx", path, precision="fp32")
    return path


def calls(bench):
    """An engine of one small product: what is left is the call. `tessera bench` has the time of the plan alone."""
    import numpy as np

    path = small_engine(bench)
    context = bench.tessera.load(path).context(threads=1)
    engine = bench.tessera.load(path)
    x, y = np.ones((1, 4), np.float32), np.empty((1, 4), np.float32)
    with machine_load.Others() as others:
        said = json.loads(bench.call("bench", path, "--repeats", 200_000, "--warmup", 1000, "--threads", 1, "--json"))
    plan_us = 1e3 * said["plans"][0]["median_ms"]
    bench.row("the plan alone (tessera bench)", plan_us, "us", others)
    names = {"context": context, "engine": engine, "x": x, "y": y}
    took = lambda call, wanted, what: measure_call(bench, call, names, wanted, what, plan_us)
    took("context(x, out=y)", 1, "numpy, out=")
    took("context(x)", 1, "numpy, a new array")
    took('engine.run({"x": x})', None, "engine.run, numpy, any number of samples")
    try:
        import torch
    except ImportError as error:
        return bench.leave_out(f"calls with torch: {error}")
    names |= {"tx": torch.from_numpy(x), "ty": torch.from_numpy(y)}
    took("context(tx, out=ty)", 3, f"torch {torch.__version__}, out=")
    took("context(tx)", 3, f"torch {torch.__version__}, a new tensor")


def measure_call(bench, call, names, wanted, what, plan_us):
    """`call` is text: a function around it would be one more call of Python's."""
    with machine_load.Others() as others:
        times = [1e6 * t / CALLS for t in timeit.repeat(call, globals=names, repeat=ROUNDS, number=CALLS)]
    us = statistics.median(times)
    bench.row(f"on top of the plan: {what}", us - plan_us, "us", others, wanted, call_us=us, fastest_us=min(times))


IMPORT = """
import sys, time
def kilobytes():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))
before, start = kilobytes(), time.perf_counter()
import tessera
print(1e3 * (time.perf_counter() - start), (kilobytes() - before) / 1e3)
"""


def importing(bench):
    """In processes of their own; the first one may read files from a disk and does not count."""
    runs = []
    with machine_load.Others() as others:
        for _ in range(16):
            done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True,
                                  env=bench.environment)  # fmt: skip
            runs.append([float(w) for w in done.stdout.split()])
    ms, megabytes = (statistics.median(column) for column in zip(*runs[1:]))
    bench.row("import tessera", ms, "ms", others, 30)
    bench.row("import tessera, memory", megabytes, "MB", others, 15)


def contexts(bench):
    """Two contexts of one thread each, in two threads of Python's, beside one."""
    if machine_load.cores() < 2:
        return bench.leave_out("contexts side by side: this machine has one core")
    digits = bench.folder / "contexts.tess"
    bench.tessera.build(REPO / "assets" / "digits" / "vit.onnx", digits, precision="fp32", batch=8, verify=False)
    vit = library_peers.vit_engine(bench, "bf16")
    for what, path, plan in (("digits fp32 b8", digits, "batch8"), ("ViT-B/16 bf16 b1", vit, "batch1")):
        engine = bench.tessera.load(path)
        lanes = [Lane(engine.context(plan, threads=1, verify=False)) for _ in range(2)]
        for lane in lanes:
            lane.context(lane.x, out=lane.y)
        with machine_load.Others() as others:
            ratios = [rate(lanes) / rate(lanes[:1]) for _ in range(5)]
        bench.row(f"two contexts of one thread over one: {what}", statistics.median(ratios), "x", others, 1.8, False)


class Lane:
    def __init__(self, context):
        import numpy as np

        self.context, self.calls = context, 0
        self.x = np.random.default_rng(1).standard_normal(context.inputs[0].shape).astype(np.float32)
        self.y = np.empty(context.outputs[0].shape, np.float32)

    def work(self, until):
        self.calls = 0
        while time.monotonic() < until:
            self.context(self.x, out=self.y)
            self.calls += 1


def rate(lanes, seconds=1.5):
    start = time.monotonic()
    threads = [threading.Thread(target=lane.work, args=(start + seconds,)) for lane in lanes]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return sum(lane.calls for lane in lanes) / (time.monotonic() - start)


def gil(bench):
    if machine_load.cores() < 2:
        return bench.leave_out("the GIL: this machine has one core")
    library_gil.measure(bench)


def peers(bench):
    library_peers.measure(bench)


def write(bench, busy):
    folder = bench.options.out / f"cpu-{os.uname().machine}"
    folder.mkdir(parents=True, exist_ok=True)
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine_load.processor(),
        "cores": machine_load.cores(),
        "python": sys.version.split()[0],
        "version": bench.tessera.__version__,
        "command": " ".join(["python3 bench/library_calls.py", *sys.argv[1:]]),
        "busy_before": round(busy, 3),
        "quiet": busy <= machine_load.QUIET and not any(r["disturbed"] for r in bench.rows),
        "left_out": bench.left_out,
        "rows": bench.rows,
    }
    path = folder / "library.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1) + "\n")
    part.rename(path)
    print(f"written to {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--installed", action="store_true", help="the package and program of this Python")
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--busy", action="store_true", help="measure on a busy machine, too")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each whole model")
    parser.add_argument("--out", type=pathlib.Path, default=REPO / "bench" / "results")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])  # before anybody makes threads
    chosen = options.sections.split(",")
    if unknown := [s for s in chosen if s not in SECTIONS]:
        parser.error(f"--sections {unknown[0]}: some of {','.join(SECTIONS)}, with commas")
    busy = machine_load.busy_cores()
    print(f"{machine_load.processor()}, {machine_load.cores()} cores, Python {sys.version.split()[0]}; others use "
          f"{busy:.2f} cores, load average {os.getloadavg()[0]:.2f}")  # fmt: skip
    if busy > machine_load.QUIET and not options.busy:
        sys.exit(f"this machine is busy (at most {machine_load.QUIET} cores of others are wanted): wait, or say --busy")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        for name, section in (
            ("calls", calls),
            ("import", importing),
            ("contexts", contexts),
            ("gil", gil),
            ("peers", peers),
        ):
            if name in chosen:
                section(bench)
        write(bench, busy)
    if any(r.get("wrong") for r in bench.rows):
        sys.exit("a model gave other numbers than its peer: see the rows")


if __name__ == "__main__":
    main()
