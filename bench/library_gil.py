# SPDX-License-Identifier: Apache-2.0
"""What a thread that counts in Python keeps of its rate while another one loads, builds and runs an engine. Each has a
core of its own, so that the GIL is all they share; what the machine's cores take from each other is measured as well,
with another program on the same core. A section of bench/library_calls.py, which runs this file in a process."""

import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import library_peers
import machine_load

KEEPS = 0.9
SECONDS = 1.5


def measure(bench):
    vit = library_peers.vit_engine(bench, "bf16")
    model = library_peers.vit_model(bench)
    words = [sys.executable, __file__, vit, model, bench.folder, bench.program]
    with machine_load.Others() as others:
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, env=bench.environment)
    if done.returncode != 0:
        sys.exit(f"{__file__}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    rates = json.loads(done.stdout)
    alone, beside = rates.pop("alone"), rates.pop("beside")
    bench.row("a counting thread beside another program", beside / alone, "of alone", others)
    for what, rate in rates.items():
        bench.row(f"a counting thread keeps during {what}", rate / alone, "of alone", others, KEEPS, False,
                  of_beside=rate / beside)  # fmt: skip


class Counter(threading.Thread):
    def __init__(self, core):
        super().__init__(daemon=True)
        self.core, self.count, self.stop = core, 0, False

    def run(self):
        os.sched_setaffinity(0, {self.core})
        while not self.stop:
            for _ in range(500):
                pass
            self.count += 500


def rate_during(counter, work):
    """`work` is repeated until it has taken a while."""
    begin, count = time.monotonic(), counter.count
    while (seconds := time.monotonic() - begin) < SECONDS:
        work()
    return (counter.count - count) / seconds


def main():
    vit, model, folder, program = sys.argv[1:]
    mine, its = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {mine})  # before the library makes its threads: there will be one
    import numpy as np
    import tessera

    counter = Counter(its)
    counter.start()
    rates = {"alone": rate_during(counter, lambda: time.sleep(SECONDS))}
    working = subprocess.Popen([program, "bench", vit, "--plan", "batch1", "--repeats", "100000", "--threads", "1"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    time.sleep(1)
    rates["beside"] = rate_during(counter, lambda: time.sleep(SECONDS))
    working.kill()
    working.wait()
    rates["load (every weight read)"] = rate_during(counter, lambda: tessera.load(vit, check_constants=True))
    built = pathlib.Path(folder) / "gil.tess"
    rates["build"] = rate_during(counter, lambda: tessera.build(model, built, precision="bf16", verify=False))
    context = tessera.load(vit).context("batch1", threads=1, verify=False)
    x = np.zeros(context.inputs[0].shape, np.float32)
    y = context(x)
    rates["runs, one thread"] = rate_during(counter, lambda: context(x, out=y))
    counter.stop = True
    counter.join()
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
