#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A receipt's hash: whatever can change a variant's results or their verdict changes it, what cannot leaves it
alone."""

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
FLAGS = "-O3 -lineinfo"

# One of each kind of file that matmul/sm90_fp8 or its verdict is made of.
MATTERS = [
    "src/ops/matmul/sm90_fp8.cu",  # the variant
    "src/ops/matmul/sm90_contract.h",  # its contract
    "src/ops/matmul/sm90_gemm_kernel.cuh",  # its launch
    "src/tiles/sm90/gemm_finish.cuh",  # the kernel
    "src/archs/sm90/instructions.cuh",  # its instructions
    "src/op/extra_results.cc",
    "src/steps/row_moments.h",
    "src/steps/row_moments.cc",
    "src/types/e4m3.h",
    "src/types/types.inc",
    "src/types/quantize_array.cc",  # operands of tests
    "src/ir/program.cc",
    "src/ir/steps.inc",
    "src/steps/step.cc",
    "src/steps/functors.h",
    "src/steps/bias.h",  # a step: its functor,
    "src/steps/bias.cc",  # reference and error rule
    "src/steps/gate.cc",  # a step without a functor
    "src/steps/normalise.cc",
    "src/steps/unary.cc",
    "src/op/program_rows.cc",
    "src/archs/cuda/device_memory.cc",
    "src/op/op.cc",
    "src/op/check_problem.cc",  # implements op.h under another name
    "src/op/reference.cc",
    "src/op/errors.cc",
    "src/ops/matmul/reference.cc",
    "src/ops/matmul/errors.cc",  # bounds
    "src/ops/matmul/test.cc",
    "src/ops/matmul/test_problems.h",
    "tests/testing/variant_harness.cc",
    "tests/testing/variant_run.cc",
    "tests/testing/receipts.cc",
]
MATTERS_NOT = [
    "src/ops/matmul/sm90_f16.cu",  # another variant
    "src/ops/matmul/sm90_swapped.cu",
    "src/ops/cpu_products.cc",
    "src/ops/matmul/variants.inc",  # the order of preference
    "src/ops/matmul/bench.cc",
    "src/ops/ops.inc",
    "src/steps/step_test.cc",
    "src/ops/attention/sm90_short.cu",  # another op
    "src/ops/attention/test.cc",
    "src/ops/attention/errors.cc",
    "src/tiles/sm90/swapped.cuh",
    "src/tiles/cpu/bf16.cc",
    "src/plan/make_plan.cc",
    "tests/testing/device_bench.cc",
]


class Receipts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = Path(tempfile.mkdtemp())
        shutil.copytree(REPO / "src", cls.root / "src")
        shutil.copytree(REPO / "tests" / "testing", cls.root / "tests" / "testing")
        cls.before = cls.hashes()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root)

    @classmethod
    def hashes(cls, flags=FLAGS, compiler=""):
        """variant -> hash"""
        out = cls.root / "hashes.cc"
        words = [
            "cmake",
            f"-DROOT={cls.root}",
            f"-DOUT={out}",
            f"-DDEVICE_FLAGS={flags}",
            f"-DDEVICE_COMPILER={compiler}",
        ]
        subprocess.run(
            [*words, "-P", REPO / "cmake" / "hash_variants.cmake"], check=True, capture_output=True, text=True
        )
        return dict(re.findall(r'\{"(\S+)", "(\w+)"\}', out.read_text()))

    def changed(self, *files, more="touched;\n"):
        """Variants with another hash while each of `files` has one more line."""
        texts = {self.root / file: (self.root / file).read_text() for file in files}
        for path, text in texts.items():
            path.write_text(text + more)
        after = self.hashes()
        for path, text in texts.items():
            path.write_text(text)
        self.assertEqual(after.keys(), self.before.keys())
        return {v for v in after if after[v] != self.before[v]}

    def test_every_variant_has_a_hash_of_its_own(self):
        listed = {
            f"{p.parent.name}/{name}"
            for p in (REPO / "src" / "ops").glob("*/variants.inc")
            for name in re.findall(r"^TS_VARIANT\((\w+)\)", p.read_text(), re.M)
        }
        self.assertEqual(self.before.keys(), listed)
        self.assertEqual(len(set(self.before.values())), len(listed))

    def test_what_matters_changes_the_hash(self):
        for file in MATTERS:
            with self.subTest(file):
                self.assertIn("matmul/sm90_fp8", self.changed(file))

    def test_what_does_not_matter_leaves_it_alone(self):
        if "matmul/sm90_fp8" not in self.changed(*MATTERS_NOT):
            return
        for file in MATTERS_NOT:  # which one it is
            with self.subTest(file):
                self.assertNotIn("matmul/sm90_fp8", self.changed(file))
        self.fail("several of MATTERS_NOT together change the hash")

    def test_comments_and_format_do_not_matter(self):
        for more in ("// touched\n", "  // a line\n\n\n// and another: x = 1;\n", "\n   \t\n"):
            self.assertEqual(self.changed("src/op/reference.cc", more=more), set())
        self.assertNotEqual(self.changed("src/op/reference.cc", more="int x = 4 / 2;  // two\n"), set())

    def test_a_kernel_is_its_own_affair(self):
        self.assertEqual(self.changed("src/ops/attention/sm90_short.cu"), {"attention/sm90_short"})
        self.assertEqual(self.changed("src/ops/softmax/test.cc"), {"softmax/cuda", "softmax/cpu"})

    def test_flags_matter_and_the_compiler_stands_elsewhere(self):
        self.assertTrue(all(h != self.before[v] for v, h in self.hashes(flags=FLAGS + " --use_fast_math").items()))
        self.assertEqual(self.hashes(compiler="nvcc 13.0.88, ptxas 13.0.88"), self.before)
        self.assertIn('return "nvcc 13.0.88, ptxas 13.0.88"', (self.root / "hashes.cc").read_text())

    def test_files_may_move(self):
        moves = [
            ("src/tiles/sm90/gemm_finish.cuh", "src/tiles/sm90/epilogue.cuh"),
            ("src/ops/matmul/errors.cc", "src/ops/matmul/error_rules.cc"),
            ("src/steps/row_moments.cc", "src/steps/moments_of_rows.cc"),
            ("src/ops/matmul/resident_test.cc", "src/ops/matmul/kept_test.cc"),
        ]
        names = {str(Path(*Path(a).parts[1:])): str(Path(*Path(b).parts[1:])) for a, b in moves}
        sources = [p for p in (self.root / "src").rglob("*") if p.suffix in (".h", ".cuh", ".cc", ".cu")]
        texts = {p: p.read_text() for p in sources}
        for path, text in texts.items():
            for a, b in names.items():
                text = text.replace(f'#include "{a}"', f'#include "{b}"')
            path.write_text(text)
        for a, b in moves:
            (self.root / a).rename(self.root / b)
        after = self.hashes()
        for a, b in moves:
            (self.root / b).rename(self.root / a)
        for path, text in texts.items():
            path.write_text(text)
        self.assertEqual(after, self.before)


if __name__ == "__main__":
    if shutil.which("cmake") is None:
        print("skipped: no cmake on PATH")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
