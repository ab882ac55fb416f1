#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The zoo's ONNX files are what they say: checked by onnx, and equal to a ViT written down in numpy. Argument: the
folder with the program."""

import math
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import numpy_helper
    from onnx.reference import ReferenceEvaluator
except ImportError:
    print("no numpy or no onnx: skipped")
    sys.exit(77)


def norm(x, gain, shift):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-6) * gain + shift


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def vit(w, image, patch, depth, heads, class_token):
    """f64; w: the initialisers by name."""
    erf = np.vectorize(math.erf)
    n, c, size, _ = image.shape
    width, grid = w["patch_embed.weight"].shape[0], size // patch
    patches = image.reshape(n, c, grid, patch, grid, patch).transpose(0, 2, 4, 1, 3, 5).reshape(n, grid * grid, -1)
    x = patches @ w["patch_embed.weight"].reshape(width, -1).T + w["patch_embed.bias"]
    if class_token:
        x = np.concatenate([np.repeat(w["class_token"], n, 0), x], 1)
    x = x + w["positions"]
    linear = lambda name, v: v @ w[name + ".weight"] + w[name + ".bias"]
    for i in range(depth):
        b = f"blocks.{i}."
        h = linear(b + "attn.qkv", norm(x, w[b + "norm1.weight"], w[b + "norm1.bias"]))
        q, k, v = h.reshape(n, -1, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
        h = softmax(q @ k.transpose(0, 1, 3, 2) / math.sqrt(width // heads)) @ v
        x = x + linear(b + "attn.proj", h.transpose(0, 2, 1, 3).reshape(n, -1, width))
        h = linear(b + "mlp.fc1", norm(x, w[b + "norm2.weight"], w[b + "norm2.bias"]))
        x = x + linear(b + "mlp.fc2", h * (1 + erf(h / math.sqrt(2))) / 2)
    x = norm(x, w["norm.weight"], w["norm.bias"])
    x = x[:, 0] if class_token else x.mean(1)
    return x @ w["head.weight"].T + w["head.bias"]


def main():
    program = pathlib.Path(sys.argv[1]) / "tessera"
    if not program.exists():
        print(f"no {program}: skipped")
        return 77
    with tempfile.TemporaryDirectory() as scratch:

        def make(name):
            subprocess.run([program, "zoo", name, "-o", f"{scratch}/m.onnx"], check=True, capture_output=True)
            return onnx.load(f"{scratch}/m.onnx")

        model = make("vit-tiny-test")
        onnx.checker.check_model(model, full_check=True)
        weights = {t.name: numpy_helper.to_array(t).astype("f8") for t in model.graph.initializer}
        drawn = (
            ("blocks.0.attn.qkv.weight", 0, 0.02),
            ("blocks.1.mlp.fc1.weight", 0, 0.02),
            ("positions", 0, 0.02),
            ("norm.weight", 1, 0.1),
        )
        for name, mean, deviation in drawn:
            count = weights[name].size
            got_mean, got_deviation = weights[name].mean(), weights[name].std()
            assert abs(got_mean - mean) < 5 * deviation / count**0.5, (name, got_mean)
            assert abs(got_deviation / deviation - 1) < 5 / (2 * count) ** 0.5, (name, got_deviation)
            assert np.abs(weights[name] - mean).max() < 3.5 * deviation, name
        for batch in (1, 3):
            image = np.random.default_rng(batch).standard_normal((batch, 3, 32, 32)).astype("f4")
            want = vit(weights, image.astype("f8"), 8, 2, 4, True)
            got = ReferenceEvaluator(model).run(None, {"image": image})[0]
            assert got.shape == (batch, 10) and want.std() > 0.01
            error = np.linalg.norm(got - want) / np.linalg.norm(want)
            assert error < 20 * 192**0.5 * 2**-24, error  # fp32 sums of up to 192 terms, some twenty in a row
        # Shapes of a real one, and the form without a class token.
        for name, tokens in (("vit-ti-16", 197), ("vit-b-256", 256)):
            model = make(name)
            onnx.checker.check_model(model)
            weights = {t.name: tuple(t.dims) for t in model.graph.initializer}
            assert weights["positions"][1] == tokens and ("class_token" in weights) == (tokens == 197)
            assert [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim][0] == "batch"
    print("the zoo's models agree with numpy")
    return 0


if __name__ == "__main__":
    sys.exit(main())
