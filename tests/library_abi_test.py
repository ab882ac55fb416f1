# SPDX-License-Identifier: Apache-2.0
"""The binary interface, held by libabigail against the committed files: functions, their versions, and every type that
they reach. A shared library of empty functions is compiled from the headers and the version scripts, with debug
information, which the real one does not have; library_install_test.py holds the names of the real one. Skipped where
abidw and abidiff (Debian: abigail-tools) are missing, and on other machines than x86_64.

    python3 tests/library_abi_test.py --write    # after functions were added: writes the committed files
"""

import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

REPO = pathlib.Path(__file__).resolve().parent.parent
DATA = REPO / "tests" / "data" / "library"
LIBRARIES = {"tessera": "src/library/tessera.map", "tessera_build": "src/library_build/tessera_build.map"}
INCOMPATIBLE = 8  # a bit of abidiff's exit code
CHANGED = 4

if not (shutil.which("abidw") and shutil.which("abidiff") and shutil.which("cc")):
    print("no abidw, abidiff or cc: skipped")
    sys.exit(77)
if platform.machine() != "x86_64":
    print(f"the committed files are of x86_64, this is {platform.machine()}: skipped")
    sys.exit(77)


def empty_functions(name, header):
    """C that defines every function of a header."""
    text = re.sub(r"/\*.*?\*/|^#.*?$", "", header, flags=re.S | re.M)
    lines = [f"#include <tessera/{name}.h>"]
    for result, declared in re.findall(r"TESS_API\s+([^;(]*?)(tess_\w+\([^;]*\));", text):
        lines.append(f"{result} {declared} {{ {'' if result.strip() == 'void' else 'return 0;'} }}")
    return "\n".join(lines) + "\n"


def library(folder, name, header=None, version_script=None):
    """A library of empty functions with the types of a header."""
    include = folder / "include" / "tessera"
    shutil.copytree(REPO / "include" / "tessera", include, dirs_exist_ok=True)
    if header is not None:
        (include / f"{name}.h").write_text(header)
    script = folder / f"{name}.map"
    script.write_text(version_script or (REPO / LIBRARIES[name]).read_text())
    source = folder / f"{name}.c"
    source.write_text(empty_functions(name, (include / f"{name}.h").read_text()))
    out = folder / f"lib{name}.so"
    link = (f"-Wl,--version-script={script}", f"-Wl,-soname,lib{name}.so.1")
    words = ("-std=c99", "-g", "-fPIC", "-shared", f"-ffile-prefix-map={folder}=.", "-I", "include", *link)
    subprocess.run(["cc", *words, "-o", out.name, source.name], check=True, cwd=folder)
    return out


def abi(folder, name):
    out = folder / f"{name}.abi"
    words = ("--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--type-id-style", "hash")
    subprocess.run(["abidw", *words, "--out-file", out, library(folder, name)], check=True)
    return out.read_text()


def difference(name, built):
    done = subprocess.run(["abidiff", DATA / f"{name}.abi", built], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


class AbiTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)

    def test_it_is_what_was_given_away(self):
        for name in LIBRARIES:
            code, said = difference(name, library(self.folder, name))
            self.assertEqual(code, 0, f"{said}\nwhere only something was added: {__file__} --write")

    def changed(self, old, new):
        header = (REPO / "include/tessera/tessera.h").read_text()
        self.assertIn(old, header)
        return difference("tessera", library(self.folder, "tessera", header.replace(old, new, 1)))

    def test_what_would_break_a_program_is_seen(self):
        for old, new in (
            ("  int64_t batch;\n", "  int32_t batch;\n"),
            ("  int32_t device;    /* of a CUDA plan */\n", ""),
            (
                "tess_status_code(const tess_status* status)",
                "tess_status_code(const tess_status* status, int32_t more)",
            ),
            ("TESS_API int32_t tess_status_code", "TESS_API int64_t tess_status_code"),
        ):
            code, said = self.changed(old, new)
            self.assertTrue(code & CHANGED, f"{old!r} -> {new!r}: {said}")

    def test_a_function_that_is_gone_is_seen(self):
        script = (REPO / LIBRARIES["tessera"]).read_text().replace(" tess_cancel;", "")
        code, said = difference("tessera", library(self.folder, "tessera", version_script=script))
        self.assertTrue(code & INCOMPATIBLE, said)
        self.assertIn("tess_cancel", said)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        with tempfile.TemporaryDirectory() as scratch:
            for library_name in LIBRARIES:
                (DATA / f"{library_name}.abi").write_text(abi(pathlib.Path(scratch), library_name))
        sys.exit(0)
    unittest.main(argv=sys.argv[:1])
