#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantized ONNX models in every form (tests/data/quantized) through the program: all of them build for the CPU and
give what the file computes; on Hopper those build whose types it multiplies, the others are refused by layer.

python3 tests/quantized_files_test.py FOLDER_OF_PROGRAMS"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    sys.exit(77)

PROGRAM = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "build/release/bin").resolve() / "tessera"
CASES = np.load(pathlib.Path(__file__).parent / "data" / "quantized" / "cases.npz")
NAMES = sorted(name.removesuffix(".onnx") for name in CASES.files if name.endswith(".onnx"))
# Types that wgmma does not multiply, or not yet: of the name's first part, or whole names.
NOT_ON_HOPPER = ("e2m1", "e5m2", "i4", "mxfp8", "nbits", "nvfp4", "u4", "attention_e5m2", "attention_i8")
NOT_ON_HOPPER += (
    "attention_native_e5m2",
    "attention_other_scale",
    "attention_small_scale",
    "e4m3_rounded_at_build",
    "u8_",
)
# Weights of nvfp4 whose inputs have 16 bits.
FOUR_BIT_WEIGHTS = ("nvfp4_qdq_op", "nvfp4_weight", "nvfp4_weight_kn")


class QuantizedFiles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        for name in NAMES:
            (cls.folder / f"{name}.onnx").write_bytes(CASES[f"{name}.onnx"].tobytes())

    def tessera(self, *words):
        return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=self.folder)

    def test_every_form_builds_for_the_cpu_and_gives_what_the_file_computes(self):
        for name in NAMES:
            with self.subTest(name):
                done = self.tessera("build", f"{name}.onnx", "-o", "q.tess", "--quiet")
                self.assertEqual(done.returncode, 0, done.stderr)
                inputs = {"xyw"[i]: CASES[f"{name}.in{i}"] for i in range(3) if f"{name}.in{i}" in CASES.files}
                np.savez(self.folder / "in.npz", **inputs)
                done = self.tessera("run", "q.tess", "-i", "in.npz", "-o", "out.npz")
                self.assertEqual(done.returncode, 0, done.stderr)
                want, got = CASES[f"{name}.out0"], np.load(self.folder / "out.npz")["z"]
                # Numbers between layers are f16; attention rounds probabilities in its own way.
                error = np.linalg.norm(got - want) / np.linalg.norm(want)
                self.assertLess(error, 0.05 if name.startswith("attention") else 2e-3)

    def test_hopper_builds_what_it_multiplies_and_names_the_rest(self):
        for name in NAMES:
            with self.subTest(name):
                done = self.tessera("build", f"{name}.onnx", "-o", "q.tess", "--target", "sm90", "--quiet")
                refused = name == "attention_native" or name.startswith(NOT_ON_HOPPER)
                if refused and name not in FOUR_BIT_WEIGHTS:
                    self.assertEqual(done.returncode, 4, done.stderr)
                    self.assertIn("cannot run as asked on sm90", " ".join(done.stderr.split()))
                elif name != "table":
                    self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
