#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the form of sources and scripts. Parts:

  lines          no line over 120 columns, no tab, no blanks at a line's end
  clang-format   .h, .cc, .cu and .cuh files are as clang-format 14 writes them (.clang-format)
  ruff           Python files are as ruff writes them, and its lint is quiet (ruff.toml)

Formatters differ from version to version, so both are pinned (third_party/requirements.txt) and come from .cache/venv;
one in PATH serves where its version is the right one. `--fix` lets them change the files. Exit code 77: nothing is
wrong, but a part was skipped, for its formatter is not here."""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from check_sizes import list_files

REPO = Path(__file__).resolve().parent.parent
COLUMNS = 120
FORMATTED = {".h", ".cc", ".cu", ".cuh"}
SOURCES = FORMATTED | {".inc", ".py", ".cmake"}
NOT_OURS = ("tests/data/", "third_party/")  # written by the tools of others, or lists of hashes
# name: the version that is wanted, as --version shows it
VERSIONS = {"clang-format": r"\b14\.\d+\.\d+", "ruff": r"\b0\.17\.5\b"}
# Files that may have longer lines. The list may only shrink: an entry that is not needed is a violation.
LONG_LINES = set()
# Python files that ruff may find fault with; the same holds.
NOT_RUFF = set()


class Missing(Exception):
    """A formatter that is not here."""


def is_shell(path):
    if path.suffix or path.stat().st_size > 1_000_000:
        return False
    return re.match(rb"#!.*\b(ba)?sh\n", path.read_bytes()[:100]) is not None


def files(root, wanted):
    """Names of the files that are ours and wanted."""
    names = ((path, str(path.relative_to(root))) for path in list_files(root))
    return [name for path, name in names if not name.startswith(NOT_OURS) and wanted(path)]


def find_tool(name):
    for tool in (REPO / ".cache/venv/bin" / name, shutil.which(name)):
        if not tool or not Path(tool).exists():
            continue
        said = subprocess.run([tool, "--version"], capture_output=True, text=True)
        if said.returncode == 0 and re.search(VERSIONS[name], said.stdout):
            return str(tool)
    raise Missing(f"{name} of the wanted version is neither in .cache/venv (./run build installs it) nor in PATH")


def check_lines(root, exceptions, fix):
    complaints, used = [], set()
    wanted = files(root, lambda p: p.suffix in SOURCES or p.name == "CMakeLists.txt" or is_shell(p))
    for name in wanted:
        # bytes: read_text would hide a carriage return
        for number, line in enumerate((root / name).read_bytes().decode(errors="replace").split("\n"), 1):
            if len(line) > COLUMNS:
                used.add(name)
                if name not in exceptions:
                    complaints.append(f"{name}:{number}: {len(line)} columns; a line may have {COLUMNS}")
            if "\t" in line:
                complaints.append(f"{name}:{number}: tab; indent with spaces (in a string, write \\t)")
            if line != line.rstrip():
                complaints.append(f"{name}:{number}: blanks or a carriage return at the end of the line")
    for name in sorted(exceptions - used):
        complaints.append(f"{name}: has no line over {COLUMNS} columns (any more); take it off LONG_LINES")
    return complaints, f"{len(wanted)} files"


def check_clang_format(root, exceptions, fix):
    tool = find_tool("clang-format")
    wanted = files(root, lambda p: p.suffix in FORMATTED)
    complaints = []
    for first in range(0, len(wanted), 100):
        words = ["-i"] if fix else ["--dry-run", "-Werror"]
        command = [tool, "--style=file", *words, *wanted[first : first + 100]]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True)
        places = re.findall(r"^(.+?:\d+):\d+: error: code should be clang-formatted", done.stderr, re.M)
        first_of_file = {place.rsplit(":", 1)[0]: place for place in reversed(places)}
        complaints += [f"{place}: not as clang-format writes it" for place in first_of_file.values()]
        if done.returncode != 0 and not places:
            complaints.append(f"clang-format failed: {done.stderr.strip()[:500]}")
    return sorted(complaints), f"{len(wanted)} files"


def ruff_complaints(tool, root, names, fix):
    complaints = []
    for part, words in {"format": [] if fix else ["--check"], "check": ["--fix"] if fix else []}.items():
        command = [tool, part, "--no-cache", "--force-exclude", "--output-format", "concise", *words, *names]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True)
        said = (done.stdout + done.stderr).strip().splitlines()
        if done.returncode != 0:
            found = [re.sub(r": unformatted: .*", ": not as ruff writes it", line) for line in said]
            complaints += [line for line in found if re.match(r"[\w./-]+\.py:", line)] or said
    return complaints


def check_ruff(root, exceptions, fix):
    tool = find_tool("ruff")
    names = files(root, lambda p: p.suffix == ".py")
    complaints = ruff_complaints(tool, root, [n for n in names if n not in exceptions], fix) if names else []
    for name in sorted(exceptions):
        if name not in names or not ruff_complaints(tool, root, [name], False):
            complaints.append(f"{name}: ruff finds no fault (any more); take it off NOT_RUFF")
    return complaints, f"{len(names)} files"


PARTS = {
    "lines": (check_lines, LONG_LINES),
    "clang-format": (check_clang_format, set()),
    "ruff": (check_ruff, NOT_RUFF),
}
SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
PLANTED = [  # (part, file, text, files that are excepted, what must be said)
    ("lines", "src/long.cc", SPDX + "// " + "x" * 118 + "\n", (), "src/long.cc:2: 121 columns"),
    ("lines", "src/long.inc", "X(" + "1" * 119 + ")\n", (), "src/long.inc:1: 122 columns"),
    ("lines", "tools/long.py", "#" * 121 + "\n", (), "tools/long.py:1: 121 columns"),
    ("lines", "cmake/long.cmake", "#" * 121 + "\n", (), "cmake/long.cmake:1: 121 columns"),
    ("lines", "a/CMakeLists.txt", "#" * 121 + "\n", (), "a/CMakeLists.txt:1: 121 columns"),
    ("lines", "go", "#!/usr/bin/env bash\n" + "#" * 121 + "\n", (), "go:2: 121 columns"),
    ("lines", "src/tab.cc", SPDX + "\tint y;\n", (), "src/tab.cc:2: tab"),
    ("lines", "src/blank.cu", SPDX + "int y; \n", (), "src/blank.cu:2: blanks"),
    ("lines", "src/crlf.inc", "X(1)\r\n", (), "src/crlf.inc:1: blanks"),
    ("lines", "src/short.cc", SPDX, ("src/short.cc",), "src/short.cc: has no line over 120"),
    ("clang-format", "src/loose.cc", SPDX + "int  y;\n", (), "src/loose.cc:2: not as clang-format"),
    ("clang-format", "src/loose.cu", SPDX + "void f( int a ){ }\n", (), "src/loose.cu:2: not as clang-format"),
    ("ruff", "tools/loose.py", "x = {'a' : 1}\n", (), "tools/loose.py:1:6: not as ruff"),
    ("ruff", "tools/unused.py", "import os\n", (), "tools/unused.py:1:8: F401"),
    ("ruff", "tools/fine.py", "x = 1\n", ("tools/fine.py",), "tools/fine.py: ruff finds no fault"),
]


def self_test(parts):
    """Plants one violation at a time in a clean tree; each must be caught, and nothing else be said."""
    failures, count = [], 0
    for part in parts:
        for _, file, text, excepted, want in [("", "", "", (), "")] + [p for p in PLANTED if p[0] == part]:
            with tempfile.TemporaryDirectory() as scratch:
                tree = {"src/a.cc": SPDX + "int x;\n", "tools/a.py": "x = 1\n", "build/x.cc": "\tint  x; \n"}
                tree |= {"tests/data/x.py": "x  = 1 " + "#" * 121 + "\n", **({file: text} if file else {})}
                for name, content in tree.items():
                    Path(scratch, name).parent.mkdir(parents=True, exist_ok=True)
                    Path(scratch, name).write_text(content, newline="")
                for name in (".clang-format", "ruff.toml"):
                    shutil.copy(REPO / name, scratch)
                said, _ = PARTS[part][0](Path(scratch), set(excepted), False)
            if not file and said:
                failures.append(f"{part}: the clean tree is blamed: {said}")
            if file:
                count += 1
                if len(said) != 1 or not said[0].startswith(want):
                    failures.append(f"planted in {file}: want {want!r} alone, got {said}")
    return failures, f"{count} planted violations caught"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all of them by default")
    parser.add_argument("--self-test", action="store_true", help="plant violations in a temporary tree")
    parser.add_argument("--fix", action="store_true", help="let the formatters change the files")
    options = parser.parse_args()
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"no part {part}: {', '.join(PARTS)}")
    worst = 0
    for part in options.parts or PARTS:
        function, exceptions = PARTS[part]
        try:
            complaints, done = self_test([part]) if options.self_test else function(REPO, exceptions, options.fix)
        except Missing as missing:
            print(f"format, {part}: skipped; {missing}")
            worst = worst or 77
            continue
        for complaint in complaints:
            print(complaint, file=sys.stderr)
        print(f"format, {part}: {f'{len(complaints)} violations' if complaints else done}")
        if complaints:
            worst = 1
    return worst


if __name__ == "__main__":
    sys.exit(main())
