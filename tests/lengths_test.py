# SPDX-License-Identifier: Apache-2.0
"""Ranges of lengths: buckets over shared weights, which plan runs what, whether padding is allowed is found and not
assumed. Results are compared with numpy at the exact length. Argument: the folder with the program."""

import json
import pathlib
import re
import sys

import numpy as np
from cli_program import PROGRAM, CliTest, failure, run_tests, tessera

try:
    from lengths_models import VOCABULARY, WIDTH, Block, convolutions, cross_attention
except ImportError as error:
    print(f"{error}: skipped")
    sys.exit(77)

MODELS = pathlib.Path(__file__).resolve().parent / "data" / "models"
# Four products in f32 of WIDTH terms and at most 32 keys, each sum off by at most its terms' roundings.
BOUND = 4 * (WIDTH + 32) * 2.0**-24
RANGE = ("--shape", "ids=1:4,1:32", "--shape", "attention_mask=1:4,1:32")
PLAIN_RANGE = ("--shape", "ids=1:2,4:32")


def distance(got, want):
    return np.linalg.norm(got.astype("f8") - want) / np.linalg.norm(want)


class LengthsTest(CliTest):
    def build(self, block, *words, name="x"):
        block.save(self.folder / f"{name}.onnx")
        return json.loads(tessera("build", f"{name}.onnx", "-o", f"{name}.tess", "--json", *words).stdout)

    def run_on(self, arrays, name="x", code=0):
        np.savez(self.folder / "arrays.npz", **arrays)
        words = ("run", f"{name}.tess", "-i", "arrays.npz", "-o", "out.npz")
        if code != 0:
            return failure(*words, code=code)
        done = tessera(*words, "--json")
        return np.load(self.folder / "out.npz")["y"], json.loads(done.stdout)["plans"]

    def expect_answer(self, block, samples, length, plan=None, bound=BOUND):
        arrays = block.arrays(samples, length)
        got, plans = self.run_on(arrays)
        want = block.answer(arrays)
        self.assertEqual(got.shape, want.shape)
        self.assertLess(distance(got, want), bound, (length, plans))
        if plan is not None:
            self.assertEqual(plans, [plan], length)

    def padded(self, said):
        (length,) = said["lengths"]
        self.assertEqual(length["size"], "sequence")
        self.assertEqual(length["why"] == "", length["padded"])
        return length["padded"]

    def test_any_length_of_a_masked_model(self):
        block = Block("mask")
        said = self.build(block, "--precision", "fp32", "--golden", "smallest", *RANGE)
        self.assertTrue(self.padded(said))
        self.assertEqual(said["lengths"][0]["plans"], [1, 2, 4, 8, 16, 32])
        self.assertEqual(len(said["plans"]), 18)
        for length, bucket in ((1, 1), (5, 8), (8, 8), (9, 16), (17, 32), (31, 32), (32, 32)):
            self.expect_answer(block, 1, length, f"sequence{bucket}.batch1")
        for length in (3, 8, 19):
            self.expect_answer(block, 7, length)  # chunks of 4, 2 and 1
        self.assertIn(
            "array 'ids' has 33 along axis 1 ('sequence'); this engine takes 1 to 32",
            self.run_on(block.arrays(1, 33), code=3),
        )
        uneven = block.arrays(2, 9)
        uneven["attention_mask"] = uneven["attention_mask"][:, :7]
        self.assertIn("'attention_mask' has 7 along axis 1, 'ids' has 9", self.run_on(uneven, code=3))
        self.assertIn("no array 'attention_mask'", self.run_on({"ids": uneven["ids"]}, code=3))

    def test_plans_without_golden_values_have_whole_weights(self):
        block = Block("mask")
        self.build(block, "--precision", "fp32", "--golden", "smallest", *RANGE)
        np.savez(self.folder / "arrays.npz", **block.arrays(1, 20))
        run = ("run", "x.tess", "-i", "arrays.npz", "-o", "out.npz")
        self.assertIn("plan 'sequence32.batch1' has no golden values", " ".join(tessera(*run).stderr.split()))
        file = (self.folder / "x.tess").read_bytes()
        at = file.index(block.table[-1].tobytes())  # ids are all below its row
        (self.folder / "x.tess").write_bytes(file[:at] + bytes([file[at] ^ 1]) + file[at + 1 :])
        self.assertIn("does not match its checksum", failure(*run, code=3))
        tessera(*run, "--no-verify")

    def constants(self, name):
        manifest = json.loads(tessera("inspect", f"{name}.tess", "--json").stdout)
        return sum(c["data"]["bytes"] for c in manifest["constants"])

    def test_weights_are_stored_once(self):
        block = Block("mask")
        self.build(block, "--precision", "fp16", "--no-verify", *RANGE, name="many")
        self.build(block, "--precision", "fp16", "--no-verify", "--shape", "ids=1,32", name="one")
        weights = 2 * (VOCABULARY + 4 * WIDTH) * WIDTH
        self.assertGreaterEqual(self.constants("one"), weights)
        self.assertLess(self.constants("many"), 1.02 * self.constants("one"))

    def test_whether_padding_is_allowed_is_found(self):
        for sees, ends, wanted in (
            ("all", "hidden", False),  # every token sees what is added
            ("causal", "hidden", True),  # rows before the end do not see it
            ("causal", "mean", False),  # and a mean over all tokens does
            ("mask", "mean", False),
            ("mask", "masked_mean", True),
            ("causal", "class", True),  # a row in front: results are one row longer than the arrays
            ("all", "masked_mean", False),  # a mask for the mean alone
        ):
            block = Block(sees, ends)
            said = self.build(block, "--precision", "fp32", *PLAIN_RANGE, *(() if not block.masked else (
                "--shape", "attention_mask=1:2,4:32")))  # fmt: skip
            self.assertEqual(self.padded(said), wanted, (sees, ends, said["lengths"]))
            for length in (4, 8, 32):
                self.expect_answer(block, 2, length, f"sequence{length}.batch2")
            if wanted:
                for length in (5, 13, 31):
                    self.expect_answer(block, 3, length)
                continue
            refusal = self.run_on(block.arrays(2, 13), code=3)
            self.assertIn("has 13 along axis 1 ('sequence'); this engine takes exactly 4, 8, 16 and 32", refusal)
            self.assertIn("since padding changes the model's results: output 'y' differs by", refusal)

    def test_a_length_that_does_not_follow_evenly(self):
        for ends, why in (("halves", "axis 1 of output 'y' does not grow evenly"), ("squares", "")):
            block = Block("causal", ends)
            said = self.build(block, "--precision", "fp32", "--shape", "ids=2,3/6/8")
            self.assertFalse(self.padded(said))
            self.assertIn(why, said["lengths"][0]["why"])
            for length in (3, 6, 8):
                self.expect_answer(block, 2, length)
            self.assertIn("takes exactly 3, 6 and 8", self.run_on(block.arrays(2, 5), code=3))

    def test_whole_numbers_show_nothing(self):
        said = self.build(Block("causal", "choice"), "--precision", "fp32", *PLAIN_RANGE)
        self.assertIn("all outputs are whole numbers", said["lengths"][0]["why"])

    def test_calibration_and_verify(self):
        block = Block("mask")
        np.savez(self.folder / "calib.npz", **block.arrays(24, 13, seed=9))
        for precision, cosine in (("fp8", 0.95), ("int8", 0.95)):
            words = (
                "--precision",
                precision,
                "--allow",
                f"*={precision}",
                "--calib",
                "calib.npz",
                "--shape",
                "ids=1:2,4:32",
            )
            said = self.build(block, *words, "--shape", "attention_mask=1:2,4:32")
            self.assertTrue(self.padded(said))
            self.assertEqual(len(said["forms"]), 4)  # golden values for each bucket
            for length in (4, 5, 32):
                arrays = block.arrays(2, length)
                got, _ = self.run_on(arrays)
                want = block.answer(arrays)
                close = np.sum(got * want) / np.linalg.norm(got) / np.linalg.norm(want)
                self.assertGreater(close, cosine, (precision, length))
            tessera("verify", "x.tess", "--outputs-only")
            np.savez(self.folder / "seven.npz", **block.arrays(3, 7))
            checks = json.loads(tessera("verify", "x.tess", "-i", "seven.npz", "--model", "x.onnx", "--json").stdout)
            plans = [c["plan"] for c in checks["checks"] if c["what"] == "seven.npz"]
            self.assertEqual(plans, ["sequence8.batch1", "sequence8.batch2"])
        np.savez(self.folder / "calib.npz", **block.arrays(4, 40))
        self.assertIn("has 40 along axis 1 ('sequence'), where the engine is built for 4 to 32",
                      failure("build", "x.onnx", "-o", "y.tess", *words, code=3))  # fmt: skip

    def test_two_lengths(self):
        answer = cross_attention(self.folder / "x.onnx")
        shapes = ("--shape", f"x=2,2/6,{WIDTH}", "--shape", f"y=2,3:8,{WIDTH}", "--shape", "y_mask=2,3:8")
        said = json.loads(tessera("build", "x.onnx", "-o", "x.tess", "--precision", "fp32", "--json", *shapes).stdout)
        self.assertEqual([(s["size"], s["plans"], s["padded"]) for s in said["lengths"]],
                         [("rows", [2, 6], True), ("seen", [3, 4, 8], True)])  # fmt: skip
        random = np.random.default_rng(2)
        for rows, seen in ((2, 3), (5, 7), (6, 8), (3, 4)):
            arrays = {name: random.standard_normal((2, n, WIDTH)).astype("f4")
                      for name, n in (("x", rows), ("y", seen), ("fixed", 1))}  # fmt: skip
            arrays["y_mask"] = np.ones((2, seen), "f4")
            np.savez(self.folder / "arrays.npz", **arrays)
            tessera("run", "x.tess", "-i", "arrays.npz", "-o", "out.npz")
            got = np.load(self.folder / "out.npz")["out"]
            self.assertEqual(got.shape, (2, rows, WIDTH))
            self.assertLess(distance(got, answer(arrays)), BOUND)
        said = failure("build", "x.onnx", "-o", "y.tess", *shapes[:-1], "y_mask=2,8", code=3)
        self.assertIn("the axis 'seen' of the model", said)
        said = failure("build", "x.onnx", "-o", "y.tess", "--shape", f"fixed=2,1:4,{WIDTH}", code=3)
        self.assertIn("--shape fixed: the model fixes axis 1 to 1", said)
        many = ("--shape", f"x=1:8,1:512,{WIDTH}", "--shape", f"y=1:8,1:512,{WIDTH}", "--shape", "y_mask=1:8,1:512")
        self.assertIn("more than 64 plans", failure("build", "x.onnx", "-o", "y.tess", *many, code=2))

    def test_pictures(self):
        """Axes without names. Zeros around a picture are not what it has where it is cut off; without them results are
        smaller than pictures, and depend on nothing behind their end."""
        for border, wanted in ((1, False), (0, True)):
            answer = convolutions(self.folder / "x.onnx", border)
            words = ("build", "x.onnx", "-o", "x.tess", "--precision", "fp32", "--json", "--shape", "x=1:2,3,8/12,8/16")
            said = json.loads(tessera(*words).stdout)
            self.assertEqual([(s["size"], s["padded"]) for s in said["lengths"]], [("x.2", wanted), ("x.3", wanted)])
            for height, width in ((8, 8), (12, 8), (12, 16), (9, 8), (11, 13)):
                x = np.random.default_rng(height).standard_normal((3, 3, height, width)).astype("f4")
                if (height, width) in ((9, 8), (11, 13)) and not wanted:
                    self.assertIn("takes exactly 8 and 12", self.run_on({"x": x}, code=3))
                    continue
                got, want = self.run_on({"x": x})[0], answer(x)
                self.assertEqual(got.shape, want.shape)
                self.assertLess(distance(got, want), BOUND, (border, height, width))

    def test_what_is_refused(self):
        Block("mask").save(self.folder / "x.onnx")
        build = ("build", "x.onnx", "-o", "y.tess")
        for bad, said in (
            ("ids=1,16:8", "'16:8' begins above its end"),
            ("ids=1,0:8", "'0:8' is no axis"),
            ("ids=1,0", "'0' is no axis"),
            ("ids=1,4:", "'4:' is no axis"),
            ("ids=1,4:8:16", "'4:8:16' is no axis"),
            ("ids=1,4/4", "'4/4' has a number twice"),
            ("ids=1,4/x", "'4/x' is no axis"),
        ):
            self.assertIn(said, failure(*build, "--shape", bad, code=2))
        for words, said in (
            (("--batch", "1,2"), "--batch and several numbers for the first axis of --shape both say the batches"),
            (("--state", "ids=y"), "a session's memory has one length"),
            (("--graph", "a:ids=1,4"), "a graph has one length"),
        ):
            self.assertIn(said, failure(*build, "--shape", "ids=1:2,4:8", *words, code=2))
        self.assertIn("no such input", failure(*build, "--shape", "id=1,4:8", code=3))
        self.assertIn("3 axes where the model has", failure(*build, "--shape", "ids=1,4:8,2", code=3))
        np.savez(self.folder / "arrays.npz", **Block("mask").arrays(1, 5))
        self.assertIn("takes the lengths of the arrays",
                      failure("run", "x.onnx", "-i", "arrays.npz", "--shape", "ids=1,4:8", code=2))  # fmt: skip
        self.assertIn(
            "only a build makes plans for several", failure("check", "x.onnx", "--shape", "ids=1,4:8", code=2)
        )

    def test_inspect_says_it(self):
        self.build(Block("mask"), "--precision", "fp32", "--golden", "smallest", *RANGE)
        text = tessera("inspect", "x.tess").stdout
        self.expect_narrow(re.sub(r"(?m)^plan.*\n(.*\n)*", "", text))
        self.assertIn("sequence: 1 to 32, by plans of 1, 2, 4, 8, 16 and 32;", " ".join(text.split()))

    def test_exported_models(self):
        """BERT with three inputs of one length, Llama: those of an engine that is built for the length alone."""
        for model, most in (("bert_ts17", 8), ("llama_dyn18", 24)):
            given = np.load(MODELS / f"{model}.npz")
            names = [n for n in ("input_ids", "attention_mask", "token_type_ids") if n in given.files]
            shapes = [word for n in names for word in ("--shape", f"{n}=1:2,2:{most}")]
            path = MODELS / f"{model}.onnx"
            said = json.loads(tessera("build", path, "-o", "m.tess", "--precision", "fp32", "--json", *shapes).stdout)
            self.assertTrue(self.padded(said), said["lengths"])
            for length in (2, 3, 7):
                random = np.random.default_rng(length)
                arrays = {
                    "input_ids": random.integers(3, 60, (2, length)),
                    "attention_mask": np.ones((2, length), "i8"),
                    "token_type_ids": random.integers(0, 2, (2, length)),
                }
                np.savez(self.folder / "arrays.npz", **{n: arrays[n] for n in names})
                answers = []
                for source in ("m.tess", path):  # an ONNX model is built for the arrays' length
                    words = () if source == "m.tess" else ("--precision", "fp32")
                    tessera("run", source, "-i", "arrays.npz", "-o", "out.npz", *words)
                    answers.append(np.load(self.folder / "out.npz")["logits"])
                self.assertEqual(answers[0].shape, answers[1].shape)
                self.assertLess(distance(answers[0], answers[1]), BOUND, (model, length))

    def test_the_library_takes_any_length(self):
        sys.path.insert(0, str(PROGRAM.parent.parent / "python"))
        try:
            import tessera as library
        except ImportError as error:
            self.skipTest(str(error))
        block = Block("mask")
        self.build(block, "--precision", "fp32", "--golden", "smallest", *RANGE)
        engine = library.load(self.folder / "x.tess")
        for samples, length in ((1, 1), (3, 5), (9, 32), (2, 8)):
            arrays = block.arrays(samples, length)
            want = block.answer(arrays)
            got = engine.run(arrays)["y"]
            self.assertEqual(got.shape, want.shape)
            self.assertLess(distance(got, want), BOUND, (samples, length))
        with self.assertRaisesRegex(library.BadInputError, "takes 1 to 32"):
            engine.run(block.arrays(1, 33))
        exact = engine.context("sequence8.batch2")
        arrays = block.arrays(2, 8)
        self.assertLess(distance(exact(arrays["ids"], arrays["attention_mask"]), block.answer(arrays)), BOUND)
        with self.assertRaisesRegex(library.BadInputError, r"it takes i64 \[2,8\]"):
            exact(*block.arrays(2, 7).values())
        self.build(Block("all"), "--precision", "fp32", *PLAIN_RANGE)
        with self.assertRaisesRegex(library.BadInputError, "takes exactly 4, 8, 16 and 32"):
            library.load(self.folder / "x.tess").run(Block("all").arrays(2, 7))


if __name__ == "__main__":
    run_tests()
