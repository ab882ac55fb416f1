#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Engines and kernels on the GPU, and their peers. `./run gpu-bench` builds and calls it; sections of peers alone
need no build.

  python3 bench/gpu_bench.py [--sections vit,cosine,ops] [--tune] [--limit SECONDS]
  TESSERA_PEERS=FOLDER python3 bench/gpu_bench.py --sections peers

Sections:
  vit       ViT engines: b64 and b1 in FP16, FP8 with FP8 attention and INT8, and the 256-token model
  int8      the INT8 engines of `vit` alone
  cosine    the engines' logits against fp32 (with int8 and without vit: of the INT8 engines)
  ops       kernels alone: attention, matmul, norm, a gated MLP
  growth    time over batch, sequence and depth
  peer_ops  cuBLAS, cuDNN, FlashAttention-2 in FP16, cuBLASLt in FP8
  peer_fp8  cuDNN's FP8 attention
  peer_vit  PyTorch and torch.compile
  peers     the last three (bench/peer_runs.py says which scripts they are)
All engines are built first, side by side, from seeded random weights (`tessera zoo`); those of `vit` are checked
against their golden values on the GPU. Times are GPU time: medians of CUDA-graph launches, inputs resident. What
fails, or does not fit into the limit, is recorded as such and the rest goes on.
Results: <out>/<gpu>/*.json, merged with what is there by the rules of bench/store.py; tables on stdout, last.
A run names its commit: by TESSERA_COMMIT, by git, or by the file carry/commit.
--tune times candidates first (tessera build --tune) and keeps the table in --tuning, which all engines are then
built by."""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from goals import print_summary  # noqa: E402
from peer_runs import MODELS, VITS, Peers  # noqa: E402
from runs import COMMIT_FILE, Run  # noqa: E402
from store import LEFT_OUT, store  # noqa: E402

PROGRAM = "build/tessera"
BENCHES = "build/release/bin"
WORK = "build/gpu_bench"
TUNING = "assets/tuning/h200.json"
RESULTS = "bench/results"
PEER_SECTIONS = ["peer_ops", "peer_fp8", "peer_vit"]
SECTIONS = ["vit", "int8", "cosine", "ops", "growth", *PEER_SECTIONS]
DEFAULT_SECTIONS = "vit,cosine,ops"  # what fits the limit; growth and peers are runs of their own
PRECISIONS = {
    "fp16": ["--precision", "fp16"],
    "fp8": ["--precision", "fp8", "--attention", "fp8"],
    "int8": ["--precision", "int8"],
}
# (model, precision, batch) of the section vit. An engine each: what is folded for few rows is so in all plans of an
# engine, or in none.
ENGINES = [
    ("vit-b-16", "fp16", 1),
    ("vit-b-16", "fp16", 64),
    ("vit-b-16", "fp8", 1),
    ("vit-b-16", "fp8", 64),
    ("vit-b-16", "int8", 1),
    ("vit-b-16", "int8", 64),
    ("vit-b-256", "fp16", 64),
    ("vit-b-256", "fp8", 64),
]
BATCHES = ["1", "2,4,8,16,32,64,128,256"]  # of one engine each
IMAGES = [128, 192, 256, 384, 512, 768, 1024]  # patches of 16 pixels: 64 to 4096 tokens
DEPTHS = [6, 12, 24, 48]
SEQUENCE_BATCH, DEPTH_BATCH = 8, 64


class Clock:
    """Seconds since the start, and what is left of the limit."""

    def __init__(self, limit):
        self.start, self.limit = time.monotonic(), limit

    def used(self):
        return time.monotonic() - self.start

    def left(self):
        return self.limit - self.used()


def say(clock, text):
    print(f"[{clock.used():5.0f} s] {text}", flush=True)


def call(words, timeout):
    """(output, error sentence): one of the two."""
    if timeout <= 1:
        return None, f"{LEFT_OUT} the time limit is reached"
    try:
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, f"stopped after {timeout:.0f} s"
    except OSError as error:
        return None, str(error)
    if done.returncode != 0:
        return None, f"exit {done.returncode}: " + " ".join((done.stderr or done.stdout).split())[-600:]
    return done.stdout, None


def call_json(words, timeout):
    text, error = call(words, timeout)
    if error:
        return None, error
    try:
        return json.loads(text), None
    except ValueError:
        return None, f"{words[0]} {words[1]}: printed no JSON"


# ---------------------------------------------------------------- engines


class Engines:
    """Zoo models and engines by name; made once, side by side."""

    def __init__(self, args, clock):
        self.args, self.clock, self.jobs = args, clock, {}

    def ask(self, name, model, words, sizes=()):
        onnx = f"{WORK}/{'-'.join([model, *map(str, sizes)]).replace('--', '')}.onnx"
        self.jobs[name] = {
            "onnx": onnx,
            "zoo": [PROGRAM, "zoo", model, "-o", onnx, *sizes],
            "file": f"{WORK}/{name}.tess",
            "build": words,
            "error": None,
        }
        return name

    def make(self, workers):
        models = {j["onnx"]: j["zoo"] for j in self.jobs.values()}
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            zoo = {}
            for onnx, words in models.items():
                zoo[onnx] = pool.submit(
                    lambda onnx=onnx, words=words: (
                        (None, None) if os.path.exists(onnx) else call(words, self.clock.left())
                    )
                )
            faults = {onnx: done.result()[1] for onnx, done in zoo.items()}
            say(self.clock, f"{len(models)} models made")

            def build(job, tune):
                if faults[job["onnx"]]:
                    return faults[job["onnx"]]
                tuning = ["--tune"] if tune else []
                if "cpu" not in job["build"] and (tune or os.path.exists(self.args.tuning)):
                    tuning += ["--tuning", self.args.tuning]
                return call(
                    [PROGRAM, "build", job["onnx"], "-o", job["file"], *job["build"], *tuning], self.clock.left()
                )[1]

            if self.args.tune:  # one at a time: they measure, and they share the table
                for name, job in self.jobs.items():
                    if "cpu" not in job["build"]:
                        job["error"], job["done"] = build(job, True), True
                        say(self.clock, f"tuned and built {name}" + (f": {job['error']}" if job["error"] else ""))
            waiting = {n: pool.submit(build, j, False) for n, j in self.jobs.items() if not j.get("done")}
            for name, done in waiting.items():
                self.jobs[name]["error"] = done.result()
        for name, job in self.jobs.items():
            if job["error"]:
                say(self.clock, f"{name}: {job['error']}")
        say(self.clock, f"{len(self.jobs)} engines built")

    def timed(self, name, repeats):
        """([plan], error)"""
        job = self.jobs[name]
        if job["error"]:
            return None, job["error"]
        done, error = call_json([PROGRAM, "bench", job["file"], "--repeats", repeats, "--json"], self.clock.left())
        return (done["plans"], None) if not error else (None, error)

    def profiled(self, name, plan, repeats):
        """([kernel], error): every step of a plan, timed inside its CUDA graph"""
        words = ["profile", self.jobs[name]["file"], "--plan", plan, "--runs", repeats, "--ceilings", "none", "--json"]
        done, error = call_json([PROGRAM, *words], self.clock.left())
        return (done["kernels"], None) if not error else ([], error)


def merged_steps(kernels):
    """Layers that differ in numbers alone are one line, with their times summed."""
    lines = {}
    for k in kernels:
        variant, _, config = k["name"].partition(" ")
        layer = re.sub(r"\d+", "*", re.sub(r"_\d+$", "", k["layer"]))
        line = lines.setdefault(
            (layer, variant, config),
            {
                "layer": layer,
                "op": variant.partition("/")[0],
                "variant": variant,
                "config": config,
                "steps": 0,
                "ms": 0.0,
            },
        )
        line["steps"] += 1
        line["ms"] += k["us"] / 1e3
    return sorted(lines.values(), key=lambda x: -x["ms"])


def kernels_per_block(manifest, batch):
    """Steps from the QKV layer of a block in the middle to that of the next: the first and the last block may be
    cut."""
    plan = next(
        (p for p in (manifest or {}).get("plans", []) if p["batch"] == batch and not p["name"].startswith("golden")),
        None,
    )
    starts = [
        i for i, s in enumerate(plan["steps"] if plan else []) if re.fullmatch(r"blocks\.\d+\.attn\.qkv", s["layer"])
    ]
    return starts[len(starts) // 2 + 1] - starts[len(starts) // 2] if len(starts) > 2 else None


def vit_rows(engines, args, chosen):
    rows = []
    for model, precision, batch in chosen:
        name = f"vit:{model}:{precision}:{batch}"
        plans, error = engines.timed(name, args.repeats)
        manifest = (
            None
            if error
            else call_json([PROGRAM, "inspect", engines.jobs[name]["file"], "--json"], engines.clock.left())[0]
        )
        row = {"name": f"tessera {precision}", "model": model, "precision": precision, "batch": batch}
        plan = next((p for p in plans or [] if p["batch"] == batch), None)
        if plan is None:
            rows.append(row | {"error": error or "no such plan"})
            continue
        kernels, error = engines.profiled(name, plan["plan"], args.repeats)
        if error:
            say(engines.clock, f"{name}: not profiled: {error}")
        rows.append(
            row
            | {
                "ms": plan["median_ms"],
                "p10_ms": plan["p10_ms"],
                "p90_ms": plan["p90_ms"],
                "repeats": args.repeats,
                "kernels_per_block": kernels_per_block(manifest, batch),
                "steps": merged_steps(kernels),
            }
        )
    return rows


# ---------------------------------------------------------------- logits against fp32


def cosine_rows(engines, clock, chosen):
    """Cosine of each engine's logits on the GPU with those of the fp32 engine on the CPU, over the same random
    images; torch's FP8 beside them."""
    try:
        import numpy as np
    except ImportError:
        return [{"error": "no numpy here"}]
    from torch_fp8_logits import cosines

    rows = []
    for model, size in (("vit-b-16", 224), ("vit-b-256", 256)):
        if model not in {m for m, _, _ in chosen}:
            continue
        images = f"{WORK}/{model}-images.npz"
        np.savez(images, image=np.random.default_rng(7).standard_normal((16, 3, size, size)).astype("f4"))

        def logits(name):
            job = engines.jobs.get(name)
            if job is None or job["error"]:
                return None, job["error"] if job else "not built"
            out = f"{WORK}/{name}-logits.npz"
            error = call([PROGRAM, "run", job["file"], "--no-verify", "-i", images, "-o", out], clock.left())[1]
            return (None, error) if error else (np.load(out)["logits"].astype("f8"), None)

        want, error = logits(f"cosine:{model}:fp32")
        for m, precision, batch in chosen:
            if m != model:
                continue
            row = {"model": model, "precision": precision, "batch": batch, "samples": 16}
            got, fault = (None, error) if error else logits(f"vit:{model}:{precision}:{batch}")
            if fault:
                rows.append(row | {"error": fault})
                continue
            rows.append(row | cosines(np, got, want))
        if not error and (model, "fp8") in {(m, p) for m, p, _ in chosen}:
            torch, fault = call_json(
                [
                    sys.executable,
                    f"{HERE}/torch_fp8_logits.py",
                    engines.jobs[f"cosine:{model}:fp32"]["onnx"],
                    images,
                    f"{WORK}/cosine:{model}:fp32-logits.npz",
                ],
                min(90, clock.left()),
            )
            rows.append({"peer": True, "model": model, "precision": "torch fp8"} | (torch or {"error": fault}))
    return rows


# ---------------------------------------------------------------- ops


def op_rows(clock):
    rows, peaks = [], {}
    for op in ("attention", "matmul", "norm"):
        out = f"{WORK}/{op}.json"
        if os.path.exists(out):
            os.remove(out)
        error = call([f"{BENCHES}/ops_{op}_bench", f"--gpu={out}"], clock.left())[
            1
        ]  # exit 1 where a row is wrong: the file says which
        if os.path.exists(out):
            with open(out) as f:
                record = json.load(f)
            rows += record["rows"]
            peaks = record["peaks"]
        elif error:
            rows.append({"op": op, "error": error})
    return rows, peaks


# ---------------------------------------------------------------- growth


def ask_growth(engines):
    quick = ["--target", "sm90", "--no-verify"]
    for precision in ("fp16", "fp8"):
        words = PRECISIONS[precision] + quick
        for batches in BATCHES:
            engines.ask(f"batch:{precision}:{batches}", "vit-b-16", words + ["--batch", batches])
        for image in IMAGES:
            engines.ask(
                f"sequence:{precision}:{image}",
                "vit-b-256",
                words + ["--batch", str(SEQUENCE_BATCH)],
                ["--image", image],
            )
        for depth in DEPTHS:
            engines.ask(
                f"depth:{precision}:{depth}", "vit-b-16", words + ["--batch", str(DEPTH_BATCH)], ["--depth", depth]
            )


def growth_rows(engines, args):
    rows = []
    for precision in ("fp16", "fp8"):
        for batches in BATCHES:
            plans, error = engines.timed(f"batch:{precision}:{batches}", args.repeats)
            for batch in map(int, batches.split(",")):
                plan = next((p for p in plans or [] if p["batch"] == batch), None)
                rows.append(
                    {"axis": "batch", "precision": precision, "x": batch, "batch": batch}
                    | ({"ms": plan["median_ms"]} if plan else {"error": error or "no such plan"})
                )
        for axis, values, batch in (("sequence", IMAGES, SEQUENCE_BATCH), ("depth", DEPTHS, DEPTH_BATCH)):
            for value in values:
                plans, error = engines.timed(f"{axis}:{precision}:{value}", args.repeats)
                x = (value // 16) ** 2 if axis == "sequence" else value
                rows.append(
                    {"axis": axis, "precision": precision, "x": x, "batch": batch}
                    | ({"ms": plans[0]["median_ms"]} if plans else {"error": error})
                )
    return rows


def command_words(argv):
    """What was asked, without folders of this machine."""
    words, skip = [], False
    for word in argv:
        if skip or word.split("=")[0] in ("--out", "--peers", "--tuning"):
            skip = not skip and "=" not in word
            continue
        words.append(word)
    return " ".join(["python3 bench/gpu_bench.py", *words])


def label(r):
    return " ".join(
        str(r[k])
        for k in ("script", "name", "op", "form", "variant", "config", "model", "axis", "x", "precision", "batch")
        if k in r
    )


def print_rows(records):
    """What was measured now, the short tables first."""
    for r in records.get("peers", []):
        if r.get("script") == "vit" and "ms" in r:
            print(
                f"{r['name']:58} {r['model']:10} b{r['batch']:<4} {r['ms']:8.3f} ms"
                + (f"  cosine {r['cos_mean']:.5f}, worst {r['cos_min']:.5f}" if "cos_mean" in r else "")
            )
    for r in records.get("cosine", []):
        if "cos_mean" in r:
            print(
                f"{r['model']} {r['precision']}{' b%d' % r['batch'] if 'batch' in r else ''}: mean cosine "
                f"{r['cos_mean']:.6f} with fp32, worst {r['cos_min']:.6f}, centred {r['cos_centred']:.5f}"
            )
    axes = {}
    for r in records.get("growth", []):
        axes.setdefault((r["axis"], r["precision"]), []).append(
            f"{r['x']}: {r['ms']:.3f}" if "ms" in r else f"{r['x']}: -"
        )
    for (axis, precision), points in axes.items():
        print(f"{axis:8} {precision:5} ms  " + "  ".join(points))
    for r in records.get("vit", []):
        if "ms" in r:
            print(
                f"{r['name']:16} {r['model']:10} b{r['batch']:<4} {r['ms']:8.3f} ms  "
                f"{r['batch'] / r['ms'] * 1e3:8.0f} images/s  {r['kernels_per_block']} kernels per block"
            )


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", default=DEFAULT_SECTIONS)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--tune", action="store_true", help="time candidates for the engines of these sections first")
    parser.add_argument("--tuning", default=TUNING, help="the table that engines are built by, where it exists")
    parser.add_argument("--peers", default=os.environ.get("TESSERA_PEERS", ""))
    parser.add_argument("--peer-models", default=",".join(VITS), help="which ViTs of peer_vit, in this order")
    parser.add_argument("--peer-sections", default="eager,compile,fp8", help="what vit_peers.py runs for each")
    parser.add_argument(
        "--peer-limit", type=float, default=300, help="seconds for each ViT of the peers; torch.compile needs about 110"
    )
    parser.add_argument("--limit", type=float, default=540, help="seconds in all")
    parser.add_argument(
        "--workers", type=int, default=max(1, min(5, (os.cpu_count() or 1) // 3)), help="builds side by side"
    )
    parser.add_argument("--out", default=RESULTS)
    args = parser.parse_args(argv)
    args.sections = [w for s in args.sections.split(",") for w in (PEER_SECTIONS if s == "peers" else [s])]
    for s in args.sections:
        if s not in SECTIONS:
            parser.error(f"no section {s}: there are {', '.join(SECTIONS)} and peers")
    args.peer_models = [(m.rpartition(":")[0], m.rpartition(":")[2]) for m in args.peer_models.split(",")]
    for model, batch in args.peer_models:
        if model not in MODELS or not batch.isdigit():
            parser.error(f"--peer-models: {model}:{batch} is none of {', '.join(VITS)}")
    return parser, args


def main(argv):
    parser, args = arguments(argv)
    sections, clock, run = args.sections, Clock(args.limit), Run(command_words(argv))
    if not run.record["commit"]:
        parser.error(
            "which code is this? no git here: give TESSERA_COMMIT=$(git rev-parse HEAD), or write that to "
            f"{COMMIT_FILE}"
        )
    gpu = run.record["machine"]
    name = re.sub(r"[^a-z0-9]+", "_", gpu.lower().removeprefix("nvidia "))
    folder = os.path.join(args.out, name)
    os.makedirs(folder, exist_ok=True)
    os.makedirs(WORK, exist_ok=True)
    known = os.path.join(RESULTS, name)
    if not os.listdir(folder) and os.path.isdir(
        known
    ):  # results elsewhere start from the committed ones, so that tables are whole
        for file in os.listdir(known):
            shutil.copy(os.path.join(known, file), folder)
    records, extra = {}, {}

    def keep(section, **rows):
        """Stores what a section measured, at once: a run that is killed later keeps it."""
        run.sample(section)
        say(clock, f"{section} done")
        for part, new in rows.items():
            records[part] = records.get(part, []) + new
            for r in new:
                if "error" in r:
                    run.record["left_out" if r["error"].startswith(LEFT_OUT) else "failed"].append(
                        f"{label(r)}: {r['error']}"
                    )
        return store(folder, gpu, {run.id: run.record}, rows, extra)

    chosen = ENGINES if "vit" in sections or "int8" not in sections else [e for e in ENGINES if e[1] == "int8"]
    engines = Engines(args, clock)
    if {"vit", "int8", "cosine"} & set(sections):
        for model, precision, batch in chosen:
            engines.ask(
                f"vit:{model}:{precision}:{batch}",
                model,
                PRECISIONS[precision] + ["--target", "sm90", "--batch", str(batch)],
            )
    if "cosine" in sections:
        for model in sorted({m for m, _, _ in chosen}):
            engines.ask(
                f"cosine:{model}:fp32",
                model,
                ["--precision", "fp32", "--target", "cpu", "--no-verify", "--batch", "16"],
            )
    if "growth" in sections:
        ask_growth(engines)
    if engines.jobs:
        engines.make(args.workers)

    rows = None
    if "vit" in sections or "int8" in sections:
        rows = keep("vit", vit=vit_rows(engines, args, chosen))
    if "cosine" in sections:
        rows = keep("cosine", cosine=cosine_rows(engines, clock, chosen))
    if "ops" in sections:
        ops, peaks = op_rows(clock)
        extra["ops"] = {"peaks": peaks} if peaks else {}
        rows = keep("ops", ops=ops)
    if "growth" in sections:
        extra["growth"] = {"model": "vit-b-16 (batch, depth), vit-b-256 (sequence)"}
        rows = keep("growth", growth=growth_rows(engines, args))
    peers = Peers(args.peers, WORK, call, clock.left, lambda text: say(clock, text))
    run.record["versions"] = peers.versions
    if "peer_ops" in sections:
        rows = keep("peer_ops", peers=peers.gemm() + peers.attention())
    if "peer_fp8" in sections:
        rows = keep("peer_fp8", peers=peers.cudnn_fp8())
    if "peer_vit" in sections:
        for model, batch in args.peer_models:
            rows = keep("peer_vit", peers=peers.vit(model, int(batch), args.peer_sections, args.peer_limit))

    faults = [r for part in records.values() for r in part if "error" in r]
    for r in faults:
        print("fault:", label(r), "-", r["error"])
    say(clock, f"done, {len(faults)} faults; results: {folder}; run {run.id}, driver {run.record['driver']}")
    print_rows(records)
    print_summary(rows)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
