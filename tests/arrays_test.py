#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the user's own arrays decide: axes that a model leaves open, golden inputs, accuracy.

python3 tests/arrays_test.py FOLDER_OF_PROGRAMS"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    sys.exit(77)

PROGRAM = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "build/release/bin").resolve() / "tessera"


def tessera(*words, code=0):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=Arrays.folder)
    assert done.returncode == code, f"exit {done.returncode}, want {code}: {words}\n{done.stdout}{done.stderr}"
    return done


def sentence(stderr):
    """One line of the program and what follows it indented, without line breaks."""
    lines = stderr.splitlines()
    assert lines and lines[0].startswith("tessera: "), stderr
    assert all(line.startswith("  ") for line in lines[1:]), stderr
    return " ".join(line.strip() for line in lines)


def failure(*words, code):
    return sentence(tessera(*words, code=code).stderr)


class Arrays(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        tessera("zoo", "vit-tiny-test", "-o", "tiny.onnx", "--seed", 5)
        np.savez(cls.folder / "in.npz", image=np.random.default_rng(8).standard_normal((8, 3, 32, 32)).astype("f4"))

    def test_run_takes_open_axes_from_the_arrays(self):
        try:
            import onnx
        except ImportError:
            self.skipTest("no onnx to make models with")
        helper = onnx.helper
        value = lambda name, shape: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        # Two inputs share the axis 'tokens'; 'width' is open in one of them, a third axis has no name.
        nodes = [
            helper.make_node("MatMul", ["a", "w"], ["p"], name="proj"),
            helper.make_node("Add", ["p", "b"], ["q"], name="sum"),
            helper.make_node("MatMul", ["q", "c"], ["y"], name="mix"),
        ]
        weight = np.random.default_rng(4).standard_normal((8, 16)).astype("f4")
        graph = helper.make_graph(
            nodes,
            "open",
            [value("a", ["n", "tokens", 8]), value("b", ["n", "tokens", 16]), value("c", ["n", 16, "width"])],
            [value("y", ["n", "tokens", "width"])],
            [onnx.numpy_helper.from_array(weight, "w")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, self.folder / "axes.onnx")
        random = np.random.default_rng(5)

        def save(a, b, c):
            arrays = {n: random.standard_normal(s).astype("f4") for n, s in (("a", a), ("b", b), ("c", c))}
            np.savez(self.folder / "axes.npz", **arrays)
            return arrays

        run = ("run", "axes.onnx", "-i", "axes.npz", "--precision", "fp32")
        for count, tokens, width in ((3, 7, 5), (1, 12, 24), (70, 2, 3)):
            got = save((count, tokens, 8), (count, tokens, 16), (count, 16, width))
            said = json.loads(tessera(*run, "-o", "axes_out.npz", "--json").stdout)
            self.assertEqual(said["plans"], [f"batch{min(count, 64)}"])
            want = (got["a"] @ weight + got["b"]) @ got["c"]
            np.testing.assert_allclose(np.load(self.folder / "axes_out.npz")["y"], want, rtol=0, atol=1e-4)
        said = json.loads(tessera(*run, "--batch", 2, "--json").stdout)
        self.assertEqual((said["plans"], said["runs"]), (["batch2"], 35))
        save((3, 7, 8), (3, 9, 16), (3, 16, 5))
        said = "axes.npz: array 'b' says 9 for the axis 'tokens' of the model, array 'a' says 7: it has one size"
        self.assertIn(said, failure(*run, code=3))
        save((3, 7, 9), (3, 7, 16), (3, 16, 5))
        self.assertIn("axes.npz: array 'a' has shape [3,7,9]; wanted 'a' [batch,tokens,8]", failure(*run, code=3))
        save((3, 7), (3, 7, 16), (3, 16, 5))
        self.assertIn("axes.npz: array 'a' has shape [3,7]; wanted 'a' [batch,tokens,8]", failure(*run, code=3))
        # --shape goes before the arrays, which must then agree with it.
        save((3, 7, 8), (3, 7, 16), (3, 16, 5))
        said = "axes.npz: array 'b' says 7 for the axis 'tokens' of the model, --shape a says 6: it has one size"
        self.assertIn(said, failure(*run, "--shape", "a=1,6,8", code=3))
        said = json.loads(tessera(*run, "--shape", "a=1,7,8", "--json").stdout)
        self.assertEqual((said["plans"], said["runs"]), (["batch1"], 3))

    def test_a_model_whose_ports_share_no_batch_is_one_sample(self):
        try:
            import onnx
        except ImportError:
            self.skipTest("no onnx to make models with")
        helper, kinds = onnx.helper, onnx.TensorProto
        value = lambda name, shape, kind=kinds.FLOAT: helper.make_tensor_value_info(name, kind, shape)
        # Images that leave the batch open, four positions, a number; a result per image, one per position, a number.
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["p"], name="proj"),
            helper.make_node("Gather", ["table", "positions"], ["e"], name="rows"),
            helper.make_node("Add", ["p", "e"], ["q"], name="sum"),
            helper.make_node("Mul", ["q", "time"], ["s"], name="times"),
            helper.make_node("ReduceMean", ["s"], ["y"], name="mean", axes=[1], keepdims=0),
            helper.make_node("Tanh", ["e"], ["z"], name="side"),
            helper.make_node("ReduceMax", ["s"], ["largest"], name="top", keepdims=0),
        ]
        random = np.random.default_rng(9)
        w, table = random.standard_normal((8, 8)).astype("f4"), random.standard_normal((10, 8)).astype("f4")
        graph = helper.make_graph(
            nodes,
            "one",
            [value("x", ["n", 4, 8]), value("positions", [4], kinds.INT64), value("time", [])],
            [value("y", ["n", 8]), value("z", [4, 8]), value("largest", [])],
            [onnx.numpy_helper.from_array(w, "w"), onnx.numpy_helper.from_array(table, "table")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, self.folder / "one.onnx")
        for images, words in ((1, ()), (3, ("--shape", "x=3,4,8"))):
            x = random.standard_normal((images, 4, 8)).astype("f4")
            positions, time = np.array([3, 1, 9, 0]), np.float32(-0.5)
            s = (x @ w + table[positions]) * time
            want = {"y": s.mean(1), "z": np.tanh(table[positions]), "largest": s.max()}
            tessera("build", "one.onnx", "-o", "one.tess", "--precision", "fp32", *words)
            # As the model has them, or as samples: with one more axis in front.
            for lead in ((), (1,), (2,)):
                spread = {"x": x, "positions": positions, "time": time}
                if lead:
                    spread = {name: np.broadcast_to(a, lead + np.shape(a)) for name, a in spread.items()}
                np.savez(self.folder / "one.npz", **spread)
                tessera("run", "one.tess", "-i", "one.npz", "-o", "one_out.npz")
                got = np.load(self.folder / "one_out.npz")
                for name, wanted in want.items():
                    wanted = np.broadcast_to(wanted, lead + np.shape(wanted))
                    self.assertEqual(got[name].shape, wanted.shape)
                    np.testing.assert_allclose(got[name], wanted, rtol=0, atol=1e-5)
        tessera("verify", "one.tess", "--model", "one.onnx")
        said = "share no batch ('x' [2,4,8], 'positions' [4], 'time' [] -> 'y' [2,8], 'z' [4,8], 'largest' [])"
        for batch in ("2", "1,2"):
            told = failure("build", "one.onnx", "-o", "two.tess", "--batch", batch, code=2)
            self.assertIn(said, told)
            self.assertIn("leave --batch out", told)
        np.savez(self.folder / "one.npz", x=x[:, :3], positions=positions, time=time)
        self.assertIn("array 'x' has shape [3,3,8]", failure("run", "one.tess", "-i", "one.npz", code=3))

    def test_a_first_axis_that_is_mixed_is_no_batch(self):
        try:
            import onnx
        except ImportError:
            self.skipTest("no onnx to make models with")
        helper = onnx.helper
        value = lambda name, shape: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        random = np.random.default_rng(11)
        w, x = (random.standard_normal(shape).astype("f4") for shape in ((8, 8), (4, 8)))
        softmax = lambda s: (
            np.exp(s - s.max(-1, keepdims=True)) / np.exp(s - s.max(-1, keepdims=True)).sum(-1, keepdims=True)
        )
        # Four frames that attend to one another, or four images that do not.
        mixed = [
            helper.make_node("Transpose", ["p"], ["t"], perm=[1, 0]),
            helper.make_node("MatMul", ["x", "t"], ["s"]),
        ]
        apart = [helper.make_node("Identity", ["p"], ["s"])]
        for name, nodes, scores in (("mixed", mixed, x @ (x @ w).T), ("apart", apart, x @ w)):
            nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], name="proj"), *nodes]
            nodes.append(helper.make_node("Softmax", ["s"], ["y"], axis=-1))
            graph = helper.make_graph(
                nodes,
                name,
                [value("x", [4, 8])],
                [value("y", list(scores.shape))],
                [onnx.numpy_helper.from_array(w, "w")],
            )
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
            onnx.save(model, self.folder / f"{name}.onnx")
            np.savez(self.folder / "x.npz", x=x)
            said = tessera("build", f"{name}.onnx", "-o", "m.tess", "--precision", "fp32").stderr
            self.assertEqual("it is one sample" in " ".join(said.split()), name == "mixed")
            tessera("verify", "m.tess", "--model", f"{name}.onnx")
            for what in (("m.tess",), (f"{name}.onnx", "--precision", "fp32")):
                tessera("run", *what, "-i", "x.npz", "-o", "y.npz")
                got = np.load(self.folder / "y.npz")["y"]
                self.assertEqual(got.shape, scores.shape)
                np.testing.assert_allclose(got, softmax(scores), rtol=0, atol=1e-5)

    def test_inputs_and_outputs_in_16_bits(self):
        image = np.load(self.folder / "in.npz")["image"].astype("f2")
        np.savez(self.folder / "half.npz", image=image)
        np.savez(self.folder / "rounded.npz", image=image.astype("f4"))
        build = ("build", "tiny.onnx", "--calib", "rounded.npz", "--quiet")
        for precision in ("fp32", "fp16", "bf16", "fp8"):
            for io, stored in ((("*=fp16",), ("f16", "f16")), (("*=fp16", "logits=bf16"), ("f16", "bf16"))):
                flags = [word for port in io for word in ("--io", port)]
                tessera(*build, "--precision", precision, "-o", "wide.tess")
                tessera(*build, "--precision", precision, "-o", "io.tess", *flags)
                said = tessera("inspect", "io.tess").stdout
                for port, element in zip(("image [batch,3,32,32]", "logits [batch,10]"), stored):
                    self.assertIn(f"{port} {element}", said)
                # A port of the layers' own type costs no copy.
                carrier = {"fp32": "f32", "bf16": "bf16"}.get(precision, "f16")
                self.assertEqual(["image.in" in said, "logits.out" in said], [port != carrier for port in stored])
                tessera("run", "wide.tess", "-i", "rounded.npz", "-o", "want.npz")
                tessera("run", "io.tess", "-i", "half.npz", "-o", "half_out.npz")
                tessera("run", "io.tess", "-i", "rounded.npz", "-o", "rounded_out.npz")
                want = np.load(self.folder / "want.npz")["logits"]
                got = np.load(self.folder / "half_out.npz")["logits"]
                self.assertEqual(got.dtype, "f2" if stored[1] == "f16" else "f4")  # numpy has no bf16
                np.testing.assert_array_equal(got, np.load(self.folder / "rounded_out.npz")["logits"])
                step = 2.0**-8 if "bf16" in (precision, stored[1]) else 2.0**-10
                self.assertLess(np.abs(got.astype("f4") - want).max(), step * np.abs(want).max())
                tessera("verify", "io.tess", "--model", "tiny.onnx")
        # Ranges are of the values as the ports name them; what no number is stays so on its way into a port.
        tessera("calibrate", "tiny.onnx", "--calib", "rounded.npz", "--io", "*=fp16", "-o", "io.json")
        tessera("build", "tiny.onnx", "--precision", "fp8", "--calib", "io.json", "--io", "*=fp16", "-o", "io.tess")
        np.savez(self.folder / "inf.npz", image=np.where(image > 2, np.inf, image).astype("f4"))
        self.assertIn("'image' holds NaN or Inf", sentence(tessera("run", "io.tess", "-i", "inf.npz").stderr))
        self.assertIn("--io is for ONNX models", failure("run", "io.tess", "-i", "half.npz", "--io", "*=fp16", code=2))
        said = failure(*build, "-o", "io.tess", "--io", "img=fp16", code=2)
        self.assertIn("no input or output is called so; the model has 'image' f32, 'logits' f32", said)
        self.assertIn("in fp32, fp16 or bf16", failure(*build, "-o", "io.tess", "--io", "image=int8", code=2))

    def test_samples_serve_precisions_without_static_scales(self):
        """They are golden inputs and what accuracy is measured on; that they give no scales is said."""
        for precision in ("fp32", "fp16", "bf16", "mxfp8", "fp8_token", "w4a16"):
            build = ("build", "tiny.onnx", "-o", "samples.tess", "--precision", precision, "--calib", "in.npz")
            done = tessera(*build)
            said = f"tessera: --calib: {precision} has no static scales; its samples serve golden inputs and accuracy"
            self.assertEqual(sentence(done.stderr), said)
            text = " ".join(done.stdout.split())
            self.assertIn("on 8 samples of --calib: mean cosine ", text)
            self.assertIn("on the golden inputs (1 sample of in.npz)", text)
            self.assertNotIn("scales: ", text)
            self.assertEqual(tessera(*build, "--quiet").stderr, "")
            tessera("verify", "samples.tess")
        said = sentence(tessera("run", "tiny.onnx", "-i", "in.npz", "--calib", "in.npz").stderr)
        self.assertIn("--calib: fp16 has no static scales", said)
        build = ("build", "tiny.onnx", "-o", "samples.tess", "--precision", "fp16", "--calib")
        said = sentence(tessera(*build, "in.npz", "--no-verify").stderr)
        self.assertIn("without golden values its samples are not used", said)
        tessera("calibrate", "tiny.onnx", "--calib", "in.npz", "-o", "samples.json")
        self.assertIn("the ranges are not used", sentence(tessera(*build, "samples.json").stderr))
        # Ranges that no precision could use are refused here too.
        good = (self.folder / "samples.json").read_text()
        for text, said in (
            ("{", "is not JSON"),
            ('{"tessera": "plan 1"}', "'tessera' is 'plan 1'; wanted 'ranges 1'"),
            (good.replace('"amax": ', '"amax": -'), "a magnitude is not negative"),
            (good.replace('"weights": "', '"weights": "0'), "is of a model with other weights"),
        ):
            (self.folder / "bad.json").write_text(text)
            told = failure(*build, "bad.json", code=3)
            self.assertIn("bad.json: ", told)
            self.assertIn(said, told)
        # What would choose among scales still has none to choose.
        said = failure(*build, "in.npz", "--calib-method", "mse", code=2)
        self.assertIn("--calib-method: fp16 has no scales to calibrate", said)


if __name__ == "__main__":
    unittest.main()
