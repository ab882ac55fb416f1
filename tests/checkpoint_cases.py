# SPDX-License-Identifier: Apache-2.0
"""What the tests of checkpoints and policies share: the program in a folder of its own, files of weights, distances.
Arguments of the tests: the folder with the program, and the target (cpu)."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError as missing:
    print(f"{missing}: skipped")
    sys.exit(77)

PROGRAM = os.path.abspath(os.path.join(sys.argv.pop(1), "tessera"))
TARGET = sys.argv.pop(1) if len(sys.argv) > 1 else "cpu"


def distance(got, want):
    return float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want))


def read_safetensors(path):
    file = path.read_bytes()
    (size,) = struct.unpack_from("<Q", file)
    header = json.loads(file[8 : 8 + size])
    header.pop("__metadata__", None)
    out = {}
    for name, t in header.items():
        raw = file[8 + size :][slice(*t["data_offsets"])]
        if t["dtype"] == "F32":
            numbers = np.frombuffer(raw, np.float32)
        else:
            numbers = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        out[name] = numbers.reshape(t["shape"]).astype(np.float64)
    return out


class FolderTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def tessera(self, *words, code=0):
        done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, code, (words, done.stdout, done.stderr))
        return " ".join((done.stdout + done.stderr).split())
