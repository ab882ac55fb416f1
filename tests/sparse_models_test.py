#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models that were pruned to 2:4 before they came here, plain and with Q/DQ. Argument: the folder with the program."""

import json

import onnx
from cli_program import CliTest, failure, np, run_tests, tessera
from onnx import helper, numpy_helper


def prune(w):
    """The two largest of each four along k, of w [k, n]."""
    groups = w.reshape(-1, 4, w.shape[1])
    keep = np.argsort(-np.abs(groups), axis=1, kind="stable")[:, :2]
    out = np.zeros_like(groups)
    np.put_along_axis(out, keep, np.take_along_axis(groups, keep, 1), 1)
    return out.reshape(w.shape)


def with_weights(model, change):
    """A copy of the model with other weights in the layers of its blocks; `change` gives a value's new name."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    graph = model.graph
    stored = {t.name: t for t in graph.initializer}
    nodes, layers = [], 0
    for node in graph.node:
        w = stored.get(node.input[1]) if node.op_type in ("MatMul", "Gemm") else None
        if w is not None and "block" in w.name and len(w.dims) == 2:
            node.input[1] = change(graph, nodes, node, numpy_helper.to_array(w))
            graph.initializer.remove(w)
            layers += 1
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return model, layers


def constant(graph, name, array):
    graph.initializer.append(numpy_helper.from_array(array, name))
    return name


def pruned(graph, _nodes, node, w):
    return constant(graph, node.output[0] + ".pruned", prune(w))


def quantized(graph, nodes, node, w, sparse=True):
    """Codes in int8 with a scale per output, and the input rounded to int8."""
    w = prune(w) if sparse else w
    name = node.output[0]
    scale = (np.abs(w).max(0) / 127).astype("f4")
    names = [
        constant(graph, name + ".codes", np.clip(np.rint(w / scale), -127, 127).astype("i1")),
        constant(graph, name + ".scale", scale),
        constant(graph, name + ".zeros", np.zeros(len(scale), "i1")),
    ]
    nodes.append(helper.make_node("DequantizeLinear", names, [name + ".w"], axis=1))
    rounding = [constant(graph, name + ".x_scale", np.float32(0.05)), constant(graph, name + ".x_zero", np.int8(0))]
    nodes.append(helper.make_node("QuantizeLinear", [node.input[0], *rounding], [name + ".xq"]))
    nodes.append(helper.make_node("DequantizeLinear", [name + ".xq", *rounding], [name + ".x"]))
    node.input[0] = name + ".x"
    return name + ".w"


class SparseModels(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        model = onnx.load(CliTest.folder / "tiny.onnx")
        for name, change in {
            "pruned": pruned,
            "quantized": quantized,
            "quantized_dense": lambda *a: quantized(*a, sparse=False),
        }.items():
            made, cls.layers = with_weights(model, change)
            onnx.save(made, CliTest.folder / f"{name}.onnx")
        assert cls.layers >= 8, cls.layers

    def stored(self, engine):
        """Of the layers of blocks: what is stored."""
        plan = json.loads(tessera("inspect", engine, "--json").stdout)["plans"][0]
        return [s["stored"] for s in plan["steps"] if s["op"] == "matmul" and "block" in s["layer"]]

    def logits(self, engine):
        tessera("run", engine, "-i", "in.npz", "-o", "out.npz")
        with np.load(CliTest.folder / "out.npz") as out:
            return {name: out[name] for name in out.files}

    def test_it_is_said_of_a_model_that_is_2_4(self):
        said = f"the weights of {self.layers} of the {self.layers} linear layers of the blocks are 2:4 sparse"
        for model, words in (("pruned", ("--precision", "fp8")), ("quantized", ())):
            done = tessera("build", f"{model}.onnx", "-o", "dense.tess", *words)
            self.assertIn(said, " ".join(done.stderr.split()))
            self.assertFalse(any("2:4" in words for words in self.stored("dense.tess")))
        for model in ("tiny", "quantized_dense"):
            self.assertNotIn("2:4", tessera("build", f"{model}.onnx", "-o", "dense.tess").stderr)
        quiet = tessera("build", "pruned.onnx", "-o", "dense.tess", "--precision", "fp8", "--quiet")
        self.assertEqual(quiet.stderr, "")

    def test_asked_for_it_is_stored_sparse_and_no_number_changes(self):
        cases = [("pruned", ("--precision", "fp8", "--calib", "in.npz")), ("pruned", ("--precision", "fp16"))]
        for model, words in [*cases, ("quantized", ())]:
            with self.subTest(model=model, words=words):
                tessera("build", f"{model}.onnx", "-o", "dense.tess", *words)
                done = tessera("build", f"{model}.onnx", "-o", "sparse.tess", *words, "--sparsity", "2:4")
                self.assertNotIn("are 2:4 sparse in the model", done.stderr)
                stored = self.stored("sparse.tess")
                self.assertEqual([words for words in stored if "2:4" not in words], [])
                self.assertEqual(len(stored), len(self.stored("dense.tess")))
                manifest = json.loads(tessera("inspect", "sparse.tess", "--json").stdout)
                kept = [r for r in manifest["refinements"] if r.endswith(": 2:4 in the model as it is")]
                self.assertEqual(len(kept), self.layers)
                self.assertNotIn("refined_weights", manifest)  # so every number is held against the model's
                size = [(CliTest.folder / f"{name}.tess").stat().st_size for name in ("dense", "sparse")]
                self.assertLess(size[1], size[0])
                dense, sparse = self.logits("dense.tess"), self.logits("sparse.tess")
                for name, want in dense.items():  # what is left out adds zeros; sums may be in another order
                    off = np.linalg.norm(sparse[name] - want) / np.linalg.norm(want)
                    self.assertLess(off, 2.0**-10, name)

    def test_weights_with_scales_that_are_not_2_4_are_refused(self):
        refused = failure("build", "quantized_dense.onnx", "-o", "x.tess", "--sparsity", "2:4", code=4)
        self.assertIn("2:4 was asked, and its weight has types of its own and is not 2:4", refused)
        self.assertFalse((CliTest.folder / "x.tess").exists())

    def test_a_pruned_model_that_is_refined_stays_2_4(self):
        words = ("--precision", "fp8", "--calib", "in.npz", "--sparsity", "2:4", "--refine", "compensate")
        tessera("build", "pruned.onnx", "-o", "refined.tess", *words)
        self.assertEqual([words for words in self.stored("refined.tess") if "2:4" not in words], [])
        manifest = json.loads(tessera("inspect", "refined.tess", "--json").stdout)
        self.assertEqual(len(manifest["refined_weights"]), self.layers)


if __name__ == "__main__":
    run_tests()
