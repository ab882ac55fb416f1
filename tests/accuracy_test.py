#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/accuracy.py with a stand-in for the program: the worst sample beside the mean, runs, rows that are measured
again, tables that are kept."""

import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    print("no numpy: skipped")
    sys.exit(77)

TOOL = pathlib.Path(__file__).resolve().parent.parent / "tools/accuracy.py"
# Logits are the fp32 ones but for the first sample, which is off by as much as noise.txt says.
PROGRAM = """#!{python}
import sys, numpy as np
words = sys.argv[1:]
after = lambda flag: words[words.index(flag) + 1]
open("calls.txt", "a").write(" ".join(words) + "\\n")
if words[0] == "build":
    if open("broken.txt").read() == "yes":
        sys.exit("tessera: cannot")
    open(after("-o"), "w").write("engine")
else:
    want = np.load("data/test.npz")["logits"].copy()
    want[0] += float(open("noise.txt").read()) * np.arange(10)
    np.savez(after("--outputs"), logits=want)
"""


class Accuracy(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "data").mkdir()
        images = np.zeros((6, 32, 32, 3), np.uint8)
        logits = np.random.default_rng(3).standard_normal((6, 10)).astype("f4")
        (self.folder / "data/vit.onnx").write_text("model")
        np.savez(self.folder / "data/calib.npz", image=images)
        np.savez(self.folder / "data/test.npz", image=images, label=logits.argmax(1), logits=logits)
        program = self.folder / "program"
        program.write_text(PROGRAM.format(python=sys.executable))
        program.chmod(program.stat().st_mode | stat.S_IEXEC)
        self.say(noise="1", broken="no")
        (self.folder / "page.md").write_text(
            "# Accuracy\n\nProse.\n\n<!-- measured -->\n\n## CIFAR-10 ViT\n\nold\n\n## all-MiniLM-L6-v2\n\n| kept |\n"
        )

    def say(self, **words):
        for name, word in words.items():
            (self.folder / f"{name}.txt").write_text(word)

    def measure(self, commit, *words, code=0):
        done = subprocess.run(
            [sys.executable, str(TOOL), "--data", "data", "--json", "a.json", "--out", "page.md", *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env=os.environ | {"TESSERA_PROGRAM": "./program", "TESSERA_COMMIT": commit},
        )
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads((self.folder / "a.json").read_text()), (self.folder / "page.md").read_text()

    def test_rows(self):
        record, page = self.measure("aaa", "--only", "fp1*")
        row = record["rows"][0]
        self.assertEqual(row["options"], "--precision fp16")
        self.assertLess(row["cosine_worst"], row["cosine"])
        self.assertAlmostEqual(row["cosine"], (5 + row["cosine_worst"]) / 6, places=6)
        self.assertIn(f"| fp16 | {row['cosine']:.5f} | {row['cosine_worst']:.4f} |", page)
        self.assertIn("| precision | mean cosine | worst cosine |", page)
        self.assertEqual(record["runs"][row["run"]]["commit"], "aaa")
        self.assertIn("commit aaa", page)
        self.assertTrue(page.startswith("# Accuracy\n\nProse.\n"))
        self.assertIn("| kept |", page)
        self.assertNotIn("\nold\n", page)

        self.say(noise="0.5")
        again, _ = self.measure("bbb", "--only", "fp1*")
        self.assertEqual(again["rows"], record["rows"], "what is known is not measured again")
        again, page = self.measure("bbb", "--only", "none|fp16", "--again")
        rows = {r["options"]: r for r in again["rows"]}
        self.assertEqual(len(rows), len(record["rows"]))
        self.assertGreater(rows["--precision fp16"]["cosine_worst"], row["cosine_worst"])
        self.assertEqual(
            {o: again["runs"][r["run"]]["commit"] for o, r in rows.items()},
            {o: "bbb" if o == "--precision fp16" else "aaa" for o in rows},
        )
        self.assertIn("commit bbb", page)
        self.assertIn("commit aaa", page)

        self.say(broken="yes")
        failed, page = self.measure("ccc", "--only", "fp16", "--again", code=1)
        self.assertEqual(
            [r["error"] for r in failed["rows"] if r["options"] == "--precision fp16"],
            ["exit 1: tessera: cannot"],
            "no figure is left of a row that fails",
        )
        self.assertIn("| fp16 | exit 1: tessera: cannot |", page)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]  # the folder of programs: none is needed
    unittest.main()
