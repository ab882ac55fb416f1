# SPDX-License-Identifier: Apache-2.0
"""What the tests of policies share: the small models that lie beside the project (TESSERA_ORACLE, else
../shared/oracle), the program, and distances. Arguments of the tests: the folder with the program, and the target."""

import json
import os
import pathlib
import struct
import sys

from checkpoint_cases import TARGET, FolderTest, np, read_safetensors

ORACLE = pathlib.Path(
    os.environ.get("TESSERA_ORACLE", pathlib.Path(__file__).resolve().parent.parent.parent / "shared" / "oracle")
)
MODELS = ("pi05_tiny", "pi0_tiny")
if not all((ORACLE / model).is_dir() for model in MODELS):
    print(f"no {' and '.join(MODELS)} in {ORACLE}: skipped")
    sys.exit(77)


def write_checkpoint(folder, source, change):
    """A copy of a checkpoint with its tensors changed."""
    folder.mkdir()
    (folder / "config.json").write_bytes((ORACLE / source / "config.json").read_bytes())
    header, data = {}, b""
    for name, array in change(read_safetensors(ORACLE / source / "model.safetensors")).items():
        values = np.ascontiguousarray(array, np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def arrays_of(model, name):
    with np.load(ORACLE / model / f"{name}.npz") as arrays:
        return dict(arrays)


def valid_rows(inputs, want):
    """Of the whole sequence of a batch of one: views, then words."""
    patches = want["image_tokens"].shape[1] // inputs["images"].shape[1]
    return np.concatenate([np.repeat(inputs["image_valid"][0], patches), inputs["token_valid"][0]])


def shown_only(inputs):
    """The same observation without views and words that are masked."""
    views = inputs["image_valid"][0].astype(bool)
    words = inputs["token_valid"][0].astype(bool)
    fewer = {name: inputs[name][:, views] for name in ("images", "image_valid")}
    return inputs | fewer | {name: inputs[name][:, words] for name in ("tokens", "token_valid")}


class PolicyTest(FolderTest):
    def act(self, model, inputs, *words):
        np.savez(self.folder / "in.npz", **inputs)
        source = ("--model", model) if model else ()
        self.tessera("policy", "run", *source, "--inputs", "in.npz", "--outputs", "out.npz", *words)
        with np.load(self.folder / "out.npz") as out:
            return dict(out)

    def inputs(self, model):
        return arrays_of(model, "inputs")

    def build(self, model, name="policy.tess", precision="fp32", *words):
        command = ("build", ORACLE / model, "--family", "pi05", "--precision", precision, "--target", TARGET)
        self.tessera(*command, "-o", name, "--quiet", *words)
        return name
