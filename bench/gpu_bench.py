#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ViT engines on the GPU, beside the peers in the same run. `./run gpu-bench` calls it.

  python3 bench/gpu_bench.py [--model vit-b-16] [--batch 64] [--precisions fp16,fp8] [--peers FOLDER] [--out bench/results]

Engines are made from seeded random weights (`tessera zoo`), checked against their golden values, then timed: the median of CUDA-graph launches, GPU time
only, inputs resident. FOLDER holds peer scripts (vit_peers.py); without it only our rows are written. Results: <out>/<gpu>/vit.json."""
import argparse
import json
import os
import platform
import subprocess
import sys

PROGRAM = "build/tessera"
PEER_MODEL = {"vit-b-16": "vit_b16", "vit-b-256": "custom256"}


def call(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def gpu_name():
    out = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True)
    return out.stdout.strip().splitlines()[0] if out.returncode == 0 else "none"


def our_row(args, precision, batch, work):
    onnx, engine = f"{work}/{args.model}.onnx", f"{work}/{args.model}-{precision}-b{batch}.tess"
    if not os.path.exists(onnx):
        call("zoo", args.model, "-o", onnx)
    call("build", onnx, "-o", engine, "--precision", precision, "--batch", str(batch), "--target", "sm90")
    bench = json.loads(call("bench", engine, "--repeats", str(args.repeats), "--steps", "--json"))
    plan = bench["plans"][0]
    return {"name": f"tessera {precision}", "model": args.model, "batch": batch, "ms": plan["median_ms"], "p10_ms": plan["p10_ms"],
            "p90_ms": plan["p90_ms"], "repeats": bench["repeats"], "steps": plan["steps"]}


def peer_rows(args, batch, work):
    script = os.path.join(args.peers, "vit_peers.py")
    if not args.peers or not os.path.exists(script) or args.model not in PEER_MODEL:
        return []
    out = f"{work}/peers-{args.model}-{batch}"
    os.makedirs(out, exist_ok=True)
    subprocess.run([sys.executable, script, "--model", PEER_MODEL[args.model], "--batch", str(batch), "--mode", "reduce-overhead",
                    "--sections", args.peer_sections, "--out", out, "--state", out], check=False)
    with open(f"{out}/vit_peers.json") as f:
        rows = json.load(f)
    rows = rows.get("rows", rows) if isinstance(rows, dict) else rows
    return [{k: r[k] for k in ("name", "batch", "ms", "cos_mean", "cos_min") if k in r} | {"peer": True, "model": args.model}
            for r in rows if "ms" in r]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vit-b-16")
    parser.add_argument("--batch", default="64", help="comma-separated")
    parser.add_argument("--precisions", default="fp16,fp8")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--peers", default=os.environ.get("TESSERA_PEERS", ""))
    parser.add_argument("--peer-sections", default="eager,compile,fp8")
    parser.add_argument("--out", default="bench/results")
    args = parser.parse_args()
    name = gpu_name()
    folder = os.path.join(args.out, name.lower().removeprefix("nvidia ").replace(" ", "-"))
    os.makedirs(folder, exist_ok=True)
    work = "build/gpu_bench"
    os.makedirs(work, exist_ok=True)
    rows = []
    for batch in map(int, args.batch.split(",")):
        rows += [our_row(args, p, batch, work) for p in args.precisions.split(",")]
        rows += peer_rows(args, batch, work)
    record = {"gpu": name, "host": platform.machine(), "command": "./run gpu-bench " + " ".join(w for i, w in enumerate(sys.argv) if i > 0 and "--out" not in sys.argv[i - 1:i + 1]), "rows": rows}
    path = os.path.join(folder, f"{args.model}.json")
    with open(path + ".new", "w") as f:
        json.dump(record, f, indent=1)
    os.replace(path + ".new", path)
    print(f"\n{'what':58} {'batch':>5} {'ms':>8} {'images/s':>9}")
    for r in rows:
        print(f"{r['name']:58} {r['batch']:5} {r['ms']:8.3f} {r['batch'] / r['ms'] * 1e3:9.0f}")
    print(f"written: {path}")


if __name__ == "__main__":
    main()
