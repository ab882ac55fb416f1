# SPDX-License-Identifier: Apache-2.0
"""Runs the bundled digits through an engine: python3 digits.py digits.tess test.npz. With torch also as tensors."""

import sys

import numpy as np
import tessera

engine = tessera.load(sys.argv[1])
with np.load(sys.argv[2]) as arrays:
    images, labels = arrays["image"].astype(np.float32), arrays["label"]

logits = engine.run({"image": images})["logits"]  # any number of samples
print(f"{len(images)} images, {100 * np.mean(logits.argmax(1) == labels):.1f} % right")

plan = engine.plans[-1]
digits = engine.context(plan.name)
x = images[: plan.batch]
y = digits(x)
digits(x, out=y)  # nothing is allocated

try:
    import torch
except ImportError:
    sys.exit()
assert torch.equal(digits(torch.from_numpy(x)), torch.from_numpy(y))
print("torch tensors give the same")
