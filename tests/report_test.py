#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera report and tessera compare as users meet them. Argument: the folder with the program."""

import json
import pathlib
import re
import shutil

from cli_program import CliTest, failure, np, run_tests, tessera

PROFILES = pathlib.Path(__file__).resolve().parent / "data" / "profiles"
SEEDS = (PROFILES / "seed_fp16.json", PROFILES / "seed_nvfp4.json")


class Report(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        np.savez(cls.folder / "calib.npz", image=cls.images)
        tessera("build", "tiny.onnx", "-o", "fp8.tess", "--precision", "fp8", "--calib", "calib.npz", "--batch", "1,3")

    def test_engines_are_profiled_and_verified(self):
        said = json.loads(tessera("report", "tiny.tess", "fp8.tess", "-o", "two.html", "--runs", 3, "--json").stdout)
        self.assertEqual(said["entries"], ["fp16", "fp8"])
        text = (self.folder / "two.html").read_text()
        self.assertEqual(said["bytes"], len(text.encode()))
        self.assertLess(said["bytes"], 1_000_000)
        for words in (
            "Summary",
            "Where the time goes",
            "Roofline",
            "Precision of each layer of fp8",
            "cosine, worst",
            "tessera report tiny.tess fp8.tess -o two.html",
        ):
            self.assertIn(words, re.sub(r"</?span[^>]*>", "", text))
        self.assertGreaterEqual(text.count("<svg viewBox"), 12)

    def test_markdown_has_the_same_sections(self):
        for name in ("seed.html", "seed.md"):
            done = tessera("report", *SEEDS, "-o", name, "--title", "FP16 and <NVFP4>")
            self.assertIn(name, done.stdout)
        html, markdown = ((self.folder / n).read_text() for n in ("seed.html", "seed.md"))
        headings = re.findall(r'<h2><span class="n">\d+</span>(.*?)</h2>', html)
        plain = [h.replace("\u00a0\u00d7", "x") for h in headings]
        self.assertEqual(plain, re.findall(r"^## \d+ (.*)$", markdown, re.M))
        self.assertIn("Why 1.38x and not more", plain)
        self.assertTrue(markdown.startswith("# FP16 and &lt;NVFP4>\n"))
        self.assertNotIn("FP16 and <NVFP4>", html)
        # The published case: half of the GEMMs' time is low precision, and an fp16 GEMM is named.
        self.assertRegex(markdown, r"\| now \|.*\| 1\.38x \|")
        self.assertRegex(markdown, r"\| `sm80_xmma_gemm_f16f16_f16f16_f16_nn_n` \|.*\| 26\.4 % \|")

    def test_the_same_profiles_give_the_same_bytes(self):
        tessera("report", *SEEDS, "-o", "a.html")
        first = (self.folder / "a.html").read_bytes()
        tessera("report", *SEEDS, "-o", "a.html")
        self.assertEqual(first, (self.folder / "a.html").read_bytes())

    def test_one_profile_alone(self):
        tessera("report", SEEDS[1], "-o", "one.md")
        text = (self.folder / "one.md").read_text()
        self.assertIn("Where the time goes", text)
        self.assertNotIn("B is", text)

    def test_slips_get_a_sentence(self):
        for words, code, said in (
            (("report", "tiny.tess", "-o", "x.pdf"), 2, "reports are .html or .md files"),
            (("report", "tiny.tess", "-o", "none/x.html"), 2, "there is no folder none"),
            (("report", "tiny.onnx", "-o", "x.html"), 3, "is no profile that is read"),
            (("report", "gone.json", "-o", "x.html"), 3, "gone.json"),
            (("report", "tiny.tess", "-o", "x.html", "--plan", "nope"), 2, "nope"),
        ):
            self.assertIn(said, failure(*words, code=code))
        self.assertFalse((self.folder / "x.html").exists())
        shutil.copy(SEEDS[0], self.folder / "seed.html.md")
        told = failure("report", "seed.html.md", "-o", "seed.html.md", code=2)
        self.assertIn("would overwrite", told)

    def test_the_build_is_said_as_it_was(self):
        tessera(
            "build", "tiny.onnx", "-o", "made.tess", "--precision", "nvfp4", "--calib", "calib.npz", "--batch", "1,3",
            "--calib-method", "percentile=99.9", "--refine", "clip,smooth", "--sparsity", "2:4",
            "--allow", "blocks.0.*=fp8",
        )  # fmt: skip
        tessera("report", "made.tess", "-o", "made.md", "--no-verify", "--runs", 2)
        line = [x for x in (self.folder / "made.md").read_text().splitlines() if x.startswith("tessera build")][0]
        for words in (
            "--precision nvfp4", "--sparsity 2:4", "--refine smooth,clip", "--allow 'blocks.0.*=fp8'", "--batch 1,3",
            "--calib SAMPLES", "--calib-method percentile=99.9",
        ):  # fmt: skip
            self.assertIn(" " + words, line)
        tessera("report", "tiny.tess", "-o", "plain.md", "--no-verify", "--runs", 2)
        plain = (self.folder / "plain.md").read_text()
        self.assertIn("tessera build MODEL -o tiny.tess --target cpu --precision fp16 --batch 1,3\n", plain)

    def test_no_verify_is_said(self):
        tessera("report", "fp8.tess", "-o", "quick.md", "--no-verify", "--runs", 2)
        text = (self.folder / "quick.md").read_text()
        self.assertIn("not compared with its model (--no-verify)", text)
        self.assertNotIn("cosine, worst", text)


class Compare(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        np.savez(cls.folder / "calib.npz", image=cls.images)

    def compare(self, *words, code=0):
        return json.loads(tessera("compare", *words, "--runs", 3, "--json", code=code).stdout)

    def test_a_model_in_several_precisions(self):
        said = self.compare(
            "tiny.onnx", "--precisions", "fp16,fp8,fp8+attention=fp8,nvfp4", "--calib", "calib.npz", "--batch", "1,3",
            "-o", "out",
        )  # fmt: skip
        rows = said["rows"]
        self.assertEqual(len(rows), 8)  # four engines, two plans each
        self.assertEqual({r["batch"] for r in rows}, {1, 3})
        for row in rows:
            self.assertIsNone(row["refused"], row)
            self.assertGreater(row["latency_ms"], 0)
            self.assertTrue((self.folder / row["file"]).exists())
        by_name = {r["name"]: r for r in rows if r["batch"] == 1}
        self.assertEqual(by_name["fp8+attention=fp8"]["attention"], "fp8")
        self.assertEqual(by_name["fp8"]["attention"], "fp16")
        self.assertGreater(by_name["fp16"]["cosine"], by_name["nvfp4"]["cosine"])
        self.assertLess(by_name["nvfp4"]["bytes"], by_name["fp16"]["bytes"])
        # The most accurate, the fastest and the smallest of a batch are on its front.
        for batch in (1, 3):
            of_batch = [r for r in rows if r["batch"] == batch]
            for best in (
                max(of_batch, key=lambda r: r["cosine"]),
                min(of_batch, key=lambda r: r["latency_ms"]),
                min(of_batch, key=lambda r: r["bytes"]),
            ):
                rivals = [r for r in of_batch if r is not best and r["cosine"] == best["cosine"]]
                self.assertTrue(best["front"] or rivals, best)
        report = (self.folder / "out" / "report.html").read_text()
        self.assertIn("Engines side by side", report)
        self.assertIn("--attention", report)

    def test_sparse_twins(self):
        said = self.compare("tiny.onnx", "--precisions", "fp16", "--sparse")
        self.assertEqual([r["sparsity"] for r in said["rows"]], ["", "2:4"])
        self.assertLess(said["rows"][1]["bytes"], said["rows"][0]["bytes"])

    def test_a_refused_combination_is_a_row(self):
        said = self.compare("tiny.onnx", "--precisions", "fp16,nvfp4", "--target", "sm90")
        rows = {r["name"]: r for r in said["rows"]}
        self.assertIn("sm90", rows["nvfp4"]["refused"])
        self.assertIsNone(rows["nvfp4"]["bytes"])
        self.assertGreater(rows["fp16"]["bytes"], 0)  # built, whether or not it can run here
        text = tessera("compare", "tiny.onnx", "--precisions", "fp16,nvfp4", "--target", "sm90").stdout
        self.expect_narrow(text)
        self.assertIn("refused", text)
        self.assertLess(text.count("\n"), 15)  # a reason in a few lines, not every layer and kernel

    def test_a_folder_of_engines_and_profiles(self):
        folder = self.folder / "some"
        folder.mkdir()
        shutil.copy(self.folder / "tiny.tess", folder / "old.tess")
        shutil.copy(self.folder / "tiny.tess", folder / "new.tess")
        shutil.copy(SEEDS[0], folder / "seed.json")
        (folder / "notes.json").write_text("{}")
        (folder / "README.txt").write_text("not looked at")
        said = self.compare(folder, "-o", "some.md")
        names = [r["name"] for r in said["rows"]]
        self.assertEqual(names, ["new", "new", "notes.json", "old", "old", "seed.json"])
        notes = said["rows"][2]
        self.assertIn("no profile", notes["refused"])
        # trtexec's profile alone holds no whole runs: its kernels take 7.6 ms, and how long a run takes is not known.
        seed = said["rows"][5]
        self.assertIsNone(seed["latency_ms"])
        self.assertIsNone(seed["per_second"])
        self.assertAlmostEqual(seed["kernel_ms"], 7.6, delta=0.01)
        report = (self.folder / "some.md").read_text()
        self.assertIn("kernels, ms", report)
        self.assertRegex(report, r"\| seed\.json \|[^\n]*\| - \| 7\.600 \| - \|")
        self.assertIn("kernels ms", tessera("compare", folder, "--runs", 2, "--no-verify").stdout)
        # Two files of one model and precision are versions of one engine.
        self.assertEqual(len(said["versions"]), 2)  # a pair for each plan
        for pair in said["versions"]:
            self.assertTrue(pair["before"].startswith("new") and pair["after"].startswith("old"), pair)
            self.assertTrue(all(s["kernel_before"] == s["kernel_after"] for s in pair["steps"]))
        self.assertIn("every step has the same kernel", (self.folder / "some.md").read_text())

    def test_versions_are_of_one_making_and_neighbours(self):
        folder = self.folder / "versions"
        folder.mkdir()
        for name in ("a", "b", "c"):
            shutil.copy(self.folder / "tiny.tess", folder / f"{name}.tess")
        pairs = [(v["before"][0], v["after"][0]) for v in self.compare(folder, "--no-verify")["versions"]]
        self.assertEqual(sorted(pairs), [("a", "b"), ("a", "b"), ("b", "c"), ("b", "c")])  # two plans each
        said = self.compare(
            "tiny.onnx", "--precisions", "nvfp4,nvfp4+refine=clip", "--calib", "calib.npz", "--no-verify", "-o", "made",
        )  # fmt: skip
        self.assertEqual([r["refused"] for r in said["rows"]], [None, None])
        self.assertEqual(said["versions"], [], "another refinement is another engine, not a version of one")
        self.assertEqual(self.compare("made", "--no-verify")["versions"], [], "the engines' files say it too")

    def test_the_command_makes_the_same_again(self):
        (self.folder / "none.rules").write_text("")
        self.compare(
            "tiny.onnx", "--precisions", "fp8", "--calib", "calib.npz", "--calib-method", "percentile=99.9",
            "--batch", "1", "--allow", "blocks.0.*=fp16", "--rules", "none.rules", "-o", "again.md",
        )  # fmt: skip
        line = [x for x in (self.folder / "again.md").read_text().splitlines() if x.startswith("tessera compare")][0]
        for words in (
            "--runs 3", "--precisions fp8", "--calib calib.npz", "--calib-method percentile=99.9", "--batch 1",
            "--allow 'blocks.0.*=fp16'", "--rules none.rules", "-o again.md",
        ):  # fmt: skip
            self.assertIn(" " + words, line)

    def test_files_beside_a_profile_are_no_rows(self):
        folder = self.folder / "trt"
        folder.mkdir()
        for name in ("profile", "layers", "times"):
            shutil.copy(PROFILES / f"fp8_{name}.json", folder / f"{name}.json")
        self.assertEqual([r["name"] for r in self.compare(folder)["rows"]], ["profile.json"])
        whole = tessera(
            "profile", folder / "profile.json", "--beside", folder / "layers.json", "--beside", folder / "times.json",
            "--json",
        )  # fmt: skip
        (folder / "whole.json").write_text(whole.stdout)
        rows = self.compare(folder)["rows"]
        self.assertEqual([r["name"] for r in rows], ["profile.json", "whole.json"])
        self.assertIsNone(rows[0]["latency_ms"])
        self.assertGreater(rows[1]["latency_ms"], 0)
        self.assertEqual(rows[0]["kernel_ms"], rows[1]["kernel_ms"])
        (folder / "profile.json").unlink(), (folder / "whole.json").unlink()
        self.assertIn("holds no engine", failure("compare", folder, code=3))

    def test_slips_get_a_sentence(self):
        (self.folder / "empty").mkdir()
        (self.folder / "garbage.json").write_text("{]")
        self.assertIn("nothing could be compared", tessera("compare", "garbage.json", code=3).stderr)
        for words, code, said in (
            (("tiny.onnx",), 2, "say what to build with --precisions"),
            (("tiny.onnx", "--precisions", "fp9"), 2, "did you mean"),
            (("tiny.onnx", "--precisions", "fp8,fp8"), 2, "stands there twice"),
            (("tiny.onnx", "--precisions", "fp8+speed=9"), 2, "after + wanted"),
            (("tiny.tess", "--precisions", "fp8"), 2, "is an engine"),
            (("tiny.tess", "--sparse"), 2, "name them with --precisions"),
            (("tiny.tess", "-o", "folder"), 2, "reports are .html or .md files"),
            (("empty",), 3, "holds no engine"),
            (("gone.tess",), 3, "no such file"),
        ):
            self.assertIn(said, failure("compare", *words, code=code))
        failure("compare", "tiny.onnx", "--precisions", "fp16,foo", "-o", "never", code=2)
        self.assertFalse((self.folder / "never").exists(), "a folder for engines that are not built")


if __name__ == "__main__":
    run_tests()
