#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A ViT on the CPU beside its peers, in one run and taking turns, so that a busy machine disturbs all alike.

  python3 bench/cpu_peers.py [--model vit-b-16] [--batch 8] [--threads 2] [--rounds 5] [--out bench/results]

Rows: tessera fp32, bf16, fp8 (built here from seeded weights, checked against golden values unless --no-verify),
ONNX Runtime fp32 on the very same ONNX file, and PyTorch fp32 and bf16 on a ViT of the same sizes (torch.nn modules
with scaled_dot_product_attention, weights of its own). A peer that is not installed is left out, and the table says
so. The time of a row is the median over rounds of one forward pass each after a warm-up; peak memory is that of a
process that only loads and runs. Results: <out>/cpu-<machine>/<model>.json."""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

PROGRAM = os.environ.get("TESSERA_PROGRAM", "build/tessera")
SIZES = {"vit-ti-16": (192, 12, 3), "vit-s-16": (384, 12, 6), "vit-b-16": (768, 12, 12), "vit-l-16": (1024, 24, 16)}


def call(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Tessera:
    def __init__(self, args, precision, onnx, work):
        self.name, self.engine = f"tessera {precision}", f"{work}/{precision}.tess"
        words = [
            "build",
            onnx,
            "-o",
            self.engine,
            "--precision",
            precision,
            "--batch",
            str(args.batch),
            "--target",
            "cpu",
            "--json",
        ]
        start = time.monotonic()
        self.build = json.loads(call(*words, *(["--no-verify"] if args.no_verify else [])))
        self.build_s = time.monotonic() - start
        self.args = args

    def run(self):
        done = json.loads(call("bench", self.engine, "--repeats", "1", "--threads", str(self.args.threads), "--json"))
        return done["plans"][0]["median_ms"]

    def facts(self):
        words = [PROGRAM, "bench", self.engine, "--repeats", "2", "--threads", str(self.args.threads), "--json"]
        child, peak = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), 0
        while (
            child.poll() is None
        ):  # VmHWM only grows; what a parent reads after the end would count this interpreter's pages too
            with open(f"/proc/{child.pid}/status") as f:
                peak = max([peak] + [1024 * int(line.split()[1]) for line in f if line.startswith("VmHWM")])
            time.sleep(0.01)
        return {"build_s": self.build_s, "engine_bytes": os.path.getsize(self.engine), "peak_bytes": peak}


class OnnxRuntime:
    name = "onnxruntime fp32"

    def __init__(self, args, onnx, image):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = args.threads
        self.session = onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])
        self.feeds = {self.session.get_inputs()[0].name: image}
        self.version = onnxruntime.__version__

    def run(self):
        start = time.monotonic()
        self.session.run(None, self.feeds)
        return 1e3 * (time.monotonic() - start)

    def facts(self):
        return {"version": self.version}


class Torch:
    def __init__(self, args, dtype, image):
        import torch
        from torch import nn

        torch.set_num_threads(args.threads)
        width, depth, heads = SIZES[args.model]

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.n1, self.n2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
                self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
                self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

            def forward(self, x):
                b, t, _ = x.shape
                q, k, v = self.qkv(self.n1(x)).view(b, t, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
                y = nn.functional.scaled_dot_product_attention(q, k, v)
                x = x + self.proj(y.transpose(1, 2).reshape(b, t, width))
                return x + self.fc2(nn.functional.gelu(self.fc1(self.n2(x))))

        class Vit(nn.Module):
            def __init__(self):
                super().__init__()
                self.patch = nn.Conv2d(3, width, 16, 16)
                self.token, self.position = (
                    nn.Parameter(torch.zeros(1, 1, width)),
                    nn.Parameter(torch.zeros(1, 197, width)),
                )
                self.blocks = nn.Sequential(*[Block() for _ in range(depth)])
                self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 1000)

            def forward(self, x):
                x = self.patch(x).flatten(2).transpose(1, 2)
                x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
                return self.head(self.norm(self.blocks(x))[:, 0])

        self.name, self.torch = f"torch {dtype}", torch
        kind = getattr(torch, {"fp32": "float32", "bf16": "bfloat16"}[dtype])
        torch.manual_seed(1)
        self.model, self.image = Vit().eval().to(kind), torch.from_numpy(image).to(kind)

    def run(self):
        with self.torch.inference_mode():
            start = time.monotonic()
            self.model(self.image)
            return 1e3 * (time.monotonic() - start)

    def facts(self):
        return {"version": self.torch.__version__}


def processor():
    name = ""
    with open("/proc/cpuinfo") as f:
        text = f.read()
    for line in text.splitlines():
        if line.startswith(("model name", "CPU part")):
            name = line.split(":")[1].strip()
            break
    return f"{platform.machine()} {name}".strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vit-b-16", choices=SIZES)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precisions", default="fp32,bf16,fp8")
    parser.add_argument(
        "--no-verify", action="store_true", help="make no golden values (they take longer than the build)"
    )
    parser.add_argument("--out", default="bench/results")
    args = parser.parse_args()
    import numpy as np

    image = np.random.default_rng(1).standard_normal((args.batch, 3, 224, 224)).astype(np.float32)
    missing = []
    with tempfile.TemporaryDirectory() as work:
        onnx = f"{work}/{args.model}.onnx"
        call("zoo", args.model, "-o", onnx)
        rows = [Tessera(args, p, onnx, work) for p in args.precisions.split(",")]
        for make in (
            lambda: OnnxRuntime(args, onnx, image),
            lambda: Torch(args, "fp32", image),
            lambda: Torch(args, "bf16", image),
        ):
            try:
                rows.append(make())
            except ImportError as e:
                missing.append(str(e))
        for row in rows:
            row.run()
        times = {row.name: [] for row in rows}
        for i in range(args.rounds):
            for row in rows:
                times[row.name].append(row.run())
            print(f"round {i + 1} of {args.rounds}", file=sys.stderr)
        result = {
            "model": args.model,
            "batch": args.batch,
            "threads": args.threads,
            "machine": processor(),
            "cores": os.cpu_count(),
            "load_average": os.getloadavg(),
            "command": "python3 bench/cpu_peers.py "
            + " ".join(w for i, w in enumerate(sys.argv) if i > 0 and "--out" not in sys.argv[i - 1 : i + 1]),
            "missing": missing,
            "rows": [
                {"name": r.name, "ms": statistics.median(times[r.name]), "all_ms": times[r.name], **r.facts()}
                for r in rows
            ],
        }
    base = next((r["ms"] for r in result["rows"] if r["name"] == "onnxruntime fp32"), None)
    print(
        f"{args.model}, batch {args.batch}, {args.threads} threads, "
        f"{result['machine']}\n{'':18}{'ms':>10}{'images/s':>10}{'to ORT':>8}{'peak MB':>9}"
    )
    for r in result["rows"]:
        ratio = f"{base / r['ms']:.2f}x" if base else "-"
        peak = f"{r['peak_bytes'] / 1e6:.0f}" if "peak_bytes" in r else "-"
        print(f"{r['name']:18}{r['ms']:10.1f}{1e3 * args.batch / r['ms']:10.2f}{ratio:>8}{peak:>9}")
    for m in missing:
        print(f"left out: {m}")
    folder = os.path.join(args.out, "cpu-" + platform.machine())
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, args.model + ".json")
    with open(path + ".part", "w") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    os.replace(path + ".part", path)
    print(f"written to {path}")


if __name__ == "__main__":
    main()
