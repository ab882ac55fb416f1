# SPDX-License-Identifier: Apache-2.0
"""The program as the tests of the command line call it: commands, sentences, a terminal. Argument of the tests: the
folder with the program."""

import os
import pathlib
import pty
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    print("no numpy: skipped")
    sys.exit(77)

PROGRAM = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "build/release/bin").resolve() / "tessera"


def tessera(*words, code=0):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=CliTest.folder)
    assert done.returncode == code, (
        f"tessera {' '.join(map(str, words))}: exit {done.returncode}, want {code}\n{done.stdout}{done.stderr}"
    )
    return done


def sentence(stderr):
    """One error or warning, whose lines after the first are indented."""
    lines = stderr.splitlines()
    assert lines and lines[0].startswith("tessera: "), stderr
    assert all(line.startswith("  ") for line in lines[1:]), stderr
    assert all(len(line) <= 100 for line in lines), stderr
    return " ".join(line.strip() for line in lines)


def failure(*words, code):
    """The sentence on stderr, without its line breaks; nothing else may be printed."""
    done = tessera(*words, code=code)
    assert done.stdout == "", done.stdout
    return sentence(done.stderr)


def on_terminal(*words, code=0, **more):
    """What a terminal gets from stderr."""
    ours, theirs = pty.openpty()
    environment = {"TERM": "xterm", **{k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}, **more}
    done = subprocess.Popen(
        [PROGRAM, *map(str, words)], stdout=subprocess.DEVNULL, stderr=theirs, cwd=CliTest.folder, env=environment
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    assert done.wait() == code, (done.returncode, seen)
    return seen.decode()


class CliTest(unittest.TestCase):
    """A folder with a small model, its engine and eight images."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        CliTest.folder = pathlib.Path(cls.scratch.name)
        tessera("zoo", "vit-tiny-test", "-o", "tiny.onnx", "--seed", 5)
        tessera("build", "tiny.onnx", "-o", "tiny.tess", "--precision", "fp16", "--batch", "1,3")
        cls.images = np.random.default_rng(8).standard_normal((8, 3, 32, 32)).astype("f4")
        np.savez(CliTest.folder / "in.npz", image=cls.images)

    def expect_narrow(self, text):
        for line in text.splitlines():
            self.assertLessEqual(len(line), 100, line)


def run_tests():
    if not PROGRAM.exists():
        print(f"no {PROGRAM}: skipped")
        sys.exit(77)
    unittest.main(verbosity=1)
