#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that includes point downwards: an order that is not checked is lost.

src/LAYERS gives each room (folder of src/, and apps/) a level. A file may include lower levels and its own room. A
subfolder is an island: no two folders may include each other, at any depth, directly or around a circle. In the shelves
(ops, models, archs) a subfolder may include itself and the headers in the shelf's root, not its siblings. No room holds
more than MOST_FILES files.
Tests and benches are free, but nothing else may include them. Includes are written relative to src: "base/status.h".
An include by macro is judged by the path inside it, #include TS_FILE(ops/TS_OP_FOLDER/variants.inc): it must show one.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
SHELVES = {"ops", "models", "archs"}
MOST_FILES = 36  # in one folder, tests and lists included: about 30, and room for the next few
SOURCES = {".h", ".cc", ".cu", ".cuh", ".inc"}
INCLUDE = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')
INCLUDE_BY_MACRO = re.compile(r"\s*#\s*include\s+([A-Za-z_]\w*.*)")
PATH = re.compile(r"\w+(?:/\w+)*/[\w.]+")
TEST = re.compile(r"(test|bench)(ing|s|_.*)?|.*_(test|bench)")


def read_layers(path):
    """room -> level, and the complaints about the file itself."""
    levels, complaints = {}, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if len(words) != 2 or not words[1].isdigit():
            complaints.append(f"{path}:{number}: want `room level`")
        elif words[0] in levels:
            complaints.append(f"{path}:{number}: room {words[0]} is listed twice")
        else:
            levels[words[0]] = int(words[1])
    return levels, complaints


def is_test(path):
    return TEST.fullmatch(path.stem) is not None


class Tree:
    def __init__(self, root, levels):
        self.root, self.src, self.levels = root, root / "src", levels

    def files(self):
        for top in (self.src, self.root / "apps"):
            for path in sorted(top.rglob("*")):
                if path.suffix in SOURCES and path.is_file():
                    yield path

    def place(self, path):
        """A file's path as an include would write it: relative to src, or with apps/ in front."""
        return path.relative_to(self.src if self.src in path.parents else self.root)

    def target_of(self, includer, name, quote):
        """(the included file as place() writes it or None for another library's header, complaint or None)"""
        name = Path(name)
        if (self.src / name).is_file() or (name.parts[0] == "apps" and (self.root / name).is_file()):
            return name, None if quote == '"' else f'our own headers take quotes: #include "{name}"'
        if (self.root / "apps" / name).is_file():
            return Path("apps") / name, None  # apps/ is an include root for its own files: "cli/commands.h"
        if (self.root / "tests" / name).is_file():
            return None, f"tests/{name} serves tests; only tests and benches may include it"
        if quote == "<":
            return None, None
        beside = includer.parent / name
        if beside.is_file():
            if (self.root / "apps") in includer.parents and ".." not in name.parts:
                return self.place(beside), None
            inside = self.src in beside.resolve().parents
            return None, (
                f'write it relative to src: #include "{self.place(beside.resolve())}"'
                if inside
                else "src may not reach into other folders of the repository"
            )
        if len(name.parts) > 1 and name.parts[0] in self.levels:
            return name, None  # a header yet to be written still shows its direction
        return None, None

    def target_of_macro(self, text):
        """The same of what stands behind #include where that is a macro; a part of the path may be a macro too."""
        path = PATH.search(text)
        if path is None:
            return None, "an include by macro must show its path: #include TS_FILE(room/TS_FOLDER/list.inc)"
        name = Path(path[0])
        return (name if name.parts[0] in self.levels else None), None

    def rule_broken(self, includer, target):
        """Why this include is not allowed, or None."""
        own, other = includer.parts[0], target.parts[0]
        if is_test(target):
            return f"{target} belongs to a test or bench; only tests and benches may include it"
        if own != other:
            if self.levels[other] < self.levels[own]:
                return None
            lower = [r for r in self.levels if self.levels[r] < self.levels[own]]
            lower.sort(key=lambda r: (self.levels[r], r))
            return (
                f"{own} (level {self.levels[own]}) may not include {other} (level {self.levels[other]}); "
                f"allowed: {own} itself{' and ' + ', '.join(lower) if lower else ''}"
            )
        inside = own in SHELVES and len(includer.parts) > 2 and len(target.parts) > 2
        if inside and includer.parts[1] != target.parts[1]:
            return (
                f"{own}/{includer.parts[1]} may not include its sibling {own}/{target.parts[1]}; allowed: "
                f"{own}/{includer.parts[1]}/, headers in {own}/ itself, lower rooms "
                "(shared code belongs in one of these)"
            )
        return None


def find_cycle(edges):
    """One cycle in `edges` (folder -> set of folders), as a list that ends where it began; None when there is none."""
    done, path = set(), []

    def visit(room):
        if room in path:
            return path[path.index(room) :] + [room]
        if room in done:
            return None
        path.append(room)
        for next_room in sorted(edges.get(room, ())):
            cycle = visit(next_room)
            if cycle:
                return cycle
        done.add(path.pop())
        return None

    return next(filter(None, map(visit, sorted(edges))), None)


def check(root):
    """(complaints, number of files read)"""
    levels, complaints = read_layers(root / "src" / "LAYERS")
    tree = Tree(root, levels)
    for folder in sorted(p for p in tree.src.iterdir() if p.is_dir()):
        if folder.name not in levels:
            complaints.append(
                f"src/{folder.name}: unknown room; give it a level in src/LAYERS or move its files "
                f"(rooms: {', '.join(levels)})"
            )
    for folder in sorted(p for p in tree.src.rglob("*") if p.is_dir()):
        held = sum(p.suffix in SOURCES for p in folder.iterdir())
        if held > MOST_FILES:
            complaints.append(
                f"{folder.relative_to(root)}: {held} files; a room has one job and at most {MOST_FILES} files"
            )
    edges, witness, count = {}, {}, 0
    for path in tree.files():
        place = tree.place(path)
        if place.parts[0] not in levels:
            if len(place.parts) == 1:
                complaints.append(f"src/{place}:1: a source file must lie in a room")
            continue
        count += 1
        if is_test(path):
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if match := INCLUDE.match(line):
                target, complaint = tree.target_of(path, match[2], match[1])
            elif match := INCLUDE_BY_MACRO.match(line):
                target, complaint = tree.target_of_macro(match[1])
            else:
                continue
            where = f"{path.relative_to(root)}:{number}"
            if complaint:
                complaints.append(f"{where}: {complaint}")
            if target is None or target.parts[0] not in levels:
                continue
            # Rooms may not include each other in a circle, nor folders inside one room.
            a, b = (
                (p.parent.as_posix() for p in (place, target))
                if target.parts[0] == place.parts[0]
                else (place.parts[0], target.parts[0])
            )
            if a != b:
                edges.setdefault(a, set()).add(b)
                witness.setdefault((a, b), where)
            broken = tree.rule_broken(place, target)
            if broken:
                complaints.append(f'{where}: #include "{target}": {broken}')
    cycle = find_cycle(edges)
    if cycle:
        steps = "; ".join(f"{a} -> {b} at {witness[a, b]}" for a, b in zip(cycle, cycle[1:]))
        complaints.append(f"folders include each other in a circle: {' -> '.join(cycle)} ({steps})")
    return complaints, count


def self_test():
    """Plants one violation at a time in a clean tree; each must be caught, and the clean tree must pass."""
    clean = {
        "src/LAYERS": "base 0\nio 1\ntypes 1\nops 4\nverify 8\napps 11\n",
        "src/base/status.h": "",
        "src/types/e4m3.h": '#include "base/status.h"\n#include <cstdint>\n',
        "src/ops/problem.h": '#include "types/e4m3.h"\n',
        "src/ops/matmul/matmul.h": '#include "ops/problem.h"\n',
        "src/ops/matmul/cpu.cc": '#include "ops/matmul/matmul.h"\n#include "hwy/highway.h"\n',
        "src/ops/matmul/test.cc": '#include "testing/operands.h"\n#include "verify/verify.h"\n'
        '#include "ops/norm/norm.h"\n',
        "src/ops/matmul/variants.inc": "",
        "src/ops/list_variants.inc": "#include TS_FILE(ops/TS_OP_FOLDER/variants.inc)\n",
        "src/ops/matmul/reference.cc": '#define TS_OP_FOLDER matmul\n#include "ops/list_variants.inc"\n',
        "src/ops/norm/norm.h": "",
        "src/verify/verify.h": '#include "ops/matmul/matmul.h"\n',
        "src/verify/plan/parts.h": '#include "verify/verify.h"\n',
        "apps/cli/main.cc": '#include "cli/commands.h"\n#include "commands.h"\n#include "verify/verify.h"\n',
        "apps/cli/commands.h": "",
        "tests/testing/operands.h": "",
    }
    planted = [  # (file, text, what the complaint must say)
        (
            "src/types/bad.h",
            '\n#include "ops/problem.h"\n',
            "src/types/bad.h:2: .*may not include ops .*allowed: types itself and base",
        ),
        ("src/types/bad.h", '#include "io/npz.h"\n', "types .level 1. may not include io .level 1."),
        ("src/base/bad.cc", '#include "apps/cli/commands.h"\n', "base .level 0. may not include apps"),
        ("src/verify/bad.cc", '#include "cli/commands.h"\n', "verify .level 8. may not include apps"),
        ("src/verify/bad.cc", '#include "testing/operands.h"\n', "only tests and benches"),
        ("src/ops/matmul/bad.cu", '#include "ops/norm/norm.h"\n', "sibling ops/norm"),
        ("src/ops/matmul/bad.cc", '#include "../norm/norm.h"\n', 'relative to src: #include "ops/norm/norm.h"'),
        ("src/ops/matmul/bad.cc", '#include "matmul.h"\n', 'relative to src: #include "ops/matmul/matmul.h"'),
        ("src/types/bad.h", "#include <base/status.h>\n", "quotes"),
        ("src/types/bad.h", "  #  include <ops/problem.h>\n", "may not include ops"),
        ("src/types/bad.inc", '#include "ops/problem.h"\n', "types .level 1. may not include ops"),
        (
            "src/types/list_variants.inc",
            "#include TS_FILE(ops/TS_OP_FOLDER/variants.inc)\n",
            "src/types/list_variants.inc:1: .*types .level 1. may not include ops",
        ),
        ("src/types/bad.h", "#include TS_LIST\n", "src/types/bad.h:1: an include by macro must show its path"),
        ("src/base/bad.h", '#include "types/e4m3.h"\n', "in a circle: types -> base -> types"),
        ("src/verify/bad.cc", '#include "ops/matmul/test_data.h"\n', "only tests and benches"),
        ("src/utils/bad.h", "", "src/utils: unknown room"),
        ("src/bad.h", "", "must lie in a room"),
        ("src/LAYERS", clean["src/LAYERS"] + "base 3\n", "listed twice"),
        ("src/ops/bad.h", '#include "ops/matmul/matmul.h"\n', "in a circle: ops -> ops/matmul -> ops"),
        ("src/verify/names.h", '#include "verify/plan/parts.h"\n', "in a circle: verify -> verify/plan -> verify"),
        ("src/base/many{}.h", "", f"src/base: {MOST_FILES + 2} files"),
    ]
    failures = []
    for file, text, want in [("", "", "")] + planted:
        with tempfile.TemporaryDirectory() as scratch:
            names = [file.format(i) for i in range(MOST_FILES + 1)] if "{}" in file else [file] if file else []
            for name, content in {**clean, **dict.fromkeys(names, text)}.items():
                Path(scratch, name).parent.mkdir(parents=True, exist_ok=True)
                Path(scratch, name).write_text(content)
            complaints, _ = check(Path(scratch))
        if not file and complaints:
            failures.append(f"the clean tree is blamed: {complaints}")
        if file and not any(re.search(want, c) for c in complaints):
            failures.append(f"planted {text!r} in {file}: no complaint like {want!r} in {complaints}")
    return failures, len(planted)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=Path, default=REPO)
    parser.add_argument(
        "--self-test", action="store_true", help="plant violations in a temporary tree; each must be caught"
    )
    options = parser.parse_args()
    if options.self_test:
        complaints, count = self_test()
        done = f"layers: {count} planted violations caught"
    else:
        complaints, count = check(options.root.resolve())
        done = f"layers: {count} files, every include points downwards"
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    print(f"layers: {len(complaints)} violations" if complaints else done)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
