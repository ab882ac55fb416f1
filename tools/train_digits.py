#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the bundled model, a small ViT on scikit-learn's 8x8 digits, and writes assets/digits.

Writes vit.onnx (opset 17, dynamic batch), test.npz (360 held-out images, labels, ONNX Runtime's fp32 logits) and
calib.npz (128 training images). Seeds, split and epochs are fixed, and the weights are those of the last epoch: the
test images choose nothing, they only decide whether the result may be written.

    python tools/train_digits.py [--out assets/digits] [--threads 2]
"""

import argparse
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
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

IMAGE, PATCH, WIDTH, DEPTH, HEADS, MLP, CLASSES = 8, 2, 64, 4, 4, 256, 10
TEST_IMAGES, CALIB_IMAGES = 360, 128
EPOCHS, WARMUP_EPOCHS, BATCH, PEAK_RATE, WEIGHT_DECAY, SMOOTHING = 120, 5, 64, 2e-3, 0.05, 0.1
REQUIRED_ACCURACY = 0.98
SEED = 0


class PatchEmbed(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Conv2d(1, WIDTH, kernel_size=PATCH, stride=PATCH)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(batch, tokens, width))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(WIDTH, MLP)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(MLP, WIDTH)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.attn = Attention()
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.mlp = Mlp()

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """Pre-norm ViT with timm's module names, so that its state dict reads like any ViT checkpoint's."""

    def __init__(self):
        super().__init__()
        tokens = (IMAGE // PATCH) ** 2 + 1
        self.patch_embed = PatchEmbed()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(torch.zeros(1, tokens, WIDTH))
        self.blocks = nn.Sequential(*[Block() for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, CLASSES)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)

    def forward(self, image):
        x = self.patch_embed(image)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


def load_split():
    """Normalised images [n,1,8,8] in [-1,1] and labels, as (train images, train labels, test images, test labels)."""
    digits = load_digits()
    images = ((digits.images / 16.0 - 0.5) / 0.5).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int64)
    train, test = train_test_split(np.arange(len(labels)), test_size=TEST_IMAGES, stratify=labels, random_state=SEED)
    return images[train], labels[train], images[test], labels[test]


def shift(images, generator):
    """CopyCount each image by -1, 0 or 1 pixel along each axis; background (-1) comes in at the edges."""
    padded = F.pad(images, (1, 1, 1, 1), value=-1.0)
    count = len(images)
    rows = torch.randint(0, 3, (count, 1), generator=generator) + torch.arange(IMAGE)
    cols = torch.randint(0, 3, (count, 1), generator=generator) + torch.arange(IMAGE)
    return padded[torch.arange(count)[:, None, None], 0, rows[:, :, None], cols[:, None, :]][:, None]


def learning_rate(step, steps_per_epoch):
    """Linear warmup, then a half cosine down to zero."""
    warmup, total = WARMUP_EPOCHS * steps_per_epoch, EPOCHS * steps_per_epoch
    if step < warmup:
        return PEAK_RATE * (step + 1) / warmup
    return PEAK_RATE * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def train(images, labels):
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    model = VisionTransformer()
    matrices = [p for p in model.parameters() if p.ndim == 2]  # the Linear weights: embeddings have 3 or 4 dimensions
    others = [p for p in model.parameters() if p.ndim != 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    )
    steps_per_epoch = len(images) // BATCH
    for epoch in range(EPOCHS):
        order = torch.randperm(len(images), generator=generator)
        total = 0.0
        for i in range(steps_per_epoch):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(epoch * steps_per_epoch + i, steps_per_epoch)
            batch = order[i * BATCH : (i + 1) * BATCH]
            loss = F.cross_entropy(model(shift(images[batch], generator)), labels[batch], label_smoothing=SMOOTHING)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1:3d}  loss {total / steps_per_epoch:.4f}", flush=True)
    return model.eval()


def round_to_bf16(model):
    """Weights become bf16 values kept in fp32: a 16-bit build of the model loses nothing in its weights."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16().float())


def export(model):
    buffer = io.BytesIO()
    with warnings.catch_warnings():  # the TorchScript exporter announces its own retirement
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (torch.zeros(2, 1, IMAGE, IMAGE),),
            buffer,
            dynamo=False,
            opset_version=17,
            input_names=["image"],
            output_names=["logits"],
            dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}},
        )
    onnx.checker.check_model(onnx.load_from_string(buffer.getvalue()), full_check=True)
    return buffer.getvalue()


def write(path, data):
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)
    print(f"{path}  {len(data)} bytes")


def pack(**arrays):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parents[1] / "assets" / "digits")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.use_deterministic_algorithms(True)

    train_images, train_labels, test_images, test_labels = load_split()
    model = train(torch.from_numpy(train_images), torch.from_numpy(train_labels))
    round_to_bf16(model)
    model_bytes = export(model)

    session = onnxruntime.InferenceSession(model_bytes, providers=["CPUExecutionProvider"])
    logits = session.run(["logits"], {"image": test_images})[0]
    with torch.no_grad():
        difference = np.abs(logits - model(torch.from_numpy(test_images)).numpy()).max()
    correct = int((logits.argmax(1) == test_labels).sum())
    parameters = sum(p.numel() for p in model.parameters())
    print(
        f"parameters {parameters}  test {correct}/{len(test_labels)} = {correct / len(test_labels):.4f}  onnx - torch "
        f"{difference:.1e}"
    )
    if correct < REQUIRED_ACCURACY * len(test_labels):
        raise SystemExit(f"test accuracy is below {REQUIRED_ACCURACY}: nothing written")

    arguments.out.mkdir(parents=True, exist_ok=True)
    write(arguments.out / "vit.onnx", model_bytes)
    write(arguments.out / "test.npz", pack(image=test_images, label=test_labels, logits=logits))
    write(arguments.out / "calib.npz", pack(image=train_images[:CALIB_IMAGES]))


if __name__ == "__main__":
    main()
