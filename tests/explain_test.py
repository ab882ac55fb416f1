#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera explain as users meet it: the published ViT case as text and JSON, files that cannot be explained. Argument:
the folder with the program."""

import json
import os
import pathlib

from cli_program import CliTest, failure, run_tests, tessera

PROFILES = pathlib.Path(__file__).parent / "data/profiles"
FP16, NVFP4 = PROFILES / "seed_fp16.json", PROFILES / "seed_nvfp4.json"


def explained(*words):
    return json.loads(tessera("explain", *words, "--json").stdout)


class Explain(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.environ["XDG_CACHE_HOME"] = str(cls.folder / "cache")  # ceilings: not the user's

    def test_the_published_case(self):
        e = explained(FP16, NVFP4)
        self.assertAlmostEqual(e["speedup"], 7.6 / 5.5, places=3)
        classes = {c["name"]: c for c in e["classes"]}
        self.assertTrue(0.83 <= classes["gemm"]["a_ms"] / 7.6 <= 0.85, classes["gemm"])
        self.assertAlmostEqual(classes["attention"]["a_ms"], 0.534, places=3)
        self.assertAlmostEqual(classes["attention"]["b_ms"], 0.528, places=3)
        self.assertTrue(e["attention"]["unchanged"])
        self.assertEqual(e["unclassified_share"], 0)
        ceiling = e["ladder"][0]
        self.assertEqual(ceiling["base"], "A")
        self.assertTrue(2.65 <= ceiling["speedup"] <= 2.75, ceiling)
        (fallback,) = e["fallbacks"]
        self.assertEqual(fallback["precision"], "fp16")
        self.assertTrue(0.26 <= fallback["share"] <= 0.27, fallback)
        self.assertTrue(0.45 <= e["coverage"]["time"]["fp4"] <= 0.55, e["coverage"])
        self.assertTrue(0.72 <= e["coverage"]["flops"]["fp4"] <= 0.8, e["coverage"])
        self.assertIsNone(e["coverage"]["bytes"])
        self.assertTrue(1.2 <= e["growth"]["a_ms"] <= 1.25 and 2.6 <= e["growth"]["b_ms"] <= 2.7, e["growth"])
        fuse, quantize = e["recommendations"][:2]
        self.assertTrue(fuse["what"].startswith("fuse GELU, quantization and conversions"), fuse)
        self.assertTrue(1.85 <= fuse["predicted"] <= 1.95, fuse)
        self.assertTrue(quantize["what"].startswith("quantize the remaining linear layers"), quantize)
        self.assertTrue(1.65 <= quantize["predicted"] <= 1.75, quantize)
        self.assertIn("--precision nvfp4", quantize["flag"])
        self.assertEqual(e["combinations"][0]["of"], ["fuse", "quantize"])
        self.assertTrue(2.45 <= e["combinations"][0]["predicted"] <= 2.55, e["combinations"])

    def test_the_text_answers_first_and_fits(self):
        text = tessera("explain", FP16, NVFP4).stdout
        self.expect_narrow(text)
        self.assertTrue(text.startswith("1.38x on kernel time (kernels 7.60 ms -> 5.50 ms), not 4x: "), text)
        flat = " ".join(text.split())
        for said in (
            "6.36 ms / 4 + 1.24 ms = 2.83 ms",
            "asked fp4; 26.4 % of the time is an fp16 GEMM: sm80_xmma_gemm_f16f16_f16f16_f16_nn_n",
            "534 us (precision not told) -> 528 us (precision not told): unchanged",
            "by flops: estimated from A's rate",
            "by bytes: not known",
            "unclassified, by no rule known: 0.0 % of A, 0.0 % of B",
            "1 + 2 together: 2.53x",
            "the chip's rates are nominal",
        ):
            self.assertIn(said, flat)
        self.assertLess(flat.index("1. 1.88x fuse"), flat.index("2. 1.71x quantize"))

    def test_one_profile_alone(self):
        e = explained(NVFP4)
        self.assertIsNone(e["speedup"])
        self.assertEqual(e["no_speedup"], "one profile alone has nothing to be compared with")
        wanted = ("classes", "coverage", "unclassified_share", "fallbacks", "ladder", "recommendations")
        self.assertEqual([key for key in wanted if key not in e], [])
        self.assertTrue(all(c["b_ms"] is None for c in e["classes"]))
        self.assertEqual([f["precision"] for f in e["fallbacks"]], ["fp16"])
        self.assertIsNone(e["coverage"]["flops"])
        text = tessera("explain", NVFP4).stdout
        self.expect_narrow(text)
        self.assertTrue(text.startswith("5.50 ms of kernel time: 51.3 % gemm"), text)

    def test_what_was_asked(self):
        self.assertEqual(explained(FP16, NVFP4, "--asked", "fp16")["fallbacks"], [])
        self.assertEqual(explained(FP16, NVFP4, "--asked", "nvfp4")["asked"]["how"], "said by --asked")
        self.assertIn("--asked fp5: is no known precision", failure("explain", FP16, "--asked", "fp5", code=2))

    def test_the_third_profile_checks_the_prediction(self):
        entries = json.loads(NVFP4.read_text())
        kept = [x for x in entries if "Erf" not in x.get("name", "")]
        (self.folder / "fused.json").write_text(json.dumps(kept))
        e = explained(FP16, NVFP4, "fused.json")
        (check,) = e["applied"]["checks"]
        self.assertEqual(check["id"], "fuse")
        self.assertAlmostEqual(check["measured_gain_ms"], 0.5328, places=3)
        self.assertAlmostEqual(e["applied"]["measured"], 7.6 / (5.5 - 0.5328), places=3)
        text = tessera("explain", FP16, NVFP4, "fused.json").stdout
        self.expect_narrow(text)
        self.assertIn("What was applied in C, predicted against measured", text)
        same = tessera("explain", FP16, NVFP4, NVFP4).stdout
        self.assertIn("C shows none of the recommendations", same)

    def test_rules_of_the_user_come_first(self):
        (self.folder / "mine.rules").write_text("_gemm_mha_v2  gemm  fp16\n")
        e = explained(FP16, NVFP4, "--rules", "mine.rules")
        self.assertIsNone(e["attention"])
        self.assertIn("mine.rule", failure("explain", FP16, "--rules", "mine.rule", code=3))
        (self.folder / "broken.rules").write_text("pattern  nonsense  fp16\n")
        self.assertIn("broken.rules", failure("explain", FP16, "--rules", "broken.rules", code=3))

    def test_engines_are_profiled_here(self):
        tessera("build", "tiny.onnx", "-o", "fp8.tess", "--precision", "fp8", "--calib", "in.npz", "--batch", "1,3")
        e = explained("tiny.tess", "fp8.tess", "--plan", "batch3")
        self.assertEqual((e["a"]["precision"], e["b"]["precision"], e["b"]["batch"]), ("fp16", "fp8", 3))
        self.assertAlmostEqual(e["speedup"], e["a"]["kernel_ms"] / e["b"]["kernel_ms"], places=9)
        self.assertAlmostEqual(e["latency_speedup"], e["a"]["latency_ms"] / e["b"]["latency_ms"], places=9)
        self.assertEqual(e["changes"]["by"], "layer")
        self.assertEqual(e["fallbacks"], [], "a CPU computes fp8 codes in another type, as its engine promises")
        self.assertTrue(e["coverage"]["how"]["flops"].startswith("from the files"), e["coverage"]["how"])
        self.assertTrue(all(r["id"] != "tune" for r in e["recommendations"]))
        self.expect_narrow(tessera("explain", "tiny.tess", "fp8.tess").stdout)
        self.assertIn("; did you mean batch3?", failure("explain", "tiny.tess", "--plan", "bach3", code=2))
        self.assertIn("is an engine: runs and further", failure("explain", "tiny.tess", "--runs-a", 3, code=2))

    def test_two_models_have_no_speedup(self):
        tessera("zoo", "vit-tiny-test", "--image", 64, "-o", "other.onnx")
        tessera("build", "other.onnx", "-o", "other.tess", "--precision", "fp16", "--no-verify")
        e = explained("tiny.tess", "other.tess")
        self.assertIsNone(e["speedup"])
        self.assertIsNone(e["latency_speedup"])
        self.assertEqual((e["ladder"], e["recommendations"], e["changes"]["all"]), ([], [], []))
        self.assertTrue(e["answer"].startswith("A and B are "), e["answer"])
        self.assertIn("so their times say nothing about each other", e["answer"])
        text = tessera("explain", "tiny.tess", "other.tess").stdout
        self.expect_narrow(text)
        self.assertTrue(" ".join(text.split()).startswith(e["answer"]), text)
        self.assertNotIn("Ladder", text)
        tessera("report", "tiny.tess", "other.tess", "-o", "two.md", "--runs", 2, "--no-verify")
        self.assertIn("so their times say nothing about each other", (self.folder / "two.md").read_text())

    def test_names_that_differ_never_look_the_same(self):
        long = "encoder." * 16
        names = [f"{which}.{long}{place}" for which in ("left", "right") for place in ("query", "value")]
        names += [f"{long}{which}.{long}dense" for which in ("left", "right")]
        kernels = [
            {"name": "sm80_xmma_gemm_f16f16", "layer": n, "class": "gemm", "us": 9 - i} for i, n in enumerate(names)
        ]
        profile = {"format": "tessera profile", "version": 1, "source": "tessera", "kernels": kernels}
        (self.folder / "a.json").write_text(json.dumps(profile))
        text = tessera("explain", "a.json", "a.json", "--all").stdout
        table = text[text.index("What changed most, by layer") :].split("\n\n")[0].splitlines()[3:]
        self.assertEqual(len(table), len(names), table)
        self.assertEqual(len({line.split()[0] for line in table}), len(names), table)

    def test_predictions_are_marked(self):
        words = ("--target", "sm90", "--batch", 64, "--no-verify")
        tessera("build", "tiny.onnx", "-o", "gpu16.tess", *words, "--precision", "fp16")
        tessera("build", "tiny.onnx", "-o", "gpu8.tess", *words, "--precision", "fp8", "--calib", "in.npz")
        for name in ("gpu16", "gpu8"):
            predicted = tessera("profile", f"{name}.tess", "--chip", "h200", "--json").stdout
            (self.folder / f"{name}.json").write_text(predicted)
        e = explained("gpu16.json", "gpu8.json")
        self.assertIn("B: times are predicted from a chip's data, not measured", e["notes"])
        self.assertEqual(e["fallbacks"], [], "embedding and head were asked to be fp16")
        self.assertFalse(any(r["nominal"] for r in e["ladder"]), "rates of the H200 are known")
        self.assertIn("a profile that can be explained anywhere", failure("explain", "gpu8.tess", code=5))

    def test_files_that_cannot_be_explained(self):
        self.assertIn("missing.json", failure("explain", FP16, "missing.json", code=3))
        (self.folder / "empty.json").write_text("")
        (self.folder / "foreign.json").write_text('{"a": 1}')
        for name in ("empty.json", "foreign.json", "tiny.onnx"):
            self.assertIn(name, failure("explain", name, code=3))
        self.assertIn("there is no profile B", failure("explain", FP16, "--runs-b", 3, code=2))
        self.assertIn("--plan nope is of engines", failure("explain", FP16, "--plan", "nope", code=2))
        self.assertIn("there is no profile C", failure("explain", FP16, NVFP4, "--beside-c", "x.json", code=2))
        self.assertIn(
            "leave --all out", json.loads(tessera("explain", FP16, "--all", "--json", code=2).stdout)["error"]
        )


if __name__ == "__main__":
    run_tests()
