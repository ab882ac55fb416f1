# SPDX-License-Identifier: Apache-2.0
"""The types of the Python package: mypy --strict on it and on a program that uses it, and the stubs against the modules
that were built (mypy's stubtest). Skipped where the module was not built or mypy is missing. Argument: the folder with
the program."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "build/release/bin").resolve()
PACKAGE = BIN.parent / "python" / "tessera"
if not list(PACKAGE.glob("_tessera_build.*so")):
    print("no Python module: skipped")
    sys.exit(77)
if importlib.util.find_spec("mypy") is None:
    print("no mypy: skipped")
    sys.exit(77)

PROGRAM = """
import pathlib
import tessera

tessera.build("a.onnx", pathlib.Path("a.tess"), batch=[1, 8], shape=["x=1,2"], io="x=u8", random=None, seed=0,
              min_cosine=0.5, refine=("smooth", "clip"), progress=lambda what, done, total: None)
engine: tessera.Engine = tessera.load(b"", check_constants=True)
shape: list[int] = engine.inputs("batch8", graph="main")[0].shape
size: int = engine.memory(graph="main").arena_bytes
context: tessera.Context = engine.context(graph="main", device="cuda:0", threads=1, state=engine.state())
session: tessera.Session = engine.session(plans={"main": "batch8"})
session.use({"main": "batch1"})
answers = engine.run({"x": [1.0]}, threads=2, device=0)
rows: list[tuple[str, str, str, str]] = engine.table("batch8", graph="main")
try:
    pass
except tessera.RefusedError as error:
    names: list[str] = [layer.layer for layer in error.layers]
"""


class TypesTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder, self.packages = pathlib.Path(scratch.name), PACKAGE.parent

    def mypy(self, *words):
        done = subprocess.run(
            [sys.executable, "-m", *map(str, words)],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, "MYPYPATH": str(self.packages), "PYTHONPATH": str(self.packages)},
        )
        return done.returncode, done.stdout + done.stderr

    def test_the_package_is_strict(self):
        code, said = self.mypy("mypy", "--strict", PACKAGE)
        self.assertEqual(code, 0, said)

    def test_a_program_that_uses_it(self):
        path = self.folder / "program.py"
        path.write_text(PROGRAM)
        code, said = self.mypy("mypy", "--strict", path)
        self.assertEqual(code, 0, said)
        for right, wrong in (
            ('io="x=u8"', "io=3"),
            ("seed=0", 'seed="0"'),
            ('use({"main": "batch1"})', 'use(["main"])'),
            ("threads=2", "thread=2"),
        ):
            text = PROGRAM.replace(right, wrong)
            self.assertNotEqual(text, PROGRAM)
            path.write_text(text)
            code, said = self.mypy("mypy", "--strict", path)
            self.assertEqual(code, 1, f"{wrong}: {said}")

    def strays(self):
        """What stubtest finds, but for what it says of everything that nanobind makes: functions and classes that are
        none of Python's own kind."""
        modules = ("tessera._tessera", "tessera._tessera_build")
        code, said = self.mypy("mypy.stubtest", *modules)
        self.assertIn(f"checked {len(modules)} modules", said)
        usual = r"is not a function$|metaclass differs$|is a disjoint base|__init__ is inconsistent, stub does not have"
        found = [line for line in said.splitlines() if line.startswith("error: ")]
        return [line for line in found if not re.search(usual, line)]

    def test_stubs_are_those_of_the_modules(self):
        self.assertEqual(self.strays(), [])
        self.packages = self.folder / "planted"
        shutil.copytree(PACKAGE, self.packages / "tessera", ignore=shutil.ignore_patterns("*.so"))
        for module in PACKAGE.glob("*.so"):
            (self.packages / "tessera" / module.name).symlink_to(module)
        stub = self.packages / "tessera" / "_tessera.pyi"
        text = stub.read_text()
        stub.write_text(text.replace("    def use(", "    def uses(").replace("def reads_numpy(", "def read_numpy("))
        self.assertEqual(len(self.strays()), 4, "two names that are not there, two that are not said")


if __name__ == "__main__":
    unittest.main()
