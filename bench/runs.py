# SPDX-License-Identifier: Apache-2.0
"""What a run was: date, commit, machine, driver, clocks, command. Every row under bench/results names its run."""

import datetime
import os
import subprocess

COMMIT_FILE = "carry/commit"  # git ignores it: for trees that are copied to the GPU machine without their .git
SMI = {
    "driver": "driver_version",
    "sm_mhz": "clocks.sm",
    "max_sm_mhz": "clocks.max.sm",
    "mem_mhz": "clocks.mem",
    "power_limit_w": "power.limit",
    "power_w": "power.draw",
    "celsius": "temperature.gpu",
}


def said(words, timeout=60):
    """What a command prints; None where it fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def commit_of_tree():
    """(commit, whether tracked files differ from it), or (None, None). TESSERA_COMMIT first, then git, then the file
    that the caller wrote; a commit that ends in -dirty says so itself. Results do not make a tree dirty: a run
    writes them."""
    text = os.environ.get("TESSERA_COMMIT", "")
    if not text:
        head = said(["git", "rev-parse", "HEAD"])
        if head:
            changes = said(["git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results"])
            return head, changes is None or bool(changes)
        if os.path.exists(COMMIT_FILE):
            with open(COMMIT_FILE) as f:
                text = f.read().strip()
    if not text:
        return None, None
    return text.removesuffix("-dirty"), text.endswith("-dirty")


def gpu_name():
    text = said(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"])
    return text.splitlines()[0].strip() if text else "none"


def gpu_state():
    """Driver, clocks, power and temperature of this moment; what nvidia-smi does not say is None."""
    text = said(["nvidia-smi", f"--query-gpu={','.join(SMI.values())}", "--format=csv,noheader,nounits"])
    words = [w.strip() for w in text.splitlines()[0].split(",")] if text else []
    if len(words) != len(SMI):
        words = [""] * len(SMI)

    def number(word):
        try:
            return float(word)
        except ValueError:
            return None

    return {name: (word or None) if name == "driver" else number(word) for name, word in zip(SMI, words)}


class Run:
    """The record of the run under way."""

    def __init__(self, command):
        now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
        commit, dirty = commit_of_tree()
        state = gpu_state()
        self.id = f"{now.isoformat().replace('+00:00', 'Z')} {(commit or 'unknown')[:10]}"
        self.record = {
            "date": now.isoformat().replace("+00:00", "Z"),
            "commit": commit,
            "dirty": dirty,
            "machine": gpu_name(),
            "driver": state.pop("driver"),
            "clocks": {"start": state},
            "versions": {},
            "command": command,
            "measured_by": "bench/gpu_bench.py",
            "failed": [],
            "left_out": [],
        }

    def sample(self, section):
        """The clocks right after a section, while the chip is as warm as it was then."""
        self.record["clocks"][section] = {k: v for k, v in gpu_state().items() if k != "driver"}
