#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pi0 and pi0.5 from checkpoint to actions, against results in f64 that lie beside the project (../shared/oracle;
skipped where they are not). Arguments: the folder with the program, and the target (cpu)."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError as missing:
    print(f"{missing}: skipped")
    sys.exit(77)

PROGRAM = os.path.abspath(os.path.join(sys.argv.pop(1), "tessera"))
TARGET = sys.argv.pop(1) if len(sys.argv) > 1 else "cpu"
ORACLE = pathlib.Path(
    os.environ.get("TESSERA_ORACLE", pathlib.Path(__file__).resolve().parent.parent.parent / "shared" / "oracle")
)
if not (ORACLE / "pi05_tiny").is_dir():
    print(f"no {ORACLE}: skipped")
    sys.exit(77)

MODELS = ("pi05_tiny", "pi0_tiny")


def distance(got, want):
    return float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want))


def read_safetensors(path):
    file = path.read_bytes()
    (size,) = struct.unpack_from("<Q", file)
    header = json.loads(file[8 : 8 + size])
    header.pop("__metadata__", None)
    data = file[8 + size :]
    return {
        name: np.frombuffer(data[slice(*t["data_offsets"])], np.float32).reshape(t["shape"])
        for name, t in header.items()
    }


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


class Policies(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def tessera(self, *words, code=0):
        done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, code, (words, done.stdout, done.stderr))
        return " ".join((done.stdout + done.stderr).split())

    def act(self, model, inputs, *words):
        np.savez(self.folder / "in.npz", **inputs)
        command = ("policy", "run", "--model", model, "--inputs", "in.npz", "--outputs", "out.npz", *words)
        self.tessera(*command)
        with np.load(self.folder / "out.npz") as out:
            return dict(out)

    def inputs(self, model):
        with np.load(ORACLE / model / "inputs.npz") as arrays:
            return dict(arrays)

    def build(self, model, name="policy.tess", precision="fp32", *words):
        command = ("build", ORACLE / model, "--family", "pi05", "--precision", precision, "--target", TARGET)
        self.tessera(*command, "-o", name, "--quiet", *words)
        return name

    def test_every_stage_in_fp32(self):
        for model in MODELS:
            inputs = self.inputs(model)
            with np.load(ORACLE / model / "expected.npz") as arrays:
                want = dict(arrays)
            got = self.act(self.build(model), inputs, "--stages")
            tokens = want["image_tokens"].shape[1]
            seen = np.repeat(inputs["image_valid"][0], tokens // inputs["images"].shape[1])
            valid = np.concatenate([seen, inputs["token_valid"][0]])
            for name, rows in (("image_tokens", (slice(None), seen)), ("K", (..., valid, slice(None)))):
                self.assertLess(distance(got[name][rows], want[name][rows]), 1e-5, (model, name))
            rows = (..., valid, slice(None))
            for name in ("V", "v0", "actions"):
                at = rows if name == "V" else ...
                self.assertEqual(got[name].shape, want[name].shape)
                self.assertLess(distance(got[name][at], want[name][at]), 1e-5, (model, name))
            self.assertFalse(got["K"][..., ~valid, :].any(), "rows of dropped tokens are zeros")
            # All graphs as one call give the same bits as one by one.
            np.testing.assert_array_equal(self.act("policy.tess", inputs)["actions"], got["actions"])

    def test_a_masked_view_is_a_missing_one(self):
        for model in MODELS:
            inputs = self.inputs(model)
            engine = self.build(model)
            masked = self.act(engine, inputs)["actions"]
            noisy = inputs["images"].copy()
            noisy[:, 2] = np.random.default_rng(1).standard_normal(noisy[:, 2].shape)
            np.testing.assert_array_equal(self.act(engine, inputs | {"images": noisy})["actions"], masked)
            fewer = {"images": inputs["images"][:, :2], "image_valid": inputs["image_valid"][:, :2]}
            np.testing.assert_array_equal(self.act(engine, inputs | fewer)["actions"], masked)
            words = int(inputs["token_valid"].sum())
            fewer |= {"tokens": inputs["tokens"][:, :words], "token_valid": inputs["token_valid"][:, :words]}
            np.testing.assert_array_equal(self.act(engine, inputs | fewer)["actions"], masked)
            # A view more does change them.
            third = self.act(engine, inputs | {"image_valid": np.ones_like(inputs["image_valid"])})["actions"]
            self.assertGreater(distance(third, masked), 1e-4)

    def test_prompts_of_any_length_through_one_engine(self):
        inputs = self.inputs("pi05_tiny")
        engine = self.build("pi05_tiny")
        results = []
        for words in (1, 5, 12):
            shown = np.zeros_like(inputs["token_valid"])
            shown[:, :words] = True
            got = self.act(engine, inputs | {"token_valid": shown})["actions"]
            small = self.build("pi05_tiny", "small.tess", "fp32", "--size", f"prompt={words}", "--size", "views=2")
            fewer = {"tokens": inputs["tokens"][:, :words], "token_valid": shown[:, :words]}
            fewer |= {"images": inputs["images"][:, :2], "image_valid": inputs["image_valid"][:, :2]}
            self.assertLess(distance(got, self.act(small, inputs | fewer)["actions"]), 1e-5)
            results.append(got)
        self.assertGreater(distance(results[0], results[1]), 1e-4)

    def test_fewer_steps(self):
        inputs = self.inputs("pi05_tiny")
        ten = self.act(self.build("pi05_tiny"), inputs)["actions"]
        three = self.act(self.build("pi05_tiny", "three.tess", "fp32", "--size", "steps=3"), inputs)["actions"]
        self.assertGreater(distance(three, ten), 1e-4)
        self.assertLess(distance(three, ten), 0.5)

    def test_lower_precisions_stay_near(self):
        for model in MODELS:
            with np.load(ORACLE / model / "expected.npz") as arrays:
                want = arrays["actions"]
            for precision, most in (("fp16", 0.01), ("bf16", 0.05), ("fp8", 0.2)):
                got = self.act(self.build(model, "low.tess", precision), self.inputs(model))["actions"]
                self.assertLess(distance(got, want), most, (model, precision))

    def test_names_of_lerobot(self):
        write_checkpoint(self.folder / "lerobot", "pi05_tiny", lambda t: {"model." + k: v for k, v in t.items()})
        inputs = self.inputs("pi05_tiny")
        want = self.act(ORACLE / "pi05_tiny", inputs, "--precision", "fp32", "--no-verify")["actions"]
        got = self.act("lerobot", inputs, "--precision", "fp32", "--no-verify")["actions"]
        np.testing.assert_array_equal(got, want)

    def test_a_tied_embedding_under_its_other_name(self):
        table = "paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"
        head = "paligemma_with_expert.paligemma.lm_head.weight"
        write_checkpoint(
            self.folder / "tied", "pi05_tiny", lambda t: {(head if k == table else k): v for k, v in t.items()}
        )
        inputs = self.inputs("pi05_tiny")
        want = self.act(ORACLE / "pi05_tiny", inputs, "--precision", "fp32", "--no-verify")["actions"]
        np.testing.assert_array_equal(self.act("tied", inputs, "--precision", "fp32", "--no-verify")["actions"], want)

    def test_wrong_checkpoints_are_told(self):
        name = "paligemma_with_expert.gemma_expert.model.layers.1.mlp.up_proj.weight"
        cases = {
            "missing": (lambda t: {k: v for k, v in t.items() if k != name}, f"tensor '{name}' is missing"),
            "shape": (lambda t: t | {name: t[name][:, 1:]}, f"'{name}' has the shape [96,47]; wanted is [96,48]"),
            "extra": (lambda t: t | {"action_mid_proj.weight": np.zeros((2, 2))}, "action_mid_proj.weight"),
            "other": (lambda t: {"w": np.zeros((2, 2))}, "no checkpoint of pi0 or pi0.5"),
        }
        np.savez(self.folder / "in.npz", **self.inputs("pi05_tiny"))
        for case, (change, says) in cases.items():
            write_checkpoint(self.folder / case, "pi05_tiny", change)
            words = ("--inputs", "in.npz", "--outputs", "out.npz")
            self.assertIn(says, self.tessera("policy", "run", "--model", case, *words, code=3), case)

    def test_wrong_observations_are_told(self):
        engine = self.build("pi05_tiny")
        right = self.inputs("pi05_tiny")
        cases = (
            ({"noise": right["noise"][:, :5]}, "array 'noise' has the shape [1,5,32]; wanted is [1, 6, 32]"),
            ({"images": right["images"][..., :50]}, "array 'images' has the shape"),
            ({"images": np.full_like(right["images"], np.nan)}, "array 'images' holds NaN or Inf"),
            ({"tokens": np.full_like(right["tokens"], 512)}, "tokens"),
            ({"token_valid": right["token_valid"][:, :3]}, "array 'token_valid' has the shape [1,3]"),
            (
                {name: np.zeros_like(right[name]) for name in ("image_valid", "token_valid")},
                "no view and no token",
            ),
            ({"tokens": np.tile(right["tokens"], 2), "token_valid": np.tile(right["token_valid"], 2)}, "prompt=18"),
        )
        for change, says in cases:
            np.savez(self.folder / "in.npz", **(right | change))
            words = ("policy", "run", "--model", engine, "--inputs", "in.npz", "--outputs", "out.npz")
            self.assertIn(says, self.tessera(*words, code=3), says)


if __name__ == "__main__":
    unittest.main()
