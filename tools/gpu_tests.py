#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU tests of a build, side by side: the reference of each test runs on the host, so one program at a time leaves
the GPU idle. Programs are cut into gtest's shards; each process writes receipts of its own, which are merged at the
end.

  python3 tools/gpu_tests.py BUILD [--receipts FILE] [--jobs N] [-R REGEX] [--log FOLDER] [--limit SECONDS]

A process that is still running after the limit is killed and counts as failed. A variant of a program that failed gets
no receipt. The last line says how many tests passed, failed and were skipped."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

PER_SHARD = 1  # tests that are worth a process: starting CUDA takes about half a second, a test up to a minute


def gpu_tests(build, pattern):
    """{name: command} of ctest's entries with the label gpu."""
    listed = subprocess.run(
        ["ctest", "--test-dir", build, "-L", "gpu", "--show-only=json-v1"], capture_output=True, text=True, check=True
    )
    tests = json.loads(listed.stdout)["tests"]
    return {t["name"]: t["command"] for t in tests if "command" in t and re.search(pattern, t["name"])}


def count_cases(command):
    listed = subprocess.run([*command, "--gtest_list_tests"], capture_output=True, text=True, check=False)
    return sum(line.startswith("  ") for line in listed.stdout.splitlines())


def run_shard(name, command, shard, shards, receipts, log, deadline):
    """(name, passed, failed, skipped, seconds, the end of the output where it failed)"""
    env = dict(os.environ, GTEST_TOTAL_SHARDS=str(shards), GTEST_SHARD_INDEX=str(shard), TESSERA_RECEIPTS=str(receipts))
    start = time.time()
    path = log / f"{name}_{shard}.log"
    with open(path, "w") as out:
        try:
            left = max(1, deadline - start)
            rc = subprocess.run(command, env=env, stdout=out, stderr=subprocess.STDOUT, timeout=left).returncode
        except subprocess.TimeoutExpired:
            rc = 124
    text = path.read_text(errors="replace")

    def count(word):
        return sum(map(int, re.findall(rf"^\[ +{word} +\] (\d+) tests?", text, re.M)))

    failed = count("FAILED")
    if rc != 0 and failed == 0:
        failed = 1
    bad = "" if rc == 0 else f"exit code {rc}\n" + "\n".join(text.splitlines()[-40:])
    return name, count("PASSED"), failed, count("SKIPPED"), time.time() - start, bad


def merge(files, broken, target):
    """Variants that ran get the suites that ran, together; those of other variants stay. `files`: {(program, shard):
    file}. What a broken program tested gets no receipt."""
    new, untrue = {}, set()
    for (program, _), file in files.items():
        for variant, record in json.loads(file.read_text()).items() if file.exists() else ():
            if program in broken:
                untrue.add(variant)
            known = new.setdefault(variant, {**record, "suites": {}})
            known["suites"].update(record["suites"])
    old = json.loads(target.read_text()) if target.exists() else {}
    for variant in untrue:
        new.pop(variant), old.pop(variant, None)
    for variant, record in new.items():
        before = old.get(variant, {})
        same = all(before.get(key) == record[key] for key in ("hash", "compiler"))
        suites = {**(before["suites"] if same else {}), **record["suites"]}
        record["suites"] = dict(sorted(suites.items()))
        record["tests"] = sum(s["tests"] for s in suites.values())
        record["worst_error"] = max(s["worst_error"] for s in suites.values())
        old[variant] = dict(sorted(record.items()))
    target.write_text(json.dumps(dict(sorted(old.items())), indent=2) + "\n")
    return sorted(new)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--receipts", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("-R", dest="pattern", default="")
    parser.add_argument("--log", type=pathlib.Path)
    parser.add_argument("--limit", type=float, default=3600)
    o = parser.parse_args()
    deadline = time.time() + o.limit
    tests = gpu_tests(o.build, o.pattern)
    if not tests:
        sys.exit("gpu_tests: no GPU test of that name in this build")
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        log = o.log or pathlib.Path(scratch)
        log.mkdir(parents=True, exist_ok=True)
        cases = dict(zip(tests, pool.map(count_cases, tests.values())))
        work, files = [], {}
        for name in sorted(tests, key=lambda n: -cases[n]):
            shards = max(1, min(o.jobs, cases[name] // PER_SHARD))
            for shard in range(shards):
                files[name, shard] = pathlib.Path(scratch) / f"{name}_{shard}.json"
                work.append((name, tests[name], shard, shards, files[name, shard], log, deadline))
        sums, broken = {}, set()
        for job in concurrent.futures.as_completed([pool.submit(run_shard, *w) for w in work]):
            name, passed, failed, skipped, seconds, bad = job.result()
            row = sums.setdefault(name, [0, 0, 0, 0.0])
            for i, more in enumerate((passed, failed, skipped, seconds)):
                row[i] += more
            if bad:
                broken.add(name)
                print(f"FAILED: {name}\n{bad}", flush=True)
        for name, (passed, failed, skipped, seconds) in sorted(sums.items()):
            print(f"{name:44} {passed:5} passed {failed:3} failed {skipped:5} skipped {seconds:8.1f} s of processes")
        if o.receipts is not None:
            print("receipts:", ", ".join(merge(files, broken, o.receipts)))
    totals = [sum(row[i] for row in sums.values()) for i in range(3)]
    print("%d passed, %d failed, %d skipped" % tuple(totals))
    return 1 if totals[1] else 0


if __name__ == "__main__":
    sys.exit(main())
