#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program as users meet it: commands, exit codes, messages. Argument: the folder with the program."""

import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import subprocess

from cli_program import PROGRAM, CliTest, failure, np, on_terminal, run_tests, sentence, tessera

COMMANDS = "demo build calibrate sensitivity run verify check inspect bench profile explain kernels zoo version".split()


class Cli(CliTest):
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
        listed = (pathlib.Path(__file__).parents[1] / "src/types/precisions/precisions.inc").read_text()
        lines = re.findall(r"^TS_PRECISION\((\w+), (.*)\)$", listed, re.M)
        attention = ", ".join(name for name, types in lines if not types.endswith("kNoAttention"))
        self.assertEqual(attention.split(", ")[-1], "fp8")
        self.assertIn(f"softmax output: {attention};", " ".join(tessera("help", "build").stdout.split()))

    def test_slips_get_the_nearest_word(self):
        self.assertEqual(failure("biuld", code=2), "tessera: 'biuld' is no command; did you mean build?")
        self.assertEqual(failure("xyzzy", code=2), "tessera: 'xyzzy' is no command; tessera --help lists them")
        self.assertEqual(failure("help", "verfy", code=2), "tessera: 'verfy' is no command; did you mean verify?")
        self.assertEqual(
            failure("build", "tiny.onnx", "--presicion=fp8", code=2),
            "tessera: build has no option --presicion; did you mean --precision?",
        )
        self.assertEqual(
            failure("verify", "tiny.tess", "--nonsense", code=2),
            "tessera: verify has no option --nonsense; tessera verify --help lists them",
        )
        self.assertEqual(
            failure("--quiet", "verify", "tiny.tess", code=2),
            "tessera: --quiet comes before the command; write tessera verify --quiet",
        )
        self.assertIn("; did you mean tiny.tess?", failure("verify", "tiny.tes", code=3))
        self.assertIn("; did you mean vit-b-16?", failure("zoo", "vit-b-61", code=2))
        self.assertIn("; did you mean sm90?", failure("kernels", "--arch", "sm9", code=2))
        self.assertIn("; did you mean batch3?", failure("bench", "tiny.tess", "--plan", "bach3", code=2))
        self.assertIn("; build it first: tessera build tiny.onnx", failure("inspect", "tiny.onnx", code=3))

    def test_options_without_effect_are_refused(self):
        refused = [
            (
                ("build", "tiny.onnx", "-o", "x.tess", "--no-verify", "--seed", 3),
                "--seed is about golden values, which --no-verify leaves out",
            ),
            (
                ("build", "tiny.onnx", "-o", "x.tess", "--no-verify", "--golden-samples", 3),
                "--golden-samples is about golden values",
            ),
            (
                ("build", "tiny.tess", "-o", "x.tess"),
                "tiny.tess is an engine, already built; build takes an ONNX model",
            ),
            (
                ("run", "tiny.tess", "-i", "in.npz", "--precision", "fp8"),
                "tiny.tess is an engine, already built: --precision is for ONNX models",
            ),
            (("verify", "tiny.tess", "-i", "in.npz", "--seed", 3), "--seed draws inputs, --inputs brings them"),
            (("verify", "tiny.tess", "--all", "--outputs-only"), "--all shows layers, --outputs-only compares none"),
            (("profile", "tiny.tess", "--chip", "h200", "--trace", "x.json"), "--chip only predicts: leave one out"),
            (("profile", "tiny.tess", "--chip", "h200", "--ceilings", "again"), "--ceilings is about this machine"),
            (("zoo", "--list", "vit-b-16"), "--list writes no model: leave name out"),
            (("zoo", "--list", "-o", "x.onnx"), "--list writes no model: leave --output out"),
        ]
        for words, said in refused:
            self.assertIn(said, failure(*words, code=2))
        self.assertFalse((self.folder / "x.tess").exists())
        for words in (
            ("verify", "tiny.tess", "--all"),
            ("inspect", "tiny.tess", "--plan", "golden"),
            ("inspect", "tiny.tess", "--verbose"),
            ("profile", "tiny.tess", "--all"),
            ("profile", "tiny.tess", "--intensity"),
        ):
            self.assertIn(f"leave {words[2]} out", json.loads(tessera(*words, "--json", code=2).stdout)["error"])

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

    def test_memory_that_runs_out_names_the_place(self):
        def limited(megabytes, *words):
            limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
            return subprocess.run([PROGRAM, *words], capture_output=True, text=True, cwd=self.folder, preexec_fn=limit)

        # What the program takes to start depends on the libraries of its build: the least limit that lets it. The
        # working memory of the plan takes 83 MB more, and its images 94 more than that.
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
        self.assertRegex(
            sentence(done.stderr), r"no memory (for 'image' of|for the working memory of|left at) plan '?batch8000"
        )
        self.assertFalse((self.folder / "huge.tess").exists())

    def test_results_that_cannot_be_written_are_no_success(self):
        for words in (
            ("version",),
            ("--version",),
            ("--help",),
            ("inspect", "tiny.tess"),
            ("inspect", "tiny.tess", "--json"),
            ("kernels", "--json"),
        ):
            with open("/dev/full", "w") as full:
                done = subprocess.run(
                    [PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True, cwd=self.folder
                )
            self.assertEqual(
                (done.returncode, done.stderr), (5, "tessera: the results could not be written to stdout\n"), words
            )

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
        for words in (
            build,
            ("check", "long.onnx"),
            ("inspect", "long.tess"),
            ("inspect", "long.tess", "--verbose"),
            ("verify", "long.tess"),
            ("verify", "long.tess", "--all"),
            ("profile", "long.tess", "--runs", 1, "--ceilings", "none"),
            ("profile", "long.tess", "--runs", 1, "--ceilings", "none", "--intensity", "--all"),
        ):
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
        self.assertIn(
            "no linear layer or attention has such a name; the nearest are 'blocks.0.mlp.fc1'",
            failure(*allow, "blocks.0.mpl.fc1=fp16", code=2),
        )
        self.assertIn(
            "--allow leaves no layer in fp8: ask for --precision fp16 instead", failure(*allow, "*=fp16", code=2)
        )
        # Layers that are refused: options that lead to an engine, ready to be pasted.
        some = (
            "build",
            "tiny.onnx",
            "-o",
            "x.tess",
            "--precision",
            "fp16",
            "--target",
            "cuda",
            "--allow",
            "blocks.*.mlp.*=fp8",
        )
        refused = " ".join(tessera(*some, code=4).stderr.split())
        advised = re.search("to accept another precision:((?: --allow '[^']+')+)", refused).group(1)
        self.assertEqual(shlex.split(advised), ["--allow", "blocks.*.mlp.fc1=fp16", "--allow", "blocks.*.mlp.fc2=fp16"])
        tessera(*some, *shlex.split(advised))
        # Allowing every layer away is no engine in fp8, and pruned layers that are allowed away are none in 2:4.
        refused = failure(*allow[:-1], "--target", "cuda", code=4)
        self.assertIn("another precision runs: --precision fp16 as asked it runs with --target cpu", refused)
        self.assertNotIn("--allow", refused)
        sparse = (
            "build",
            "tiny.onnx",
            "-o",
            "x.tess",
            "--precision",
            "fp8_token",
            "--target",
            "sm90",
            "--sparsity",
            "2:4",
        )
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
            for command in (
                ("run", "stub.tess", "-i", "in.npz"),
                ("build", "stub.tess"),
                ("check", "stub.tess"),
                ("inspect", "stub.tess"),
            ):
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
        self.assertIn(
            "is engine file version 7, written by tessera 0.1.0; this program (tessera 0.1.0) reads versions 1 to 2",
            failure("inspect", "newer.tess", code=3),
        )
        error = json.loads(tessera("inspect", "cut.tess", "--json", code=3).stdout)
        self.assertEqual(error["code"], 3)
        self.assertFalse([p for p in self.folder.iterdir() if p.name.endswith(".new")], "temporary files are left")

    def test_inspect_shows_the_promise(self):
        text = tessera("inspect", "tiny.tess").stdout
        self.expect_narrow(text)
        for words in (
            "precision    fp16",
            "target       cpu",
            "golden       logits [2,10]",
            "batch 3",
            "matmul/cpu",
            "blocks.1.mlp.fc2",
        ):
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
            words = [program, "kernels", "--json"]
            done = subprocess.run(words, capture_output=True, text=True, cwd=folder, env={**environment, **more})
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

        here, there = kernels(PROGRAM, self.folder), kernels(alone / "tessera", alone)
        self.assertEqual(here, there)
        # Receipts of earlier sources count for nothing, but they are there.
        files = (pathlib.Path(__file__).resolve().parent.parent / "bench" / "receipts").glob("*.json")
        self.assertEqual(there["receipts"], {f.stem: len(json.loads(f.read_text())) for f in files})
        self.assertEqual(kernels(alone / "tessera", alone, TESSERA_RECEIPTS_DIR=str(alone))["receipts"], {})

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
        self.assertIn(
            "accepted: tensorrt; did you mean tensorrt?", failure("check", "tiny.onnx", "--for", "tensorr", code=2)
        )
        self.assertIn("is an engine", failure("check", "tiny.tess", code=2))
        self.assertIn("No such file", failure("check", "missing.onnx", code=3))
        (self.folder / "words.onnx").write_text("this is no model")
        failure("check", "words.onnx", code=3)
        self.assertIn("wanted INPUT=N", failure("check", "tiny.onnx", "--shape", "image", code=2))

    def test_demo(self):
        said = json.loads(tessera("demo", "--json").stdout)
        self.assertTrue(said["ok"])
        listed = (pathlib.Path(__file__).parent.parent / "src/types/precisions/precisions.inc").read_text()
        names = re.findall(r"^TS_PRECISION\((\w+),", listed, re.MULTILINE)
        self.assertEqual(names[:4], ["fp32", "fp16", "bf16", "fp8"])
        self.assertEqual([r["precision"] for r in said["rows"]], names)
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
    run_tests()
