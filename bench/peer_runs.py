# SPDX-License-Identifier: Apache-2.0
"""Runs the peers' scripts and gives their rows one form. The scripts lie in a folder of the caller's (--peers,
TESSERA_PEERS):
  vit_peers.py              PyTorch eager, torch.compile, torch.compile with FP8 linear layers: a whole ViT. Compiling
                            takes about two minutes per model.
  gemm_attention_peers.py   cuBLAS, cuBLASLt FP8, cuDNN and FlashAttention-2
  attention_cudnn_fp8.py    cuDNN's FP8 attention. It needs the wheel nvidia_cudnn_frontend-*.whl (x86_64, this
                            Python), in the same folder or named by TESSERA_CUDNN_WHEEL, unless the package is
                            installed.
bench/attention_peers.py, ours, adds the shapes that they lack."""

import glob
import importlib.util
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = {"vit-b-16": "vit_b16", "vit-b-256": "custom256"}
VITS = ["vit-b-16:64", "vit-b-16:1", "vit-b-256:64"]  # model:batch, the order in which they run
ATTENTION_SECONDS, GEMM_SECONDS, FP8_SECONDS = 90, 120, 150


def read_rows(path):
    """What a script wrote; None where it wrote nothing that can be read."""
    try:
        with open(path) as f:
            return json.load(f)
    except (OSError, ValueError):
        return None


def remove(path):
    if os.path.exists(path):
        os.remove(path)
    return path


def find_wheel(folder):
    """The wheel of cuDNN's Python frontend for this Python, or None."""
    named = os.environ.get("TESSERA_CUDNN_WHEEL", "")
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    found = (
        glob.glob(named)
        if named
        else glob.glob(os.path.join(folder, f"nvidia_cudnn_frontend-*-{tag}-*.whl"))
        if folder
        else []
    )
    return sorted(found)[-1] if found else None


class Peers:
    """call(words, seconds) -> (output, error sentence): one of the two; left() -> seconds; say(text)."""

    def __init__(self, folder, work, call, left, say):
        self.folder, self.work, self.call, self.left, self.say = folder, work, call, left, say
        self.versions = {}

    def script(self, name):
        path = os.path.join(self.folder, name) if self.folder else ""
        return path if os.path.exists(path) else None

    def missing(self, name):
        return f"left out: no {name}; give its folder with --peers or TESSERA_PEERS"

    def vit(self, model, batch, sections, limit):
        row = {"peer": True, "script": "vit", "model": model, "batch": batch}
        script = self.script("vit_peers.py")
        if not script:
            return [row | {"error": self.missing("vit_peers.py")}]
        out = f"{self.work}/peers-{model}-{batch}"
        os.makedirs(out, exist_ok=True)
        for name in os.listdir(out):  # the script merges what it finds: rows of an earlier run are none of this one
            os.remove(os.path.join(out, name))
        limit = min(limit, self.left())
        error = self.call(
            [
                sys.executable,
                script,
                "--model",
                MODELS[model],
                "--batch",
                batch,
                "--mode",
                "reduce-overhead",
                "--sections",
                sections,
                "--total",
                int(max(limit - 5, 1)),
                "--compile-limit",
                int(max(limit - 10, 1)),
                "--out",
                out,
                "--state",
                out,
            ],
            limit,
        )[1]
        self.say(f"peers {model} b{batch}" + (f": {error}" if error else ""))
        found = read_rows(f"{out}/vit_peers.json")
        if not isinstance(found, dict):
            return [row | {"error": error or "wrote no vit_peers.json"}]
        self.versions.update(
            {k: v for k, v in found.get("env", {}).items() if k in ("torch", "cuda", "cudnn", "python")}
        )
        rows = [
            row | {k: r[k] for k in ("name", "ms", "p10", "p90", "cos_mean", "cos_min", "compile_s", "error") if k in r}
            for r in found["rows"]
        ]
        # A section that was stopped leaves no row, only a note.
        notes = [
            row | {"name": f"torch {n.split(':')[0].strip()}", "error": n.split(":", 1)[-1].strip()}
            for n in found.get("notes", [])
        ]
        return rows + notes

    def gemm(self):
        row = {"peer": True, "script": "gemm"}
        script = self.script("gemm_attention_peers.py")
        if not script:
            return [row | {"op": "matmul", "error": self.missing("gemm_attention_peers.py")}]
        out = f"{self.work}/peers-ops"
        os.makedirs(out, exist_ok=True)
        path = remove(f"{out}/gemm_attention_peers.json")
        error = self.call([sys.executable, script, "--out", out, "--no-sparse"], min(GEMM_SECONDS, self.left()))[1]
        self.say("peers of matmul and attention" + (f": {error}" if error else ""))
        found = read_rows(path)
        if not found:
            return [row | {"op": "matmul", "error": error or "wrote no gemm_attention_peers.json"}]
        if "torch" in found:
            self.versions["torch"] = found["torch"]
        return [row | {"op": "matmul"} | r for r in found["gemm"]] + [
            row | {"op": "attention"} | r for r in found["attention"]
        ]

    def attention(self):
        row = {"peer": True, "script": "attention", "op": "attention"}
        text, error = self.call([sys.executable, f"{HERE}/attention_peers.py"], min(ATTENTION_SECONDS, self.left()))
        self.say("peers of attention, FP16" + (f": {error}" if error else ""))
        try:
            return [row | r for r in json.loads(text)] if text else [row | {"error": error}]
        except ValueError:
            return [row | {"error": "printed no JSON"}]

    def cudnn_fp8(self):
        row = {"peer": True, "script": "cudnn_fp8", "op": "attention", "name": "cuDNN"}
        script = self.script("attention_cudnn_fp8.py")
        if not script:
            return [row | {"error": self.missing("attention_cudnn_fp8.py")}]
        wheel = find_wheel(self.folder)
        if not wheel and importlib.util.find_spec("cudnn") is None:
            return [
                row
                | {
                    "error": "left out: no wheel nvidia_cudnn_frontend-*.whl for this Python; "
                    "put it beside the script or name it by TESSERA_CUDNN_WHEEL"
                }
            ]
        path = remove(f"{self.work}/attention_cudnn_fp8.json")
        error = self.call(
            [sys.executable, script, "--out", path] + (["--wheel", wheel] if wheel else []),
            min(FP8_SECONDS, self.left()),
        )[1]
        self.say("cuDNN's FP8 attention" + (f": {error}" if error else ""))
        found = read_rows(path)
        if not found:
            return [row | {"error": error or "wrote no JSON"}]
        self.versions["cudnn"] = found.get("cudnn")
        if wheel:
            self.versions["cudnn_frontend"] = os.path.basename(wheel).split("-")[1]
        # A shape that cuDNN does not take is an answer, not a fault.
        return [row | {("refused" if k == "error" else k): v for k, v in r.items()} for r in found["rows"]]
