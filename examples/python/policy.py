# SPDX-License-Identifier: Apache-2.0
"""A policy with torch: camera images as bytes, on the device where the policy runs, to a chunk of actions in one call.

    tessera policy build --model pi05/ -o pi05.tess --views 2          # --target sm90 for a GPU
    python3 policy.py pi05.tess [inputs.npz]

inputs.npz: images [1,views,h,w,3] as bytes of the engine's size, tokens [1,prompt], noise; without it black images."""

import sys

import numpy as np
import tessera
import torch

PATCH = 14  # of SigLIP: an image of 224 x 224 has 16 x 16 patches


class Policy:
    """The session's inputs lie on the device, and stay: a call writes what is new, and allocates nothing."""

    def __init__(self, path, device="cpu"):
        self.session = tessera.load(path).session()
        kinds = {"u8": torch.uint8, "i64": torch.int64, "i32": torch.int32, "f32": torch.float32}
        new = lambda port: torch.zeros(port.shape, dtype=kinds[port.element], device=device)
        self.inputs = {port.name: new(port) for port in self.session.inputs if not port.is_state}
        self.outputs = {port.name: new(port) for port in self.session.outputs if not port.is_state}
        self.patches = (self.inputs["images"].shape[2] // PATCH) ** 2

    def act(self, images, tokens, noise):
        """`images`: uint8 [1,views,h,w,3], best on the device already, where a camera's driver or a decoder put them;
        the engine normalises them. Fewer views and words than it has room for are taken as they are."""
        views, words = images.shape[1], tokens.shape[1]
        self.inputs["images"][:, :views] = images
        self.inputs["tokens"][:, :words] = tokens
        self.inputs["noise"].copy_(noise)
        # What is behind them is not read.
        self.inputs["image_rows"].fill_(views * self.patches)
        self.inputs["prefix_rows"].fill_(views * self.patches + words)
        # On a GPU this returns when the schedule is on torch's current stream.
        self.session(*self.inputs.values(), out=list(self.outputs.values()))
        return self.outputs["actions"]


def main():
    on = "cuda" if tessera.load(sys.argv[1]).plans[0].on_cuda else "cpu"
    policy = Policy(sys.argv[1], on)
    shapes = {name: tuple(tensor.shape) for name, tensor in policy.inputs.items()}
    images = torch.zeros(shapes["images"], dtype=torch.uint8, device=on)
    tokens, noise = torch.zeros(shapes["tokens"], dtype=torch.int64), torch.randn(shapes["noise"])
    if len(sys.argv) > 2:
        with np.load(sys.argv[2]) as arrays:
            images, tokens, noise = (torch.from_numpy(arrays[name]).to(on) for name in ("images", "tokens", "noise"))
    print(policy.act(images, tokens, noise).cpu())


if __name__ == "__main__":
    main()
