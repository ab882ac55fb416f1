# SPDX-License-Identifier: Apache-2.0
"""libtessera as others get it: `cmake --install` into a new folder, then a C99 program by pkg-config and a C++ one out
of tree by find_package, both run. The binary promise: names, layouts of structs, and a program that was built with the
header of the first version. Argument: the folder with the program."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    print("no numpy: skipped")
    sys.exit(77)

REPO = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "build/release/bin").resolve()
DATA = REPO / "tests" / "data" / "library"
DIGITS = REPO / "assets" / "digits"
VERSION = re.search(r"project\(tessera VERSION ([\d.]+)", (REPO / "CMakeLists.txt").read_text())[1]
HEADERS = ("tessera.h", "tessera_build.h")
# What every machine with g++ has; zlib is for checksums of files.
MAY_NEED = r"lib(c|m|stdc\+\+|gcc_s|z|pthread|dl|rt)\.so|ld-linux"


def run(*words, code=0, **more):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, **more)
    assert done.returncode == code, f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def structs_of(header):
    """name -> fields, of every struct that has a body."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
    found = {}
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\}", text, re.S):
        fields = [part for line in body.split(";") for part in line.split(",")]
        found[name] = [re.findall(r"\w+", f)[-1] for f in fields if f.strip()]
    return found


def names_of(path, node):
    return [n for n in path.read_text().split() if n.endswith(f"@@{node}")]


class LibraryTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.prefix = cls.folder / "prefix"
        run("cmake", "--install", BIN.parent, "--prefix", cls.prefix, "--component", "library")
        cls.library = next(cls.prefix.rglob("libtessera.so"))
        cls.environment = {**os.environ, "LD_LIBRARY_PATH": str(cls.library.parent)}
        cls.engine = cls.folder / "digits.tess"
        run(BIN / "tessera", "build", DIGITS / "vit.onnx", "-o", cls.engine, "--precision", "fp8", "--calib",
            DIGITS / "calib.npz", "--batch", "1,8", "--quiet")  # fmt: skip
        with np.load(DIGITS / "test.npz") as arrays:
            cls.images = arrays["image"][:21].astype(np.float32)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def compile_c(self, name, source, *words):
        out = self.folder / name
        run("cc", "-std=c99", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror", "-pedantic", "-o", out,
            source, *words)  # fmt: skip
        return out

    def check_answers(self, program):
        """The C program gives, bit for bit, what the command line does."""
        self.images.tofile(self.folder / "in.f32")
        np.savez(self.folder / "in.npz", image=self.images)
        run(program, self.engine, self.folder / "in.f32", self.folder / "out.f32", env=self.environment)
        run(BIN / "tessera", "run", self.engine, "--inputs", "in.npz", "--outputs", "out.npz", cwd=self.folder)
        with np.load(self.folder / "out.npz") as arrays:
            want = arrays[arrays.files[0]].astype(np.float32)
        got = np.fromfile(self.folder / "out.f32", np.float32).reshape(want.shape)
        self.assertEqual(got.tobytes(), want.tobytes())

    def test_c99_by_pkg_config(self):
        flags = ["-I", self.prefix / "include", "-L", self.library.parent, "-ltessera"]
        if shutil.which("pkg-config"):
            search = {**os.environ, "PKG_CONFIG_PATH": str(self.library.parent / "pkgconfig")}
            flags = run("pkg-config", "--cflags", "--libs", "tessera", env=search).split()
        program = self.compile_c("run_engine", REPO / "examples" / "c" / "run_engine.c", *flags)
        self.check_answers(program)
        done = subprocess.run([program, self.folder / "in.f32", self.folder / "in.f32", "out"], capture_output=True,
                              text=True, env=self.environment)  # fmt: skip
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^run_engine: .+\n$")

    def test_a_program_of_the_first_version_runs(self):
        program = self.compile_c("old", REPO / "examples" / "c" / "run_engine.c", "-I", DATA / "v1", "-L",
                                 self.library.parent, "-ltessera")  # fmt: skip
        self.check_answers(program)

    def test_cpp_out_of_tree(self):
        build = self.folder / "build"
        run("cmake", "-G", "Ninja", "-S", REPO / "examples" / "cpp", "-B", build,
            f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")  # fmt: skip
        run("cmake", "--build", build)
        said = run(build / "control_loop", self.engine, "batch1", 20)
        self.assertIn("20 runs in each of 2 threads, the same 10 numbers", said)
        made = self.folder / "bytes.tess"
        said = run(build / "build_engine", DIGITS / "vit.onnx", made, "image")
        self.assertRegex(said, r"^(.+\n)+plan batch1 takes u8\nplan batch8 takes u8\n$")
        done = subprocess.run(
            [build / "build_engine", DIGITS / "vit.onnx", made, "img"], capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^build_engine: --io img: no input or output is called so")

    def test_which_versions_find_package_takes(self):
        """Below 1.0 a minor version may change tessera.hpp: only its own is taken."""
        major, minor, patch = map(int, VERSION.split("."))
        older, newer = f"{major}.{minor - 1 if minor else 99}", f"{major}.{minor + 1}"
        wanted = {f"{major}.{minor}": 1, VERSION: 1, newer: 0, f"{major + 1}.0": 0, older: 1 if major and minor else 0}
        lines = ["cmake_minimum_required(VERSION 3.25)", "project(t LANGUAGES CXX)"]
        for version in wanted:
            lines += [f"find_package(tessera {version} QUIET)", f'message(STATUS "{version}: ${{tessera_FOUND}}")']
        folder = self.folder / "versions"
        folder.mkdir()
        (folder / "CMakeLists.txt").write_text("\n".join([*lines, ""]))
        said = run("cmake", "-G", "Ninja", "-S", folder, "-B", folder / "b", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        self.assertEqual({v: int(found) for v, found in re.findall(r"-- (\d[\d.]*): ([01])$", said, re.M)}, wanted)

    def configure(self, *words):
        """What CMake says of a tree that it does not take."""
        lean = ("-DTESSERA_CUDA=OFF", "-DTESSERA_BUILD_TESTS=OFF", "-DTESSERA_PYTHON_MODULE=OFF")
        with tempfile.TemporaryDirectory(dir=self.folder) as build:
            command = ("cmake", "-G", "Ninja", "-S", str(REPO), "-B", build, *lean, *words)
            done = subprocess.run(command, capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        return " ".join((done.stdout + done.stderr).split())

    def test_missing_packages_are_named(self):
        said = self.configure("-DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_Protobuf=ON")
        self.assertIn("package names: libprotobuf-dev protobuf-compiler libfmt-dev.", said)

    def test_a_wheel_fetches_its_sources(self):
        """With the Python of the build, into the folder that the build reads; a program that cannot is told so."""
        python, deps = self.folder / "python", self.folder / "deps"
        python.write_text('#!/bin/sh\necho "asked: $*"\nexit 1\n')
        python.chmod(0o755)
        said = self.configure("-DSKBUILD=2", f"-DPython_EXECUTABLE={python}", f"-DTESSERA_DEPS={deps}")
        self.assertIn(f"asked: {REPO / 'tools' / 'fetch_deps.py'} --deps {deps}", said)
        self.assertIn(f"{deps}/highway/hwy/highway.h is missing: run ./run build", said)
        self.assertNotIn("asked:", self.configure(f"-DPython_EXECUTABLE={python}", f"-DTESSERA_DEPS={deps}"))

    def test_the_module_keeps_to_the_limited_api(self):
        """As the wheel for Python 3.12 and newer is compiled. Of an older Python's headers nanobind's own lack
        something: what is looked at are the module's files."""
        found = subprocess.run([sys.executable, "-m", "nanobind", "--include_dir"], capture_output=True, text=True)
        headers = pathlib.Path(sysconfig.get_path("include"))
        if found.returncode != 0 or not (headers / "Python.h").exists():
            self.skipTest("no nanobind or no Python.h")
        folders = ("-I", REPO / "include", "-I", REPO / "apps", "-isystem", found.stdout.strip(), "-isystem", headers)
        planted = self.folder / "planted.cc"
        planted.write_text("#include <nanobind/nanobind.h>\nvoid keep(PyTypeObject* type) { Py_INCREF(type); }\n")
        for source in (planted, *sorted((REPO / "apps" / "python").glob("*.cc"))):
            words = ("c++", "-std=c++20", "-fsyntax-only", "-DPy_LIMITED_API=0x030C0000", *folders, source)
            said = subprocess.run([str(w) for w in words], capture_output=True, text=True).stderr
            faults = [line for line in said.splitlines() if re.match(r"\S*/(apps/python/|planted)\S*: error:", line)]
            self.assertEqual(bool(faults), source == planted, "\n".join(faults))

    def test_the_header_stands_alone(self):
        for compiler, standard in (("cc", "c99"), ("cc", "c11"), ("c++", "c++17"), ("c++", "c++20")):
            name = "tessera_build.hpp" if "++" in standard else "tessera_build.h"
            strict = ("-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic", "-fsyntax-only")
            language = ("-x", "c++" if "++" in standard else "c", f"-std={standard}")
            run(compiler, *language, *strict, "-I", self.prefix / "include", "-", input=f"#include <tessera/{name}>\n")
        run("c++", "-std=c++17", "-fno-exceptions", "-fsyntax-only", "-x", "c++", "-I", self.prefix / "include", "-",
            input="#include <tessera/tessera_build.hpp>\n")  # fmt: skip

    def test_names(self):
        for name in ("tessera", "tessera_build"):
            lines = run("nm", "-D", "--defined-only", self.library.parent / f"lib{name}.so").splitlines()
            names = sorted(w[2] for w in map(str.split, lines) if w[1] != "A")
            self.assertEqual(names, (DATA / f"{name}.symbols.txt").read_text().split())
            declared = re.findall(r"TESS_API [^;]*?(tess_\w+)\(", (REPO / f"include/tessera/{name}.h").read_text())
            self.assertEqual(sorted(declared), sorted(n.split("@@")[0] for n in names))
        first = {n.split("@@")[0] for n in names_of(DATA / "tessera.symbols.txt", "TESSERA_1")}
        old = re.findall(r"TESS_API [^;]*?(tess_\w+)\(", (DATA / "v1/tessera/tessera.h").read_text())
        self.assertEqual(first, set(old), "what came later has a node of its own")

    def test_needs_no_compiler(self):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", self.library))
        self.assertEqual([n for n in needed if not re.match(MAY_NEED, n)], [])
        self.assertIn("[libtessera.so.1]", run("readelf", "-d", self.library))
        inside = run("nm", "-C", BIN.parent / "lib" / "libtessera.so")
        self.assertIn("tessera::require_golden", inside, "no names to look at: this test would say nothing")
        for word in ("google::protobuf", "tessera::load_model", "tessera::build_engine", "tessera::compile("):
            self.assertNotIn(word, inside)

    def test_layouts(self):
        """Sizes and offsets of structs are those that were given away; a field may come at the end of one with a
        size."""
        source = self.folder / "layout.c"
        lines = ["#include <stdio.h>", "#include <tessera/tessera_build.h>", "int main(void) {"]
        structs = {k: v for h in HEADERS for k, v in structs_of(REPO / "include/tessera" / h).items()}
        for struct, fields in structs.items():
            lines.append(f'printf("{struct} %zu\\n", sizeof({struct}));')
            for f in fields:
                lines.append(
                    f'printf("{struct}.{f} %zu %zu\\n", offsetof({struct}, {f}), sizeof((({struct}*)0)->{f}));'
                )
        source.write_text("\n".join([*lines, "return 0; }", ""]))
        now = run(self.compile_c("layout", source, "-I", REPO / "include")).splitlines()
        self.assertEqual(now, (DATA / "layout.txt").read_text().splitlines())

    def test_dlpack(self):
        """Our tensor has the layout of DLPack's, as its document has it."""
        now = dict(line.split(" ", 1) for line in (DATA / "layout.txt").read_text().splitlines())
        want = {"data": "0 8", "device": "8 8", "ndim": "16 4", "dtype": "20 4", "shape": "24 8", "strides": "32 8",
                "byte_offset": "40 8"}  # fmt: skip
        self.assertEqual({f: now[f"tess_tensor.{f}"] for f in want}, want)
        self.assertEqual(now["tess_tensor"], "48")

    def test_manifest(self):
        source = self.folder / "manifest.c"
        source.write_text(
            "#include <stdio.h>\n#include <tessera/tessera.h>\nint main(int c, char** v) {\n"
            "tess_engine* e = 0; const char* json = 0; (void)c;\n"
            "if (tess_engine_open(v[1], 0, &e) || tess_engine_manifest(e, &json)) return 1;\n"
            "puts(json); tess_engine_free(e); return 0; }\n"
        )
        flags = ["-I", self.prefix / "include", "-L", self.library.parent, "-ltessera"]
        program = self.compile_c("manifest", source, *flags)
        manifest = json.loads(run(program, self.engine, env=self.environment))
        self.assertEqual([p["name"] for p in manifest["plans"][:2]], ["batch1", "batch8"])


if __name__ == "__main__":
    unittest.main()
