#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How near torch's FP8 comes to fp32 on a ViT of the zoo: the same weights and images as our engines, so that
cosines may be compared.

  python3 bench/torch_fp8_logits.py MODEL.onnx IMAGES.npz LOGITS.npz      (LOGITS: of fp32, from `tessera run`)

Linear layers whose sizes are multiples of 16 multiply in E4M3 (torch._scaled_mm, fast accumulation) with one scale
per weight and one static scale per input, from the largest magnitudes over 32 other images; the rest is FP16,
attention by F.scaled_dot_product_attention. Prints one JSON object. Without a GPU the products are those of decoded
codes."""

import json
import re
import sys

FP8_MAX = 448.0


def cosines(np, got, want):
    """Mean and least over samples; and the mean after the average logits are taken away, since random weights give
    all images much the same ones."""

    def of(a, b):
        return (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))

    centre = want.mean(0)
    return {
        "cos_mean": float(of(got, want).mean()),
        "cos_min": float(of(got, want).min()),
        "cos_centred": float(of(got - centre, want - centre).mean()),
        "relative_l2": float(np.linalg.norm(got - want) / np.linalg.norm(want)),
    }


def main(argv):
    import numpy as np
    import onnx
    import onnx.numpy_helper
    import torch
    import torch.nn.functional as F

    model = onnx.load(argv[0])
    weights = {t.name: torch.from_numpy(onnx.numpy_helper.to_array(t).copy()) for t in model.graph.initializer}
    images = torch.from_numpy(np.load(argv[1])["image"])
    want = np.load(argv[2])["logits"].astype("f8")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    half = torch.float16 if device == "cuda" else torch.float32
    depth = 1 + max(int(m[1]) for m in (re.match(r"blocks\.(\d+)\.", n) for n in weights) if m)
    width, _, patch, _ = weights["patch_embed.weight"].shape
    heads = weights["blocks.0.attn.split.shape"].tolist()[3]
    eights = {}  # layer: (codes, scale of the weight, scale of the input)
    amax = {}
    linear_weights = {"patch_embed": weights["patch_embed.weight"].reshape(width, -1), "head": weights["head.weight"]}
    for i in range(depth):
        for layer in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"):
            linear_weights[f"blocks.{i}.{layer}"] = weights[f"blocks.{i}.{layer}.weight"].t().contiguous()

    def linear(name, x, kind):
        w, b = linear_weights[name].to(device), weights[f"{name}.bias"].to(device)
        if kind == "calibrate":
            amax[name] = max(amax.get(name, 0.0), x.abs().max().item())
            return F.linear(x, w, b)
        if kind == "fp32" or w.shape[0] % 16 or w.shape[1] % 16:
            return F.linear(x, w.to(x.dtype), b.to(x.dtype))
        if name not in eights:
            scale = w.abs().max().float() / FP8_MAX
            eights[name] = (
                (w / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn),
                scale,
                torch.tensor(amax[name] / FP8_MAX, device=device),
            )
        codes, w_scale, x_scale = eights[name]
        x8 = (x.float() / x_scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
        if device == "cpu":
            return F.linear(x8.float() * x_scale, codes.float() * w_scale, b)
        y = torch._scaled_mm(
            x8.reshape(-1, x.shape[-1]),
            codes.t(),
            scale_a=x_scale,
            scale_b=w_scale,
            bias=b.half(),
            out_dtype=torch.float16,
            use_fast_accum=True,
        )
        return y.reshape(*x.shape[:-1], y.shape[-1])

    def forward(image, kind):
        kept = torch.float32 if kind != "fp8" else half
        get = lambda name: weights[name].to(device, kept)
        norm = lambda name, x: F.layer_norm(x, (width,), get(f"{name}.weight"), get(f"{name}.bias"), 1e-6)
        n, c, height, _ = image.shape
        g = height // patch
        x = (
            image.to(device, kept)
            .reshape(n, c, g, patch, g, patch)
            .permute(0, 2, 4, 1, 3, 5)
            .reshape(n, g * g, c * patch * patch)
        )
        x = linear("patch_embed", x, kind)
        if "class_token" in weights:
            x = torch.cat([get("class_token").expand(n, -1, -1), x], 1)
        x = x + get("positions")
        for i in range(depth):
            q, k, v = (
                linear(f"blocks.{i}.attn.qkv", norm(f"blocks.{i}.norm1", x), kind)
                .reshape(n, x.shape[1], 3, heads, -1)
                .permute(2, 0, 3, 1, 4)
                .unbind(0)
            )
            x = x + linear(
                f"blocks.{i}.attn.proj", F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape), kind
            )
            x = x + linear(
                f"blocks.{i}.mlp.fc2", F.gelu(linear(f"blocks.{i}.mlp.fc1", norm(f"blocks.{i}.norm2", x), kind)), kind
            )
        x = norm("norm", x)
        return linear("head", x[:, 0] if "class_token" in weights else x.mean(1), kind)

    with torch.no_grad():
        forward(torch.randn(32, *images.shape[1:], generator=torch.Generator().manual_seed(1334)), "calibrate")
        logits = forward(images, "fp8").double().cpu().numpy()
        plain = forward(images, "fp32").double().cpu().numpy()
    print(
        json.dumps(
            {"name": "torch FP8 linear layers", "samples": len(want), "device": device}
            | cosines(np, logits, want)
            | {"fp32_relative_l2": float(np.linalg.norm(plain - want) / np.linalg.norm(want))}
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
