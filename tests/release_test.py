# SPDX-License-Identifier: Apache-2.0
"""tools/release.py: what it turns away, what it makes, and that a dry run writes nothing. On a small tree of its own,
and dry on this one."""

import base64
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import unittest.mock
import zipfile

REPO = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "tools"))
import release as script  # noqa: E402

if shutil.which("git") is None:
    print("no git: skipped")
    sys.exit(77)


class ReleaseTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.tree = pathlib.Path(self.scratch.name) / "tree"
        self.out = pathlib.Path(self.scratch.name) / "out"
        self.tree.mkdir()
        self.write("CMakeLists.txt", "project(tessera VERSION 1.2.3 LANGUAGES CXX)\n")
        self.write("CHANGELOG.md", "# Changelog\n\n## 1.2.3 (2026-11-19)\n\n- A thing.\n")
        self.git("init", "-q")
        self.commit()

    def write(self, name, text):
        (self.tree / name).write_text(text)

    def git(self, *words):
        who = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *words], cwd=self.tree, check=True, capture_output=True)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x")

    def release(self, *words, root=None):
        command = [sys.executable, REPO / "tools/release.py", self.out, "--root", root or self.tree, *words]
        return subprocess.run([str(w) for w in command], capture_output=True, text=True)

    def turned_away(self, why):
        done = self.release("--dry-run")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stderr, why)
        self.assertEqual(self.release("--only", "source").returncode, 1)
        self.assertFalse(self.out.exists())

    def test_a_dry_run_writes_nothing(self):
        done = self.release("--dry-run", "--allow-missing")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("tessera-1.2.3.tar.gz, tessera-1.2.3-*.whl, NOTICE, CHANGES.md, SHA256SUMS", done.stdout)
        self.assertFalse(self.out.exists())

    def test_what_is_made(self):
        self.assertEqual(self.release("--only", "source,notice", "--allow-missing").returncode, 0)
        self.assertEqual(sorted(p.name for p in self.out.iterdir()), ["NOTICE", "SHA256SUMS", "tessera-1.2.3.tar.gz"])
        with tarfile.open(self.out / "tessera-1.2.3.tar.gz") as tar:
            names = [m.name for m in tar.getmembers() if m.isfile()]
        self.assertEqual(sorted(names), ["tessera-1.2.3/CHANGELOG.md", "tessera-1.2.3/CMakeLists.txt"])
        for line in (self.out / "SHA256SUMS").read_text().splitlines():
            digest, name = line.split("  ")
            self.assertEqual(hashlib.sha256((self.out / name).read_bytes()).hexdigest(), digest)
        first = (self.out / "tessera-1.2.3.tar.gz").read_bytes()
        self.assertEqual(self.release("--only", "source").returncode, 1, "the folder is not empty")
        shutil.rmtree(self.out)
        self.assertEqual(self.release("--only", "source").returncode, 0)
        self.assertEqual((self.out / "tessera-1.2.3.tar.gz").read_bytes(), first, "the same commit, other bytes")

    def test_the_changelogs_entry(self):
        self.write("CHANGELOG.md", "# Changelog\n\n## 1.2.3 (2026-11-19)\n\n- A thing.\n\n# Not a heading of ours\n\n"
                   "## 1.2.2 (2026-10-01)\n\n- An old thing.\n")  # fmt: skip
        self.commit()
        self.assertEqual(self.release("--only", "changes").returncode, 0)
        text = (self.out / "CHANGES.md").read_text()
        self.assertEqual(text, "# Tessera 1.2.3 (2026-11-19)\n\n- A thing.\n\n# Not a heading of ours\n")
        self.git("config", "user.name", "t")
        self.git("config", "user.email", "t@t")
        self.assertEqual(script.tag(self.tree, "1.2.3"), "v1.2.3")
        show = ("git", "for-each-ref", "--format=%(objecttype) %(*objectname) %(contents)", "refs/tags/v1.2.3")
        said = subprocess.run(show, cwd=self.tree, check=True, capture_output=True, text=True).stdout
        head = subprocess.run(("git", "rev-parse", "HEAD"), cwd=self.tree, check=True, capture_output=True, text=True)
        self.assertTrue(said.startswith(f"tag {head.stdout.strip()} Tessera 1.2.3\n\n- A thing.\n"), said)
        self.assertIn("# Not a heading of ours", said)
        self.assertNotIn("old", said)
        shutil.rmtree(self.out)
        self.turned_away("there is a tag v1.2.3 already")
        self.write("CHANGELOG.md", "# Changelog\n\n## 1.2.3 (2026-11-19)\n\n## 1.2.2 (2026-10-01)\n\n- An old thing.\n")
        self.commit()
        self.turned_away("the entry `## 1.2.3` says nothing")

    def test_a_tag_is_of_a_whole_release(self):
        for words in (("--only", "source"), ("--allow-missing",)):
            done = self.release("--tag", *words)
            self.assertEqual(done.returncode, 2)
            self.assertIn("--tag is for a whole release", done.stderr)

    def test_a_wheel_that_is_too_large(self):
        path = pathlib.Path(self.scratch.name) / "t-1-py3-none-any.whl"
        path.write_bytes(bytes(15_000_000))
        script.check_size(path)
        path.write_bytes(bytes(15_200_000))
        with self.assertRaisesRegex(SystemExit, r"t-1-py3-none-any.whl has 15.2 MB, and a wheel at most 15"):
            script.check_size(path)

    def test_what_is_missing_ends_it(self):
        """The small tree has fetched nothing, so that highway's licence is not there."""
        for parts in ("notice", "wheel", "source,notice"):
            done = self.release("--only", parts)
            self.assertEqual(done.returncode, 1, parts)
            self.assertIn("NOTICE lacks highway: its sources are not fetched", done.stderr)
            self.assertFalse(self.out.exists())
        deps = self.tree / ".cache" / "deps"
        for name in ("highway", "onnx"):
            (deps / name).mkdir(parents=True)
            (deps / name / "LICENSE").write_text(f"terms of {name}\n")
        self.write(".gitignore", ".cache\n")
        self.commit()
        self.assertNotIn("highway", self.release("--only", "notice", "--dry-run").stderr)
        done = self.release("--only", "notice", "--allow-missing")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("terms of highway", (self.out / "NOTICE").read_text())

    @unittest.skipUnless(script.has_auditwheel() is False, "auditwheel is here")
    def test_a_wheel_without_auditwheel(self):
        self.assertIn("no auditwheel", self.release("--only", "wheel").stderr)

    def test_what_a_cuda_build_links(self):
        """The toolkit's terms, from where it has them; without them something is missing."""
        cuda = pathlib.Path(self.scratch.name) / "cuda"
        (cuda / "include").mkdir(parents=True)
        for terms in (None, "dist-info/nvidia_cuda_runtime-13.0.dist-info/licenses/License.txt", "EULA.txt"):
            if terms:
                (cuda / terms).parent.mkdir(parents=True, exist_ok=True)
                (cuda / terms).write_text(f"terms in {terms}")
            with unittest.mock.patch.dict(os.environ, CUDA_PATH=str(cuda)):
                found, missing = script.licences(self.tree)
            self.assertEqual(dict(found).get("cudart"), terms and f"terms in {terms}")
            self.assertEqual([m for m in missing if "cudart" in m], [] if terms else [f"cudart: no licence in {cuda}"])

    def test_robin_map_is_named(self):
        found, missing = script.licences(self.tree)
        if any("nanobind: not installed" in m for m in missing):
            self.skipTest("no nanobind")
        self.assertRegex(dict(found)["robin_map"], r"^MIT License\n\nCopyright \(c\) 2017 .*\n")

    def test_the_wheel_has_the_notice(self):
        """Among its licences, in METADATA and in RECORD, whose sums are right."""
        path, folder = pathlib.Path(self.scratch.name) / "t-1-py3-none-any.whl", "t-1.dist-info"
        files = {"t.py": "x = 1\n", f"{folder}/METADATA": "Name: t\nLicense-File: LICENSE\n\nWords.\n",
                 f"{folder}/licenses/LICENSE": "terms\n", f"{folder}/RECORD": "t.py,,\n"}  # fmt: skip
        with zipfile.ZipFile(path, "w") as whole:
            for name, text in files.items():
                whole.writestr(name, text)
        for text in ("first", "second"):
            script.add_notice(path, text)
        with zipfile.ZipFile(path) as whole:
            names = whole.namelist()
            self.assertEqual(sorted(names), sorted([*files, f"{folder}/licenses/NOTICE"]))
            self.assertEqual(whole.read(f"{folder}/licenses/NOTICE"), b"second")
            metadata = whole.read(f"{folder}/METADATA").decode()
            self.assertEqual(metadata, "Name: t\nLicense-File: LICENSE\nLicense-File: NOTICE\n\nWords.\n")
            record = [line.split(",") for line in whole.read(f"{folder}/RECORD").decode().splitlines()]
            self.assertEqual(sorted(name for name, *_ in record), sorted(names))
            for name, digest, size in record[:-1]:
                data = whole.read(name)
                want = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                self.assertEqual((digest, size), (f"sha256={want}", str(len(data))), name)

    def test_no_date(self):
        self.write("CHANGELOG.md", "# Changelog\n\n## 1.2.3 (unreleased)\n")
        self.commit()
        self.turned_away(r"`## 1.2.3 \(unreleased\)`, wanted `## 1.2.3 \(YYYY-MM-DD\)`")

    def test_no_entry(self):
        self.write("CMakeLists.txt", "project(tessera VERSION 1.2.4 LANGUAGES CXX)\n")
        self.commit()
        self.turned_away("no entry `## 1.2.4`")

    def test_no_version(self):
        self.write("CMakeLists.txt", "project(tessera)\n")
        self.commit()
        self.turned_away("no `project")

    def test_a_tree_that_is_not_clean(self):
        self.write("more.txt", "x")
        self.turned_away("not clean")

    def test_a_tag_that_exists(self):
        self.git("tag", "v1.2.3")
        self.turned_away("there is a tag v1.2.3 already")

    def test_abi_and_map_agree(self):
        (self.tree / "include/tessera").mkdir(parents=True)
        (self.tree / "src/library").mkdir(parents=True)
        self.write("include/tessera/tessera.h", "#define TESS_ABI_VERSION 2\n")
        self.write("src/library/tessera.map", "TESSERA_1 {\n};\n")
        self.commit()
        self.turned_away("no node TESSERA_2")

    @unittest.skipUnless(
        subprocess.run(["git", "-C", REPO, "rev-parse", "HEAD"], capture_output=True).returncode == 0,
        "a tree without git",
    )
    def test_this_tree(self):
        """Whatever else is said of it today, its version and its entry are found."""
        done = self.release("--dry-run", root=REPO)
        self.assertRegex(done.stdout, r"tessera-\d+\.\d+\.\d+\.tar\.gz")
        self.assertNotRegex(done.stderr, "no entry|no `project|no node")
        self.assertFalse(self.out.exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
