#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the files of a release: the source as a tarball, the wheel, NOTICE with the licences of what is compiled in or
bundled, which the wheel has inside too, CHANGES.md with the changelog's entry, and SHA256SUMS over all of them.

    python3 tools/release.py OUT             # checks, then makes; OUT is a new or empty folder
    python3 tools/release.py OUT --dry-run   # checks, says what would be made, and writes nothing
    python3 tools/release.py OUT --only source,notice
    python3 tools/release.py OUT --tag       # when all is made: the commit's tag v<version>, with the entry as its text

A licence text that is not found, and a missing auditwheel, which bundles the libraries, end it; --allow-missing makes
the files all the same, and says what they lack. It checks that the version is one, that the changelog has an entry with
a date for it, that no tag of that name exists and that the tree is clean. The same commit gives the same tarball, byte
for byte. A wheel of more than 15 MB ends it. Nothing is uploaded or pushed, and nothing tagged without --tag."""

import argparse
import base64
import gzip
import hashlib
import importlib.metadata
import io
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
PARTS = ("source", "wheel", "notice", "changes")
MOST_WHEEL_MB = 15  # of a wheel with sm90's kernels; indexes and users' links have limits of their own
# System packages whose code is part of the program or is linked with it; docs/dependencies.md has the reasons.
PACKAGES = (
    "libprotobuf-dev", "libcli11-dev", "nlohmann-json3-dev", "libfmt-dev", "zlib1g-dev", "libjpeg62-turbo-dev",
    "libpng-dev", "libsqlite3-dev",
)  # fmt: skip


def run(*words, root, **more):
    done = subprocess.run([str(w) for w in words], cwd=root, capture_output=True, **more)
    if done.returncode != 0:
        raise SystemExit(f"release: {words[0]} failed:\n{done.stdout.decode()}{done.stderr.decode()}")
    return done.stdout


def version_of(root):
    found = re.search(r"project\(tessera VERSION (\d+\.\d+\.\d+)[ )]", (root / "CMakeLists.txt").read_text())
    return found.group(1) if found else None


def entry_of(root, version):
    """(what stands behind the version in its heading, the text below) or None."""
    found = re.search(
        rf"^## {re.escape(version)}\b(.*)\n((?:(?!## ).*\n?)*)", (root / "CHANGELOG.md").read_text(), re.M
    )
    return found and (found.group(1), found.group(2).strip())


def complaints(root):
    """What stands against a release of this tree."""
    said = []
    version = version_of(root)
    if version is None:
        return ["CMakeLists.txt: no `project(tessera VERSION x.y.z`"]
    entry = entry_of(root, version)
    if entry is None:
        said.append(f"CHANGELOG.md: no entry `## {version}`")
    elif not re.fullmatch(r" \(\d{4}-\d\d-\d\d\)", entry[0]):
        said.append(f"CHANGELOG.md: the entry is `## {version}{entry[0]}`, wanted `## {version} (YYYY-MM-DD)`")
    elif not entry[1]:
        said.append(f"CHANGELOG.md: the entry `## {version}` says nothing")
    if run("git", "status", "--porcelain", root=root):
        said.append("the tree is not clean: a release is a commit")
    if run("git", "tag", "--list", f"v{version}", root=root).strip():
        said.append(f"there is a tag v{version} already: raise the version in CMakeLists.txt")
    header = root / "include/tessera/tessera.h"
    map_of = root / "src/library/tessera.map"
    if header.exists() and map_of.exists():
        abi = re.search(r"#define TESS_ABI_VERSION (\d+)", header.read_text()).group(1)
        if f"TESSERA_{abi} {{" not in map_of.read_text():
            said.append(f"tessera.h has ABI version {abi}, and tessera.map no node TESSERA_{abi}")
    return said


def source(root, out, version):
    """The tracked files of HEAD; times are those of the commit."""
    archive = run("git", "archive", "--format=tar", f"--prefix=tessera-{version}/", "HEAD", root=root)
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as file:
        file.write(archive)
    path = out / f"tessera-{version}.tar.gz"
    path.write_bytes(packed.getvalue())
    return [path]


def has_auditwheel():
    try:
        import auditwheel  # noqa: F401
    except ImportError:
        return False
    return True


def wheel(root, out, version):
    """With auditwheel the libraries that it needs go into it."""
    raw = out / "raw"
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", raw, ".", root=root)
    made = list(raw.glob(f"tessera-{version}-*.whl"))
    if len(made) != 1:
        raise SystemExit(f"release: pip made {[p.name for p in raw.iterdir()]}, wanted one wheel of {version}")
    if has_auditwheel():
        run(sys.executable, "-m", "auditwheel", "repair", "-w", out, made[0], root=root)
        made[0].unlink()
        final = next(out.glob(f"tessera-{version}-*.whl"))
    else:
        final = out / made[0].name
        made[0].rename(final)
    raw.rmdir()
    add_notice(final, notice_text(root, version))
    check_size(final)
    return [final]


def check_size(path):
    if (size := path.stat().st_size / 1e6) > MOST_WHEEL_MB:
        raise SystemExit(f"release: {path.name} has {size:.1f} MB, and a wheel at most {MOST_WHEEL_MB}")


def add_notice(path, text):
    """NOTICE among the licences of a wheel: the file, its line in METADATA and in RECORD."""
    with zipfile.ZipFile(path) as old:
        members = [(info, old.read(info)) for info in old.infolist()]
    folder = next(i.filename.split("/")[0] for i, _ in members if i.filename.endswith(".dist-info/RECORD"))
    added = zipfile.ZipInfo(f"{folder}/licenses/NOTICE", members[0][0].date_time)
    added.external_attr, added.compress_type = 0o100644 << 16, zipfile.ZIP_DEFLATED
    kept = [(i, data) for i, data in members if i.filename not in (added.filename, f"{folder}/RECORD")]
    record = next(i for i, _ in members if i.filename == f"{folder}/RECORD")
    lines, final = [], []
    for info, data in [*kept, (added, text.encode())]:
        if info.filename == f"{folder}/METADATA":
            head, blank, body = data.decode().partition("\n\n")
            if "License-File: NOTICE" not in head.splitlines():
                head += "\nLicense-File: NOTICE"
            data = (head + blank + body).encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        if not info.is_dir():
            lines.append(f"{info.filename},sha256={digest},{len(data)}\n")
        final.append((info, data))
    final.append((record, "".join([*lines, f"{record.filename},,\n"]).encode()))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for info, data in final:
            new.writestr(info, data)


def cuda_folder():
    """Of the toolkit that a build would find; None where there is none."""
    nvcc = shutil.which("nvcc")
    folders = (os.environ.get("CUDA_PATH"), nvcc and Path(nvcc).resolve().parent.parent, "/usr/local/cuda")
    return next((Path(f) for f in folders if f and (Path(f) / "include").is_dir()), None)


def cudart_licence(cuda):
    """The terms of libcudart_static, which is linked in; None where they are not found."""
    packages = Path("/usr/share/doc").glob("cuda-cudart-*/copyright")
    wheels = cuda.glob("dist-info/nvidia_cuda_runtime*/licenses/*")
    for path in (cuda / "EULA.txt", cuda / "LICENSE", *sorted(wheels), *sorted(packages)):
        if path.is_file():
            return path.read_text(errors="replace")
    return None


def robin_map_licence(files):
    """It comes with nanobind as headers, whose first comment is their licence."""
    for f in files:
        if f.name == "robin_map.h" and (comment := re.match(r"/\*\*?\n(.*?)\*/", f.read_text(), re.S)):
            return re.sub(r"^ \* ?", "", comment.group(1), flags=re.M)
    return None


def licences(root):
    """(what, text) of everything that is compiled into the program, and what could not be found."""
    found, missing = [], []
    for path in sorted((root / ".cache" / "deps").glob("*/LICENSE")):
        found.append((path.parent.name, path.read_text(errors="replace")))
    for name in ("highway", "onnx"):
        if name not in [n for n, _ in found]:
            missing.append(f"{name}: its sources are not fetched (./run build, tools/fetch_deps.py)")
    try:
        files = importlib.metadata.files("nanobind") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    texts = [f.read_text() for f in files if f.name == "LICENSE"]
    found += [("nanobind", t) for t in texts[:1]]
    if not texts:
        missing.append("nanobind: not installed in this Python")
    if robin_map := robin_map_licence(files):
        found.append(("robin_map", robin_map))
    else:
        missing.append("robin_map: this Python's nanobind has no robin_map.h with a licence")
    if cuda := cuda_folder():
        if cudart := cudart_licence(cuda):
            found.append(("cudart", cudart))
        else:
            missing.append(f"cudart: no licence in {cuda}")
    for package in PACKAGES:
        path = Path("/usr/share/doc") / package / "copyright"
        if path.exists():
            found.append((package, path.read_text(errors="replace")))
        else:
            missing.append(f"{package}: no {path}")
    return found, missing


def notice_text(root, version):
    parts = [f"Tessera {version}\n\nThis product contains code of the following projects, under these terms.\n"]
    for what, text in licences(root)[0]:
        parts.append(f"\n{'=' * 80}\n{what}\n{'=' * 80}\n\n{text.strip()}\n")
    return "".join(parts)


def notice(root, out, version):
    path = out / "NOTICE"
    path.write_text(notice_text(root, version))
    return [path]


def changes(root, out, version):
    heading, text = entry_of(root, version)
    path = out / "CHANGES.md"
    path.write_text(f"# Tessera {version}{heading}\n\n{text}\n")
    return [path]


def tag(root, version):
    """Of HEAD, annotated; git's own lines are no comments here, since headings begin with their sign."""
    text = f"Tessera {version}\n\n{entry_of(root, version)[1]}\n"
    run("git", "tag", "--annotate", "--cleanup=verbatim", "--file=-", f"v{version}", root=root, input=text.encode())
    return f"v{version}"


def lacks(root, parts):
    """What these parts could not have in them here."""
    said = []
    if "wheel" in parts or "notice" in parts:
        said += [f"NOTICE lacks {m}" for m in licences(root)[1]]
    if "wheel" in parts and not has_auditwheel():
        said.append("no auditwheel: the wheel would be for machines with this one's libraries (pip install auditwheel)")
    return said


def checksums(out, files):
    lines = [f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}\n" for f in sorted(files)]
    (out / "SHA256SUMS").write_text("".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="check only, and say what would be made")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--tag", action="store_true", help="of all parts: tag the commit when they are made")
    parser.add_argument("--allow-missing", action="store_true", help="without licence texts or auditwheel: say so only")
    parser.add_argument("--root", type=Path, default=REPO, help=argparse.SUPPRESS)  # for the test
    o = parser.parse_args()
    parts = o.only.split(",")
    if unknown := [p for p in parts if p not in PARTS]:
        parser.error(f"--only {unknown[0]}: some of {','.join(PARTS)}, with commas")
    if o.tag and (o.allow_missing or set(parts) != set(PARTS)):
        parser.error("--tag is for a whole release: leave --only and --allow-missing out")
    root, out = o.root.resolve(), o.out.resolve()
    said = complaints(root)
    missing = lacks(root, parts)
    if o.allow_missing:
        for m in missing:
            print(f"release: {m}")
    elif missing:
        said += [*missing, "--allow-missing makes the files all the same"]
    if out.exists() and any(out.iterdir()):
        said.append(f"{o.out} is not empty: give a new folder")
    for s in said:
        print(f"release: {s}", file=sys.stderr)
    version = version_of(root)
    if o.dry_run:
        names = {"source": f"tessera-{version}.tar.gz", "wheel": f"tessera-{version}-*.whl", "notice": "NOTICE"}
        names["changes"] = "CHANGES.md"
        last = f"SHA256SUMS, and the tag v{version}" if o.tag else "SHA256SUMS"
        print(f"would make in {o.out}: {', '.join(names[p] for p in PARTS if p in parts)}, {last}")
    if said:
        return 1
    if o.dry_run:
        return 0
    out.mkdir(parents=True, exist_ok=True)
    files = []
    for part in PARTS:
        if part in parts:
            made_by = {"source": source, "wheel": wheel, "notice": notice, "changes": changes}
            files += made_by[part](root, out, version)
    checksums(out, files)
    print(f"{o.out}: {', '.join(f.name for f in files)}, SHA256SUMS")
    if o.tag:
        print(f"tagged {tag(root, version)}; `git push origin v{version}` publishes it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
