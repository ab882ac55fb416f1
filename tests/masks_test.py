#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an attention mask hides must not matter, however the mask is spelt (tests/data/masks). Argument: the folder
with the program."""

import json
import os
import pathlib
import re
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
CASES = np.load(pathlib.Path(__file__).parent / "data" / "masks" / "cases.npz")
NAMES = sorted(name[:-5] for name in CASES.files if name.endswith(".onnx"))
SEEN = CASES["mask"] == 1
PADDED = np.load(pathlib.Path(__file__).parent / "data" / "masks" / "padded.npz")
PADDED_NAMES = sorted(name[:-5] for name in PADDED.files if name.endswith(".onnx"))
F16_FILES = ("half", "half_window", "half_one_node", "capped_half")
BLIND = np.zeros(PADDED["mask"].shape, bool)  # queries that see no key
BLIND[1, :3] = BLIND[2] = True


def distance(got, want):
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


class Masks(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def write_inputs(self, case):
        mask = CASES["mask"]
        if case.startswith("float"):
            mask = np.where(SEEN, 0, np.finfo(np.float32).min).astype(np.float32)
        for name, ids in (("in", "ids"), ("other", "other_ids")):
            np.savez(self.folder / f"{name}.npz", ids=CASES[ids], mask=mask)

    def tessera(self, *words):
        return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=self.folder)

    def build(self, case, *options, cases=CASES, batch=2):
        (self.folder / f"{case}.onnx").write_bytes(cases[f"{case}.onnx"].tobytes())
        done = self.tessera("build", f"{case}.onnx", "-o", "x.tess", "--batch", batch, "--json", *options)
        self.assertEqual(done.returncode, 0, (case, options, done.stderr))
        return json.loads(done.stdout)

    def run_on(self, name):
        done = self.tessera("run", "x.tess", "--inputs", f"{name}.npz", "--outputs", "out.npz")
        self.assertEqual(done.returncode, 0, done.stderr)
        return np.load(self.folder / "out.npz")["hidden"]

    def check(self, case, precision, cosine):
        self.write_inputs(case)
        options = ["--precision", precision] if precision else []
        if precision in ("fp8", "int8", "nvfp4"):
            options += ["--calib", "in.npz"]
        said = self.build(case, *options)
        self.assertEqual(said["padding"], "mask", (case, precision))
        first, second = self.run_on("in"), self.run_on("other")
        self.assertTrue(
            np.array_equal(first[SEEN], second[SEEN]), (case, precision, np.abs(first - second)[SEEN].max())
        )
        want = CASES[f"{case}.out"][SEEN]
        close = float(np.sum(first[SEEN] * want) / np.linalg.norm(first[SEEN]) / np.linalg.norm(want))
        self.assertGreater(close, cosine, (case, precision))

    def test_what_is_hidden_does_not_matter(self):
        for case in NAMES:
            stated = "rounded" in case
            for precision, cosine in (
                ("fp32", 0.999999),
                ("fp16", 0.99999),
                ("fp8", 0.99),
                ("int8", 0.99),
                ("nvfp4", 0.95),
            ):
                with self.subTest(case=case, precision=precision):
                    self.check(case, precision, min(cosine, 0.9999) if stated else cosine)

    def test_plans_for_a_gpu_are_held_to_it_too(self):
        for case in ("rounded_beside_scores_i8", "replaced_billion", "multiplied"):
            self.assertEqual(self.build(case, "--precision", "fp16", "--target", "sm90")["padding"], "mask")

    def check_padded(self, case, precision, most):
        np.savez(self.folder / "in.npz", ids=PADDED["ids"], mask=PADDED["mask"])
        self.build(case, "--precision", precision, "--calib", "in.npz", cases=PADDED, batch=3)
        inspected = json.loads(self.tessera("inspect", "x.tess", "--json").stdout)
        self.assertEqual("attention/" in json.dumps(inspected), not case.startswith("capped"), case)
        got, want = self.run_on("in"), PADDED[f"{case}.out"]
        for rows in (BLIND, ~BLIND):
            self.assertLess(distance(got[rows], want[rows]), most)

    def test_rows_whose_keys_are_all_masked(self):
        """As the model has them node by node in its own type, whether its attention is recognised or not."""
        for case in PADDED_NAMES:
            own = 1e-3 if case in F16_FILES else 2e-6  # the reference rounds every value to f16
            for precision, most in (("fp32", own), ("fp16", 2e-3), ("bf16", 1.5e-2), ("fp8", 0.09)):
                with self.subTest(case=case, precision=precision):
                    self.check_padded(case, precision, most)

    def test_each_kind_of_such_rows_would_be_seen(self):
        """Zeros, the mean and what the scores say are far apart: one in the place of another is no rounding."""
        for prefix in ("", "capped_"):
            zeros, mean, scores = (PADDED[f"{prefix}{name}.out"] for name in ("infinite", "lowest", "half_lowest"))
            for a, b in ((zeros, mean), (mean, zeros), (mean, scores), (scores, mean), (zeros, scores)):
                self.assertGreater(distance(a[BLIND], b[BLIND]), 0.2)
                self.assertLess(distance(a[~BLIND], b[~BLIND]), 1e-5)

    def test_golden_bounds_bind_such_rows(self):
        """Golden inputs with such rows: a bound above the distance of a wrong kernel would let it pass."""
        np.savez(self.folder / "in.npz", ids=PADDED["ids"], mask=PADDED["mask"])
        inputs = ("--calib", "in.npz", "--golden-samples", 3)
        for case in ("lowest", "twice", "billion", "capped_lowest", "capped_billion", "capped_half_lowest"):
            for precision, most in (("fp32", 1e-3), ("fp16", 1e-2)):
                for target in ("cpu", "sm90"):
                    with self.subTest(case=case, precision=precision, target=target):
                        options = ("--precision", precision, "--target", target)
                        self.build(case, *options, *inputs, cases=PADDED, batch=3)
                        text = " ".join(self.tessera("inspect", "x.tess").stdout.split())
                        bounds = [float(x) for x in re.findall(r"relative L2 error of at most ([\d.e+-]+)", text)]
                        self.assertEqual(len(bounds), 2, text)
                        self.assertLess(max(bounds), most)

    def test_it_is_said(self):
        (self.folder / "m.onnx").write_bytes(CASES["lowest.onnx"].tobytes())
        done = self.tessera("build", "m.onnx", "-o", "x.tess", "--batch", "2")
        self.assertIn("padding: what 'mask' hides does not change the outputs", " ".join(done.stdout.split()))


if __name__ == "__main__":
    unittest.main()
