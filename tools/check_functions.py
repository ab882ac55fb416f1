#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no function of src/ and apps/ is longer than 80 lines, from its first word to its closing brace.

A scanner of braces, not a compiler: comments, strings and preprocessor lines are blanked out, and a brace opens a
function where what stands before it has parentheses and all braces around it are of namespaces and classes. So a lambda
counts as a part of the function that holds it, and a table of data is no function."""

import argparse
import re
import sys
from pathlib import Path

from check_sizes import list_files

REPO = Path(__file__).resolve().parent.parent
LONGEST = 80  # lines
CXX = {".h", ".cc", ".cu", ".cuh"}
# Functions that are longer still, "file: name". The list may only shrink: an entry that is not needed is a violation.
TOO_LONG = {
    "src/ops/attention/cuda_f16.cu: attend_tile",
    "src/ops/attention/cuda_f32.cu: attend_f32",
    "src/tiles/sm90/gemm_finish.cuh: finish",
    "src/tiles/sm90/stream_attend.cuh: attend_overlapped",
}

TOKENS = re.compile(
    r"""//[^\n]*|/\*.*?\*/                      # comments
      |R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"     # raw strings
      |"(?:\\.|[^"\\\n])*"                      # strings
      |(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'      # characters, but not 1'000
    """,
    re.S | re.X,
)
SCOPE = re.compile(
    r"^(inline |static |const |constexpr |typedef |export |alignas\([^)]*\) |\[\[[^\]]*\]\] )*"
    r'(namespace|class|struct|union|enum|extern "")\b'
)


def blanked(text):
    """The text without comments and the insides of literals; lines stay where they are."""

    def blank(match):
        kept = '""' if match.group().startswith(('"', "R")) else " "
        return kept + "\n" * match.group().count("\n")

    return TOKENS.sub(blank, text)


def without_templates(words):
    """Without a leading template<...>, whose `class` is no class."""
    while words.startswith("template"):
        depth, at = 0, words.find("<")
        if at < 0:
            break
        for at in range(at, len(words)):
            depth += {"<": 1, ">": -1}.get(words[at], 0)
            if depth == 0:
                break
        words = words[at + 1 :].strip()
    return words


def kind_of(words):
    """What a brace opens, by the words before it."""
    words = without_templates(" ".join(words.split()))
    if SCOPE.match(words) or words == 'extern ""':
        return "scope"
    return "function" if "(" in words and not words.endswith(("=", ",", "(")) else "data"


def name_of(words):
    words = re.sub(r"__launch_bounds__\([^)]*\)|\[\[[^\]]*\]\]", "", without_templates(" ".join(words.split())))
    found = re.search(r"([~\w:]+(?:\s*(?:\(\)|[-+*/<>=!&|\[\]]+))?)\s*\(([^()]*)", words)
    if not found:
        return words[:40]
    # TEST(A, B), TEST_F, TYPED_TEST ...: the arguments are the name
    return f"{found[1]}({found[2]})" if re.search(r"TEST|BENCHMARK", found[1]) else found[1].strip()


class Scanner:
    """Reads lines; `found` becomes (name, first line, last line) of every function."""

    def __init__(self):
        self.open = []  # (kind, words, first line) of every brace
        self.words, self.first = "", 0
        self.found = []

    def state(self):
        return list(self.open), self.words, self.first

    def restore(self, state):
        self.open, self.words, self.first = list(state[0]), state[1], state[2]

    def clear(self):
        self.words, self.first = "", 0

    def read(self, number, line):
        for c in line:
            if c == "{":
                inside = any(kind != "scope" for kind, _, _ in self.open)
                self.open.append(("inside" if inside else kind_of(self.words), self.words, self.first or number))
                self.clear()
            elif c == "}":
                if self.open:
                    kind, words, first = self.open.pop()
                    if kind == "function":
                        self.found.append((name_of(words), first, number))
                self.clear()
            elif c == ":" and self.words.strip() in ("public", "private", "protected"):
                self.clear()
            elif c == ";" and self.words.count("(") == self.words.count(")"):
                self.clear()
            else:
                if not self.words.strip() and not c.isspace():
                    self.first = number
                self.words += c
        self.words += " "


def functions(text):
    scanner, branches, continued = Scanner(), [], False
    for number, line in enumerate(blanked(text).split("\n"), 1):
        directive = re.match(r"\s*#\s*(\w*)", line)
        if directive and not continued:
            # Each branch of an #if goes on from where the #if stood, so that braces are counted once.
            if directive[1] in ("if", "ifdef", "ifndef"):
                branches.append(scanner.state())
            elif directive[1] in ("else", "elif") and branches:
                scanner.restore(branches[-1])
            elif directive[1] == "endif" and branches:
                branches.pop()
        elif not continued:
            scanner.read(number, line)
        continued = (bool(directive) or continued) and line.endswith("\\")
    return scanner.found


def check(root, allowed):
    """(complaints, number of functions, lines of the longest)"""
    complaints, count, longest, used = [], 0, 0, set()
    for path in list_files(root):
        name = path.relative_to(root)
        if path.suffix not in CXX or name.parts[0] not in ("src", "apps"):
            continue
        for function, first, last in functions(path.read_text(errors="replace")):
            lines = last - first + 1
            count, longest = count + 1, max(longest, lines)
            if lines <= LONGEST:
                continue
            entry = f"{name}: {function}"
            used.add(entry)
            if entry not in allowed:
                complaints.append(f"{name}:{first}: {function} has {lines} lines; a function may have {LONGEST}")
    for entry in sorted(allowed - used):
        complaints.append(
            f"{entry}: not over {LONGEST} lines (any more); take it off TOO_LONG in {Path(__file__).name}"
        )
    return complaints, count, longest


def self_test():
    """Functions of exactly 80 and of 81 lines, wherever functions stand; tables and classes may have any length."""
    fill = lambda lines: "  x();\n" * (lines - 2)
    forms = {
        "plain": "int f(int a) {\n%s}\n",
        "namespace": "namespace a::b {\nnamespace {\nint f(int a) {\n%s}\n}\n}\n",
        "method": "class A : public ::B<int> {\n public:\n  int f(int a) const {\n%s}\n};\n",
        "template": "template <class T, typename = std::enable_if_t<(sizeof(T) > 1)>>\nint f(T a);\n"
        "struct S {};\ntemplate <class T> int f(T a) {\n%s}\n",
        "constructor": "struct A {\n  A(int a) : a_{a}, b_(1) {\n%s}\n};\n",
        "lambda": "const auto f = [](int a) {\n%s};\n",
        "test": "TEST_F(A, B) {\n%s}\n",
        "kernel": "extern \"C\" {\n__global__ void __launch_bounds__(128) f(int a) {\n%s}\n}\n",
        "literals": 'const char* s = "{{";  // {{{\n/* { */ const char c = \'{\';\n'
        'auto r = R"x({ " {)x";\nint f() {\n%s}\n',
        "digits": "constexpr int n = 1'000;\nint f() {\n%s}\n",
        "branches": "#if A\nint g() {\n#else\nint f() {\n#endif\n%s}\n",
    }  # fmt: skip
    failures = []
    for form, text in forms.items():
        for lines, wanted in ((LONGEST, 0), (LONGEST + 1, 1)):
            over = [f for f in functions(text % fill(lines)) if f[2] - f[1] + 1 > LONGEST]
            if form == "branches":  # the last branch's header is a line further down, with the #endif between
                over = [f for f in functions(text % fill(lines - 1)) if f[2] - f[1] + 1 > LONGEST]
            if len(over) != wanted:
                failures.append(f"{form}: {lines} lines, {len(over)} functions are blamed, want {wanted}")
    for form, text in {
        "table": "constexpr Row kRows[] = {\n%s};\n",
        "members": "struct A {\n%s};\n",
        "names": "namespace a {\n%s}\n",
        "words": "enum class E {\n%s};\n",
        "macro": "#define F() \\\n  void f() { \\\n%s  }\n",
    }.items():
        got = functions(text % ("  {1, 2},\n" * 100 if form == "table" else "  int x;\n" * 100).replace(
            "\n", " \\\n" if form == "macro" else "\n"))  # fmt: skip
        if got:
            failures.append(f"{form}: {got} taken for functions")
    names = functions("int A::f(int a) { return 1; }\nTEST(A, B) {}\nbool operator==(A a, A b) { return true; }\n")
    if [n for n, _, _ in names] != ["A::f", "TEST(A, B)", "operator=="]:
        failures.append(f"names: {names}")
    return failures, 2 * len(forms) + 6


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=REPO)
    parser.add_argument("--self-test", action="store_true", help="scan made-up functions; the long ones must be found")
    options = parser.parse_args()
    if options.self_test:
        complaints, count = self_test()
        done = f"functions: {count} made-up texts judged rightly"
    else:
        root = options.root.resolve()
        complaints, count, longest = check(root, TOO_LONG if root == REPO else set())
        done = f"functions: {count}, the longest of {longest} lines, {len(TOO_LONG)} named exceptions"
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    print(f"functions: {len(complaints)} violations" if complaints else done)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
