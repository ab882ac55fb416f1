#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Engines as users make, run and verify them: samples, warnings, files. Argument: the folder with the program."""

import json
import os
import resource
import subprocess

from cli_program import PROGRAM, CliTest, failure, np, on_terminal, run_tests, sentence, tessera

MASK = (1 << 64) - 1
# About twenty roundings to fp16 lie between the image and the logits of two blocks; they add like a random walk.
HALF_ROUNDINGS = 20**0.5 * 2.0**-11


def distance(got, want):
    return np.linalg.norm(got - want) / np.linalg.norm(want)


def checksum64(data):
    """As base/checksum.h describes it, from its words alone."""
    factor, start = 0xB7E151628AED2A6B, 0x243F6A8885A308D3

    def step(state, word):
        product = ((state ^ word) * factor) & MASK
        return product ^ (product >> 32)

    def fold(state, part):
        return step(step(state ^ part, 0), 0)

    folded = start
    for at in range(0, len(data), 1 << 20):
        chunk = data[at : at + (1 << 20)]
        words = np.frombuffer(chunk + bytes(-len(chunk) % 64), "<u8").tolist()
        lanes = [start + i for i in range(8)]
        for i, word in enumerate(words):
            lanes[i % 8] = step(lanes[i % 8], word)
        total = len(chunk)
        for lane in lanes:
            total = fold(total, lane)
        folded = fold(folded, total)
    return step(fold(folded, len(data)), 0)


class CliEngines(CliTest):
    def test_numbers_that_are_not_finite_draw_a_warning(self):
        bad = self.images.copy()
        bad[2, 0, 0, :3] = np.nan
        bad[5, 1, 2, 3] = np.inf
        np.savez(self.folder / "bad.npz", image=bad)
        warning = (
            "tessera: warning: bad.npz: input 'image' holds NaN or Inf in 4 of 24576 numbers, first in sample 2; what "
            "comes out means nothing "
            "for such samples"
        )
        done = tessera("run", "tiny.tess", "-i", "bad.npz", "-o", "bad_out.npz")
        self.assertEqual(sentence(done.stderr), warning)
        self.assertEqual(tessera("run", "tiny.tess", "-i", "bad.npz", "--quiet").stderr, "")
        self.assertIn(
            "holds NaN or Inf in 4 of 24576",
            json.loads(tessera("run", "tiny.tess", "-i", "bad.npz", "--json").stdout)["warning"],
        )
        good = np.load(self.folder / "bad_out.npz")["logits"]
        self.assertTrue(np.isnan(good[2]).any() and np.isfinite(good[[0, 1, 3, 4, 6, 7]]).all())
        self.assertIn("\033[33mwarning: \033[0m", on_terminal("run", "tiny.tess", "-i", "bad.npz"))
        self.assertNotIn("\033[33m", on_terminal("run", "tiny.tess", "-i", "bad.npz", NO_COLOR="1"))
        np.savez(self.folder / "huge.npz", image=np.full_like(self.images, 3e38))
        done = tessera("run", "tiny.onnx", "-i", "huge.npz", "--precision", "fp32", "--no-verify")
        self.assertIn(
            "output 'logits' holds NaN or Inf, first in sample 0 though the inputs are finite", sentence(done.stderr)
        )
        self.assertEqual(tessera("run", "tiny.tess", "-i", "in.npz").stderr, "")
        # Where numbers are compared or scales are taken, such inputs are refused, and by their own sample.
        np.savez(self.folder / "few.npz", image=bad[1:6])
        self.assertIn(
            "few.npz: input 'image' holds NaN or Inf in 4 of 15360 numbers, first in sample 1",
            failure("verify", "tiny.tess", "-i", "few.npz", code=3),
        )
        self.assertIn(
            "few.npz: input 'image' holds NaN or Inf in 3 of 6144 numbers, first in sample 1",
            failure("verify", "tiny.tess", "-i", "few.npz", "--samples", 2, code=3),
        )
        self.assertIn(
            "few.npz: input 'image' holds NaN or Inf in 4 of 15360 numbers, first in sample 1; calibration data must "
            "be finite",
            failure("build", "tiny.onnx", "-o", "x.tess", "--precision", "fp8", "--calib", "few.npz", code=3),
        )

    def test_numbers_that_an_engine_clamps_draw_a_warning(self):
        large = self.images.copy()
        large[2, 0, 0, 5] = -3.1e6
        np.savez(self.folder / "large.npz", image=large)
        said = (
            "large.npz: input 'image' holds numbers up to 3.1e+06 in sample 2; this engine holds at most 65504 there "
            "(f16) and clamps "
            "what is larger"
        )
        self.assertEqual(
            sentence(tessera("run", "tiny.tess", "-i", "large.npz").stderr),
            f"tessera: warning: {said}; bf16 and fp32 hold them",
        )
        self.assertIn(
            "up to 3.1e+06 in sample 2",
            json.loads(tessera("run", "tiny.tess", "-i", "large.npz", "--json").stdout)["warning"],
        )
        for precision in ("fp32", "bf16"):
            done = tessera("run", "tiny.onnx", "-i", "large.npz", "--precision", precision, "--no-verify")
            self.assertEqual(done.stderr, "", precision)
        done = tessera("verify", "tiny.tess", "-i", "large.npz", "--samples", 3, "--outputs-only")
        self.assertEqual(sentence(done.stderr), f"tessera: warning: {said}")
        # Samples that are not looked at are not spoken of; the largest f16 is held.
        self.assertEqual(tessera("verify", "tiny.tess", "-i", "large.npz", "--samples", 2, "--outputs-only").stderr, "")
        large[2, 0, 0, 5] = 65504
        np.savez(self.folder / "large.npz", image=large)
        self.assertEqual(tessera("run", "tiny.tess", "-i", "large.npz").stderr, "")

    def test_outputs_that_end_where_f16_does_draw_a_warning(self):
        try:
            import onnx
        except ImportError:
            self.skipTest("no onnx to make models with")
        helper = onnx.helper
        weight = onnx.numpy_helper.from_array(np.full((32, 16), 30, "f4"), "w")
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["h"], name="fc"),
            helper.make_node("Concat", ["h", "h"], ["y"], name="twice", axis=1),
        ]
        value = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 32])
        graph = helper.make_graph(nodes, "twice", [value("x")], [value("y")], [weight])
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
            self.folder / "twice.onnx",
        )
        x = np.ones((4, 32), "f4")
        x[3] = 1000  # the sum is 960000
        np.savez(self.folder / "twice.npz", x=x)
        said = "output 'y' holds 65504, where f16 ends, first in sample 3 though the inputs are finite"
        self.assertIn(said, sentence(tessera("run", "twice.onnx", "-i", "twice.npz", "--precision", "fp16").stderr))
        self.assertEqual(tessera("run", "twice.onnx", "-i", "twice.npz", "--precision", "bf16").stderr, "")

    def test_scales_that_a_model_states_are_the_model(self):
        try:
            import onnx
        except ImportError:
            self.skipTest("no onnx to make models with")
        helper, array = onnx.helper, onnx.numpy_helper.from_array
        codes = np.random.default_rng(2).integers(-127, 128, (32, 16), dtype="i1")
        constants = [
            array(codes, "w"),
            array(np.float32(0.01), "ws"),
            array(np.float32(1e-3), "xs"),
            array(np.int8(0), "zero"),
        ]
        nodes = [
            helper.make_node("QuantizeLinear", ["x", "xs", "zero"], ["xq"]),
            helper.make_node("DequantizeLinear", ["xq", "xs", "zero"], ["xd"]),
            helper.make_node("DequantizeLinear", ["w", "ws", "zero"], ["wd"]),
            helper.make_node("MatMul", ["xd", "wd"], ["y"], name="fc"),
        ]
        value = lambda name, last: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 7, last])
        graph = helper.make_graph(nodes, "stated", [value("x", 32)], [value("y", 16)], constants)
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9),
            self.folder / "stated.onnx",
        )
        build = tessera("build", "stated.onnx", "-o", "stated.tess")
        said = "layer matmul_3: [89][0-9] % of its input's codes saturate, under the scale that the model states"
        self.assertRegex(sentence(build.stderr), said)
        for words in (), ("--model", "stated.onnx", "--kinds", "normal"):
            self.assertRegex(" ".join(tessera("verify", "stated.tess", *words).stdout.split()), said)

    def test_build_overwrites_engines_only(self):
        np.savez(self.folder / "keep.npz", image=self.images)
        before = (self.folder / "keep.npz").read_bytes()
        done = tessera(
            "build", "tiny.onnx", "-o", "keep.npz", "--calib", "keep.npz", "--precision", "fp8", "--no-verify", code=2
        )
        self.assertIn("keep.npz: is no engine and would be overwritten", sentence(done.stderr))
        self.assertEqual((self.folder / "keep.npz").read_bytes(), before)

    def test_inputs_by_name_shape_and_type(self):
        save = lambda **arrays: np.savez(self.folder / "other.npz", **arrays)
        save(picture=self.images)
        self.assertIn(
            "no array 'image'; wanted 'image' [batch,3,32,32]", failure("run", "tiny.tess", "-i", "other.npz", code=3)
        )
        save(image=self.images[:, :, :, :31])
        self.assertIn(
            "has shape [8,3,32,31]; wanted 'image' [batch,3,32,32]",
            failure("run", "tiny.tess", "-i", "other.npz", code=3),
        )
        whole = np.round(self.images * 20).clip(0, 200)
        outputs = []
        for kind in ("f4", "f8", "f2", "u1", "i2", "i8"):
            save(image=whole.astype(kind), unused=np.zeros(3))
            said = sentence(tessera("run", "tiny.tess", "-i", "other.npz", "-o", "out.npz").stderr)
            self.assertIn("warning: other.npz: array 'unused' is read by no input; the model has 'image'", said)
            outputs.append(np.load(self.folder / "out.npz")["logits"])
        for other in outputs[1:]:
            np.testing.assert_array_equal(outputs[0], other)

    def test_any_number_of_samples_runs_in_chunks(self):
        said = json.loads(tessera("run", "tiny.tess", "-i", "in.npz", "-o", "out.npz", "--json").stdout)
        self.assertEqual((said["samples"], said["runs"], said["plans"]), (8, 4, ["batch3", "batch1"]))  # 3 + 3 + 1 + 1
        got = np.load(self.folder / "out.npz")
        self.assertEqual((got.files, got["logits"].shape, got["logits"].dtype), (["logits"], (8, 10), np.dtype("f4")))
        # One sample at a time gives the same numbers: nothing of a chunk reaches its neighbours.
        for i in range(8):
            np.savez(self.folder / "one.npz", image=self.images[i : i + 1])
            tessera("run", "tiny.tess", "-i", "one.npz", "-o", "one_out.npz")
            self.assertLess(
                distance(np.load(self.folder / "one_out.npz")["logits"][0], got["logits"][i]), HALF_ROUNDINGS
            )
        # A last chunk that is not full is filled up and cut off.
        tessera("build", "tiny.onnx", "-o", "five.tess", "--precision", "fp16", "--batch", 5)
        said = json.loads(tessera("run", "five.tess", "-i", "in.npz", "-o", "five.npz", "--json").stdout)
        self.assertEqual(said["runs"], 2)
        self.assertLess(distance(np.load(self.folder / "five.npz")["logits"], got["logits"]), HALF_ROUNDINGS)

    def test_run_builds_a_model_in_memory(self):
        said = json.loads(
            tessera("run", "tiny.onnx", "-i", "in.npz", "-o", "direct.npz", "--precision", "fp32", "--json").stdout
        )
        self.assertEqual((said["plans"], said["runs"]), (["batch8"], 1))
        tessera("run", "tiny.tess", "-i", "in.npz", "-o", "out.npz")
        direct, half = (np.load(self.folder / f)["logits"] for f in ("direct.npz", "out.npz"))
        self.assertLess(distance(half, direct), HALF_ROUNDINGS)
        self.assertGreater(distance(half, direct), 0)
        tessera(
            "run",
            "tiny.onnx",
            "-i",
            "in.npz",
            "--precision",
            "fp8",
            "--calib",
            "in.npz",
            "--target",
            "ref",
            "--no-verify",
        )

    def test_models_that_fix_or_open_their_axes(self):
        try:
            import onnx
        except ImportError:
            self.skipTest("no onnx to make models with")
        model = onnx.load(self.folder / "tiny.onnx")
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
        onnx.save(model, self.folder / "fixed.onnx")
        said = json.loads(tessera("run", "fixed.onnx", "-i", "in.npz", "--json").stdout)
        self.assertEqual((said["plans"], said["runs"]), (["batch1"], 8))
        self.assertIn(
            "fixes the batch to 1, 4 was asked for", failure("run", "fixed.onnx", "-i", "in.npz", "--batch", 4, code=3)
        )
        model.graph.node[-1].op_type = "NoSuchOperator"
        onnx.save(model, self.folder / "broken.onnx")
        for precision in ("fp16", "fp8"):
            self.assertIn(
                "NoSuchOperator", failure("build", "broken.onnx", "--batch", 1, "--precision", precision, code=3)
            )
        helper = onnx.helper
        node = helper.make_node("MatMul", ["x", "w"], ["y"], name="proj")
        weight = onnx.numpy_helper.from_array(self.images[0, 0, :, :16].copy(), "w")
        value = lambda name, last: helper.make_tensor_value_info(
            name, onnx.TensorProto.FLOAT, ["batch", "tokens", last]
        )
        graph = helper.make_graph([node], "open", [value("x", 32)], [value("y", 16)], [weight])
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
            self.folder / "open.onnx",
        )
        np.savez(self.folder / "open.npz", x=self.images[:4, 0, :7])
        build = ("build", "open.onnx", "-o", "open.tess", "--precision", "fp32")
        self.assertIn("--shape x=1,128,32", failure(*build, code=3))
        for bad in ("x", "x=", "=1,2", "x=1,,2", "x=0,7,32"):
            self.assertIn("wanted INPUT=N,...", failure(*build, "--shape", bad, code=2))
        self.assertIn("'z', which is not an input", failure(*build, "--shape", "z=1,7,32", code=3))
        self.assertIn("does not fit the model's [batch,tokens,32]", failure(*build, "--shape", "x=1,7,31", code=3))
        self.assertIn(
            "--shape gives a batch of 1, --batch 2", failure(*build, "--shape", "x=1,7,32", "--batch", 2, code=2)
        )
        tessera(*build, "--shape", "x=2,7,32")
        want = self.images[:4, 0, :7] @ self.images[0, 0, :, :16]
        tessera("run", "open.tess", "-i", "open.npz", "-o", "open_out.npz")
        np.testing.assert_allclose(
            np.load(self.folder / "open_out.npz")["y"], want, rtol=0, atol=32 * 2.0**-24 * np.abs(want).max() * 8
        )
        said = json.loads(tessera("run", "open.onnx", "--shape", "x=1,7,32", "-i", "open.npz", "--json").stdout)
        self.assertEqual((said["plans"], said["runs"]), (["batch1"], 4))

    def test_a_single_array_needs_no_name(self):
        np.save(self.folder / "pictures.npy", self.images)
        tessera("run", "tiny.tess", "-i", "pictures.npy", "-o", "npy_out.npz")
        tessera("run", "tiny.tess", "-i", "in.npz", "-o", "npz_out.npz")
        npy, npz = (np.load(self.folder / f)["logits"] for f in ("npy_out.npz", "npz_out.npz"))
        np.testing.assert_array_equal(npy, npz)
        self.assertIn("outputs are written as npz", failure("run", "tiny.tess", "-i", "in.npz", "-o", "x.npy", code=2))

    def test_builds_are_reproducible(self):
        for name in ("a.tess", "b.tess"):
            tessera(
                "build", "tiny.onnx", "-o", name, "--precision", "fp8", "--calib", "in.npz", "--batch", 2, "--quiet"
            )
        self.assertEqual((self.folder / "a.tess").read_bytes(), (self.folder / "b.tess").read_bytes())
        tessera("zoo", "vit-tiny-test", "-o", "same.onnx", "--seed", 5)
        tessera("zoo", "vit-tiny-test", "-o", "other.onnx", "--seed", 6)
        model = (self.folder / "tiny.onnx").read_bytes()
        self.assertEqual((self.folder / "same.onnx").read_bytes(), model)
        self.assertNotEqual((self.folder / "other.onnx").read_bytes(), model)

    def test_build_says_what_it_did(self):
        fp8 = ("build", "tiny.onnx", "-o", "j.tess", "--precision", "fp8", "--calib", "in.npz")
        said = json.loads(tessera(*fp8, "--allow", "blocks.0.mlp.fc2=fp16", "--json").stdout)
        self.assertEqual(said["bytes"], (self.folder / "j.tess").stat().st_size)
        self.assertTrue(said["ran_on_target"])
        groups = {(g["asked"], g["stored"]): g["layers"] for g in said["layers"]}
        self.assertEqual(groups[("fp8", "e4m3")], 7, groups)  # four linear layers in two blocks, less the allowed one
        self.assertIn("8 samples of in.npz", said["calibration"])
        text = tessera(*fp8, "--quiet").stdout
        self.expect_narrow(text)
        self.assertIn("golden values reproduced here", text)
        self.assertRegex(
            " ".join(text.split()),
            r"on 8 samples of --calib: mean cosine \d\.\d{5} of the quantized model with the model in fp32, at least "
            r"0\.95 wanted; worst sample \d",
        )
        self.assertRegex(
            " ".join(text.split()),
            r"on the golden inputs \(1 sample of in\.npz\): mean cosine \d\.\d{5} of output 'logits' of the quantized "
            r"model with the model "
            r"as written, at least 0\.95 wanted",
        )
        default = tessera("build", "tiny.onnx", "--no-verify").stdout
        self.assertTrue((self.folder / "tiny.tess").exists())
        self.assertIn("no golden values", default)
        tessera("build", "tiny.onnx", "-o", "tiny.tess", "--precision", "fp16", "--batch", "1,3")

    def test_the_gate_holds_for_the_golden_inputs_and_for_the_samples(self):
        build = (
            "build",
            "tiny.onnx",
            "-o",
            "gate.tess",
            "--precision",
            "fp8",
            "--calib",
            "in.npz",
            "--golden-inputs",
            "one.npz",
        )
        for image in range(8):  # one that is quantized better than the mean
            np.savez(self.folder / "one.npz", image=self.images[image : image + 1])
            said = json.loads(tessera(*build, "--json").stdout)
            golden, mean = said["outputs"][0]["cosine_mean"], said["on_samples"]["cosine_mean"]
            if golden > mean:
                break
        self.assertGreater(golden, mean)
        manifest = json.loads(tessera("inspect", "gate.tess", "--json").stdout)
        self.assertEqual((said["min_cosine"], manifest["golden"]["min_cosine"]), (0.95, 0.95))
        refused = failure(*build, "--min-cosine", (golden + mean) / 2, code=1)
        self.assertRegex(
            refused,
            r"on the golden inputs output 'logits' has cosine 0\.\d{5}; on 8 samples of --calib the quantized model "
            r"has mean cosine 0\.\d{5} with the model in fp32, "
            r"where 0\.\d+ is the least \(--min-cosine\); the layers that add most error: ",
        )
        refused = failure(*build, "--min-cosine", 1, code=1)
        self.assertRegex(
            refused,
            r"output 'logits' of the quantized model has cosine .* where 1 is the least .*; on 8 samples of --calib "
            r".* where 1 is the least",
        )
        tessera(*build, "--min-cosine", mean - 1e-9)
        verified = json.loads(tessera("verify", "gate.tess", "--kinds", "normal", "--json").stdout)
        self.assertAlmostEqual(verified["verdicts"]["quantization"]["gate"], mean - 1e-9, places=12)

    def test_arrays_that_nothing_reads_are_said_once_and_not_kept(self):
        np.savez(self.folder / "labelled.npz", image=self.images, labels=np.zeros(8))
        done = tessera("build", "tiny.onnx", "-o", "labelled.tess", "--precision", "fp8", "--calib", "labelled.npz")
        self.assertEqual((done.stdout + done.stderr).count("'labels'"), 1)
        self.assertIn("array 'labels' is read by no input", " ".join(done.stderr.split()))
        self.assertNotIn("labels", tessera("inspect", "labelled.tess").stdout)
        self.assertNotIn(b"'labels'", (self.folder / "labelled.tess").read_bytes())

    def test_gpu_engines_without_a_receipt_are_marked(self):
        def run(*words, **more):
            return subprocess.run(
                [PROGRAM, *words], capture_output=True, text=True, cwd=self.folder, env={**os.environ, **more}
            )

        done = run("build", "tiny.onnx", "-o", "gpu.tess", "--precision", "fp16", "--target", "cuda")
        if done.returncode == 4:  # refused by name, which is a promise kept
            self.assertIn("--allow", done.stderr)
            return
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("! compiled, not run", run("inspect", "gpu.tess", TESSERA_RECEIPTS_DIR=str(self.folder)).stdout)
        if "not run on its target" in done.stdout:
            for words in (("run", "gpu.tess", "-i", "in.npz"), ("verify", "gpu.tess"), ("bench", "gpu.tess")):
                self.assertIn("tessera build --target cpu makes one that can", failure(*words, code=5))
        kernels = json.loads(tessera("kernels", "--arch", "cuda", "--json").stdout)
        variants, compiler = kernels["variants"], kernels["compiler"]
        receipts = self.folder / "receipts"
        receipts.mkdir()
        (receipts / "h200.json").write_text(
            json.dumps({v["variant"]: {"hash": v["hash"], "compiler": compiler, "tests": 3} for v in variants})
        )
        self.assertNotIn("compiled, not run", run("inspect", "gpu.tess", TESSERA_RECEIPTS_DIR=str(receipts)).stdout)
        (receipts / "h200.json").write_text(
            json.dumps({v["variant"]: {"hash": "0", "compiler": compiler, "tests": 3} for v in variants})
        )
        self.assertIn("! compiled, not run", run("inspect", "gpu.tess", TESSERA_RECEIPTS_DIR=str(receipts)).stdout)
        if compiler:  # a program with kernels of its own; one without can only tell by the sources
            (receipts / "h200.json").write_text(
                json.dumps({v["variant"]: {"hash": v["hash"], "compiler": "nvcc 1.2", "tests": 3} for v in variants})
            )
            self.assertIn("! compiled, not run", run("inspect", "gpu.tess", TESSERA_RECEIPTS_DIR=str(receipts)).stdout)
            said = " ".join(run("kernels", TESSERA_RECEIPTS_DIR=str(receipts)).stdout.split())
            reason = "ran on h200 by nvcc 1.2, here by " + compiler
            on_gpu = {v["variant"] for v in variants if v["state"] != "host"}
            self.assertIn(f"{len(on_gpu)} variants compiled, not run: {reason}", said)
            as_data = json.loads(run("kernels", "--json", TESSERA_RECEIPTS_DIR=str(receipts)).stdout)["variants"]
            because = {v["variant"]: v["because"] for v in as_data if "because" in v}
            self.assertEqual(because, dict.fromkeys(on_gpu, reason))

    def test_verify_passes_and_bench_measures(self):
        text = tessera("verify", "tiny.tess", "--seed", 3).stdout
        self.expect_narrow(text)
        self.assertNotIn("FAILED", text)
        self.assertNotIn("STRAYS", text)
        self.assertIn("the 5 nearest to their bound (--all: each)", " ".join(text.split()))
        ends = " ".join(text[text.index("\narithmetic: ") :].split())
        self.assertIn(
            "arithmetic: every layer, every output and every value inside the model is within the bounds of its "
            "arithmetic, on ",
            ends,
        )
        self.assertRegex(
            ends,
            r" quantization: worst cosine (0\.9|1\.0)\d+, mean (0\.9|1\.0)\d+ with the model, output 'logits', on 2 "
            r"samples \(golden inputs\); "
            r"gate of the build: mean of at least 0\.999$",
        )
        said = json.loads(tessera("verify", "tiny.tess", "--json").stdout)
        self.assertTrue(said["ok"])
        self.assertEqual(
            [(c["plan"], c["what"]) for c in said["checks"]],
            [("batch1", "golden values"), ("batch3", "golden values")]
            + [
                (plan, f"{kind}, seed 2")
                for kind in ("normal", "uniform", "small", "large")
                for plan in ("batch1", "batch3")
            ],
        )
        steps = {
            p["name"]: len(p["steps"]) for p in json.loads(tessera("inspect", "tiny.tess", "--json").stdout)["plans"]
        }
        for check in said["checks"][2:]:
            self.assertEqual(len(check["layers"]), steps[check["plan"]])
            self.assertTrue(all(line["ok"] and line["share"] <= 1 for line in check["layers"]))
            self.assertIsNone(check["first_stray"])
        every = tessera("verify", "tiny.tess", "--all", "--plan", "batch3").stdout
        for layer in said["checks"][3]["layers"]:
            self.assertIn(layer["layer"], every)
        only = tessera("verify", "tiny.tess", "--outputs-only").stdout
        self.assertIn("only outputs are compared, as asked", only)
        mine = json.loads(
            tessera("verify", "tiny.tess", "--inputs", "in.npz", "--samples", 5, "--plan", "batch3", "--json").stdout
        )
        self.assertEqual(
            [(c["plan"], c["what"], c["ok"]) for c in mine["checks"]],
            [("batch3", "golden values", True), ("batch3", "in.npz", True)],
        )
        self.assertEqual([(c["samples"], c["samples_in_file"]) for c in mine["checks"]], [(2, None), (5, 8)])
        self.assertEqual(
            failure("verify", "tiny.tess", "--inputs", "in.npz", "--samples", 9, code=2),
            "tessera: --samples 9: in.npz holds 8",
        )
        self.assertIn(
            "wanted some of normal, uniform, small, large", failure("verify", "tiny.tess", "--kinds", "odd", code=2)
        )
        self.assertIn("there are batch1, batch3", failure("verify", "tiny.tess", "--plan", "none", code=2))
        self.assertEqual([q["what"] for q in said["quantization"]], ["golden inputs"], "from what the build stored")
        self.assertEqual(said["inputs_note"], "")
        verdicts = said["verdicts"]
        self.assertTrue(verdicts["arithmetic"]["ok"] and verdicts["quantization"]["ok"])
        self.assertEqual(
            [verdicts["quantization"][k] for k in ("gate", "gate_of", "samples", "what")],
            [0.999, "build", 2, "golden inputs"],
        )
        self.assertLessEqual(verdicts["quantization"]["cosine_worst"], verdicts["quantization"]["cosine_mean"])
        # Without --samples: all of the file, up to 16; each row says how many.
        np.savez(self.folder / "twenty.npz", image=np.concatenate([self.images] * 3)[:20])
        for file, words in (("in.npz", "8 of 8"), ("twenty.npz", "16 of 20")):
            text = tessera(
                "verify", "tiny.tess", "--model", "tiny.onnx", "--inputs", file, "--plan", "batch3", "--outputs-only"
            ).stdout
            self.expect_narrow(text)
            self.assertRegex(text, rf"batch3 +{file} +{words} +logits ")
            self.assertRegex(text, rf"\n{file} +{words} +logits ")
            self.assertRegex(text, r"\ngolden inputs +2 +logits ")
        help_text = tessera("verify", "--help").stdout
        for column in ("samples", "worst", "sample", "centred", "adds"):
            self.assertRegex(help_text, rf"\n  {column}  +[a-z]")
        text = tessera("verify", "tiny.tess", "--model", "tiny.onnx", "--kinds", "normal").stdout
        self.expect_narrow(text)
        self.assertIn("beside the same layer in f32", " ".join(text.split()))
        with_model = json.loads(
            tessera(
                "verify", "tiny.tess", "--model", "tiny.onnx", "--inputs", "in.npz", "--samples", 5, "--json"
            ).stdout
        )
        error = with_model["quantization"][1]
        self.assertEqual(error["what"], "in.npz")
        for key in ("cosine_mean", "centred_mean", "relative_l2", "sqnr_db", "worst_sample"):
            self.assertIn(key, error["outputs"][0])
            self.assertIn(key, error["layers"][0])
        self.assertGreater(error["outputs"][0]["cosine_mean"], 0.99)
        strict = tessera("verify", "tiny.tess", "--model", "tiny.onnx", "--kinds", "normal", "--min-cosine", 1, code=1)
        self.assertIn("where 1 is the least (--min-cosine)", sentence(strict.stderr))
        self.assertIn("\narithmetic: every layer, ", strict.stdout)
        self.assertIn("\nquantization: FAILED: worst cosine ", strict.stdout)
        self.assertIn("; gate --min-cosine: mean of at least 1", " ".join(strict.stdout.split()))
        tessera("zoo", "vit-tiny-test", "-o", "reseeded.onnx", "--seed", 99)
        self.assertIn(
            "reseeded.onnx: its weights are not those that the engine was built from",
            failure("verify", "tiny.tess", "--model", "reseeded.onnx", code=3),
        )
        self.assertIn("--family is about --model", failure("verify", "tiny.tess", "--family", "vit", code=2))
        for word in ("nan", "-nan", "inf", "1.5", "1e400", "x", ""):
            for command in (("verify", "tiny.tess"), ("build", "tiny.onnx")):
                self.assertIn("--min-cosine", failure(*command, "--min-cosine", word, code=2))
        for option in ("--refine", "--calib-method", "--precision", "--recipe", "--calib", "--sparsity", "--allow"):
            self.assertIn(f"{option}: Value is empty", failure("build", "tiny.onnx", option, "", code=2))
        text = tessera("bench", "tiny.tess", "--repeats", 3, "--warmup", 0, "--threads", 1).stdout
        self.expect_narrow(text)
        self.assertRegex(text, r"loaded in 0\.\d+ s, bound in 0\.\d+ s; at most [\d.]+ MB of memory")
        self.assertRegex(text, r"plan +batch +mean ms +median ms +p10 ms +p90 ms +p95 ms +p99 ms +samples/s\n")
        self.assertIn("loaded in 0.", tessera("run", "tiny.tess", "-i", "in.npz", "--verbose").stdout)
        said = json.loads(tessera("bench", "tiny.tess", "--repeats", 5, "--plan", "batch3", "--json").stdout)
        (plan,) = said["plans"]
        self.assertTrue(0 < plan["p10_ms"] <= plan["median_ms"] <= plan["p90_ms"] <= plan["p95_ms"] <= plan["p99_ms"])
        self.assertTrue(plan["p10_ms"] <= plan["mean_ms"])
        self.assertNotIn("enqueue_us", plan, "a run on the CPU is not enqueued")
        self.assertAlmostEqual(plan["per_second"] * plan["median_ms"], 3000, places=3)
        failure("bench", "tiny.tess", "--plan", "none", code=2)
        for option in ("--warmup", "--repeats"):
            self.assertIn(option, failure("bench", "tiny.tess", option, "-1", code=2))

    def test_an_engine_with_other_weights_does_not_serve(self):
        data = bytearray((self.folder / "tiny.tess").read_bytes())
        field = lambda at: int.from_bytes(data[at : at + 8], "little")
        manifest = json.loads(data[64 : 64 + field(24)])
        self.assertEqual(checksum64(bytes(data[64 : 64 + field(24)])), field(32))
        self.assertEqual(field(56), 0)
        largest = max(manifest["constants"], key=lambda c: c["data"]["bytes"])["data"]
        begin = field(40) + largest["offset"]
        weight = np.frombuffer(bytes(data[begin : begin + largest["bytes"]]), "<f2")
        data[begin : begin + largest["bytes"]] = weight[::-1].tobytes()
        self.assertEqual(f"{checksum64(weight.tobytes()):016x}", largest["checksum"])
        changed = f"{checksum64(weight[::-1].tobytes()):016x}".encode()
        manifest = bytes(data[64 : 64 + field(24)]).replace(largest["checksum"].encode(), changed)
        data[64 : 64 + field(24)] = manifest
        data[32:40] = checksum64(manifest).to_bytes(8, "little")
        (self.folder / "tampered.tess").write_bytes(data)
        tessera("inspect", "tampered.tess")  # a well-formed file
        said = failure("run", "tampered.tess", "-i", "in.npz", "-o", "tampered.npz", code=1)
        self.assertIn("does not reproduce its golden values", said)
        self.assertFalse((self.folder / "tampered.npz").exists())
        tessera("run", "tampered.tess", "-i", "in.npz", "--no-verify")
        self.assertIn("; tessera verify names the layer, --no-verify runs it all the same", said)
        done = tessera("verify", "tampered.tess", code=1)
        self.assertIn("FAILED", done.stdout)
        # Both plans read the same weights: no layer strays, and that says where the fault is.
        self.assertNotIn("STRAYS", done.stdout)
        self.assertIn("so they are not the weights of the build: build the engine again", sentence(done.stderr))
        self.assertFalse(json.loads(tessera("verify", "tampered.tess", "--json", code=1).stdout)["ok"])

    def test_a_file_that_cannot_be_finished_leaves_nothing(self):
        folder = self.folder / "full"
        folder.mkdir()
        old = (self.folder / "tiny.tess").read_bytes()
        (folder / "old.tess").write_bytes(old)
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        for name in ("new.tess", "old.tess"):
            words = [PROGRAM, "build", "tiny.onnx", "-o", folder / name, "--quiet", "--no-verify"]
            done = subprocess.run(words, capture_output=True, text=True, cwd=self.folder, preexec_fn=limit)
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn(f"{name}: cannot be written: File too large", done.stderr)
        self.assertEqual([p.name for p in folder.iterdir()], ["old.tess"])
        self.assertEqual((folder / "old.tess").read_bytes(), old)


if __name__ == "__main__":
    run_tests()
