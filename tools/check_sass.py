#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that kernels keep their promises in machine code: their instructions, no other tensor-core arithmetic, no
spills, no serialised wgmma.

What a variant's kernels show is data of the variant (src/op/sass.h); the program of the build prints it: `tessera
kernels --json`. Every kernel falls under exactly one rule, and every rule is about some kernel. A tensor-core
instruction that a kernel's rule does not name is forbidden without a word: an e4m3 kernel that must show QGMMA may
hold no HGMMA, IGMMA or HMMA, one that must show LDG holds none at all. Local memory (a stack frame, spilled
registers) is a failure unless the variant says why it is used. Give it the build folder. cuobjdump and nvdisasm come
from PATH or from the packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm, c++filt from the compiler's binutils.
Exit code 77: nothing to check here (no tool, or a build without CUDA).
"""

import argparse
import collections
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
SKIP = 77
# Variants with kernels in files of another room too: those of a chain serve matmul and attention alike.
KERNELS_OF = {"attention/sm90_few": "src/tiles/sm90/chain/chain_*.cu"}
# HMMA, IMMA, QMMA, DMMA ..., HGMMA, QGMMA, IGMMA, UTCQMMA ...; HGMMA.SP and so on are those of 2:4 sparse operands.
TENSOR_CORE = re.compile(r"(UTC)?[A-Z]G?MMA(\.SP)?")
WGMMA = [kind + form for kind in ("HGMMA", "QGMMA", "IGMMA") for form in ("", ".SP")]
ARCH = re.compile(r"^arch = (\S+)")
FUNCTION = re.compile(r"^\s*Function : (\S+)")
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[0-9T]+\s+)?([A-Z][A-Z0-9_]*(?:(?<=MMA)\.SP\b)?)")
RESOURCES = re.compile(r"REG:(\d+) STACK:(\d+).*?LOCAL:(\d+)")


class Rule:
    """What kernels named by `key` show; without a key, all that no other rule names."""

    def __init__(self, data):
        self.key, self.must, self.never = data["kernels"], data["must"], data["never"]
        self.reasoned = bool(self.must) != bool(data["exempt_because"])

    def names(self, kernel):
        return re.search(rf"(?<!\w){re.escape(self.key)}(?!\w)", kernel) is not None


def ask_promises(program):
    """variant -> {"rules": [...], "local": why}, of the variants that have kernels of their own."""
    done = subprocess.run([str(program), "kernels", "--json"], capture_output=True, text=True, check=True)
    return {v["variant"]: v["sass"] for v in json.loads(done.stdout)["variants"] if "sass" in v}


def rule_of(kernel, rules):
    """(the rule that a kernel falls under or None, what is wrong with that or None)"""
    named = [rule for rule in rules if rule.key and rule.names(kernel)]
    if len(named) > 1:
        return None, "falls under two rules: " + ", ".join(rule.key for rule in named)
    general = [rule for rule in rules if not rule.key]
    if not named and len(general) != 1:
        return (
            None,
            "falls under no rule; say what it must show, or why it is exempt"
            if not general
            else "falls under two rules",
        )
    return (named or general)[0], None


def read_sass(text):
    """(kernel, arch) -> its instructions' base names and how often each stands there."""
    kernels, current, arch = {}, None, ""
    for line in text.splitlines():
        if match := ARCH.match(line):
            arch = match[1]
        elif match := FUNCTION.match(line):
            current = kernels.setdefault((match[1], arch), collections.Counter())
        elif current is not None and (match := INSTRUCTION.match(line)):
            current[match[1]] += 1
    return kernels


def read_resources(text):
    """(kernel, arch) -> (registers, stack bytes, local bytes)"""
    resources, current, arch = {}, None, ""
    for line in text.splitlines():
        if match := ARCH.match(line):
            arch = match[1]
        elif match := re.match(r"^\s*Function (\S+?):?\s*$", line):
            current = match[1]
        elif current and (match := RESOURCES.search(line)):
            resources[current, arch] = tuple(int(n) for n in match.groups())
    return resources


def judge(name, promise, kernels, resources):
    """Complaints about one variant. `kernels`: demangled name, with its arch -> instructions."""
    rules, complaints = [Rule(data) for data in promise["rules"]], []
    if not kernels:
        return [f"{name}: no kernels in its object"]
    unreasoned = [rule.key or "the rule for all" for rule in rules if not rule.reasoned]
    complaints += [f"{name}: '{key}' names instructions or says why there are none, not both" for key in unreasoned]
    used = []
    for kernel, found in kernels.items():
        rule, fault = rule_of(kernel, rules)
        if fault:
            complaints.append(f"{name}: {kernel} {fault}")
            continue
        used.append(rule)
        complaints += [f"{name}: {kernel} has no {wanted}" for wanted in rule.must if wanted not in found]
        others = [word for word in found if TENSOR_CORE.fullmatch(word) and word not in rule.must]
        complaints += [
            f"{name}: {kernel} has {word}" for word in sorted({*others, *(f for f in rule.never if f in found)})
        ]
    unused = [rule.key or "the rule for all" for rule in rules if rule not in used]
    complaints += [f"{name}: no kernel falls under '{key}'" for key in unused]
    for kernel, found in kernels.items():
        # Serialised products (ptxas: C7510) have a fence and a wait around each one.
        products = sum(found[word] for word in WGMMA)
        if products and found["WARPGROUP"] >= products:
            complaints.append(f"{name}: {kernel} waits after each of its {products} wgmma: ptxas serialised them")
        if kernel not in resources:
            complaints.append(f"{name}: {kernel}: its resources are not reported")
            continue
        _, stack, in_local = resources[kernel]
        if (stack or in_local) and not promise["local"]:
            complaints.append(
                f"{name}: {kernel} keeps {stack} bytes on the stack and {in_local} in local memory; "
                "find out why, or say so in its SassPromise::local"
            )
    return complaints


def demangle(names):
    """mangled -> as C++ writes it, without the namespaces that all kernels share; None where there is no c++filt."""
    tool = shutil.which("c++filt")
    if tool is None:
        return None
    done = subprocess.run([tool], input="\n".join(names), capture_output=True, text=True, check=True)
    clear = [re.sub(r"tessera::|\(anonymous namespace\)::", "", line) for line in done.stdout.splitlines()]
    return dict(zip(names, clear, strict=True))


def with_clear_names(table):
    """(mangled name, arch) -> x as "name (arch)" -> x."""
    clear = demangle([name for name, _ in table])
    return {f"{clear.get(name, name)}{f' ({arch})' if arch else ''}": x for (name, arch), x in table.items()}


def absent_archs(lists, cache):
    """Archs of archs.inc whose targets the build was not asked for; their files are compiled as C++."""
    asked = re.search(r"^TESSERA_CUDA_ARCHS:\w+=(.*)$", cache, re.M)
    asked = set(asked[1].split(";")) if asked else set()
    own = re.findall(r'^TS_ARCH\((\w+), \w+, kCuda, "([\w,]+)"', lists, re.M)
    return {name for name, targets in own if not asked & set(targets.split(","))}


def find_tools(given):
    """(cuobjdump or None, environment in which it finds nvdisasm)"""
    folders = [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep) if p]
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")):
        folders += [Path(home) / "bin"] if home else []
    packages = [Path(p) for p in sys.path if p] + list((REPO / ".cache").glob("*/lib/python*/site-packages"))
    folders += [bin_folder for p in packages for bin_folder in sorted(p.glob("nvidia/*/bin"))]
    search = os.pathsep.join(str(f) for f in folders)
    return given or shutil.which("cuobjdump", path=search), {**os.environ, "PATH": search}


def output_of(entry):
    """What an entry of compile_commands.json writes: `output`, which not every CMake names, or its command's -o."""
    words = shlex.split(entry.get("command", ""))
    return entry.get("output") or words[words.index("-o") + 1]


def find_objects(paths):
    """(op, variant) -> object file. Of a build folder those that it makes now: objects of an earlier configuration, for
    other archs, may lie there too."""
    objects = {}
    for path in paths:
        files = [path]
        if path.is_dir():
            commands = path / "compile_commands.json"
            entries = json.loads(commands.read_text()) if commands.is_file() else []
            named = [Path(e["directory"], output_of(e)) for e in entries if e["file"].endswith(".cu")]
            files = [file for file in named if file.is_file()]
        for file in files:
            objects[file.parent.name, file.name.split(".")[0]] = file
    return objects


def check(paths, program, tool, environment, verbose):
    """(complaints, number of kernels, most registers); None where the build has no kernels at all: .cu files were
    compiled as C++."""
    objects, complaints, count, most = find_objects(paths), [], 0, 0
    if not objects:
        return None
    device_code = False
    if demangle([]) is None:
        return ["there is no c++filt here, which comes with the compiler"], 0, 0
    promises = ask_promises(program)
    cache = paths[0] / "CMakeCache.txt"
    lists = (REPO / "src" / "archs" / "archs.inc").read_text()
    absent = absent_archs(lists, cache.read_text()) if cache.is_file() else set()
    for source in sorted((REPO / "src" / "ops").glob("*/*.cu")):
        key = source.parent.name, source.stem
        name = "/".join(key)
        shared = sorted(REPO.glob(KERNELS_OF[name])) if name in KERNELS_OF else []
        keys = [key, *((s.parent.name, s.stem) for s in shared)]
        if any(k not in objects for k in keys):
            complaints.append(f"{name}: has no object file here; was it built?")
            continue
        if name not in promises:
            complaints.append(f"{name}: says nothing of its machine code (Variant::sass)")
            continue

        def dump(option):
            text = ""
            for k in keys:
                words = [tool, option, str(objects[k])]
                done = subprocess.run(words, env=environment, capture_output=True, text=True)
                if done.returncode != 0 and "does not contain device code" not in done.stderr:
                    complaints.append(f"{name}: {Path(tool).name} {option}: {done.stderr.strip().splitlines()[-1:]}")
                text += done.stdout
            return text

        kernels, resources = read_sass(dump("-sass")), read_resources(dump("-res-usage"))
        if not kernels and key[1].split("_")[0] in absent:
            continue  # compiled as C++
        kernels, resources = with_clear_names(kernels), with_clear_names(resources)
        complaints += judge(name, promises[name], kernels, resources)
        device_code = device_code or bool(kernels)
        count += len(kernels)
        most = max([most] + [r[0] for r in resources.values()])
        if verbose:
            for kernel in sorted(kernels):
                print(f"{name}: {resources.get(kernel, ('?',) * 3)[0]} registers, {kernel}")
    return (complaints, count, most) if device_code else None


def self_test():
    """Each planted fault must be found, and the sound kernels must pass."""

    def rule(kernels="", must=(), never=(), exempt=""):
        return {"kernels": kernels, "must": list(must), "never": list(never), "exempt_because": exempt}

    source = {"rules": [rule(must=["HMMA", "LDSM"], never=["FFMA"])], "local": ""}
    sass = (
        "\t\tFunction : attend\n        /*0000*/  LDC R1, c[0x0][0x28] ;  /* 0x00 */\n        /*0010*/  @!P0 "
        "LDSM.16.M88.4 R4, [R2] ;\n"
        "        /*0020*/  HMMA.16816.F32 R4, R4, R8, RZ ;\n        /*0030*/  @PT EXIT ;\n"
    )
    usage = " Function attend:\n  REG:128 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:600\n"
    # A file with kernels of several types: names as c++filt writes them, without blanks here.
    types = {"half": "__half", "e4m3": "__nv_fp8_e4m3", "int8": "int8_t"}
    shows = {"half": "HGMMA", "e4m3": "QGMMA", "int8": "IGMMA"}
    mixed = {"rules": [rule(types[k], [shows[k]]) for k in types], "local": ""}
    mixed["rules"].append(rule("repeat_scale", exempt="writes a scale"))

    def kernel(name, *words):
        return f"\t\tFunction : {name}\n" + "".join(
            f"        /*00{i}0*/  {word} R1 ;\n" for i, word in enumerate(words)
        )

    several = "".join(kernel(f"gemm<{types[k]},64>", shows[k], "EXIT") for k in types) + kernel(
        "repeat_scale(long)", "STG", "EXIT"
    )
    several_usage = "".join(
        usage.replace("attend", n) for n in [f"gemm<{t},64>" for t in types.values()] + ["repeat_scale(long)", "other"]
    )
    second = kernel("other", "LDSM", "EXIT")  # attend has HMMA, this one has not
    two_archs = "arch = sm_90a\n" + sass + "arch = sm_120a\n" + sass.replace("HMMA", "IADD")
    cases = [  # (source, sass, usage, what must be said, or None)
        (source, sass, usage, None),
        (source, sass.replace("HMMA", "IADD"), usage, "attend has no HMMA"),
        (source, sass.replace("@!P0 LDSM", "@!P0 LDS"), usage, "attend has no LDSM"),
        (source, sass.replace("EXIT", "FFMA R1, R2, R3, R4"), usage, "attend has FFMA"),
        (source, sass + second, usage + several_usage, "other has no HMMA"),
        (source, sass.replace("EXIT", "IMMA R1"), usage, "attend has IMMA"),
        (source, sass, usage.replace("STACK:0", "STACK:16"), "keeps 16 bytes on the stack"),
        (source, sass, usage.replace("LOCAL:0", "LOCAL:8"), "8 in local memory"),
        ({**source, "local": "a table"}, sass, usage.replace("STACK:0", "STACK:16"), None),
        (
            source,
            sass.replace("EXIT", "HGMMA.64x64x16.F32 R24").replace("LDC R1", "WARPGROUP.DEPBAR"),
            usage,
            "serialised",
        ),
        (source, "", usage, "no kernels"),
        (source, sass, "", "not reported"),
        ({**source, "rules": []}, sass, usage, "attend falls under no rule"),
        ({**source, "rules": [rule()]}, sass, usage, "names instructions or says why there are none"),
        ({**source, "rules": [rule(must=["HMMA"], exempt="why")]}, sass, usage, "or says why there are none, not both"),
        ({**source, "rules": source["rules"] * 2}, sass, usage, "falls under two rules"),
        (source, two_archs, "arch = sm_90a\n" + usage + "arch = sm_120a\n" + usage, "attend (sm_120a) has no HMMA"),
        (mixed, several, several_usage, None),
        (mixed, several.replace("QGMMA", "HGMMA"), several_usage, "gemm<__nv_fp8_e4m3,64> has no QGMMA"),
        (mixed, several.replace("QGMMA", "HGMMA"), several_usage, "gemm<__nv_fp8_e4m3,64> has HGMMA"),
        (mixed, several.replace("QGMMA", "QGMMA.SP.64x128x64"), several_usage, "e4m3,64> has QGMMA.SP"),
        (mixed, several.replace("QGMMA", "QGMMA.64x128x32"), several_usage, None),
        (
            mixed,
            several.replace("QGMMA R1 ;\n", "QGMMA R1 ;\n        /*0020*/  HMMA R1 ;\n"),
            several_usage,
            "e4m3,64> has HMMA",
        ),
        (
            mixed,
            several.replace("IGMMA R1 ;\n", "IGMMA R1 ;\n        /*0020*/  QGMMA R1 ;\n"),
            several_usage,
            "int8_t,64> has QGMMA",
        ),
        (mixed, several.replace("STG", "HMMA"), several_usage, "repeat_scale(long) has HMMA"),
        (mixed, several + second, several_usage, "other falls under no rule"),
        (mixed, several.replace("gemm<__half,64>", "gemm<__half,int8_t>"), several_usage, "falls under two rules"),
        (
            mixed,
            several.replace("gemm<int8_t,64>", "gemm<__half,32>").replace("IGMMA", "HGMMA"),
            several_usage,
            "no kernel falls under 'int8_t'",
        ),
    ]
    failures = []
    for text, machine, used, want in cases:
        said = judge("x", text, *(with_clear_names(table) for table in (read_sass(machine), read_resources(used))))
        if (want is None and said) or (want is not None and not any(want in s for s in said)):
            failures.append(f"wanted {want!r}, got {said}")
    lists = 'TS_ARCH(cuda, cuda, kCuda, "", "f16", "any")\nTS_ARCH(sm90, cuda, kCuda, "90a", "f16", "Hopper")\n'
    for asked, want in (("90a", set()), ("90a;120a", set()), ("120a", {"sm90"}), ("90", {"sm90"})):
        if absent_archs(lists, f"X=1\nTESSERA_CUDA_ARCHS:STRING={asked}\n") != want:
            failures.append(f"TESSERA_CUDA_ARCHS={asked}: wanted {want} to be absent")
    failures += test_find_objects()
    if set(demangle(["_ZN7tessera4sm904gemmIaEEvv"]).values()) != {"void sm90::gemm<signed char>()"}:
        failures.append("names are not demangled")
    return failures, len(cases) + 2


def test_find_objects():
    """An object of the last configuration, and none that an earlier one left."""
    with tempfile.TemporaryDirectory() as scratch:
        build = Path(scratch)
        now, stale, gone = (
            Path(f"CMakeFiles/{target}.dir/src/ops/norm/{name}.cu.o")
            for target, name in (("ts_ops", "sm90_a"), ("ts_ops_sm90", "sm90_a"), ("ts_ops_sm90", "sm90_b"))
        )
        for file in (now, stale, gone):
            (build / file).parent.mkdir(parents=True, exist_ok=True)
            (build / file).touch()
        unbuilt = str(now).replace("sm90_a", "sm90_c")
        entries = [
            {"directory": scratch, "file": "/x/src/ops/norm/sm90_a.cu", "command": f"nvcc -c x.cu -o {now} -DX"},
            {"directory": scratch, "file": "/x/src/ops/norm/sm90_c.cu", "output": unbuilt},
            {"directory": scratch, "file": "/x/src/base/status.cc", "command": "c++ -fsyntax-only x.cc"},
        ]
        found = [find_objects([build])]  # as before a first configuration
        (build / "compile_commands.json").write_text(json.dumps(entries))
        found += [find_objects([build]), find_objects([build / gone])]
        wanted = [{}, {("norm", "sm90_a"): build / now}, {("norm", "sm90_b"): build / gone}]
        return [f"find_objects: wanted {w}, got {f}" for w, f in zip(wanted, found, strict=True) if w != f]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, help="build folder, or object files")
    parser.add_argument("--program", type=Path, help="that prints the promises; else bin/tessera of the build folder")
    parser.add_argument("--cuobjdump", help="the disassembler; else it is looked for")
    parser.add_argument("-v", "--verbose", action="store_true", help="list every kernel with its registers")
    parser.add_argument("--self-test", action="store_true", help="plant faults; each must be found")
    options = parser.parse_args()
    if options.self_test:
        complaints, count = self_test()
        done = f"sass: {count} cases judged as they should be"
    else:
        if not options.paths:
            parser.error("which build folder?")
        tool, environment = find_tools(options.cuobjdump)
        if tool is None:
            print("sass: skipped, there is no cuobjdump here (pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm)")
            return SKIP
        program = options.program or options.paths[0] / "bin" / "tessera"
        result = check(options.paths, program, tool, environment, options.verbose)
        if result is None:
            print("sass: skipped, no CUDA objects in", *options.paths)
            return SKIP
        complaints, kernels, most = result
        done = f"sass: {kernels} kernels keep their promises, at most {most} registers"
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    print(f"sass: {len(complaints)} violations" if complaints else done)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
