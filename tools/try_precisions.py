# SPDX-License-Identifier: Apache-2.0
"""try_models.py --precisions: a model in lower precisions, built for sm90 and run on the CPU.

sm90 (built, not run): "yes", or what is refused: the share of the model's multiplications in layers that would need
--allow, and the first reason. A layer in a block that was given another precision without a refusal counts too.
cpu: the least cosine over the outputs with those in fp32, on one seeded input whose own ranges make the scales."""

import json
import math
import re
import subprocess

SM90 = ("fp16", "fp8", "int8")
CPU = ("bf16", "fp8", "int8")
LEAST_COSINE = {"bf16": 0.99, "fp8": 0.95, "int8": 0.95}
ROUNDS = 4  # a refusal may hide the next one
COLUMNS = ["sm90 " + p for p in SM90] + ["cpu " + p for p in CPU]


def build(tessera, path, engine, target, precision, *more):
    """None, or the error with its layers."""
    words = [tessera, "build", path, "-o", engine, "--precision", precision, "--target", target, "--no-verify"]
    done = subprocess.run([*words, *more, "--json"], capture_output=True, text=True)
    if done.returncode == 0:
        return None
    try:
        said = json.loads(done.stdout)
        return {"message": said["error"], "layers": said.get("layers", [])}
    except (ValueError, KeyError):
        return {"message": done.stderr.strip() or "exit code %d" % done.returncode, "layers": []}


def multiplications(plan, step):
    """Of a layer with weights; products of two activations are asked for with --attention, not here."""
    if step["op"] not in ("matmul", "conv2d"):
        return 0
    x, weight, out = (plan["tensors"][i] for i in (*step["in"][:2], step["out"][0]))
    if not weight.get("constant"):
        return 0
    if step["op"] == "conv2d":
        return math.prod(out["shape"]) // weight["shape"][0] * math.prod(weight["shape"])
    return math.prod(x["shape"]) // max(1, x["shape"][-1]) * math.prod(weight["shape"])


def share_of_others(tessera, engine, precision):
    """Of the multiplications of blocks: how much was not asked for in `precision`."""
    said = subprocess.run([tessera, "inspect", engine, "--json"], capture_output=True, text=True).stdout
    plan = json.loads(said)["plans"][0]
    count, other = 0, 0
    for step in plan["steps"]:
        flops = multiplications(plan, step)
        count += flops
        if step["role"].startswith("block") and re.split(r"\W", step["asked"])[0] != precision:
            other += flops
    return other / max(1, count)


def try_sm90(tessera, path, precision, more):
    engine, allowed, reasons = path + ".sm90.tess", [], []
    for _ in range(ROUNDS):
        flags = [word for layer in allowed for word in ("--allow", layer + "=fp16")]
        error = build(tessera, path, engine, "sm90", precision, *more, "--calib", path + ".npz", *flags)
        if error is None:
            share = share_of_others(tessera, engine, precision)
            if not reasons:
                return "yes" if share == 0 else "yes, %.1f %% in another precision" % (100 * share)
            return "%.1f %% refused (%d): %s" % (100 * share, len(allowed), reasons[0])
        layers = error["layers"]
        new = sorted({layer["layer"] for layer in layers} - set(allowed))
        reasons += [layer["layer"] + ": " + "; ".join(r["reason"] for r in layer["refusals"]) for layer in layers]
        if not new or precision == "fp16":
            return "no: " + (reasons[0] if reasons else error["message"])[:600]
        allowed += new
    return "no: " + reasons[-1][:600]


def least_cosine(got, expected):
    import numpy as np

    least = 1.0
    for name, e in expected.items():
        g, e = got[name].astype(np.float64).ravel(), e.astype(np.float64).ravel()
        lengths = np.linalg.norm(g) * np.linalg.norm(e)
        least = min(least, float(g @ e / lengths) if lengths > 0 and np.isfinite(lengths) else 0.0)
    return least


def try_cpu(tessera, path, precision, expected, more):
    import numpy as np

    engine, outputs = path + ".cpu.tess", path + ".cpu.npz"
    error = build(tessera, path, engine, "cpu", precision, *more, "--calib", path + ".npz")
    if error is not None:
        return "no: " + error["message"].split("\n")[0][:400]
    words = [tessera, "run", engine, "-i", path + ".npz", "-o", outputs, "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        return "no: " + (done.stdout + done.stderr).strip()[:400]
    cosine = least_cosine(dict(np.load(outputs)), expected)
    return "%.4f" % cosine if cosine >= LEAST_COSINE[precision] else "LOW %.4f" % cosine


def try_precisions(tessera, path, expected, more=()):
    """Column -> what is found out."""
    found = {"sm90 " + p: try_sm90(tessera, path, p, more) for p in SM90}
    found.update({"cpu " + p: try_cpu(tessera, path, p, expected, more) for p in CPU})
    return found
