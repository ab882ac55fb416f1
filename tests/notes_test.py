#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What build and inspect say beside the result: numbers that change their type, joined layers, slow kernels.
Argument: the folder with the program."""

import json
import os
import pathlib
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
MODELS = pathlib.Path(__file__).parent / "data" / "models"
TOKENS = ("--shape", "input_ids=1,8", "--shape", "attention_mask=1,8")


class Notes(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def tessera(self, *words):
        done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, 0, (words, done.stderr))
        return done

    def test_numbers_that_were_bf16(self):
        text, ends = (
            "most weights of the model are bf16 numbers; ",
            "is in fp16, whose largest number is 65504 (--precision bf16 keeps bf16)",
        )
        build = ("build", MODELS / "llama_bf16_dyn20.onnx", *TOKENS, "-o", "x.tess")
        said = lambda *words: " ".join(self.tessera(*build, *words).stderr.split())
        self.assertIn(text + "the engine " + ends, said())
        self.assertIn(text + "the engine " + ends, said("--precision", "fp16"))
        self.assertIn(text + "what is not int8 " + ends, said("--precision", "int8"))
        for precision in ("bf16", "fp32"):
            self.assertNotIn("bf16 numbers;", self.tessera(*build, "--precision", precision).stderr)
        for other in ("llama_dyn18", "vit_half_dyn20"):
            shapes = TOKENS if other.startswith("llama") else ()
            self.assertNotIn(
                "bf16 numbers;",
                self.tessera("build", MODELS / f"{other}.onnx", *shapes, "-o", "x.tess", "--precision", "fp16").stderr,
            )

    def roles(self, model, *words):
        self.tessera("build", MODELS / f"{model}.onnx", "-o", "x.tess", "--precision", "fp8", *words)
        steps = json.loads(self.tessera("inspect", "x.tess", "--json").stdout)["plans"][0]["steps"]
        return {role: sorted(s["layer"] for s in steps if s["role"] == role) for role in ("embed", "head")}

    def test_every_head_stays_fp16(self):
        for export in ("deit_dyn18", "deit_ts17"):
            self.assertEqual(self.roles(export)["head"], ["head", "head_dist"])
        for text in ("clip_text_dyn18", "gemma_dyn20", "gemma2_dyn20"):
            self.assertEqual(len(self.roles(text)["head"]), 1, text)
        self.assertEqual(self.roles("siglip_hf_dyn20")["head"], [], "its outputs end a residual stream")

    def test_attention_in_fp8_with_a_learnt_query(self):
        exports = sorted(MODELS.glob("siglip*.onnx"))
        self.assertGreater(len(exports), 5)
        for model in exports:
            samples = dict(np.load(model.with_suffix(".npz")))
            np.savez(self.folder / "in.npz", **{k: v for k, v in samples.items() if not k.startswith("expected")})
            for words in (("--calib", "in.npz"), (), ("--target", "sm90", "--no-verify", "--batch", "1,8")):
                build = ("build", model, "-o", "x.tess", "--precision", "fp8", "--attention", "fp8", *words)
                said = json.loads(self.tessera(*build, "--json").stdout)
                self.assertEqual({g["asked"] for g in said["layers"]}, {"fp8", "fp16"})
                steps = json.loads(self.tessera("inspect", "x.tess", "--json").stdout)["plans"][0]["steps"]
                self.assertEqual([s["asked"] for s in steps if s["op"] == "attention"], ["fp8"] * 3, (model, words))

    def test_attention_that_stays_fp16_is_said(self):
        model = MODELS / "vit_dyn18.onnx"
        text = "attention stays fp16 (2 layers): --attention fp8 asks for fewer bits there"
        for precision in ("fp8", "int8", "nvfp4", "w4a16"):
            self.assertIn(text, self.tessera("build", model, "-o", "x.tess", "--precision", precision).stdout)
        for words in (("fp16",), ("bf16",), ("fp32",), ("fp8", "--attention", "fp8"), ("fp8", "--attention", "fp16")):
            self.assertNotIn(
                "attention stays", self.tessera("build", model, "-o", "x.tess", "--precision", *words).stdout
            )

    def refused(self, *words):
        done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, 4, (words, done.stderr))
        return " ".join(done.stderr.split())

    def test_what_an_attention_stores_is_the_type_of_its_operands(self):
        for words, wanted in (((), ("", "f16")), (("--attention", "fp8"), ("fp8", "e4m3"))):
            self.tessera("build", MODELS / "vit_dyn18.onnx", "-o", "x.tess", "--precision", "fp8", *words)
            for plan in json.loads(self.tessera("inspect", "x.tess", "--json").stdout)["plans"]:
                self.assertEqual(
                    [(s["asked"], s["stored"]) for s in plan["steps"] if s["op"] == "attention"],
                    [wanted] * 2,
                    plan["name"],
                )

    def test_softmaxes_that_are_no_attention_are_counted(self):
        for model in ("gemma2_ts17", "gemma2_dyn20"):
            build = ("build", MODELS / f"{model}.onnx", *TOKENS, "-o", "x.tess", "--precision", "fp8")
            count = json.loads(self.tessera(*build, "--json").stdout)["softmaxes_not_in_attention"]
            self.assertGreater(count, 1)
            steps = json.loads(self.tessera("inspect", "x.tess", "--json").stdout)["plans"][0]["steps"]
            self.assertEqual(count, sum(s["op"] == "softmax" for s in steps))
            self.assertIn(
                f"{count} softmaxes are not recognised as attention: they and their products run op by op in fp16",
                " ".join(self.tessera(*build).stdout.split()),
            )
            said = self.refused(*build, "--attention", "fp8")
            self.assertIn(
                f"no attention was recognised in this model; {count} softmaxes run op by op in fp16; leave "
                "--attention out",
                said,
            )
            self.assertNotIn("--allow", said)
        vit = self.tessera("build", MODELS / "vit_dyn18.onnx", "-o", "x.tess", "--precision", "fp8")
        self.assertNotIn("not recognised as attention", " ".join(vit.stdout.split()))

    def test_integer_inputs_have_one_kind(self):
        np.savez(
            self.folder / "in.npz",
            **{k: v for k, v in np.load(MODELS / "bert_dyn18.npz").items() if not k.startswith("expected")},
        )
        self.tessera(
            "build",
            MODELS / "bert_dyn18.onnx",
            *TOKENS,
            "--shape",
            "token_type_ids=1,8",
            "-o",
            "x.tess",
            "--precision",
            "fp8",
            "--calib",
            "in.npz",
        )
        done = self.tessera("verify", "x.tess")
        self.assertIn("\ninteger inputs: one kind\n", done.stdout)
        # The amax of a scale has the largest code, and that is right.
        self.assertNotIn("too small", done.stdout)
        said = json.loads(self.tessera("verify", "x.tess", "--json").stdout)
        self.assertEqual(said["inputs_note"], "integer inputs: one kind")
        self.assertEqual([c["what"] for c in said["checks"]], ["golden values", "normal, seed 2"])
        self.assertNotIn("one kind", self.tessera("verify", "x.tess", "--inputs", "in.npz").stdout)

    def test_rules_that_do_not_apply_are_said_to(self):
        text = self.tessera("check", MODELS / "llama_dyn18.onnx", *TOKENS, "--for", "tensorrt").stdout
        for rule in ("class token", "image and patch size"):
            self.assertIn(f"\n  not applicable  {rule} (the model has nothing that the rule is about)\n", text)
        report = json.loads(self.tessera("check", MODELS / "llama_dyn18.onnx", *TOKENS, "--json").stdout)
        self.assertEqual(
            [r["rule"] for r in report["rules"] if not r["applies"]], ["class token", "image and patch size"]
        )

    def test_joined_layers_are_counted_as_the_model_has_them(self):
        model = MODELS / "eva02_dyn18.onnx"
        counts = {}
        for target in ("cpu", "sm90"):
            said = json.loads(
                self.tessera(
                    "build", model, "-o", f"{target}.tess", "--precision", "fp16", "--target", target, "--json"
                ).stdout
            )
            counts[target] = sum(group["layers"] for group in said["layers"])
        self.assertEqual(counts["cpu"], counts["sm90"])
        text = " ".join(self.tessera("inspect", "sm90.tess").stdout.split())
        joined = "2 matmuls join the two layers of a gated MLP, 2 matmuls join layers of one input"
        self.assertIn(f"{joined}: {counts['cpu']} linear layers of the model", text)
        self.assertNotIn("join", self.tessera("inspect", "cpu.tess").stdout)

    def test_accuracy_on_samples_says_what_it_was_measured_with(self):
        np.savez(
            self.folder / "in.npz", image=np.random.default_rng(1).standard_normal((4, 3, 16, 16)).astype(np.float32)
        )
        words = (
            "build",
            MODELS / "eva02_dyn18.onnx",
            "-o",
            "x.tess",
            "--precision",
            "fp8",
            "--calib",
            "in.npz",
            "--target",
        )
        as_run = "(by layers on the CPU, which round both halves of a gated MLP and their product; the engine does not)"
        self.assertRegex(
            " ".join(self.tessera(*words, "sm90", "--keep-norms").stdout.split()),
            "on 4 samples of --calib: [^()]*" + as_run.replace("(", "[(]").replace(")", "[)]"),
        )
        # Layers on the CPU have their norms: where the engine has none, nothing is said of samples but by its own
        # golden run.
        self.assertNotIn("samples of --calib:", self.tessera(*words, "sm90").stdout)
        self.assertNotIn("by layers on the CPU", self.tessera(*words, "cpu").stdout)

    def test_no_kernel_is_both_taken_and_refused(self):
        self.tessera("build", MODELS / "eva02_dyn18.onnx", "-o", "x.tess", "--precision", "fp16", "--target", "sm90")
        slow = 0
        for step in json.loads(self.tessera("inspect", "x.tess", "--json").stdout)["plans"][0]["steps"]:
            self.assertNotIn(step["variant"], [r["variant"] for r in step["refusals"]], step["layer"])
            slow += "slow" in step
        self.assertEqual(slow, 0, "gates of few rows have a kernel that is not slow")


if __name__ == "__main__":
    unittest.main()
