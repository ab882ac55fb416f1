#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants faults in real kernels (src/archs/planted_fault.h) and runs their tests on the GPU here: each must fail.

For each fault the source of one variant is compiled again with -DTS_PLANTED_FAULT=n, its test is linked with that
object in the place of the library's, and run over a few of its cases. Without a fault the same cases must pass. Give
it the build folder (./run gpu-test makes build/release). Exit code 0: all were caught; 77: no GPU here.
"""

import argparse
import concurrent.futures
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
GEMM = "*AgreesOnRandom/{v}:*AgreesOnRealShapes/{v}:*AgreesOverManyTiles/{v}"
# fault, source (of src/ops, or with its room), test program, cases
FAULTS = [
    ("kLastBlockOfK", "matmul/sm90_fp8", "ops_matmul_test", GEMM),
    ("kStageParity", "matmul/sm90_fp8", "ops_matmul_test", GEMM),
    ("kNoWait", "matmul/sm90_fp8", "ops_matmul_test", GEMM),
    ("kResidualSwizzle", "matmul/sm90_f16", "ops_matmul_test", GEMM),
    ("kNeighboursBias", "matmul/sm90_f16", "ops_matmul_test", GEMM),
    ("kShortActivation", "matmul/sm90_f16", "ops_matmul_test", GEMM),
    ("kTapsTurned", "conv2d/sm90_f16", "ops_conv2d_test", "*AgreesOnRandom/{v}"),
    ("kTapsTurned", "conv2d/cuda_depthwise", "ops_conv2d_test", "*AgreesOnGroups/{v}"),
    ("kTapsTurned", "conv2d/cuda_f32", "ops_conv2d_test", "*AgreesOnRandom/{v}"),
    ("kGroupEnd", "conv2d/sm90_fp8", "ops_conv2d_test", "*AgreesOnGroups/{v}"),
    ("kNoPromotion", "matmul/sm90_fp8_promoted", "ops_matmul_test", "*AgreesOnPromotedSums/{v}"),
    ("kSliceMissing", "matmul/sm90_swapped", "ops_matmul_test", "*AgreesOnFewRows/{v}"),
    ("kSliceOrder", "matmul/sm90_swapped", "ops_matmul_test", "*AgreesOnFewRows/{v}"),
    ("kStaleStatistics", "matmul/sm90_swapped", "ops_matmul_test", "*AgreesOnFoldedNorms/{v}"),
    ("kAngleOfNeighbour", "matmul/sm90_swapped", "ops_matmul_heads_test", "*AgreesOnHeads/{v}"),
    ("kRowIgnored", "matmul/sm90_swapped", "ops_matmul_heads_test", "*AgreesOnHeads/{v}"),
    ("kNoGain", "matmul/sm90_swapped", "ops_matmul_test", "*AgreesOnGainedCodes/{v}"),
    ("kNeighboursGain", "matmul/sm90_swapped", "ops_matmul_test", "*AgreesOnGainedCodes/{v}"),
    ("kMetadataOfNeighbour", "matmul/sm90_fp8_sparse", "ops_matmul_sparse_test", "*AgreesOnRandom/{v}"),
    ("kSliceMissing", "matmul/sm90_w4", "ops_matmul_mainloops_nibbles_test", "*AgreesOnRandom/{v}"),
    ("kSliceOrder", "matmul/sm90_w4", "ops_matmul_mainloops_nibbles_test", "*AgreesOnRandom/{v}"),
    ("kMetadataOfNeighbour", "matmul/sm90_w4", "ops_matmul_mainloops_nibbles_test", "*AgreesOnRandom/{v}"),
    ("kNeighboursBias", "matmul/sm90_f16_sparse", "ops_matmul_sparse_test", "*AgreesOnRandom/{v}"),
    ("kLastKey", "attention/sm90_short", "ops_attention_test", "*AgreesOnFewKeys/{v}"),
    ("kWeightsOfBefore", "attention/sm90_short", "ops_attention_test", "*AgreesOnFewKeys/{v}"),
    ("kNoShrink", "attention/sm90_stream", "ops_attention_stream_test", "*AgreesAtEveryLength/{v}"),
    ("kLowestIsNone", "attention/sm90_stream", "ops_attention_masked_test", "*AgreesWhereAllKeysAreMasked/{v}"),
    ("kLengthOfFirst", "attention/sm90_stream", "ops_attention_lengths_test", "*AgreesAtEveryLength/{v}"),
    ("kStaleValues", "attention/sm90_stream", "ops_attention_lengths_test", "*AgreesAtEveryLength/{v}"),
    ("kKeySliceMissing", "attention/sm90_stream", "ops_attention_stream_test", "*AgreesAtEveryLength/{v}"),
    ("kTokenOrder", "attention/sm90_stream_fp8", "ops_attention_stream_test", "*AgreesAtEveryLength/{v}"),
    ("kMeanKept", "norm/cuda_few", "ops_norm_test", "*AgreesOnRandom/{v}"),
    ("kMeanKept", "norm/cuda_half", "ops_norm_test", "*AgreesOnRandom/{v}"),
    ("kStaleStatistics", "matmul/sm90_fp8_token", "ops_matmul_test", GEMM),
    ("kNoPhaseWait", "tiles/sm90/chain/chain_bf16", "chains_test", "*GivesTheBits*bf16_rows1*"),
    ("kOddRows", "matmul/cuda_cublaslt", "ops_matmul_library_test", "*RoundsOnceAtAnyWidth"),
]


def numbers():
    """name -> number, as the header lists them"""
    text = (REPO / "src/archs/planted_fault.h").read_text()
    body = re.search(r"enum class Fault : int \{(.*?)\};", text, re.S)[1]
    return {name: i for i, name in enumerate(re.findall(r"^\s*(k\w+)", body, re.M))}


def compile_command(build, variant):
    folder = "src" if variant.startswith("tiles/") else "src/ops"
    source = str(REPO / folder / f"{variant}.cu")
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"] == source:
            return entry["command"], entry["directory"]
    raise SystemExit(f"{variant}: not compiled in {build}")


def build_one(build, fault, number, variant, test, out):
    command, folder = compile_command(build, variant)
    name = f"{fault}_{variant.replace('/', '_')}"
    target = out / f"{name}.o"
    command = re.sub(r" -o \S+", f" -o {target}", command) + f" -DTS_PLANTED_FAULT={number}"
    done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr[-600:]
    link = subprocess.run(
        ["ninja", "-C", str(build), "-t", "commands", f"bin/{test}"], capture_output=True, text=True
    ).stdout.splitlines()[-1]
    link = re.sub(r"^: && |&& :$", "", link.strip())
    program = out / name
    link = re.sub(rf" -o bin/{test} ", f" -o {program} {target} ", link)
    done = subprocess.run(link, shell=True, cwd=build, capture_output=True, text=True)
    return (program, "") if done.returncode == 0 else (None, done.stderr[-600:])


def run(program, cases):
    """passed, failed, hangs, crashed, or did not run"""
    try:
        done = subprocess.run(
            [str(program), f"--gtest_filter={cases}", "--gtest_fail_fast"], capture_output=True, text=True, timeout=120
        )
    except subprocess.TimeoutExpired:
        return "hangs"
    if "[  FAILED  ]" in done.stdout:  # those after the first failure are reported as skipped
        return "failed"
    if done.returncode < 0:
        return "crashed"
    ran = re.search(r"\[==========\] Running ([1-9]\d*) test", done.stdout)
    return "passed" if ran and done.returncode == 0 and "[  SKIPPED ]" not in done.stdout else "did not run"


def try_one(build, fault, number, variant, test, cases, out, sound):
    """The verdict on one fault; `sound` is the future of the same cases without it."""
    program, error = build_one(build, fault, number, variant, test, out)
    if program is None:
        return f"not built: {error}"
    faulty = run(program, cases)
    if sound.result() != "passed":
        return f"without the fault: {sound.result()}"
    if faulty in ("passed", "did not run"):
        return "MISSED" if faulty == "passed" else faulty
    return f"caught ({faulty})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path, help="build folder with CUDA")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--only", default="", help="faults of variants whose name begins so: attention")
    parser.add_argument("--json", type=Path, help="where to write the table")
    options = parser.parse_args()
    build = options.build.resolve()
    if (
        not shutil.which("nvidia-smi")
        or subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.strip() == ""
    ):
        print("no NVIDIA GPU is visible here: nothing planted")
        return 77
    out = build / "planted"
    out.mkdir(exist_ok=True)
    known, rows, failed, start = numbers(), [], 0, time.time()
    chosen = [(f, v, t, cases.format(v=v.split("/")[1])) for f, v, t, cases in FAULTS if v.startswith(options.only)]
    with (
        concurrent.futures.ThreadPoolExecutor(2) as checks,
        concurrent.futures.ThreadPoolExecutor(options.jobs) as pool,
    ):
        sound = {key: checks.submit(run, build / "bin" / key[0], key[1]) for key in {(t, c) for _, _, t, c in chosen}}
        made = [
            pool.submit(try_one, build, fault, known[fault], variant, test, cases, out, sound[test, cases])
            for fault, variant, test, cases in chosen
        ]
        for (fault, variant, _, _), future in zip(chosen, made):
            verdict = future.result()
            failed += not verdict.startswith("caught")
            rows.append({"fault": fault, "variant": variant, "verdict": verdict})
            print(f"{fault:18} {variant:28} {verdict}, {time.time() - start:.0f} s", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{len(chosen) - failed} of {len(chosen)} planted faults were caught")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
