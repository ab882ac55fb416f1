# SPDX-License-Identifier: Apache-2.0
"""What a thread that counts in Python keeps of its rate while another one loads, builds and runs an engine. Each has a
core of its own, so that the GIL is all they share. What the machine's cores take from each other (memory, caches) is
measured as well: the same work by another process, which shares no GIL. And the kernel says how long the counting
thread was asleep, which it is only while it waits for the GIL. A section of bench/library_calls.py, which runs this
file in a process."""

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
    words = [sys.executable, __file__, vit, model, bench.folder]
    with machine_load.Others() as others:
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, env=bench.environment)
    if done.returncode != 0:
        sys.exit(f"{__file__}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    said = json.loads(done.stdout)
    alone = said.pop("alone")["rate"]
    for what, found in said.items():
        rate, beside = found["rate"], found["beside"]["rate"]
        bench.row(f"a counting thread keeps during {what}", rate / alone, "of alone", others, KEEPS, False,
                  beside_another_process=beside / alone, of_beside=rate / beside)  # fmt: skip
        bench.row("  beside another process that does the same", beside / alone, "of alone", others)
        bench.row("  asleep, waiting for the GIL", found["asleep"], "of time", others)


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

    def awake(self):
        """Seconds on a core or waiting for one: the rest it was asleep."""
        ran, queued, _ = pathlib.Path(f"/proc/self/task/{self.native_id}/schedstat").read_text().split()
        return (int(ran) + int(queued)) / 1e9


def during(counter, work):
    """`work` is repeated until it has taken a while."""
    begin, count, awake = time.monotonic(), counter.count, counter.awake()
    while (seconds := time.monotonic() - begin) < SECONDS:
        work()
    return {"rate": (counter.count - count) / seconds, "asleep": max(0, 1 - (counter.awake() - awake) / seconds)}


def works(vit, model, folder):
    """name -> what is done again and again."""
    import numpy as np
    import tessera

    built = pathlib.Path(folder) / f"gil{os.getpid()}.tess"
    context = tessera.load(vit).context("batch1", threads=1, verify=False)
    x = np.zeros(context.inputs[0].shape, np.float32)
    y = context(x)
    return {
        "load (every weight read)": lambda: tessera.load(vit, check_constants=True),
        "build": lambda: tessera.build(model, built, precision="bf16", verify=False),
        "runs, one thread": lambda: context(x, out=y),
    }


def during_other_process(counter, words, name):
    """The same work in a process that shares no GIL; it says when it begins."""
    other = subprocess.Popen([sys.executable, __file__, *words, name], stdout=subprocess.PIPE)
    other.stdout.readline()
    found = during(counter, lambda: time.sleep(SECONDS))
    other.kill()
    other.wait()
    return found


def main():
    words, alone = sys.argv[1:4], sys.argv[4:]
    mine, its = sorted(os.sched_getaffinity(0))[:2] if not alone else (*os.sched_getaffinity(0), None)
    os.sched_setaffinity(0, {mine})  # before the library makes its threads: there will be one
    todo = works(*words)
    if alone:
        print("begins", flush=True)
        while True:
            todo[alone[0]]()
    counter = Counter(its)
    counter.start()
    said = {"alone": during(counter, lambda: time.sleep(SECONDS))}
    for name, work in todo.items():
        said[name] = during(counter, work) | {"beside": during_other_process(counter, words, name)}
    counter.stop = True
    counter.join()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
