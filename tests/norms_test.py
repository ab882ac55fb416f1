#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Norms that are folded into layers or pooled, through the program: each plan fuses as its batch allows, and accuracy
goes first.

python3 tests/norms_test.py FOLDER_OF_PROGRAMS"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError:
    sys.exit(77)

BIN = sys.argv.pop() if len(sys.argv) > 1 else "build/release/bin"


def constant(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def save(path, nodes, constants, out_shape):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out_shape)],
        constants,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def linear(name, x, y):
    return [
        helper.make_node("MatMul", [x, f"{name}.w"], [f"{name}.m"], name=f"{name}.matmul"),
        helper.make_node("Add", [f"{name}.m", f"{name}.b"], [y], name=f"{name}.add"),
    ]


def weights(random, name, rows, cols, bias=0.0):
    return [
        constant(f"{name}.w", random.standard_normal((rows, cols)).astype("f4") / np.sqrt(rows, dtype="f4")),
        constant(f"{name}.b", np.full(cols, bias, "f4")),
    ]


class Norms(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.random = np.random.default_rng(3)

    def tearDown(self):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def call(self, *words):
        done = subprocess.run([os.path.join(BIN, "tessera"), *words], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return done.stdout

    def norm_vectors(self):
        return [
            constant("n.gain", self.random.uniform(0.5, 1.5, 64).astype("f4")),
            constant("n.shift", self.random.standard_normal(64).astype("f4")),
        ]

    def steps(self, model, *words):
        """Op, program and attributes of each step of the first plan."""
        return self.steps_of_plans(model, *words)[0]

    def steps_of_plans(self, model, *words):
        engine = self.path("e.tess")
        self.call("build", model, "-o", engine, "--target", "sm90", *words)
        plans = json.loads(self.call("inspect", engine, "--json"))["plans"]
        named = {p["name"]: p for p in plans}
        for p in plans:
            golden = named[p.get("golden", "golden")]
            if p["arch"] != "ref":
                self.assertEqual(len(p["steps"]), len(golden["steps"]), "a plan mirrors the golden one of its form")
        return [
            [(s["op"], [t["step"] for t in s["then"]], s["attrs"]) for s in p["steps"]]
            for p in plans
            if p["arch"] != "ref"
        ]

    # A mean over one of two axes of tokens has a kernel where there is one image only: a plan that lacks it does not
    # take it from the others.
    def test_pooled_where_a_plan_can(self):
        model = self.path("pool.onnx")
        nodes = (
            linear("a", "x", "h")
            + [
                helper.make_node(
                    "LayerNormalization", ["h", "n.gain", "n.shift"], ["n"], axis=-1, epsilon=1e-5, name="n"
                ),
                helper.make_node("Reshape", ["n", "grid"], ["t"], name="t"),
                helper.make_node("ReduceMean", ["t"], ["p"], axes=[1], keepdims=0, name="p"),
            ]
            + linear("b", "p", "y")
        )
        save(
            model,
            nodes,
            weights(self.random, "a", 64, 64)
            + weights(self.random, "b", 64, 16)
            + self.norm_vectors()
            + [constant("grid", np.array([-1, 4, 4, 64]))],
            ["batch", 4, 16],
        )
        for batches, pooled in (("1", [True]), ("1,2", [True, False]), ("2", [False])):
            plans = self.steps_of_plans(model, "--precision", "fp16", "--batch", batches)
            self.assertEqual([any(attrs.get("pooled") for _, _, attrs in steps) for steps in plans], pooled, batches)

    def residual_model(self, name, offset):
        model = self.path(name)
        nodes = (
            linear("a", "x", "h")
            + [
                helper.make_node(
                    "LayerNormalization", ["h", "n.gain", "n.shift"], ["n"], axis=-1, epsilon=1e-5, name="n"
                )
            ]
            + linear("b", "n", "u")
            + linear("c", "u", "v")
            + [helper.make_node("Add", ["v", "h"], ["s"], name="s")]
            + linear("d", "s", "y")
        )
        constants = (
            weights(self.random, "a", 64, 64, offset)
            + weights(self.random, "b", 64, 128)
            + weights(self.random, "c", 128, 64)
            + weights(self.random, "d", 64, 16)
        )
        save(model, nodes, constants + self.norm_vectors(), ["batch", 16, 16])
        return model

    # Rows far from zero would be rounded with their mean in them.
    def test_folded_near_zero_only(self):
        for offset, folded in ((0.0, True), (20.0, False)):
            model = self.residual_model(f"r{offset}.onnx", offset)
            steps = self.steps(model, "--precision", "fp16", "--batch", "1")
            self.assertEqual(any("normalise" in then for _, then, _ in steps), folded, offset)
            self.assertEqual(any(op == "norm" for op, _, _ in steps), not folded, offset)
        steps = self.steps(self.residual_model("k.onnx", 0.0), "--precision", "fp16", "--batch", "1", "--keep-norms")
        self.assertTrue(any(op == "norm" for op, _, _ in steps))

    # 17 tokens: batch 1 folds what batch 64 does not, over the same weights, as if each were built alone.
    def test_each_plan_folds_for_itself(self):
        model = self.path("m.onnx")
        self.call("zoo", "vit-tiny-test", "-o", model, "--seed", "5")
        few, many = self.steps_of_plans(model, "--precision", "fp8", "--batch", "1,64")
        self.assertEqual(few, self.steps(model, "--precision", "fp8", "--batch", "1"))
        self.assertEqual(len(many), len(self.steps(model, "--precision", "fp8", "--batch", "64")))
        self.assertLess(len(few), len(many))

    # What folding costs shows in the golden run: where that is too much, the norms stay kernels.
    def test_accuracy_goes_before_folded_norms(self):
        model, data, engine = (self.path(name) for name in ("v.onnx", "v.npz", "v.tess"))
        self.call("zoo", "vit-tiny-test", "-o", model, "--seed", "5")
        words = ("--precision", "fp8", "--calib", data, "--batch", "1,2")

        def cosines(*more):
            """The best of any plan on the golden inputs; the least of that and of the mean over the samples."""
            build = json.loads(self.call("build", model, "-o", engine, "--target", "sm90", "--json", *words, *more))
            best = max(f["outputs"][0]["cosine_mean"] for f in build["forms"])
            return best, min(best, (build["on_samples"] or {"cosine_mean": 1})["cosine_mean"])

        # On two samples chance may favour either; it is asked on samples where folding costs something.
        for seed in range(8):
            images = np.random.default_rng(seed).standard_normal((8, 3, 32, 32)).astype("f4")
            np.savez(data, image=images)
            (folded, _), (kept, reached) = cosines(), cosines("--keep-norms")
            if folded < reached - 5e-5:
                break
        self.assertLess(folded, reached)
        between = ("--min-cosine", str((folded + reached) / 2))
        self.assertEqual(cosines(*between)[0], kept)
        steps = self.steps(model, *words, *between)
        self.assertEqual(steps, self.steps(model, *words, "--keep-norms"))
        self.assertFalse(any("normalise" in then for _, then, _ in steps))


if __name__ == "__main__":
    unittest.main()
