#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that kernels keep their promises in machine code: the instructions they name are there, forbidden ones are not, nothing spills, no wgmma is serialised.

Each src/ops/<op>/<variant>.cu says in its first lines what its SASS shows:
  // SASS must: HMMA, LDSM          every one of these appears in some kernel of the file
  // SASS must not: FFMA            none of these appears in any
  // SASS local: <why>              kernels may use local memory (a stack frame); without this line that is a failure, spilled registers included
Give it the build folder (or object files named <op>/<variant>.cu.o). cuobjdump and nvdisasm come from PATH or from the packages
nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm. Exit code 77: nothing to check here (no tool, or a build without CUDA).
"""

import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
SKIP = 77
HEAD_LINES = 15  # promises stand at the top of a file
RULE = re.compile(r"// SASS (must not|must|local): (.+)")
FUNCTION = re.compile(r"^\s*Function : (\S+)")
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[0-9T]+\s+)?([A-Z][A-Z0-9_]*)")
RESOURCES = re.compile(r"REG:(\d+) STACK:(\d+).*?LOCAL:(\d+)")


def read_promises(text):
    promises = {"must": [], "must not": [], "local": ""}
    for line in text.splitlines()[:HEAD_LINES]:
        match = RULE.match(line)
        if match and match[1] == "local":
            promises["local"] = match[2]
        elif match:
            promises[match[1]] += [word.strip() for word in match[2].split(",")]
    return promises


def read_sass(text):
    """kernel -> its instructions' base names and how often each stands there."""
    kernels, current = {}, None
    for line in text.splitlines():
        if match := FUNCTION.match(line):
            current = kernels.setdefault(match[1], collections.Counter())
        elif current is not None and (match := INSTRUCTION.match(line)):
            current[match[1]] += 1
    return kernels


def read_resources(text):
    """kernel -> (registers, stack bytes, local bytes)"""
    resources, current = {}, None
    for line in text.splitlines():
        if match := re.match(r"^\s*Function (\S+?):?\s*$", line):
            current = match[1]
        elif current and (match := RESOURCES.search(line)):
            resources[current] = tuple(int(n) for n in match.groups())
    return resources


def judge(name, promises, kernels, resources):
    """Complaints about one file."""
    if not kernels:
        return [f"{name}: no kernels in its object"]
    complaints = []
    for wanted in promises["must"]:
        if not any(wanted in found for found in kernels.values()):
            complaints.append(f"{name}: no kernel has {wanted}")
    for forbidden in promises["must not"]:
        complaints += [f"{name}: {kernel} has {forbidden}" for kernel, found in kernels.items() if forbidden in found]
    for kernel, found in kernels.items():
        # Serialised products (ptxas: C7510) have a fence and a wait around each one.
        products = sum(found[word] for word in ("HGMMA", "QGMMA", "IGMMA"))
        if products and found["WARPGROUP"] >= products:
            complaints.append(f"{name}: {kernel} waits after each of its {products} wgmma: ptxas serialised them")
        if kernel not in resources:
            complaints.append(f"{name}: {kernel}: its resources are not reported")
            continue
        _, stack, local = resources[kernel]
        if (stack or local) and not promises["local"]:
            complaints.append(f"{name}: {kernel} keeps {stack} bytes on the stack and {local} in local memory; find out why, or say so: // SASS local: <why>")
    return complaints


def find_tools(given):
    """(cuobjdump or None, environment in which it finds nvdisasm)"""
    folders = [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep) if p]
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")):
        folders += [Path(home) / "bin"] if home else []
    packages = [Path(p) for p in sys.path if p] + list((REPO / ".cache").glob("*/lib/python*/site-packages"))
    folders += [bin_folder for p in packages for bin_folder in sorted(p.glob("nvidia/*/bin"))]
    search = os.pathsep.join(str(f) for f in folders)
    return given or shutil.which("cuobjdump", path=search), {**os.environ, "PATH": search}


def find_objects(paths):
    """(op, variant) -> object file"""
    objects = {}
    for path in paths:
        for file in (sorted(path.rglob("*.cu.o")) if path.is_dir() else [path]):
            objects[file.parent.name, file.name.split(".")[0]] = file
    return objects


def check(paths, tool, environment, verbose):
    """(complaints, number of kernels, most registers); None where the build has no kernels at all: .cu files were compiled as C++."""
    objects, complaints, count, most = find_objects(paths), [], 0, 0
    if not objects:
        return None
    device_code = False
    for source in sorted((REPO / "src" / "ops").glob("*/*.cu")):
        name, key = source.relative_to(REPO), (source.parent.name, source.stem)
        if key not in objects:
            complaints.append(f"{name}: has no object file here; was it built?")
            continue

        def dump(option):
            done = subprocess.run([tool, option, str(objects[key])], env=environment, capture_output=True, text=True)
            if done.returncode != 0 and "does not contain device code" not in done.stderr:
                complaints.append(f"{name}: {Path(tool).name} {option}: {done.stderr.strip().splitlines()[-1:]}")
            return done.stdout

        kernels, resources = read_sass(dump("-sass")), read_resources(dump("-res-usage"))
        complaints += judge(name, read_promises(source.read_text()), kernels, resources)
        device_code = device_code or bool(kernels)
        count += len(kernels)
        most = max([most] + [r[0] for r in resources.values()])
        if verbose:
            for kernel in sorted(kernels):
                print(f"{name}: {resources.get(kernel, ('?',) * 3)[0]} registers, {kernel}")
    return (complaints, count, most) if device_code else None


def self_test():
    """Each planted fault must be found, and the sound kernel must pass."""
    source = "// SPDX\n// SASS must: HMMA, LDSM\n// SASS must not: FFMA\nint x;\n"
    sass = "\t\tFunction : attend\n        /*0000*/  LDC R1, c[0x0][0x28] ;  /* 0x00 */\n        /*0010*/  @!P0 LDSM.16.M88.4 R4, [R2] ;\n" \
           "        /*0020*/  HMMA.16816.F32 R4, R4, R8, RZ ;\n        /*0030*/  @PT EXIT ;\n"
    usage = " Function attend:\n  REG:128 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:600\n"
    cases = [  # (source, sass, usage, what must be said, or None)
        (source, sass, usage, None),
        (source, sass.replace("HMMA", "IMMA"), usage, "no kernel has HMMA"),
        (source, sass.replace("@!P0 LDSM", "@!P0 LDS"), usage, "no kernel has LDSM"),
        (source, sass.replace("EXIT", "FFMA R1, R2, R3, R4"), usage, "attend has FFMA"),
        (source, sass, usage.replace("STACK:0", "STACK:16"), "keeps 16 bytes on the stack"),
        (source, sass, usage.replace("LOCAL:0", "LOCAL:8"), "8 in local memory"),
        (source + "// SASS local: a table\n", sass, usage.replace("STACK:0", "STACK:16"), None),
        (source, sass.replace("EXIT", "HGMMA.64x64x16.F32 R24").replace("LDC R1", "WARPGROUP.DEPBAR"), usage, "serialised"),
        (source, "", usage, "no kernels"),
        (source, sass, "", "not reported"),
    ]
    failures = []
    for text, machine, used, want in cases:
        said = judge("x.cu", read_promises(text), read_sass(machine), read_resources(used))
        if (want is None and said) or (want is not None and not any(want in s for s in said)):
            failures.append(f"wanted {want!r}, got {said}")
    return failures, len(cases)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, help="build folder, or object files")
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
        result = check(options.paths, tool, environment, options.verbose)
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
