#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Microseconds of a call from Python, all of it, on an engine of one small product: what is left is the call. And what
`import tessera` takes.
`src/library/call_bench.cc` measures the same from C. Wants numpy and onnx; with torch also tensors. A measurement for a
quiet machine, no test.

    python3 bench/library_calls.py [build/release]
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import timeit

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/release").resolve()
sys.path.insert(0, str(BUILD / "python"))
import tessera  # noqa: E402

ROUNDS, CALLS = 20, 20_000


def small_engine(folder):
    w = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "small", ports[:1], ports[1:], [w])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / "small.onnx")
    tessera.build(folder / "small.onnx", folder / "small.tess", precision="fp32")
    return tessera.load(folder / "small.tess")


def show(what, call):
    times = timeit.repeat(call, repeat=ROUNDS, number=CALLS)
    print(f"{what:<40} {1e6 * sorted(times)[ROUNDS // 2] / CALLS:6.2f} us, fastest {1e6 * min(times) / CALLS:6.2f}")


IMPORT = """
import sys, time
def kilobytes():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))
before, start = kilobytes(), time.perf_counter()
import tessera
print(1e3 * (time.perf_counter() - start), (kilobytes() - before) / 1e3)
"""


def show_import():
    """In processes of its own; the first one may read files from a disk and does not count."""
    runs = []
    for _ in range(12):
        done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True,
                              env={**os.environ, "PYTHONPATH": str(BUILD / "python")})  # fmt: skip
        runs.append([float(w) for w in done.stdout.split()])
    ms, megabytes = (sorted(column)[len(runs) // 2] for column in zip(*runs[1:]))
    print(f"{'import tessera':<40} {ms:6.1f} ms, {megabytes:.1f} MB")


def show_load():
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    quiet = "" if load < 0.5 else ": too busy for figures"
    print(f"{cores} cores, load {load:.1f} before this began{quiet}; Python {sys.version.split()[0]}")


def main():
    show_load()
    show_import()
    with tempfile.TemporaryDirectory() as folder:
        engine = small_engine(pathlib.Path(folder))
    context = engine.context(threads=1)
    x = np.ones((1, 4), np.float32)
    y = np.empty((1, 4), np.float32)
    show("numpy, out=", lambda: context(x, out=y))
    show("numpy, a new array", lambda: context(x))
    show("engine.run, numpy, any number of samples", lambda: engine.run({"x": x}))
    try:
        import torch
    except ImportError:
        return
    tx, ty = torch.from_numpy(x), torch.from_numpy(y)
    show("torch, out=", lambda: context(tx, out=ty))
    show("torch, a new tensor", lambda: context(tx))


if __name__ == "__main__":
    main()
