# SPDX-License-Identifier: Apache-2.0
"""Exports three tiny ViTs with seeded random weights through both PyTorch exporters, for the importer's tests.

Models, all of width 32, depth 2, 2 heads of 16, MLP 64, patch 4 on 3x16x16 images (16 patches):
  timm  class token, fused qkv, scaled_dot_product_attention, erf GELU, LayerNorm eps 1e-6
  pool  no class token, mean pooling, q, k, v apart, attention by hand as (q * scale) @ k^T, tanh GELU, eps 1e-5
  deit  class token, q, k, v apart, view and permute, scores / sqrt(d), erf GELU, eps 1e-12

Files: <model>_ts14, <model>_ts17 (TorchScript exporter, opsets 14 and 17; 14 has no LayerNormalization) and
<model>_dyn18, <model>_dyn20 (dynamo exporter), each as .onnx with a dynamic batch and as .npz with `image` (batch 3)
and `expected_logits` (ONNX Runtime, fp32, graph optimisations off). Prints the op types of every file.

    python tests/data/export/make.py
"""

import collections
import io
import math
import os
import pathlib
import warnings

import numpy as np
import onnx
import onnxruntime
import torch
import torch.nn.functional as F
from torch import nn

IMAGE, CHANNELS, PATCH, WIDTH, DEPTH, HEADS, MLP, CLASSES = 16, 3, 4, 32, 2, 2, 64, 10
HEAD = WIDTH // HEADS
PATCHES = (IMAGE // PATCH) ** 2
BATCH = 3


class PatchEmbed(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Conv2d(CHANNELS, WIDTH, kernel_size=PATCH, stride=PATCH)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class FusedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, tokens, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(batch, tokens, width))


class ScaledQueryAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(WIDTH, WIDTH)
        self.k = nn.Linear(WIDTH, WIDTH)
        self.v = nn.Linear(WIDTH, WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (linear(x).reshape(batch, tokens, HEADS, HEAD).transpose(1, 2) for linear in (self.q, self.k, self.v))
        weights = ((q * HEAD**-0.5) @ k.transpose(-2, -1)).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(batch, tokens, width))


class ScaledScoresAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH, bias=True)
        self.key = nn.Linear(WIDTH, WIDTH, bias=True)
        self.value = nn.Linear(WIDTH, WIDTH, bias=True)
        self.dense = nn.Linear(WIDTH, WIDTH)

    def split_heads(self, x):
        return x.view(x.size()[:-1] + (HEADS, HEAD)).permute(0, 2, 1, 3)

    def forward(self, x):
        q, k, v = self.split_heads(self.query(x)), self.split_heads(self.key(x)), self.split_heads(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(HEAD)
        context = torch.matmul(F.softmax(scores, dim=-1), v).permute(0, 2, 1, 3).contiguous()
        return self.dense(context.view(context.size()[:-2] + (WIDTH,)))


class Mlp(nn.Module):
    def __init__(self, gelu):
        super().__init__()
        self.fc1 = nn.Linear(WIDTH, MLP)
        self.act = nn.GELU(approximate=gelu)
        self.fc2 = nn.Linear(MLP, WIDTH)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, attention, gelu, eps):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, eps=eps)
        self.attn = attention()
        self.norm2 = nn.LayerNorm(WIDTH, eps=eps)
        self.mlp = Mlp(gelu)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, attention, gelu, eps, class_token):
        super().__init__()
        self.patch_embed = PatchEmbed()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, WIDTH)) if class_token else None
        self.pos_embed = nn.Parameter(torch.zeros(1, PATCHES + class_token, WIDTH))
        self.blocks = nn.Sequential(*[Block(attention, gelu, eps) for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(WIDTH, eps=eps)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, image):
        x = self.patch_embed(image)
        if self.cls_token is not None:
            x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        x = self.norm(self.blocks(x + self.pos_embed))
        return self.head(x.mean(dim=1) if self.cls_token is None else x[:, 0])


MODELS = {
    "timm": dict(attention=FusedAttention, gelu="none", eps=1e-6, class_token=True),
    "pool": dict(attention=ScaledQueryAttention, gelu="tanh", eps=1e-5, class_token=False),
    "deit": dict(attention=ScaledScoresAttention, gelu="none", eps=1e-12, class_token=True),
}
EXPORTS = {
    "ts14": dict(dynamo=False, opset_version=14),
    "ts17": dict(dynamo=False, opset_version=17),
    "dyn18": dict(dynamo=True, opset_version=18),
    "dyn20": dict(dynamo=True, opset_version=20),
}


def build(name):
    """Every parameter is random, norms and biases too: a gain of one or a shift of zero would hide a lost operand."""
    generator = torch.Generator().manual_seed(list(MODELS).index(name) + 1)
    model = VisionTransformer(**MODELS[name]).eval()
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_gain = "norm" in path and path.endswith("weight")
            fan_in = parameter[0].numel() if path.endswith("weight") and parameter.ndim > 1 else 25
            parameter.copy_(1 + 0.2 * noise if is_gain else noise * fan_in**-0.5)
    return model


def export(model, options):
    image = torch.zeros(2, CHANNELS, IMAGE, IMAGE)
    names = dict(input_names=["image"], output_names=["logits"])
    buffer = io.BytesIO()
    with warnings.catch_warnings():  # the TorchScript exporter announces its own retirement
        warnings.simplefilter("ignore")
        if options["dynamo"]:
            program = torch.onnx.export(
                model, (image,), **names, **options, verbose=False, dynamic_shapes={"image": {0: torch.export.Dim("batch")}}
            )
            exported = program.model_proto
        else:
            axes = {"image": {0: "batch"}, "logits": {0: "batch"}}
            torch.onnx.export(model, (image,), buffer, **names, **options, dynamic_axes=axes)
            exported = onnx.load_from_string(buffer.getvalue())
    strip_stack_traces(exported)
    onnx.checker.check_model(exported, full_check=True)
    return exported


def strip_stack_traces(exported):
    """Removes the dynamo exporter's stack traces, which hold paths of the exporting machine; its other notes stay."""
    for node in exported.graph.node:
        kept = [entry for entry in node.metadata_props if not entry.key.endswith("stack_trace")]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)


def expected_logits(model_bytes, image):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model_bytes, options, providers=["CPUExecutionProvider"])
    return session.run(["logits"], {"image": image})[0]


def write(path, data):
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def main():
    folder = pathlib.Path(__file__).parent
    image = np.random.default_rng(7).standard_normal((BATCH, CHANNELS, IMAGE, IMAGE), dtype=np.float32)
    for name in MODELS:
        model = build(name)
        with torch.no_grad():
            want = model(torch.from_numpy(image)).numpy()
        for exporter, options in EXPORTS.items():
            exported = export(model, options)
            model_bytes = exported.SerializeToString()
            logits = expected_logits(model_bytes, image)
            np.testing.assert_allclose(logits, want, rtol=1e-4, atol=1e-4)
            arrays = io.BytesIO()
            np.savez_compressed(arrays, image=image, expected_logits=logits)
            write(folder / f"{name}_{exporter}.onnx", model_bytes)
            write(folder / f"{name}_{exporter}.npz", arrays.getvalue())
            opset = {entry.domain or "ai.onnx": entry.version for entry in exported.opset_import}
            ops = collections.Counter(node.op_type for node in exported.graph.node)
            listing = " ".join(f"{op}:{count}" for op, count in sorted(ops.items()))
            print(f"{name}_{exporter}  {len(model_bytes)} bytes  opset {opset}  {listing}")


if __name__ == "__main__":
    main()
