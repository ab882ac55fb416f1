#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model on the CPU beside its peers, in one run and taking turns, so that a busy machine disturbs all alike.

  python3 bench/cpu_peers.py convnext_tiny swin_tiny_patch4_window7_224 hf:detr vit-b-16 my.onnx
      [--batch 1] [--threads 2] [--rounds 7] [--precisions fp32,bf16,fp8,int8] [--out bench/results]

A model is a name of timm at its own size, `hf:detr` (DETR with a ResNet-50, 640 x 640), a name of `tessera zoo`, or an
ONNX file. Weights are random and seeded. Rows: Tessera in each precision, ONNX Runtime on the very same file in fp32
and with the dynamic int8 of its own tools (matmuls and convolutions as they come), PyTorch's model in fp32 and bf16.
A peer that is not installed or fails is left out, and the table says so. A row's time is the median over rounds of one
forward pass each, after a warm-up. What fp32 differs from ONNX Runtime is printed: it is no test of the numbers.
Results: <out>/cpu-<machine>/peers.json, a key per model and batch."""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import machine_load

REPO = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "tools"))
PROGRAM = os.environ.get("TESSERA_PROGRAM", str(REPO / "build" / "tessera"))
PAUSE_S = 0.2  # threads of other runtimes spin for a while after a run, and would take the cores from who comes next


def call(*words):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: exit {done.returncode}: {done.stdout}{done.stderr}"[:600])
    return done.stdout


class Tessera:
    def __init__(self, case, precision):
        self.name, self.case = f"tessera {precision}", case
        self.engine = f"{case.folder}/{precision}.tess"
        calib = ["--calib", case.inputs] if precision in ("fp8", "int8") else []
        start = time.monotonic()
        call(
            "build", case.onnx, "-o", self.engine, "--precision", precision, "--no-verify", *case.batch_words(), *calib
        )
        self.build_s = time.monotonic() - start

    def run(self):
        words = ["--repeats", 1, "--warmup", 1, "--threads", self.case.args.threads, "--json"]
        return json.loads(call("bench", self.engine, *words))["plans"][0]["median_ms"]

    def facts(self):
        return {"build_s": self.build_s, "engine_bytes": os.path.getsize(self.engine)}


class OnnxRuntime:
    def __init__(self, case, kind):
        import numpy as np
        import onnxruntime

        options, path = onnxruntime.SessionOptions(), case.onnx
        options.intra_op_num_threads = case.args.threads
        options.log_severity_level = 4
        if kind == "dynamic int8":
            from onnxruntime.quantization import quantize_dynamic

            path = f"{case.folder}/ort_int8.onnx"
            quantize_dynamic(case.onnx, path)
        self.name, self.version = f"onnxruntime {kind}", onnxruntime.__version__
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        known = {i.name for i in self.session.get_inputs()}
        self.feeds = {key: value for key, value in np.load(case.inputs).items() if key in known}

    def run(self):
        start = time.monotonic()
        self.outputs = self.session.run(None, self.feeds)
        return 1e3 * (time.monotonic() - start)

    def facts(self):
        return {"version": self.version}


class Torch:
    def __init__(self, case, kind):
        import torch

        if case.module is None:
            raise RuntimeError("not a model of PyTorch")
        torch.set_num_threads(case.args.threads)
        self.name, self.torch = f"torch {kind}", torch
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[kind]
        self.module = case.load()[0].to(dtype)
        self.values = [v.to(dtype) if v.is_floating_point() else v for v in case.values]

    def run(self):
        with self.torch.inference_mode():
            start = time.monotonic()
            self.module(*self.values)
            return 1e3 * (time.monotonic() - start)

    def facts(self):
        return {"version": self.torch.__version__}


class Case:
    """A model at one batch size: its ONNX file, its inputs, and its module where there is one."""

    def __init__(self, name, args, folder):
        self.name, self.args, self.folder, self.module = name, args, folder, None
        self.onnx, self.inputs = f"{folder}/model.onnx", f"{folder}/inputs.npz"
        if name.endswith(".onnx"):
            self.onnx = name
            self.draw_inputs()
        elif name.startswith(("vit-", "deit-")):
            call("zoo", name, "-o", self.onnx)
            self.draw_inputs()
        else:
            self.export()

    def load(self):
        import torch
        import try_models

        torch.manual_seed(1)
        if self.name == "hf:detr":
            import transformers

            config = transformers.DetrConfig(use_pretrained_backbone=False, backbone_kwargs={})

            class Detr(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.inner = transformers.DetrForObjectDetection(config)

                def forward(self, x):
                    result = self.inner(x)
                    return result.logits, result.pred_boxes

            module, shape = Detr(), (self.args.batch, 3, 640, 640)
        else:
            import timm

            module = timm.create_model(self.name, pretrained=False)
            shape = (self.args.batch, *module.default_cfg["input_size"])
        module.eval()
        try_models.make_random(module, torch)
        return module, torch.randn(shape, generator=torch.Generator().manual_seed(2))

    def export(self):
        import numpy as np
        import torch

        self.module, x = self.load()
        self.values = [x]
        with torch.no_grad():
            words = {"dynamo": False, "opset_version": 18, "input_names": ["x"]}
            torch.onnx.export(self.module, (x,), self.onnx, **words)
        np.savez(self.inputs, x=x.numpy())

    def draw_inputs(self):
        import numpy as np
        import onnxruntime

        random, values = np.random.default_rng(1), {}
        for port in onnxruntime.InferenceSession(self.onnx, providers=["CPUExecutionProvider"]).get_inputs():
            shape = [n if isinstance(n, int) else self.args.batch for n in port.shape]
            if port.type != "tensor(float)":
                raise RuntimeError(f"input {port.name} is {port.type}; float is wanted")
            values[port.name] = random.standard_normal(shape).astype(np.float32)
        np.savez(self.inputs, **values)

    def batch_words(self):
        return ["--batch", self.args.batch] if self.module is None else []


def rows_of(case, left_out):
    makers = [(Tessera, p) for p in case.args.precisions.split(",")]
    makers += [(OnnxRuntime, "fp32"), (OnnxRuntime, "dynamic int8"), (Torch, "fp32"), (Torch, "bf16")]
    for kind, word in makers:
        try:
            row = kind(case, word)
            row.run()
            yield row
        except Exception as error:  # whatever a peer raises is a line below the table
            left_out.append(f"{kind.__name__} {word}: {str(error).splitlines()[0][:300]}")


def measure(name, args):
    left_out = []
    with tempfile.TemporaryDirectory() as folder:
        rows = list(rows_of(Case(name, args, folder), left_out))
        times = {row.name: [] for row in rows}
        with machine_load.Others() as others:
            for _ in range(args.rounds):
                for row in rows:
                    time.sleep(PAUSE_S)
                    times[row.name].append(row.run())
        said = [
            {"name": r.name, "ms": statistics.median(times[r.name]), "all_ms": times[r.name], **r.facts()} for r in rows
        ]
    return {
        "batch": args.batch,
        "threads": args.threads,
        "busy_others": others.cores,
        "left_out": left_out,
        "rows": said,
    }


def show(name, result):
    ms = {row["name"]: row["ms"] for row in result["rows"]}
    base = ms.get("onnxruntime fp32")
    print(f"\n{name}, batch {result['batch']}, {result['threads']} threads, {machine_load.processor()}")
    print(f"{'':24}{'ms':>10}  {'times as fast as ONNX Runtime fp32':>10}")
    for row, value in ms.items():
        print(f"{row:24}{value:10.1f}  " + (f"{base / value:.2f}x" if base else "-"))
    for line in result["left_out"]:
        print(f"left out: {line}")


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("models", nargs="+")
    words.add_argument("--batch", type=int, default=1)
    words.add_argument("--threads", type=int, default=2)
    words.add_argument("--rounds", type=int, default=7)
    words.add_argument("--precisions", default="fp32,bf16,fp8,int8")
    words.add_argument("--out", default="bench/results")
    args = words.parse_args()
    folder = pathlib.Path(args.out) / f"cpu-{platform.machine()}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "peers.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    for name in args.models:
        result = measure(name, args)
        result.update(commit=commit, machine=machine_load.processor(), cores=machine_load.cores())
        key = f"{pathlib.Path(name).name} b{args.batch}"
        results[key] = result
        show(name, result)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(results, indent=1) + "\n")
        part.replace(path)
    print(f"\nwritten to {path}")


if __name__ == "__main__":
    main()
