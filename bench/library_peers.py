# SPDX-License-Identifier: Apache-2.0
"""Whole models from Python, beside ONNX Runtime on the very same ONNX file: ViT-B/16 of seeded weights, and the bundled
digits. Both take a dict of numpy arrays and give new ones. A section of bench/library_calls.py."""

import pathlib
import statistics
import time

import machine_load

REPO = pathlib.Path(__file__).resolve().parent.parent
THREADS = 2
PAUSE_S = 0.1  # ONNX Runtime's threads spin for a while after a run, and would take the cores from who comes next
# What fp32 and bf16 may differ from ONNX Runtime's fp32, of the largest number: rounding once more per layer, not a
# wrong model. Neither is a test of the numbers: `tessera verify` is.
CLOSE = {"fp32": 1e-3, "bf16": 5e-2}
BATCHES = (1, 8)


def vit_model(bench):
    path = bench.folder / "vit-b-16.onnx"
    if not path.exists():
        bench.call("zoo", "vit-b-16", "-o", path)
    return path


def vit_engine(bench, precision):
    path = bench.folder / f"vit-b-16-{precision}.tess"
    if not path.exists():
        bench.tessera.build(vit_model(bench), path, precision=precision, batch=BATCHES, verify=False)
    return path


def measure(bench):
    try:
        import onnxruntime
    except ImportError as error:
        return bench.leave_out(f"whole models beside ONNX Runtime: {error}")
    model = vit_model(bench)
    engines = {p: bench.tessera.load(vit_engine(bench, p)) for p in ("fp32", "bf16")}
    wanted = {"fp32": 1.0, "bf16": 2.5}
    for batch in BATCHES:
        compare(bench, onnxruntime, f"ViT-B/16 b{batch}", model, engines, batch, wanted)
    digits = REPO / "assets" / "digits" / "vit.onnx"
    bench.tessera.build(digits, bench.folder / "digits.tess", precision="fp32", batch=1, verify=False)
    engines = {"fp32": bench.tessera.load(bench.folder / "digits.tess")}
    compare(bench, onnxruntime, "digits b1", digits, engines, 1, {"fp32": 1.5})


def compare(bench, onnxruntime, what, model, engines, batch, wanted):
    import numpy as np

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    port = next(iter(engines.values())).inputs()[0]
    shape = (batch, *port.shape[1:])
    feeds = {port.name: np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    want = session.run(None, feeds)[0]
    takers = {"onnxruntime": lambda: session.run(None, feeds)}
    wrong = {}
    for precision, engine in engines.items():
        takers[precision] = lambda engine=engine: engine.run(feeds, verify=False)
        got = next(iter(takers[precision]().values()))
        off = float(np.abs(got - want).max() / np.abs(want).max())
        wrong[precision] = {"off": off, "wrong": not off <= CLOSE[precision]}
    with machine_load.Others() as others:
        ms = take_turns(takers, bench.options.rounds)
    peer = f"onnxruntime {onnxruntime.__version__} fp32"
    bench.row(f"{what}: {peer}, {THREADS} threads", ms["onnxruntime"], "ms", others)
    for precision in engines:
        bench.row(f"{what}: tessera {precision}", ms[precision], "ms", others, **wrong[precision])
        bench.row(f"{what}: tessera {precision} over {peer}", ms["onnxruntime"] / ms[precision], "x", others,
                  wanted[precision], False)  # fmt: skip


def take_turns(takers, rounds):
    """Milliseconds of a call of each: the median over turns, of as many calls as take a quarter of a second."""
    calls = {name: count_for(take, 0.25) for name, take in takers.items()}
    times = {name: [] for name in takers}
    for _ in range(rounds):
        for name, take in takers.items():
            time.sleep(PAUSE_S)
            take()  # wakes threads up
            start = time.perf_counter()
            for _ in range(calls[name]):
                take()
            times[name].append(1e3 * (time.perf_counter() - start) / calls[name])
    return {name: statistics.median(t) for name, t in times.items()}


def count_for(take, seconds):
    take()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        take()
        count += 1
    return max(1, count)
