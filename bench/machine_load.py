# SPDX-License-Identifier: Apache-2.0
"""How busy other programs keep this machine while something is measured. The load average is of the last minute, and of
no use for that."""

import os
import platform
import resource
import time

QUIET = 0.05  # cores that others may use; more than that and microseconds say nothing


def processor():
    with open("/proc/cpuinfo") as f:
        named = [line.split(":")[1].strip() for line in f if line.startswith(("model name", "CPU part"))]
    return f"{platform.machine()} {named[0] if named else ''}".strip()


def cores():
    return len(os.sched_getaffinity(0))


class Others:
    """Cores that were busy with what is not this process or its children that have ended, from begin to end:
    with Others() as others: ...; others.cores"""

    def __enter__(self):
        self._begin = self._now()
        return self

    def __exit__(self, *_):
        wall, busy, own = (b - a for a, b in zip(self._begin, self._now()))
        # /proc/stat counts in hundredths of a second; what is below that is no work of others.
        self.cores = max(0.0, (busy - own) / wall)

    @staticmethod
    def _now():
        with open("/proc/stat") as f:
            user, nice, system, _idle, _wait, irq, soft, steal = map(int, f.readline().split()[1:9])
        busy = (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
        own = sum(
            getattr(resource.getrusage(who), field)
            for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
            for field in ("ru_utime", "ru_stime")
        )
        return time.monotonic(), busy, own


def busy_cores(seconds=3.0):
    """Before anything of ours runs."""
    with Others() as others:
        time.sleep(seconds)
    return others.cores
