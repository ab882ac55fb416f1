#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the length of files, their SPDX line, and that nothing large is committed."""

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
ASK_WHY, SPLIT = 400, 800  # lines
LARGEST_BYTES = 2_000_000  # history is for ever: larger data is made or fetched
CXX = {".h", ".cc", ".cu", ".cuh", ".inc"}
NEEDS_SPDX = {".h", ".cc", ".cu", ".cuh"}
COUNTED = CXX | {".py"}
SPDX = "// SPDX-License-Identifier: Apache-2.0"
NOT_OURS = {
    ".git",
    ".cache",
    "build",
    "deps_staged",
    "carry",
    "__pycache__",
    ".venv",
}  # .gitignore, for trees without git


def list_files(root):
    """Tracked files and those about to be: a file is judged before it is committed, not after."""
    if shutil.which("git") and (root / ".git").exists():
        command = [
            "git",
            "-C",
            str(root),
            "-c",
            "safe.directory=*",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]
        names = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
        paths = {root / name for name in names if name}
    else:
        paths = {p for p in root.rglob("*") if not NOT_OURS & set(p.relative_to(root).parts)}
    return sorted(p for p in paths if p.is_file() and not p.is_symlink())


def check(root):
    """(complaints, warnings, line count of every source file)"""
    complaints, warnings, lengths = [], [], []
    for path in list_files(root):
        name, size = path.relative_to(root), path.stat().st_size
        if size > LARGEST_BYTES:
            complaints.append(f"{name}: {size / 1e6:.1f} MB; committed files may have {LARGEST_BYTES / 1e6:.0f} MB")
        if path.suffix not in COUNTED:
            continue
        lines = path.read_text(errors="replace").split("\n")
        if lines[-1] == "":
            lines.pop()
        lengths.append(len(lines))
        if len(lines) > SPLIT:
            complaints.append(f"{name}:{SPLIT + 1}: {len(lines)} lines; split what is over {SPLIT}")
        elif len(lines) > ASK_WHY:
            warnings.append(f"{name}: {len(lines)} lines; over {ASK_WHY}, ask why")
        if path.suffix in NEEDS_SPDX and SPDX not in (line.rstrip() for line in lines[:5]):
            complaints.append(f"{name}:1: the first lines must hold `{SPDX}`")
    return complaints, warnings, lengths


def self_test():
    """Plants one violation at a time in a clean tree; each must be caught, with and without git."""
    good = SPDX + "\nint x;\n"
    planted = [  # (file, text, what must be said)
        ("src/long.cc", good + "int y;\n" * 800, "src/long.cc:801: 802 lines"),
        ("src/long.h", good + "int y;\n" * 450, "src/long.h: 452 lines; over 400"),
        ("src/none.h", "int x;\n", "src/none.h:1: the first lines"),
        ("assets/big.bin", "x" * 2_000_001, "assets/big.bin: 2.0 MB"),
    ]
    failures = []
    for with_git in [False, True] if shutil.which("git") else [False]:
        for file, text, want in [("", "", "")] + planted:
            with tempfile.TemporaryDirectory() as scratch:
                # build/ holds what would be blamed if ignored files were read
                tree = {
                    "src/a.cc": good,
                    ".gitignore": "/build/\n",
                    "build/x.h": "\t",
                    **({file: text} if file else {}),
                }
                for name, content in tree.items():
                    Path(scratch, name).parent.mkdir(parents=True, exist_ok=True)
                    Path(scratch, name).write_text(content, newline="")
                if with_git:
                    subprocess.run(["git", "init", "-q", scratch], check=True)
                complaints, warnings, _ = check(Path(scratch))
            said = complaints + warnings
            if not file and said:
                failures.append(f"the clean tree is blamed: {said}")
            if file and not any(re.match(re.escape(want), s) for s in said):
                failures.append(f"planted in {file}: nothing like {want!r} in {said}")
    return failures, len(planted)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=REPO)
    parser.add_argument(
        "--self-test", action="store_true", help="plant violations in a temporary tree; each must be caught"
    )
    options = parser.parse_args()
    if options.self_test:
        complaints, count = self_test()
        done = f"sizes: {count} planted violations caught"
    else:
        complaints, warnings, lengths = check(options.root.resolve())
        for warning in warnings:
            print(f"warning: {warning}")
        done = f"sizes: {len(lengths)} source files, median {statistics.median(lengths) if lengths else 0:.0f} lines"
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    print(f"sizes: {len(complaints)} violations" if complaints else done)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
