# SPDX-License-Identifier: Apache-2.0
"""TESSERA_LOG: which lines the program and the library print on stderr, as text and as JSON. Argument: the folder with
the program."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "build/release/bin").resolve()
DIGITS = pathlib.Path(__file__).resolve().parent.parent / "assets" / "digits"
LIBRARY = BIN.parent / "lib" / "libtessera.so"
# Opens an engine without golden values, which is a warning, and a file that is none, which is an error.
OPEN = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.tess_engine_open.restype = ctypes.c_void_p
engine = ctypes.c_void_p()
for path in sys.argv[2:]:
    library.tess_engine_open(path.encode(), None, ctypes.byref(engine))
"""


class LogTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.engine = cls.folder / "digits.tess"
        words = ("build", DIGITS / "vit.onnx", "-o", cls.engine, "--precision", "fp32", "--no-verify", "--quiet")
        subprocess.run([str(w) for w in (BIN / "tessera", *words)], check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def stderr(self, log, *words, code=0):
        environment = {k: v for k, v in os.environ.items() if k != "TESSERA_LOG"}
        if log is not None:
            environment["TESSERA_LOG"] = log
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, env=environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr

    def program(self, log, *words):
        return self.stderr(log, BIN / "tessera", "run", self.engine, "--inputs", DIGITS / "test.npz", *words)

    def parsed(self, text):
        lines = [json.loads(line) for line in text.splitlines()]
        for line in lines:
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        return [(line["level"], line.get("code"), self.joined(line["text"])) for line in lines]

    def joined(self, text):
        """Where lines break depends on the folder's name."""
        return text.replace("\n  ", " ")

    def test_the_program(self):
        usual = self.program(None)
        said = ["arrays 'label', 'logits' are read by no input", "the engine holds no golden values"]
        self.assertRegex(self.joined(usual), f"(?s)^tessera: warning: .*{said[0]}.*\ntessera: warning: {said[1]}")
        for log in ("warning", "note"):
            self.assertEqual(self.program(log), usual, log)
        for log in ("error", "none", "error,json", "none,json"):
            self.assertEqual(self.program(log), "", log)
        for log in ("json", "json,warning", "note,json"):
            lines = self.parsed(self.program(log))
            self.assertEqual([line[:2] for line in lines], 2 * [("warning", None)])
            for line, words in zip(lines, said, strict=True):
                self.assertIn(words, line[2])
        self.assertEqual(self.program("note", "--quiet"), "", "what the command line says goes first")
        self.assertIn("TESSERA_LOG: 'loud' is none of", self.program("loud"))
        self.assertIn("the engine holds no golden values", self.program("loud"))

    def test_errors_of_the_program(self):
        words = (BIN / "tessera", "inspect", self.folder / "no.tess")
        usual = self.stderr(None, *words, code=3)
        self.assertRegex(usual, "^tessera: .*no.tess")
        for log in ("none", "error", "note"):
            self.assertEqual(self.stderr(log, *words, code=3), usual, log)
        ((level, code, text),) = self.parsed(self.stderr("error,json", *words, code=3))
        self.assertEqual((level, code), ("error", 3))
        self.assertIn("no.tess", text)

    def test_layers_of_a_refusal(self):
        words = ("build", DIGITS / "vit.onnx", "-o", self.folder / "x.tess", "--precision", "mxfp8", "--target", "sm90")
        done = subprocess.run([BIN / "tessera", *words, "--json"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 4)
        error = json.loads(done.stdout)
        self.assertGreater(len(error["layers"]), 1)
        for layer in error["layers"]:
            self.assertEqual(layer["asked"], "mxfp8" if layer["op"] == "matmul" else "", layer)
            for refusal in layer["refusals"]:
                self.assertIn(f"{refusal['kernel']}: {refusal['reason']}", error["error"])

    @unittest.skipUnless(LIBRARY.exists(), "no libtessera")
    def test_the_library(self):
        words = (sys.executable, "-c", OPEN, LIBRARY, self.engine, self.folder / "no.tess")
        self.assertEqual(self.stderr(None, *words), "", "a program's own stderr is its own")
        self.assertEqual(self.stderr("none", *words), "")
        self.assertRegex(self.stderr("error", *words), r"^tessera: [^\n]*no.tess[^\n]*\n$")
        both = self.stderr("warning", *words)
        self.assertRegex(both, r"^tessera: warning: the engine holds no golden values[^\n]*\ntessera: [^\n]*no.tess")
        lines = self.parsed(self.stderr("note,json", *words))
        self.assertEqual([(level, code) for level, code, _ in lines], [("warning", None), ("error", 3)])

    @unittest.skipUnless(LIBRARY.exists(), "no libtessera")
    def test_a_log_function_gets_its_lines_all_the_same(self):
        source = OPEN.replace(
            "engine = ",
            "said = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p)("
            "lambda level, line, user: print(level, line.decode()))\n"
            "library.tess_set_log(said, None)\nengine = ",
        )
        for log in (None, "note"):
            environment = {**os.environ, **({"TESSERA_LOG": log} if log else {})}
            command = [sys.executable, "-c", source, str(LIBRARY), str(self.engine)]
            done = subprocess.run(command, capture_output=True, text=True, env=environment)
            self.assertRegex(done.stdout, "^1 the engine holds no golden values")
            self.assertEqual(done.stderr != "", log is not None)


if __name__ == "__main__":
    unittest.main()
