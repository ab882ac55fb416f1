#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of results, and what a new run changes in them.

  python3 bench/store.py FROM [--into bench/results/h200]

takes the results of a folder that a run on another machine wrote.

Each file is {"gpu", "runs": {id: run}, "rows": [...]}; each row names its run (bench/runs.py). The rules:
- our own rows are those of the newest run, better or worse; a row that a run left out for lack of time stays as it
  was, with its own run;
- peers.json holds the newest figures of each peer; a peer that failed keeps its earlier ones;
- known_peers.json holds the best figure of each peer's precision for each work: a worse one never replaces it."""

import argparse
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from goals import WORKS, better, peer_candidates, summary  # noqa: E402

LEFT_OUT = "left out:"


def group(name, row):
    """Rows that are replaced together: a bench of an op is run whole, so a variant that is gone leaves no row
    behind."""
    if name == "ops":
        return row["op"]
    if name == "peers":
        return (row.get("script"), row.get("model"), row.get("batch") if row.get("model") else None)
    return tuple(row.get(k) for k in ("peer", "axis", "model", "precision", "batch", "x"))


def figures(rows):
    return any(k in r for r in rows for k in ("ms", "us", "fp16_us", "cos_mean"))


def merge_rows(name, old, new):
    """`old` with the groups of `new` in their place. Rows of `new` are of a later run, or of the same one."""
    groups = {}
    for row in new:
        groups.setdefault(group(name, row), []).append(row)
    kept = {}
    for key, rows in groups.items():
        before = [r for r in old if group(name, r) == key]
        left_out = all(str(r.get("error", "")).startswith(LEFT_OUT) for r in rows)
        failed = not figures(rows)
        kept[key] = before if before and (left_out or (name == "peers" and failed)) else rows
    out, done = [], set()
    for row in old + new:
        key = group(name, row)
        if key not in kept:
            out.append(row)
        elif key not in done:
            done.add(key)
            out += kept[key]
    return out


def better_known(old, new):
    """Per work and precision the best figure. A refusal stands only where there is no figure."""
    best = {(r["work"], r["precision"]): r for r in old}
    for r in new:
        key = (r["work"], r["precision"])
        known = best.get(key)
        if known is None or ("value" in r and ("value" not in known or better(r["unit"], r["value"], known["value"]))):
            best[key] = r
    order = {w.name: i for i, w in enumerate(WORKS)}
    return sorted(best.values(), key=lambda r: (order.get(r["work"], len(order)), r["precision"]))


def read(folder, name):
    path = os.path.join(folder, f"{name}.json")
    if not os.path.exists(path):
        return {"runs": {}, "rows": []}
    with open(path) as f:
        return json.load(f)


def write(folder, name, record):
    path = os.path.join(folder, f"{name}.json")
    with open(path + ".new", "w") as f:
        json.dump(record, f, indent=1)
        f.write("\n")
    os.replace(path + ".new", path)


def used_runs(runs, *rows, newest=None):
    """The runs that rows name, and the newest: it says what failed or was left out."""
    names = {r["run"] for part in rows for r in part if r.get("run")} | ({newest} if newest else set())
    return {name: runs[name] for name in sorted(names) if name in runs}


def newest(runs):
    return max(runs, key=lambda name: runs[name]["date"], default=None)


def store(folder, gpu, runs, records, extra=None):
    """Puts records, {"vit": rows, "cosine": rows, "ops": rows, "growth": rows, "peers": rows, "known": rows}, into
    the files of a folder, and makes the summary anew. A row without a run gets the newest of `runs`. Returns the
    summary's rows."""
    last = newest(runs)
    records = {name: [{**r, "run": r.get("run", last)} for r in rows] for name, rows in records.items()}
    extra = extra or {}
    for name in ("vit", "ops", "growth", "peers"):
        parts = [p for p in (name, "cosine" if name == "vit" else None) if p in records]
        if not parts:
            continue
        old = read(folder, name)
        rows = {p: merge_rows(p, old.get("cosine" if p == "cosine" else "rows", []), records[p]) for p in parts}
        record = (
            {k: v for k, v in old.items() if k not in ("runs", "rows", "cosine", "command")}
            | {"gpu": gpu}
            | extra.get(name, {})
        )
        record["runs"] = {}
        record["rows"] = rows.get(name, old["rows"])
        if name == "vit":
            record["cosine"] = rows.get("cosine", old.get("cosine", []))
        record["runs"] = used_runs(old["runs"] | runs, record["rows"], record.get("cosine", []), newest=last)
        write(folder, name, record)
    if "peers" in records or "known" in records:
        old = read(folder, "known_peers")
        found = [c for w in WORKS for c in peer_candidates(w, records.get("peers", []))]
        rows = better_known(old["rows"], records.get("known", []) + found)
        write(folder, "known_peers", {"gpu": gpu, "runs": used_runs(old["runs"] | runs, rows), "rows": rows})
    vit, ops, known = read(folder, "vit"), read(folder, "ops"), read(folder, "known_peers")
    rows = summary(vit["rows"], ops["rows"], known["rows"])
    write(
        folder,
        "summary",
        {
            "gpu": gpu,
            "runs": used_runs(
                vit["runs"] | ops["runs"] | known["runs"],
                rows,
                [r["best_peer"] or {} for r in rows],
                [r["faster_peer"] or {} for r in rows],
            ),
            "rows": rows,
        },
    )
    return rows


def take(source, folder):
    """Merges what lies in `source`, file by file, run by run, oldest first: taking twice changes nothing."""
    for name in ("vit", "ops", "growth", "peers", "known_peers"):
        theirs, ours = read(source, name), read(folder, name)
        for run in sorted(theirs["runs"], key=lambda r: theirs["runs"][r]["date"]):
            of_run = lambda rows: [r for r in rows if r.get("run") == run]
            old = (
                {group(name, r): ours["runs"].get(r.get("run"), {}).get("date", "") for r in ours["rows"]}
                if name != "known_peers"
                else {}
            )
            later = lambda rows, part: [r for r in rows if theirs["runs"][run]["date"] >= old.get(group(part, r), "")]
            records = {"known" if name == "known_peers" else name: later(of_run(theirs["rows"]), name)}
            if name == "vit":
                dates = {
                    group("cosine", r): ours["runs"].get(r.get("run"), {}).get("date", "")
                    for r in ours.get("cosine", [])
                }
                records["cosine"] = [
                    r
                    for r in of_run(theirs.get("cosine", []))
                    if theirs["runs"][run]["date"] >= dates.get(group("cosine", r), "")
                ]
            if any(records.values()):
                store(
                    folder,
                    theirs["gpu"],
                    {run: theirs["runs"][run]},
                    {k: v for k, v in records.items() if v},
                    {name: {k: v for k, v in theirs.items() if k in ("peaks", "model")}},
                )


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("--into", default="bench/results/h200")
    args = parser.parse_args(argv)
    if not any(os.path.exists(os.path.join(args.source, f"{n}.json")) for n in ("vit", "ops", "growth", "peers")):
        parser.error(f"{args.source}: no results there")
    take(args.source, args.into)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
