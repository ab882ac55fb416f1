#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels chosen by a table of times, as the command line shows it: without a GPU, with a made-up table. Argument:
the folder with the program."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(os.path.join(sys.argv.pop(1), "tessera"))


def tessera(*words, code=0):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=Tuning.folder)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done


def failure(*words, code):
    done = tessera(*words, code=code)
    assert done.stdout == "", done.stdout
    return " ".join(done.stderr.split())


class Tuning(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        Tuning.folder = pathlib.Path(cls.scratch.name)
        tessera("zoo", "vit-tiny-test", "-o", "tiny.onnx")
        cls.build = ["build", "tiny.onnx", "--target", "sm90", "--precision", "fp16", "--batch", 64]
        tessera(*cls.build, "-o", "order.tess", "--tuning", "none")
        cls.problems = json.loads(tessera("inspect", "order.tess", "--tuning", "--json").stdout)["problems"]
        # Every candidate takes longer than the one after it: the last of each list wins.
        entries = {
            p["problem"]: [
                {"variant": c["variant"], "config": c["config"], "us": 50.25 - i} for i, c in enumerate(p["candidates"])
            ]
            for p in cls.problems
        }
        cls.table = {"tessera": "tuning 1", "gpu": "NVIDIA Nothing", "arch": "sm90", "entries": entries}
        cls.write(cls.table, "table.json")
        tessera(*cls.build, "-o", "tuned.tess", "--tuning", "table.json")

    @classmethod
    def write(cls, table, name):
        (Tuning.folder / name).write_text(json.dumps(table))

    def test_the_fastest_is_taken_and_shown(self):
        self.assertGreater(len(self.problems), 3)
        shown = json.loads(tessera("inspect", "tuned.tess", "--tuning", "--table", "table.json", "--json").stdout)
        self.assertEqual(shown["tuned_by"], shown["table"])
        self.assertEqual(shown["gpu"], "NVIDIA Nothing")
        for before, now in zip(self.problems, shown["problems"]):
            self.assertEqual(now["problem"], before["problem"])
            first = now["candidates"][0]
            self.assertTrue(first["chosen"], now)
            self.assertEqual(
                (first["variant"], first["config"]),
                (before["candidates"][-1]["variant"], before["candidates"][-1]["config"]),
            )
            self.assertEqual(sum(c["chosen"] for c in now["candidates"]), 1)
        text = tessera("inspect", "tuned.tess", "--tuning", "--table", "table.json").stdout
        self.assertIn("the plan was tuned by it", text)
        self.assertIn("chosen", text)
        self.assertTrue(all(len(line) <= 100 for line in text.splitlines()), text)

    def test_the_engine_keeps_the_choice_and_the_hash_but_no_time(self):
        text = tessera("inspect", "tuned.tess", "--json").stdout
        manifest = json.loads(text)
        plan = manifest["plans"][0]
        self.assertRegex(plan["tuning"], "^[0-9a-f]{16}$")
        self.assertNotIn("50.25", text)
        self.assertNotIn("49.25", text)
        reasons = {r["reason"] for s in plan["steps"] for r in s["refusals"]}
        self.assertIn("slower, as the tuning table has it", reasons)
        self.assertNotIn("tuning", json.loads(tessera("inspect", "order.tess", "--json").stdout)["plans"][0])
        self.assertIn("tuned by table " + plan["tuning"], " ".join(tessera("inspect", "tuned.tess").stdout.split()))
        # With the table at hand the reason is said in numbers.
        verbose = tessera("inspect", "tuned.tess", "--verbose", "--table", "table.json").stdout
        self.assertIn("slower: 50.2 us against 48.2", verbose)
        self.assertNotIn("slower: ", tessera("inspect", "tuned.tess", "--verbose").stdout)

    def test_builds_are_reproducible(self):
        tessera(*self.build, "-o", "again.tess", "--tuning", "table.json")
        self.assertEqual((self.folder / "again.tess").read_bytes(), (self.folder / "tuned.tess").read_bytes())

    def test_what_the_table_lacks_goes_by_the_order(self):
        self.write(self.table | {"entries": {}}, "empty.json")
        tessera(*self.build, "-o", "empty.tess", "--tuning", "empty.json")
        self.assertEqual((self.folder / "empty.tess").read_bytes(), (self.folder / "order.tess").read_bytes())
        strange = {k: [{"variant": "matmul/unheard_of", "config": "", "us": 1}] for k in self.table["entries"]}
        self.write(self.table | {"entries": strange}, "strange.json")
        said = tessera(*self.build, "-o", "strange.tess", "--tuning", "strange.json").stderr
        self.assertIn(
            f"strange.json: {len(strange)} of its {len(strange)} times are of kernels that this program does not "
            "have, such as 'matmul/unheard_of'",
            said,
        )
        self.assertEqual((self.folder / "strange.tess").read_bytes(), (self.folder / "order.tess").read_bytes())
        self.assertNotIn("warning", tessera(*self.build, "-o", "again.tess", "--tuning", "table.json").stderr)

    def test_kernels_that_do_not_exist_are_marked(self):
        key = next(p["problem"] for p in self.problems if " matmul " in p["problem"])
        real = self.table["entries"][key]
        tiles = [
            {"variant": real[0]["variant"], "config": "9x9", "us": 1},
            {"variant": "matmul/unheard_of", "config": "", "us": 2},
        ]
        self.write(self.table | {"entries": {key: real + tiles}}, "tiles.json")
        said = tessera(*self.build, "-o", "tiles.tess", "--tuning", "tiles.json").stderr
        self.assertIn(
            "has 1 time for plan batch64 of kernels that do not run its layers with such a tile, such as "
            f"'{real[0]['variant']} 9x9' for layer",
            said,
        )
        shown = json.loads(tessera("inspect", "tiles.tess", "--tuning", "--table", "tiles.json", "--json").stdout)
        for problem in shown["problems"]:
            unknown = [(c["variant"], c["config"]) for c in problem["candidates"] if not c["known"]]
            self.assertEqual(unknown, [(t["variant"], t["config"]) for t in tiles] if problem["problem"] == key else [])
        text = tessera("inspect", "tiles.tess", "--tuning", "--table", "tiles.json").stdout
        self.assertEqual(text.count("no kernel here"), 2, text)

    def test_a_table_of_something_else_is_named(self):
        self.write(self.table | {"arch": "cuda"}, "cuda.json")
        for words in ("--tuning", "--verbose"):
            said = failure("inspect", "tuned.tess", words, "--table", "cuda.json", code=3)
            self.assertIn("cuda.json: holds times of cuda, the engine is for sm90", said)
        said = " ".join(tessera("inspect", "order.tess", "--verbose", "--table", "table.json").stdout.split())
        self.assertRegex(
            said,
            "plan batch64: tuning table [0-9a-f]{16} of NVIDIA Nothing: the plan was made without measured times, by "
            "the order of the lists and by tile shapes' cost models; [0-9]+ of [0-9]+ problems with a choice measured$",
        )

    def test_tune_measures_once_or_says_why_not(self):
        words = [PROGRAM, *map(str, self.build[:-1]), "8,64", "--tune", "-o", "x.tess"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=self.folder)
        if done.returncode == 5:
            self.assertIn("which is not here", " ".join(done.stderr.split()))
            self.assertFalse((self.folder / "tuning.json").exists())
            return
        self.assertEqual(done.returncode, 0, done.stderr)
        first = (self.folder / "tuning.json").read_text()
        self.assertGreaterEqual(len(json.loads(first)["entries"]), len(self.problems))
        engine = (self.folder / "x.tess").read_bytes()
        again = subprocess.run(words, capture_output=True, text=True, cwd=self.folder)
        self.assertIn(" 0 candidates timed now", " ".join(again.stderr.split()))
        self.assertEqual((self.folder / "tuning.json").read_text(), first)
        self.assertEqual((self.folder / "x.tess").read_bytes(), engine)
        tessera(*words[1:-3], "-o", "y.tess", "--tuning", "tuning.json")
        self.assertEqual((self.folder / "y.tess").read_bytes(), engine)
        shown = json.loads(tessera("inspect", "x.tess", "--tuning", "--table", "tuning.json", "--json").stdout)
        for problem in shown["problems"]:
            self.assertTrue(problem["candidates"][0]["chosen"], problem)

    def test_sentences(self):
        self.assertIn("--tune is about kernels of GPUs", failure("build", "tiny.onnx", "--tune", code=2))
        self.assertIn(
            "--tuning is about kernels of GPUs", failure("build", "tiny.onnx", "--tuning", "table.json", code=2)
        )
        self.assertIn("leaves no place", failure(*self.build, "--tune", "--tuning", "none", code=2))
        self.assertIn("missing.json", failure(*self.build, "--tuning", "missing.json", code=3))
        (self.folder / "broken.json").write_text('{"tessera": "tuning 1"}')
        self.assertIn("broken.json: 'gpu' is missing", failure(*self.build, "--tuning", "broken.json", code=3))
        self.write(self.table | {"arch": "cuda"}, "cuda.json")
        self.assertIn("holds times of cuda, the target is sm90", failure(*self.build, "--tuning", "cuda.json", code=3))
        self.assertIn("give both", failure("inspect", "tuned.tess", "--table", "table.json", code=2))
        self.assertIn("leave --verbose out", failure("inspect", "tuned.tess", "--tuning", "--verbose", code=2))
        self.assertIn("chosen by their order", failure("inspect", "tuned.tess", "--tuning", "--plan", "golden", code=2))


if __name__ == "__main__":
    unittest.main()
