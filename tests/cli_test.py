#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program as users meet it: commands, exit codes, messages, files. Argument: the folder with the program."""

import json
import os
import pathlib
import pty
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    print("no numpy: skipped")
    sys.exit(77)

PROGRAM = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "build/release/bin").resolve() / "tessera"
COMMANDS = ["demo", "build", "calibrate", "sensitivity", "run", "verify", "check", "inspect", "bench", "kernels", "zoo", "version"]
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


def tessera(*words, code=0):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=Cli.folder)
    assert done.returncode == code, f"tessera {' '.join(map(str, words))}: exit {done.returncode}, want {code}\n{done.stdout}{done.stderr}"
    return done


def sentence(stderr):
    """One error or warning, whose lines after the first are indented."""
    lines = stderr.splitlines()
    assert lines and lines[0].startswith("tessera: "), stderr
    assert all(line.startswith("  ") for line in lines[1:]), stderr
    assert all(len(line) <= 100 for line in lines), stderr
    return " ".join(line.strip() for line in lines)


def failure(*words, code):
    """The sentence on stderr, without its line breaks; nothing else may be printed."""
    done = tessera(*words, code=code)
    assert done.stdout == "", done.stdout
    return sentence(done.stderr)


def on_terminal(*words, code=0, **more):
    """What a terminal gets from stderr."""
    ours, theirs = pty.openpty()
    environment = {"TERM": "xterm", **{k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}, **more}
    done = subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.DEVNULL, stderr=theirs, cwd=Cli.folder, env=environment)
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    assert done.wait() == code, (done.returncode, seen)
    return seen.decode()


class Cli(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        Cli.folder = pathlib.Path(cls.scratch.name)
        tessera("zoo", "vit-tiny-test", "-o", "tiny.onnx", "--seed", 5)
        tessera("build", "tiny.onnx", "-o", "tiny.tess", "--precision", "fp16", "--batch", "1,3")
        cls.images = np.random.default_rng(8).standard_normal((8, 3, 32, 32)).astype("f4")
        np.savez(Cli.folder / "in.npz", image=cls.images)

    def expect_narrow(self, text):
        for line in text.splitlines():
            self.assertLessEqual(len(line), 100, line)

    def test_help_fits_and_has_examples(self):
        main = tessera("--help").stdout
        self.expect_narrow(main)
        self.assertIn("Exit codes", main)
        self.assertEqual(tessera("help").stdout, main)
        self.assertEqual(tessera("help", "help").stdout, main)
        self.assertEqual(tessera("help", "--json").stdout, main)
        for command in COMMANDS:
            self.assertIn(f"\n  {command} ", main)
            text = tessera(command, "--help").stdout
            self.expect_narrow(text)
            self.assertEqual(tessera("help", command).stdout, text)
            self.assertTrue(text.startswith(f"tessera {command}: "))
            self.assertIn(f"\n\nUsage:\n  tessera {command}", text)
            self.assertIn(f"\n\nExamples:\n  tessera {command}", text)
            self.assertIn("\n\nExit codes:\n  0  fine\n", text)
            for option in ("--json", "--quiet", "-h, --help"):
                self.assertIn(f"\n  {option} ", text)
            (about,) = [p for p in text.split("\n\n")[2:3]]
            self.assertGreater(len(about), 100, "what it does, in a sentence or three")
        self.assertIn("(default: cpu)", tessera("help", "build").stdout)
        self.assertIn("ref, cpu, cuda, sm90", tessera("help", "build").stdout)

    def test_slips_get_the_nearest_word(self):
        self.assertEqual(failure("biuld", code=2), "tessera: 'biuld' is no command; did you mean build?")
        self.assertEqual(failure("xyzzy", code=2), "tessera: 'xyzzy' is no command; tessera --help lists them")
        self.assertEqual(failure("help", "verfy", code=2), "tessera: 'verfy' is no command; did you mean verify?")
        self.assertEqual(failure("build", "tiny.onnx", "--presicion=fp8", code=2), "tessera: build has no option --presicion; did you mean --precision?")
        self.assertEqual(failure("verify", "tiny.tess", "--nonsense", code=2), "tessera: verify has no option --nonsense; tessera verify --help lists them")
        self.assertEqual(failure("--quiet", "verify", "tiny.tess", code=2), "tessera: --quiet comes before the command; write tessera verify --quiet")
        self.assertIn("; did you mean tiny.tess?", failure("verify", "tiny.tes", code=3))
        self.assertIn("; did you mean vit-b-16?", failure("zoo", "vit-b-61", code=2))
        self.assertIn("; did you mean sm90?", failure("kernels", "--arch", "sm9", code=2))
        self.assertIn("; did you mean batch3?", failure("bench", "tiny.tess", "--plan", "bach3", code=2))
        self.assertIn("; build it first: tessera build tiny.onnx", failure("inspect", "tiny.onnx", code=3))

    def test_options_without_effect_are_refused(self):
        refused = [
            (("build", "tiny.onnx", "-o", "x.tess", "--no-verify", "--seed", 3), "--seed is about golden values, which --no-verify leaves out"),
            (("build", "tiny.onnx", "-o", "x.tess", "--no-verify", "--golden-samples", 3), "--golden-samples is about golden values"),
            (("build", "tiny.tess", "-o", "x.tess"), "tiny.tess is an engine, already built; build takes an ONNX model"),
            (("run", "tiny.tess", "-i", "in.npz", "--precision", "fp8"), "tiny.tess is an engine, already built: --precision is for ONNX models"),
            (("verify", "tiny.tess", "-i", "in.npz", "--seed", 3), "--seed draws inputs, --inputs brings them"),
            (("verify", "tiny.tess", "--all", "--outputs-only"), "--all shows layers, --outputs-only compares none"),
            (("bench", "tiny.tess", "--all"), "--all shows every layer of --steps"),
            (("zoo", "--list", "vit-b-16"), "--list writes no model: leave name out"),
            (("zoo", "--list", "-o", "x.onnx"), "--list writes no model: leave --output out"),
        ]
        for words, said in refused:
            self.assertIn(said, failure(*words, code=2))
        self.assertFalse((self.folder / "x.tess").exists())
        for words in (("verify", "tiny.tess", "--all"), ("inspect", "tiny.tess", "--plan", "golden"), ("inspect", "tiny.tess", "--verbose"),
                      ("bench", "tiny.tess", "--steps", "--all")):
            self.assertIn(f"leave {words[2] if words[0] != 'bench' else '--all'} out", json.loads(tessera(*words, "--json", code=2).stdout)["error"])

    def test_progress_on_a_terminal_only(self):
        build = ("build", "tiny.onnx", "-o", "bar.tess", "--precision", "fp8", "--calib", "in.npz")
        seen = on_terminal(*build)
        for bar in ("importing [", "calibrating [", "importing, packing [", "golden values [", "checking ["):
            self.assertIn(bar, seen)
        self.assertTrue(seen.endswith("\r\033[K"), "the last bar is erased")
        self.assertIn("verifying [", on_terminal("verify", "bar.tess"))
        self.assertIn("timing [", on_terminal("bench", "bar.tess", "--repeats", 1))
        self.assertIn("running [", on_terminal("run", "bar.tess", "-i", "in.npz"))
        for quiet in (("--quiet",), ("--json",)):
            self.assertEqual(on_terminal(*build, *quiet), "")
        self.assertEqual(on_terminal(*build, TERM="dumb"), "")
        self.assertEqual(tessera(*build).stderr, "")
        self.assertEqual(tessera("verify", "bar.tess").stderr, "")

    def test_numbers_that_are_not_finite_draw_a_warning(self):
        bad = self.images.copy()
        bad[2, 0, 0, :3] = np.nan
        bad[5, 1, 2, 3] = np.inf
        np.savez(self.folder / "bad.npz", image=bad)
        warning = (
            "tessera: warning: bad.npz: input 'image' holds NaN or Inf in 4 of 24576 numbers, first in sample 2; what comes out means nothing "
            "for such samples"
        )
        done = tessera("run", "tiny.tess", "-i", "bad.npz", "-o", "bad_out.npz")
        self.assertEqual(sentence(done.stderr), warning)
        self.assertEqual(tessera("run", "tiny.tess", "-i", "bad.npz", "--quiet").stderr, "")
        self.assertIn("holds NaN or Inf in 4 of 24576", json.loads(tessera("run", "tiny.tess", "-i", "bad.npz", "--json").stdout)["warning"])
        good = np.load(self.folder / "bad_out.npz")["logits"]
        self.assertTrue(np.isnan(good[2]).any() and np.isfinite(good[[0, 1, 3, 4, 6, 7]]).all())
        self.assertIn("\033[33mwarning: \033[0m", on_terminal("run", "tiny.tess", "-i", "bad.npz"))
        self.assertNotIn("\033[33m", on_terminal("run", "tiny.tess", "-i", "bad.npz", NO_COLOR="1"))
        np.savez(self.folder / "huge.npz", image=np.full_like(self.images, 3e38))
        done = tessera("run", "tiny.onnx", "-i", "huge.npz", "--precision", "fp32", "--no-verify")
        self.assertIn("output 'logits' holds NaN or Inf, first in sample 0 though the inputs are finite", sentence(done.stderr))
        self.assertEqual(tessera("run", "tiny.tess", "-i", "in.npz").stderr, "")
        # Where numbers are compared or scales are taken, such inputs are refused, and by their own sample.
        np.savez(self.folder / "few.npz", image=bad[1:6])
        self.assertIn("few.npz: input 'image' holds NaN or Inf in 4 of 15360 numbers, first in sample 1", failure("verify", "tiny.tess", "-i", "few.npz", code=3))
        self.assertIn("few.npz: input 'image' holds NaN or Inf in 3 of 6144 numbers, first in sample 1",
                      failure("verify", "tiny.tess", "-i", "few.npz", "--samples", 2, code=3))
        self.assertIn("few.npz: input 'image' holds NaN or Inf in 4 of 15360 numbers, first in sample 1; calibration data must be finite",
                      failure("build", "tiny.onnx", "-o", "x.tess", "--precision", "fp8", "--calib", "few.npz", code=3))

    def test_numbers_that_an_engine_clamps_draw_a_warning(self):
        large = self.images.copy()
        large[2, 0, 0, 5] = -3.1e6
        np.savez(self.folder / "large.npz", image=large)
        said = ("large.npz: input 'image' holds numbers up to 3.1e+06 in sample 2; this engine holds at most 65504 there (f16) and clamps "
                "what is larger")
        self.assertEqual(sentence(tessera("run", "tiny.tess", "-i", "large.npz").stderr), f"tessera: warning: {said}; bf16 and fp32 hold them")
        self.assertIn("up to 3.1e+06 in sample 2", json.loads(tessera("run", "tiny.tess", "-i", "large.npz", "--json").stdout)["warning"])
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
        nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="fc"), helper.make_node("Concat", ["h", "h"], ["y"], name="twice", axis=1)]
        value = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 32])
        graph = helper.make_graph(nodes, "twice", [value("x")], [value("y")], [weight])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), self.folder / "twice.onnx")
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
        constants = [array(codes, "w"), array(np.float32(0.01), "ws"), array(np.float32(1e-3), "xs"), array(np.int8(0), "zero")]
        nodes = [helper.make_node("QuantizeLinear", ["x", "xs", "zero"], ["xq"]), helper.make_node("DequantizeLinear", ["xq", "xs", "zero"], ["xd"]),
                 helper.make_node("DequantizeLinear", ["w", "ws", "zero"], ["wd"]), helper.make_node("MatMul", ["xd", "wd"], ["y"], name="fc")]
        value = lambda name, last: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 7, last])
        graph = helper.make_graph(nodes, "stated", [value("x", 32)], [value("y", 16)], constants)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), self.folder / "stated.onnx")
        build = tessera("build", "stated.onnx", "-o", "stated.tess")
        said = "layer matmul_3: [89][0-9] % of its input's codes saturate, under the scale that the model states"
        self.assertRegex(sentence(build.stderr), said)
        for words in (), ("--model", "stated.onnx", "--kinds", "normal"):
            self.assertRegex(" ".join(tessera("verify", "stated.tess", *words).stdout.split()), said)

    def test_build_overwrites_engines_only(self):
        np.savez(self.folder / "keep.npz", image=self.images)
        before = (self.folder / "keep.npz").read_bytes()
        done = tessera("build", "tiny.onnx", "-o", "keep.npz", "--calib", "keep.npz", "--precision", "fp8", "--no-verify", code=2)
        self.assertIn("keep.npz: is no engine and would be overwritten", sentence(done.stderr))
        self.assertEqual((self.folder / "keep.npz").read_bytes(), before)

    def test_memory_that_runs_out_names_the_place(self):
        def limited(megabytes, *words):
            limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
            return subprocess.run([PROGRAM, *words], capture_output=True, text=True, cwd=self.folder, preexec_fn=limit)

        # What the program takes to start depends on the libraries of its build: the least limit that lets it. The working
        # memory of the plan takes 83 MB more, and its images 94 more than that.
        fails, starts = 0, 1 << 16
        self.assertEqual(limited(starts, "version").returncode, 0)
        while starts - fails > 1:
            middle = (fails + starts) // 2
            if limited(middle, "version").returncode == 0:
                starts = middle
            else:
                fails = middle
        done = limited(starts + 100, "build", "tiny.onnx", "-o", "huge.tess", "--batch", "8000", "--threads", "1")
        self.assertEqual(done.returncode, 5, done.stderr)
        # Named by whoever sees it first: the check before a large buffer is made, or the allocation that failed.
        self.assertRegex(sentence(done.stderr), r"no memory (for 'image' of|for the working memory of|left at) plan '?batch8000")
        self.assertFalse((self.folder / "huge.tess").exists())

    def test_results_that_cannot_be_written_are_no_success(self):
        for words in (("version",), ("--version",), ("--help",), ("inspect", "tiny.tess"), ("inspect", "tiny.tess", "--json"), ("kernels", "--json")):
            with open("/dev/full", "w") as full:
                done = subprocess.run([PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True, cwd=self.folder)
            self.assertEqual((done.returncode, done.stderr), (5, "tessera: the results could not be written to stdout\n"), words)

    def test_nothing_is_wider_than_100_columns(self):
        try:
            import onnx
        except ImportError:
            self.skipTest("no onnx to rename layers with")
        model = onnx.load(self.folder / "tiny.onnx")
        long = lambda name: "a_very_long_scope/that_some_exporter_makes/" * 3 + name if name else name
        for node in model.graph.node:
            node.name = long(node.name)
            for names in (node.input, node.output):
                names[:] = [long(n) for n in names]
        for value in [*model.graph.initializer, *model.graph.input, *model.graph.output, *model.graph.value_info]:
            value.name = long(value.name)
        onnx.save(model, self.folder / "long.onnx")
        np.savez(self.folder / "long.npz", **{long("image"): self.images})
        build = ("build", "long.onnx", "-o", "long.tess", "--precision", "fp8", "--calib", "long.npz", "--batch", "1,3")
        for words in (build, ("check", "long.onnx"), ("inspect", "long.tess"), ("inspect", "long.tess", "--verbose"), ("verify", "long.tess"), ("verify", "long.tess", "--all"),
                      ("bench", "long.tess", "--repeats", 1, "--steps"), ("bench", "long.tess", "--repeats", 1, "--steps", "--all")):
            text = tessera(*words).stdout
            for line in text.splitlines():
                # A word is broken nowhere: the names of layers that a build kept in another precision are whole.
                self.assertTrue(len(line) <= 100 or " " not in line.strip() or line.startswith("    "), line)
            if words[0] != "build":
                self.expect_narrow(text)
                self.assertIn("..", text)
            if "--all" in words:  # names differ at their end, and that is what stays
                for layer in ("blocks.0.mlp.fc1", "blocks.1.mlp.fc1"):
                    self.assertRegex(text, rf"\.\.\S*{layer}  ")
        self.assertIn(long("blocks.0.mlp.fc1"), tessera("verify", "long.tess", "--json").stdout, "JSON has names whole")


    def test_usage_errors(self):
        self.assertIn("no command", failure(code=2))
        self.assertIn("tessera build --help", failure("build", code=2))
        self.assertIn("fp32, fp16", failure("build", "tiny.onnx", "--precision", "fp17", code=2))
        self.assertIn("ref, cpu, cuda, sm90", failure("build", "tiny.onnx", "--target", "sm1", code=2))
        self.assertIn("vit-b-16", failure("zoo", "vit-x", code=2))
        for sizes in ("0", "1,,2", "8,", ",8", "-1", "x", "1048577"):
            self.assertIn("wanted sizes from 1 to 1048576", failure("build", "tiny.onnx", f"--batch={sizes}", code=2))
        self.assertIn("1 stands there twice", failure("build", "tiny.onnx", "--batch", "1,1", code=2))
        for words in (("build", "tiny.onnx"), ("verify", "tiny.tess"), ("zoo", "vit-tiny-test", "-o", "x.onnx")):
            self.assertIn("-1 is negative", failure(*words, "--seed=-1", code=2))
        self.assertIn("tiny.tess: is an engine", failure("zoo", "vit-tiny-test", "-o", "tiny.tess", code=2))
        allow = ("build", "tiny.onnx", "-o", "x.tess", "--precision", "fp8", "--allow")
        self.assertIn("precision 'fp4' is unknown; accepted: fp32, fp16", failure(*allow, "*=fp4", code=2))
        self.assertIn("no linear layer or attention has such a name; the nearest are 'blocks.0.mlp.fc1'", failure(*allow, "blocks.0.mpl.fc1=fp16", code=2))
        self.assertIn("--allow leaves no layer in fp8: ask for --precision fp16 instead", failure(*allow, "*=fp16", code=2))
        # Layers that are refused: options that lead to an engine, ready to be pasted.
        some = ("build", "tiny.onnx", "-o", "x.tess", "--precision", "fp16", "--target", "cuda", "--allow", "blocks.*.mlp.*=fp8")
        refused = " ".join(tessera(*some, code=4).stderr.split())
        advised = re.search("to accept another precision:((?: --allow '[^']+')+)", refused).group(1)
        self.assertEqual(shlex.split(advised), ["--allow", "blocks.*.mlp.fc1=fp16", "--allow", "blocks.*.mlp.fc2=fp16"])
        tessera(*some, *shlex.split(advised))
        # Allowing every layer away is no engine in fp8, and pruned layers that are allowed away are none in 2:4.
        refused = failure(*allow[:-1], "--target", "cuda", code=4)
        self.assertIn("another precision runs: --precision fp16 as asked it runs with --target cpu", refused)
        self.assertNotIn("--allow", refused)
        sparse = ("build", "tiny.onnx", "-o", "x.tess", "--precision", "fp8", "--target", "sm90", "--sparsity", "2:4")
        refused = failure(*sparse, code=4)
        self.assertIn("dense it runs: leave --sparsity out as asked it runs with --target cpu", refused)
        self.assertNotIn("--allow", refused)
        tessera(*sparse[:-2])
        self.assertIn("batch1, batch3, golden", failure("inspect", "tiny.tess", "--plan", "none", code=2))
        error = json.loads(tessera("zoo", "vit-x", "--json", code=2).stdout)
        self.assertEqual(error["code"], 2)
        self.assertIn("vit-x", error["error"])
        self.assertEqual(json.loads(tessera("build", "--json", code=2).stdout)["code"], 2)

    def test_bad_files(self):
        (self.folder / "empty").write_bytes(b"")
        (self.folder / "text.onnx").write_text("this is no model")
        for command in ("inspect", "verify", "bench"):
            self.assertIn("No such file", failure(command, "missing.tess", code=3))
            self.assertIn("the file is empty", failure(command, "empty", code=3))
            self.assertIn("is a folder", failure(command, ".", code=3))
            self.assertIn("is not an engine file", failure(command, "text.onnx", code=3))
        for size in (1, 4, 6):
            (self.folder / "stub.tess").write_bytes(b"TESSER"[:size])
            for command in (("run", "stub.tess", "-i", "in.npz"), ("build", "stub.tess"), ("check", "stub.tess"), ("inspect", "stub.tess")):
                self.assertRegex(failure(*command, code=3), "is no engine|is not an engine file|cut short")
        self.assertIn("No such file", failure("build", "missing.onnx", code=3))
        failure("build", "text.onnx", code=3)
        failure("run", "text.onnx", "-i", "in.npz", code=3)
        self.assertIn("No such file", failure("run", "tiny.tess", "-i", "missing.npz", code=3))
        self.assertIn("neither a .npz nor a .npy", failure("run", "tiny.tess", "-i", "text.onnx", code=3))
        self.assertIn("cannot be written", failure("zoo", "vit-tiny-test", "-o", "no/such/folder.onnx", code=3))
        good = (self.folder / "tiny.tess").read_bytes()
        (self.folder / "cut.tess").write_bytes(good[: len(good) // 2])
        self.assertIn("cut short", failure("inspect", "cut.tess", code=3))
        newer = bytearray(good)
        newer[8] = 7
        (self.folder / "newer.tess").write_bytes(newer)
        self.assertIn("engine file version 7 is newer than this program reads (1)", failure("inspect", "newer.tess", code=3))
        error = json.loads(tessera("inspect", "cut.tess", "--json", code=3).stdout)
        self.assertEqual(error["code"], 3)
        self.assertFalse([p for p in self.folder.iterdir() if p.name.endswith(".new")], "temporary files are left")

    def test_inputs_by_name_shape_and_type(self):
        save = lambda **arrays: np.savez(self.folder / "other.npz", **arrays)
        save(picture=self.images)
        self.assertIn("no array 'image'; wanted 'image' [batch,3,32,32]", failure("run", "tiny.tess", "-i", "other.npz", code=3))
        save(image=self.images[:, :, :, :31])
        self.assertIn("has shape [8,3,32,31]; wanted 'image' [batch,3,32,32]", failure("run", "tiny.tess", "-i", "other.npz", code=3))
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
            self.assertLess(distance(np.load(self.folder / "one_out.npz")["logits"][0], got["logits"][i]), HALF_ROUNDINGS)
        # A last chunk that is not full is filled up and cut off.
        tessera("build", "tiny.onnx", "-o", "five.tess", "--precision", "fp16", "--batch", 5)
        said = json.loads(tessera("run", "five.tess", "-i", "in.npz", "-o", "five.npz", "--json").stdout)
        self.assertEqual(said["runs"], 2)
        self.assertLess(distance(np.load(self.folder / "five.npz")["logits"], got["logits"]), HALF_ROUNDINGS)

    def test_run_builds_a_model_in_memory(self):
        said = json.loads(tessera("run", "tiny.onnx", "-i", "in.npz", "-o", "direct.npz", "--precision", "fp32", "--json").stdout)
        self.assertEqual((said["plans"], said["runs"]), (["batch8"], 1))
        tessera("run", "tiny.tess", "-i", "in.npz", "-o", "out.npz")
        direct, half = (np.load(self.folder / f)["logits"] for f in ("direct.npz", "out.npz"))
        self.assertLess(distance(half, direct), HALF_ROUNDINGS)
        self.assertGreater(distance(half, direct), 0)
        tessera("run", "tiny.onnx", "-i", "in.npz", "--precision", "fp8", "--calib", "in.npz", "--target", "ref", "--no-verify")

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
        self.assertIn("fixes the batch to 1, 4 was asked for", failure("run", "fixed.onnx", "-i", "in.npz", "--batch", 4, code=3))
        model.graph.node[-1].op_type = "NoSuchOperator"
        onnx.save(model, self.folder / "broken.onnx")
        for precision in ("fp16", "fp8"):
            self.assertIn("NoSuchOperator", failure("build", "broken.onnx", "--batch", 1, "--precision", precision, code=3))
        helper = onnx.helper
        node = helper.make_node("MatMul", ["x", "w"], ["y"], name="proj")
        weight = onnx.numpy_helper.from_array(self.images[0, 0, :, :16].copy(), "w")
        value = lambda name, last: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", "tokens", last])
        graph = helper.make_graph([node], "open", [value("x", 32)], [value("y", 16)], [weight])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), self.folder / "open.onnx")
        np.savez(self.folder / "open.npz", x=self.images[:4, 0, :7])
        build = ("build", "open.onnx", "-o", "open.tess", "--precision", "fp32")
        self.assertIn("--shape x=1,128,32", failure(*build, code=3))
        for bad in ("x", "x=", "=1,2", "x=1,,2", "x=0,7,32"):
            self.assertIn("wanted INPUT=N,...", failure(*build, "--shape", bad, code=2))
        self.assertIn("'z', which is not an input", failure(*build, "--shape", "z=1,7,32", code=3))
        self.assertIn("does not fit the model's [batch,tokens,32]", failure(*build, "--shape", "x=1,7,31", code=3))
        self.assertIn("--shape gives a batch of 1, --batch 2", failure(*build, "--shape", "x=1,7,32", "--batch", 2, code=2))
        tessera(*build, "--shape", "x=2,7,32")
        want = self.images[:4, 0, :7] @ self.images[0, 0, :, :16]
        tessera("run", "open.tess", "-i", "open.npz", "-o", "open_out.npz")
        np.testing.assert_allclose(np.load(self.folder / "open_out.npz")["y"], want, rtol=0, atol=32 * 2.0**-24 * np.abs(want).max() * 8)
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
            tessera("build", "tiny.onnx", "-o", name, "--precision", "fp8", "--calib", "in.npz", "--batch", 2, "--quiet")
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
        self.assertRegex(" ".join(text.split()), r"on 8 samples of --calib: mean cosine \d\.\d{5} of the quantized model with the model in fp32, at least 0\.95 wanted; worst sample \d")
        self.assertRegex(" ".join(text.split()), r"on the golden inputs \(1 sample of in\.npz\): mean cosine \d\.\d{5} of output 'logits' of the quantized model with the model "
                                                 r"as written, at least 0\.95 wanted")
        default = tessera("build", "tiny.onnx", "--no-verify").stdout
        self.assertTrue((self.folder / "tiny.tess").exists())
        self.assertIn("no golden values", default)
        tessera("build", "tiny.onnx", "-o", "tiny.tess", "--precision", "fp16", "--batch", "1,3")

    def test_the_gate_holds_for_the_golden_inputs_and_for_the_samples(self):
        build = ("build", "tiny.onnx", "-o", "gate.tess", "--precision", "fp8", "--calib", "in.npz", "--golden-inputs", "one.npz")
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
        self.assertRegex(refused, r"on the golden inputs output 'logits' has cosine 0\.\d{5}; on 8 samples of --calib the quantized model has mean cosine 0\.\d{5} with the model in fp32, "
                                  r"where 0\.\d+ is the least \(--min-cosine\); the layers that add most error: ")
        refused = failure(*build, "--min-cosine", 1, code=1)
        self.assertRegex(refused, r"output 'logits' of the quantized model has cosine .* where 1 is the least .*; on 8 samples of --calib .* where 1 is the least")
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

    def test_inspect_shows_the_promise(self):
        text = tessera("inspect", "tiny.tess").stdout
        self.expect_narrow(text)
        for words in ("precision    fp16", "target       cpu", "golden       logits [2,10]", "batch 3", "matmul/cpu", "blocks.1.mlp.fc2"):
            self.assertIn(words, text)
        self.assertNotIn("compiled, not run", text)
        self.assertIn("norm 5, ", text)
        self.assertIn("attention 2, ", text)
        self.assertIn("softmax 0, ", text)
        self.assertRegex(text, r"on this machine: (NEON|SSE2|AVX2|AVX3)")
        verbose = tessera("inspect", "tiny.tess", "--verbose").stdout
        self.expect_narrow(verbose)
        self.assertIn("24-bit sums", verbose)
        self.assertIn("matmul/reference", tessera("inspect", "tiny.tess", "--plan", "golden").stdout)
        manifest = json.loads(tessera("inspect", "tiny.tess", "--json").stdout)
        self.assertEqual([p["name"] for p in manifest["plans"]], ["batch1", "batch3", "golden"])
        self.assertEqual([p["arch"] for p in manifest["plans"]], ["cpu", "cpu", "ref"])

    def test_gpu_engines_without_a_receipt_are_marked(self):
        def run(*words, **more):
            return subprocess.run([PROGRAM, *words], capture_output=True, text=True, cwd=self.folder, env={**os.environ, **more})

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
        (receipts / "h200.json").write_text(json.dumps({v["variant"]: {"hash": v["hash"], "compiler": compiler, "tests": 3} for v in variants}))
        self.assertNotIn("compiled, not run", run("inspect", "gpu.tess", TESSERA_RECEIPTS_DIR=str(receipts)).stdout)
        (receipts / "h200.json").write_text(json.dumps({v["variant"]: {"hash": "0", "compiler": compiler, "tests": 3} for v in variants}))
        self.assertIn("! compiled, not run", run("inspect", "gpu.tess", TESSERA_RECEIPTS_DIR=str(receipts)).stdout)
        if compiler:  # a program with kernels of its own; one without can only tell by the sources
            (receipts / "h200.json").write_text(json.dumps({v["variant"]: {"hash": v["hash"], "compiler": "nvcc 1.2", "tests": 3} for v in variants}))
            self.assertIn("! compiled, not run", run("inspect", "gpu.tess", TESSERA_RECEIPTS_DIR=str(receipts)).stdout)
            self.assertIn("ran on h200 by nvcc 1.2, here by " + compiler, run("kernels", TESSERA_RECEIPTS_DIR=str(receipts)).stdout)

    def test_kernels_lists_every_variant_once(self):
        text = tessera("kernels").stdout
        self.expect_narrow(text)
        names = [v["variant"] for v in json.loads(tessera("kernels", "--json").stdout)["variants"]]
        self.assertEqual(len(names), len(set(names)))
        self.assertIn("matmul/cpu", names)
        on_cpu = json.loads(tessera("kernels", "--arch", "cpu", "--json").stdout)["variants"]
        self.assertEqual({v["arch"] for v in on_cpu}, {"cpu"})
        self.assertIn("ref, cpu", failure("kernels", "--arch", "x", code=2))

    def test_receipts_are_part_of_the_program(self):
        alone = self.folder / "alone"
        alone.mkdir()
        shutil.copy(PROGRAM, alone)
        environment = {k: v for k, v in os.environ.items() if k != "TESSERA_RECEIPTS_DIR"}

        def kernels(program, folder, **more):
            told = {**environment, **more}
            done = subprocess.run([program, "kernels", "--json"], capture_output=True, text=True, cwd=folder, env=told)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

        here, there = kernels(PROGRAM, self.folder), kernels(alone / "tessera", alone)
        self.assertEqual(here, there)
        # Receipts of earlier sources count for nothing, but they are there.
        files = (pathlib.Path(__file__).resolve().parent.parent / "bench" / "receipts").glob("*.json")
        self.assertEqual(there["receipts"], {f.stem: len(json.loads(f.read_text())) for f in files})
        self.assertEqual(kernels(alone / "tessera", alone, TESSERA_RECEIPTS_DIR=str(alone))["receipts"], {})

    def test_verify_passes_and_bench_measures(self):
        text = tessera("verify", "tiny.tess", "--seed", 3).stdout
        self.expect_narrow(text)
        self.assertNotIn("FAILED", text)
        self.assertNotIn("STRAYS", text)
        self.assertIn("the 5 nearest to their bound (--all: each)", " ".join(text.split()))
        ends = " ".join(text[text.index("\narithmetic: "):].split())
        self.assertIn("arithmetic: every layer, every output and every value inside the model is within the bounds of its arithmetic, on ", ends)
        self.assertRegex(ends, r" quantization: worst cosine (0\.9|1\.0)\d+, mean (0\.9|1\.0)\d+ with the model, output 'logits', on 2 samples \(golden inputs\); "
                               r"gate of the build: mean of at least 0\.999$")
        said = json.loads(tessera("verify", "tiny.tess", "--json").stdout)
        self.assertTrue(said["ok"])
        self.assertEqual([(c["plan"], c["what"]) for c in said["checks"]],
                         [("batch1", "golden values"), ("batch3", "golden values")]
                         + [(plan, f"{kind}, seed 2") for kind in ("normal", "uniform", "small", "large") for plan in ("batch1", "batch3")])
        steps = {p["name"]: len(p["steps"]) for p in json.loads(tessera("inspect", "tiny.tess", "--json").stdout)["plans"]}
        for check in said["checks"][2:]:
            self.assertEqual(len(check["layers"]), steps[check["plan"]])
            self.assertTrue(all(l["ok"] and l["share"] <= 1 for l in check["layers"]))
            self.assertIsNone(check["first_stray"])
        every = tessera("verify", "tiny.tess", "--all", "--plan", "batch3").stdout
        for layer in said["checks"][3]["layers"]:
            self.assertIn(layer["layer"], every)
        only = tessera("verify", "tiny.tess", "--outputs-only").stdout
        self.assertIn("only outputs are compared, as asked", only)
        mine = json.loads(tessera("verify", "tiny.tess", "--inputs", "in.npz", "--samples", 5, "--plan", "batch3", "--json").stdout)
        self.assertEqual([(c["plan"], c["what"], c["ok"]) for c in mine["checks"]], [("batch3", "golden values", True), ("batch3", "in.npz", True)])
        self.assertEqual([(c["samples"], c["samples_in_file"]) for c in mine["checks"]], [(2, None), (5, 8)])
        self.assertEqual(failure("verify", "tiny.tess", "--inputs", "in.npz", "--samples", 9, code=2), "tessera: --samples 9: in.npz holds 8")
        self.assertIn("wanted some of normal, uniform, small, large", failure("verify", "tiny.tess", "--kinds", "odd", code=2))
        self.assertIn("there are batch1, batch3", failure("verify", "tiny.tess", "--plan", "none", code=2))
        self.assertEqual([q["what"] for q in said["quantization"]], ["golden inputs"], "from what the build stored")
        self.assertEqual(said["inputs_note"], "")
        verdicts = said["verdicts"]
        self.assertTrue(verdicts["arithmetic"]["ok"] and verdicts["quantization"]["ok"])
        self.assertEqual([verdicts["quantization"][k] for k in ("gate", "gate_of", "samples", "what")], [0.999, "build", 2, "golden inputs"])
        self.assertLessEqual(verdicts["quantization"]["cosine_worst"], verdicts["quantization"]["cosine_mean"])
        # Without --samples: all of the file, up to 16; each row says how many.
        np.savez(self.folder / "twenty.npz", image=np.concatenate([self.images] * 3)[:20])
        for file, words in (("in.npz", "8 of 8"), ("twenty.npz", "16 of 20")):
            text = tessera("verify", "tiny.tess", "--model", "tiny.onnx", "--inputs", file, "--plan", "batch3", "--outputs-only").stdout
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
        with_model = json.loads(tessera("verify", "tiny.tess", "--model", "tiny.onnx", "--inputs", "in.npz", "--samples", 5, "--json").stdout)
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
        self.assertIn("reseeded.onnx: its weights are not those that the engine was built from", failure("verify", "tiny.tess", "--model", "reseeded.onnx", code=3))
        self.assertIn("--family is about --model", failure("verify", "tiny.tess", "--family", "vit", code=2))
        for word in ("nan", "-nan", "inf", "1.5", "1e400", "x", ""):
            for command in (("verify", "tiny.tess"), ("build", "tiny.onnx")):
                self.assertIn("--min-cosine", failure(*command, "--min-cosine", word, code=2))
        for option in ("--refine", "--calib-method", "--precision", "--recipe", "--calib", "--sparsity", "--allow"):
            self.assertIn(f"{option}: Value is empty", failure("build", "tiny.onnx", option, "", code=2))
        text = tessera("bench", "tiny.tess", "--repeats", 3, "--steps", "--threads", 1).stdout
        self.expect_narrow(text)
        self.assertRegex(text, r"loaded in 0\.\d+ s, bound in 0\.\d+ s; at most [\d.]+ MB of memory")
        self.assertIn("the 10 slowest of ", text)
        self.assertIn("loaded in 0.", tessera("run", "tiny.tess", "-i", "in.npz", "--verbose").stdout)
        said = json.loads(tessera("bench", "tiny.tess", "--repeats", 5, "--steps", "--plan", "batch3", "--json").stdout)
        (plan,) = said["plans"]
        self.assertTrue(0 < plan["p10_ms"] <= plan["median_ms"] <= plan["p90_ms"])
        self.assertAlmostEqual(plan["per_second"] * plan["median_ms"], 3000, places=3)
        self.assertTrue(plan["steps"])
        failure("bench", "tiny.tess", "--plan", "none", code=2)

    def test_check_reports_the_rules_of_others(self):
        text = tessera("check", "tiny.onnx", "--for", "tensorrt").stdout
        self.expect_narrow(text)
        self.assertRegex(text, r"^tiny\.onnx: breaks \d of 9 design rules for tensorrt; Tessera needs none of them\n")
        self.assertRegex(text, r"\n  BROKEN  class token: ")
        self.assertEqual(text.count("\n      there: "), text.count("\n  BROKEN  "))
        self.assertEqual(text.count("\n      Tessera: "), text.count("\n  BROKEN  "))
        report = json.loads(tessera("check", "tiny.onnx", "--json").stdout)
        self.assertEqual((report["for"], len(report["rules"])), ("tensorrt", 9))
        self.assertEqual(report["broken"], text.count("\n  BROKEN  "))
        self.assertEqual(report["broken"], sum(r["broken"] for r in report["rules"]))
        length = report["rules"][0]
        # 32 x 32 pixels in patches of 8 x 8 and a class token.
        self.assertEqual(length["breaches"][0]["what"], "17 tokens: no multiple of 32 or of 16")
        self.assertEqual(len(length["breaches"][0]["layers"]), 2)
        self.assertIn("accepted: tensorrt; did you mean tensorrt?", failure("check", "tiny.onnx", "--for", "tensorr", code=2))
        self.assertIn("is an engine", failure("check", "tiny.tess", code=2))
        self.assertIn("No such file", failure("check", "missing.onnx", code=3))
        (self.folder / "words.onnx").write_text("this is no model")
        failure("check", "words.onnx", code=3)
        self.assertIn("wanted INPUT=N", failure("check", "tiny.onnx", "--shape", "image", code=2))

    def test_an_engine_with_other_weights_does_not_serve(self):
        data = bytearray((self.folder / "tiny.tess").read_bytes())
        field = lambda at: int.from_bytes(data[at : at + 8], "little")
        manifest = json.loads(data[64 : 64 + field(24)])
        self.assertEqual(checksum64(bytes(data[64 : 64 + field(24)])), field(32))
        self.assertEqual(checksum64(bytes(data[field(40) :])), field(56))
        largest = max(manifest["constants"], key=lambda c: c["data"]["bytes"])["data"]
        begin = field(40) + largest["offset"]
        weight = np.frombuffer(bytes(data[begin : begin + largest["bytes"]]), "<f2")
        data[begin : begin + largest["bytes"]] = weight[::-1].tobytes()
        data[56:64] = checksum64(bytes(data[field(40) :])).to_bytes(8, "little")
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
        folder = Cli.folder / "full"
        folder.mkdir()
        old = (Cli.folder / "tiny.tess").read_bytes()
        (folder / "old.tess").write_bytes(old)
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        for name in ("new.tess", "old.tess"):
            words = [PROGRAM, "build", "tiny.onnx", "-o", folder / name, "--quiet", "--no-verify"]
            done = subprocess.run(words, capture_output=True, text=True, cwd=Cli.folder, preexec_fn=limit)
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn(f"{name}: cannot be written: File too large", done.stderr)
        self.assertEqual([p.name for p in folder.iterdir()], ["old.tess"])
        self.assertEqual((folder / "old.tess").read_bytes(), old)

    def test_demo(self):
        said = json.loads(tessera("demo", "--json").stdout)
        self.assertTrue(said["ok"])
        self.assertEqual([r["precision"] for r in said["rows"]], ["fp32", "fp16", "bf16", "fp8", "fp8_tensor", "fp8_token", "mxfp8", "nvfp4", "w4a16",
                                                                    "w4a8", "int8"])
        for row in said["rows"]:
            self.assertGreater(row["cosine_mean"], 0.99 if row["stored"] == "nvfp4" else 0.999)
            self.assertGreater(row["top1"], 0.98)
        sizes = [r["engine_bytes"] for r in said["rows"]]
        self.assertGreater(sizes[0], sizes[1])
        self.assertGreater(sizes[1], sizes[3])
        self.expect_narrow(tessera("demo").stdout)
        self.assertIn("No such file", failure("demo", "--assets", "nowhere", code=3))

    def test_version_and_zoo_list(self):
        self.assertRegex(tessera("version").stdout, r"^tessera \d+\.\d+\.\d+ \(")
        self.assertIn("version", json.loads(tessera("version", "--json").stdout))
        self.expect_narrow(tessera("zoo", "--list").stdout)
        names = [m["name"] for m in json.loads(tessera("zoo", "--list", "--json").stdout)["models"]]
        self.assertEqual(names[:2], ["vit-ti-16", "vit-s-16"])
        failure("zoo", code=2)


if __name__ == "__main__":
    if not PROGRAM.exists():
        print(f"no {PROGRAM}: skipped")
        sys.exit(77)
    unittest.main(verbosity=1)
