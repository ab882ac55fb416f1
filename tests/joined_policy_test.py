#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernels of a small π0.5 on Hopper, graph by graph, from a checkpoint with the sizes of heads that the published
model has. Builds run their golden values with tensor cores emulated. Argument: the folder with the program."""

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
except ImportError:
    print("no numpy: skipped")
    sys.exit(77)

PROGRAM = os.path.abspath(os.path.join(sys.argv.pop(1), "tessera"))

SIZES = {
    "pi05": True,
    **{"image_size": 56, "patch": 14, "v_width": 144, "v_layers": 2, "v_heads": 2, "v_mlp": 208},
    **{"width": 128, "mlp": 256, "e_width": 64, "e_mlp": 128, "layers": 3, "heads": 4, "kv_heads": 1, "head_dim": 256},
    **{"vocab": 512, "action_dim": 32, "horizon": 10, "max_token_len": 16, "num_steps": 4},
    **{"rope_base": 10000.0, "rms_eps": 1e-6, "ln_eps": 1e-6, "min_period": 0.004, "max_period": 4.0},
}
PALIGEMMA = "paligemma_with_expert.paligemma.model."
EXPERT = "paligemma_with_expert.gemma_expert.model."
TOWER = PALIGEMMA + "vision_tower.vision_model."
LANGUAGE = PALIGEMMA + "language_model."


def linear(name, outputs, inputs):
    return {name + ".weight": (outputs, inputs), name + ".bias": (outputs,)}


def vision_shapes(c):
    width, patches = c["v_width"], (c["image_size"] // c["patch"]) ** 2
    shapes = {
        TOWER + "embeddings.patch_embedding.weight": (width, 3, c["patch"], c["patch"]),
        TOWER + "embeddings.patch_embedding.bias": (width,),
        TOWER + "embeddings.position_embedding.weight": (patches, width),
    }
    norms = [TOWER + "post_layernorm"]
    for i in range(c["v_layers"]):
        layer = f"{TOWER}encoder.layers.{i}."
        norms += [layer + "layer_norm1", layer + "layer_norm2"]
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes |= linear(f"{layer}self_attn.{part}", width, width)
        shapes |= linear(layer + "mlp.fc1", c["v_mlp"], width) | linear(layer + "mlp.fc2", width, c["v_mlp"])
    for norm in norms:
        shapes |= {norm + ".weight": (width,), norm + ".bias": (width,)}
    return shapes | linear(PALIGEMMA + "multi_modal_projector.linear", c["width"], width)


def gemma_shapes(base, width, mlp, c, modulated):
    q, kv = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
    shapes = {}
    for i in range(c["layers"]):
        layer = f"{base}layers.{i}."
        for name, outputs, inputs in (
            *(("self_attn.q_proj", q, width), ("self_attn.k_proj", kv, width), ("self_attn.v_proj", kv, width)),
            *(("self_attn.o_proj", width, q), ("mlp.gate_proj", mlp, width), ("mlp.up_proj", mlp, width)),
            ("mlp.down_proj", width, mlp),
        ):
            shapes[f"{layer}{name}.weight"] = (outputs, inputs)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            dense = linear(f"{layer}{norm}.dense", 3 * width, width)
            shapes |= dense if modulated else {f"{layer}{norm}.weight": (width,)}
    return shapes


def write_checkpoint(folder):
    c = SIZES
    shapes = vision_shapes(c) | {LANGUAGE + "embed_tokens.weight": (c["vocab"], c["width"])}
    shapes |= gemma_shapes(LANGUAGE, c["width"], c["mlp"], c, False)
    shapes |= gemma_shapes(EXPERT, c["e_width"], c["e_mlp"], c, True)
    shapes |= linear(EXPERT + "norm.dense", 3 * c["e_width"], c["e_width"])
    shapes |= linear("action_in_proj", c["e_width"], c["action_dim"])
    shapes |= linear("action_out_proj", c["action_dim"], c["e_width"])
    shapes |= linear("time_mlp_in", c["e_width"], c["e_width"]) | linear("time_mlp_out", c["e_width"], c["e_width"])
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(c))
    rng, header, data = np.random.default_rng(5), {}, b""
    for name, shape in shapes.items():
        scale = 0.1 if len(shape) == 1 else 1 / np.sqrt(np.prod(shape[1:]))
        values = (rng.standard_normal(shape) * scale).astype(np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def kernels(plan, layer):
    """One layer's kernels, "op: last part of each name", with the steps of its program."""
    words = []
    for step in plan["steps"]:
        if layer not in step["layer"]:
            continue
        names = "+".join(name.split(layer)[-1].lstrip(".") for name in step["layer"].split("+"))
        program = [s if isinstance(s, str) else s.get("kind", s.get("step", "")) for s in step["then"]]
        words.append(" ".join([step["op"], names, *program]))
    return words


class JoinedPolicy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        write_checkpoint(cls.folder / "policy")

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def plans(self, precision):
        command = (PROGRAM, "build", "policy", "--family", "pi05", "--precision", precision, "--target", "sm90")
        for words in ((*command, "-o", "p.tess", "--quiet"), (PROGRAM, "inspect", "p.tess", "--json")):
            done = subprocess.run(words, capture_output=True, text=True, cwd=self.folder)
            self.assertEqual(done.returncode, 0, (words, done.stdout, done.stderr))
        return {plan["name"]: plan for plan in json.loads(done.stdout)["plans"]}

    def test_five_kernels_to_a_layer_of_a_step(self):
        for precision in ("bf16", "fp16", "fp8", "fp8_bf16"):
            plans = self.plans(precision)
            codes = " quantize" if precision.startswith("fp8") else ""
            want = [
                "matmul self_attn.q_proj+self_attn.k_proj+self_attn.v_proj normalise bias rotary",
                "attention self_attn" + codes,
                "matmul self_attn.o_proj scale residual",
                "matmul mlp.gate_proj+mlp.up_proj normalise bias gate" + codes,
                "matmul mlp.down_proj scale residual",
            ]
            self.assertEqual(kernels(plans["step.batch1"], EXPERT + "layers.1"), want, precision)
            rest = [s["op"] for s in plans["step.batch1"]["steps"] if EXPERT + "layers." not in s["layer"]]
            self.assertLessEqual(len(rest), 16, rest)
            self.assertEqual(rest.count("gather"), 4, "f32 rows, rows of the carrier, angles, the next step")
            self.assertEqual(rest.count("write"), 2, "x and the step's number, whole: no cache")
            self.assertNotIn("rotary", rest)
            norms = [s["layer"] for s in plans["step.batch1"]["steps"] if s["op"] == "norm"]
            self.assertEqual(norms, [EXPERT + "layers.0.input_layernorm", EXPERT + "norm"], "beside layers in f32")
            for step in plans["step.batch1"]["steps"]:
                if step["op"] == "matmul" and EXPERT + "layers." in step["layer"]:
                    self.assertTrue(step["variant"].startswith("matmul/sm90_"), step["layer"])

    def test_vision_and_prefix_have_four_matmuls_to_a_layer(self):
        for precision in ("bf16", "fp8"):
            plans = self.plans(precision)
            for plan, layer in (
                ("vision.batch1", TOWER + "encoder.layers.1"),
                ("prefix.batch1", LANGUAGE + "layers.1"),
            ):
                found = kernels(plans[plan], layer)
                self.assertEqual(sum(k.startswith("matmul") for k in found), 4, (precision, found))
                self.assertFalse(any(k.startswith(("copy", "map", "rotary", "write")) for k in found), found)
            last = kernels(plans["prefix.batch1"], LANGUAGE + "layers.2")
            self.assertTrue(any(k.startswith("matmul self_attn.k_proj+self_attn.v_proj") for k in last), last)


if __name__ == "__main__":
    unittest.main()
