#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each precision costs in accuracy, on trained models, engine by engine, against the model in fp32.

  python3 tools/accuracy.py --data DIR [--minilm DIR] [--only 'NAME|PATTERN'] [--again] [--out docs/accuracy.md]
                            [--json FILE] [--images N]

--data:   a folder with vit.onnx or vit.onnx.gz (input `image` [n,3,32,32], output `logits`), calib.npz (`image`
          uint8 [n,32,32,3]) and test.npz (`image`, `label`, and `logits` in fp32): a ViT trained on CIFAR-10.
--minilm: the folder that `tools/minilm.py export` wrote.
The program is TESSERA_PROGRAM (default build/tessera); engines are for the CPU, where every precision runs. Needs
numpy. Every row is a build and a run of the program as a user would do them; its options and its run (date, commit,
machine) stand in the JSON (bench/results/accuracy.json). Rows that the JSON has already are not measured again, but
for those of --only with --again. A row with a figure that fails when it is measured again loses it."""

import argparse
import datetime
import fnmatch
import gzip
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
from runs import commit_of_tree  # noqa: E402

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

# name, options of `build`, least mean cosine asked of the CIFAR ViT (None: none); where one is, top-1 may fall by 0.8
# points
PRECISIONS = [
    ("fp16", "--precision fp16", None),
    ("bf16", "--precision bf16", None),
    ("fp8", "--precision fp8", None),
    ("fp8, weights per tensor", "--precision fp8_tensor", None),
    ("fp8, activations per token", "--precision fp8_token", None),
    ("fp8, fp8 attention", "--precision fp8 --attention fp8", 0.9990),
    ("mxfp8", "--precision mxfp8", 0.9990),
    ("mxfp8, fp8 attention", "--precision mxfp8 --attention fp8", None),
    ("w4a16", "--precision w4a16", 0.9988),
    ("w4a8", "--precision w4a8", 0.998),
    ("nvfp4", "--precision nvfp4", 0.995),
    ("int8", "--precision int8", None),
    ("recipe default", "--recipe default", 0.997),
]
SPARSE = "--sparsity 2:4"
REFINEMENTS = [
    ("smooth", "smooth"),
    ("awq", "awq"),
    ("clip", "clip"),
    ("compensate", "compensate"),
    ("clip, compensate", "clip,compensate"),
    ("awq, clip, compensate", "awq,clip,compensate"),
    ("smooth, clip, compensate", "smooth,clip,compensate"),
]


def rows_asked():
    """Sections of the table: title, rows (name, options, least cosine, least top-1 of the CIFAR ViT in percent)."""
    sections = [("Precisions", [(n, o, c, 74.53 if c else None) for n, o, c in PRECISIONS])]
    sections.append(
        (
            "2:4 by the Hessian method",
            [(n + ", 2:4", o + " " + SPARSE, None, {"fp16": 73.5, "fp8": 73.0}.get(n)) for n, o, _ in PRECISIONS],
        )
    )
    sections.append(
        (
            "2:4, method by method",
            [
                ("fp16, 2:4 by magnitude", f"--precision fp16 {SPARSE} --sparsity-by magnitude", None, None),
                ("fp16, 2:4 by Hessian", f"--precision fp16 {SPARSE} --sparsity-by hessian", None, 73.5),
                ("fp16, pairwise 4:8 by Hessian", "--precision fp16 --sparsity 4:8 --sparsity-by hessian", None, None),
            ],
        )
    )
    for base in ("nvfp4", "w4a16", "w4a8"):
        rows = [(f"{base}, none", f"--precision {base}", None, None)]
        rows += [(f"{base}, {n}", f"--precision {base} --refine {o}", None, None) for n, o in REFINEMENTS]
        if base == "nvfp4":
            rows.append(
                (
                    "nvfp4, the first block in fp8, awq, clip, compensate",
                    "--precision nvfp4 --allow blocks.0.*=fp8 --refine awq,clip,compensate",
                    0.997,
                    74.53,
                )
            )
        sections.append((f"Refinements of {base}", rows))
    sections.append(
        (
            "Refinements of 8 bits",
            [
                ("int8, none", "--precision int8", None, None),
                ("int8, smooth", "--precision int8 --refine smooth", None, None),
                ("int8, compensate", "--precision int8 --refine compensate", None, None),
                ("fp8, smooth", "--precision fp8 --refine smooth", None, None),
                ("fp8, compensate", "--precision fp8 --refine compensate", None, None),
            ],
        )
    )
    sections.append(
        (
            "Calibration",
            [
                (f"{p}, {m}", f"--precision {p} --calib-method {m}", None, None)
                for p in ("fp8", "int8")
                for m in ("amax", "percentile=99.99", "mse")
            ],
        )
    )
    return sections


def call(program, words):
    done = subprocess.run([program, *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(
            f"exit {done.returncode}: "
            f"{(done.stderr or done.stdout).strip().splitlines()[-1] if done.stderr or done.stdout else ''}"
        )
    return done.stdout


class Model:
    """A model file, its samples, and how a row is judged."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name

    def run(self, program, options, scratch):
        engine, out = f"{scratch}/engine.tess", f"{scratch}/out.npz"
        # Precisions without static scales take no calibration data; whether they do is the program's to say.
        words = ["build", self.model, "-o", engine, "--batch", str(self.batch), "--min-cosine", "0", *options.split()]
        start = time.time()
        try:
            call(program, [*words, "--calib", self.calib])
        except RuntimeError as error:
            if "--calib" not in str(error):
                raise
            call(program, words)
        built = time.time() - start
        call(program, ["run", engine, "--inputs", self.samples, "--outputs", out])
        return {"build_s": round(built, 1), "engine_bytes": os.path.getsize(engine), **self.judge(out)}


class Cifar(Model):
    batch = 50

    def __init__(self, data, scratch, images):
        import numpy as np

        super().__init__(data, "CIFAR-10 ViT")
        self.model, self.calib, self.samples = f"{scratch}/vit.onnx", f"{scratch}/calib.npz", f"{scratch}/test.npz"
        packed = f"{data}/vit.onnx.gz"
        with (
            gzip.open(packed) if os.path.exists(packed) else open(f"{data}/vit.onnx", "rb") as source,
            open(self.model, "wb") as to,
        ):
            shutil.copyfileobj(source, to)

        def normalised(array):
            x = (array.astype(np.float32) / 255 - np.array(MEAN, np.float32)) / np.array(STD, np.float32)
            return np.ascontiguousarray(x.transpose(0, 3, 1, 2))

        np.savez(self.calib, image=normalised(np.load(f"{data}/calib.npz")["image"]))
        test = np.load(f"{data}/test.npz")
        np.savez(self.samples, image=normalised(test["image"][:images]))
        self.logits, self.labels = test["logits"][:images].astype(np.float64), test["label"][:images]
        self.top1 = float((self.logits.argmax(1) == self.labels).mean())
        calibration = len(np.load(f"{data}/calib.npz")["image"])
        self.what = (
            f"{len(self.labels)} test images, fp32 top-1 {100 * self.top1:.2f} %, {calibration} calibration images"
        )

    def judge(self, out):
        import numpy as np

        got = np.load(out)["logits"].astype(np.float64)
        cosine = (got * self.logits).sum(1) / np.linalg.norm(got, axis=1) / np.linalg.norm(self.logits, axis=1)
        return {
            "cosine": float(cosine.mean()),
            "cosine_worst": float(cosine.min()),
            "top1": float((got.argmax(1) == self.labels).mean()),
            "agrees": float((got.argmax(1) == self.logits.argmax(1)).mean()),
        }

    head = "| precision | mean cosine | worst cosine | top-1 | same class as fp32 | engine | asked |"

    def line(self, name, r, least, top1):
        asked, met = [], True
        if least:
            asked.append(f"cosine {least}")
            met = met and r["cosine"] >= least
        if top1:
            asked.append(f"top-1 {top1} %")
            met = met and 100 * r["top1"] >= top1 - 1e-9
        verdict = f"{', '.join(asked)}: {'met' if met else '**missed**'}" if asked else ""
        return (
            f"| {name} | {r['cosine']:.5f} | {r['cosine_worst']:.4f} | {100 * r['top1']:.2f} % | "
            f"{100 * r['agrees']:.1f} % | "
            f"{r['engine_bytes'] / 1e6:.1f} MB | {verdict} |"
        )


class Minilm(Model):
    batch = 8

    def __init__(self, folder):
        import numpy as np

        super().__init__(folder, "all-MiniLM-L6-v2")
        self.model, self.calib, self.samples = (f"{folder}/{n}" for n in ("minilm.onnx", "calib.npz", "sentences.npz"))
        self.want = np.load(f"{folder}/original.npz")["embedding"].astype(np.float64)
        self.upper = np.triu_indices(len(self.want), 1)
        self.what = f"{len(self.want)} sentences, {len(self.upper[0])} pairs, calibrated on other sentences"

    def judge(self, out):
        import numpy as np

        got = np.load(out)["sentence_embedding"].astype(np.float64)
        cosine = (got * self.want).sum(1) / np.linalg.norm(got, axis=1) / np.linalg.norm(self.want, axis=1)
        off = np.abs((got @ got.T)[self.upper] - (self.want @ self.want.T)[self.upper])
        return {
            "cosine": float(cosine.mean()),
            "cosine_worst": float(cosine.min()),
            "worst_similarity_error": float(off.max()),
            "mean_similarity_error": float(off.mean()),
        }

    head = "| precision | mean cosine | worst cosine | worst error of a similarity | mean | engine |"

    def line(self, name, r, least, top1):
        return (
            f"| {name} | {r['cosine']:.5f} | {r['cosine_worst']:.4f} | {r['worst_similarity_error']:.1e} | "
            f"{r['mean_similarity_error']:.1e} | "
            f"{r['engine_bytes'] / 1e6:.1f} MB |"
        )


def cpu_name():
    """Kernels on Arm do not give their processor's name; lscpu knows it."""
    try:
        text = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
        name = next((line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("Model name")), "")
    except OSError:
        name = ""
    return f"{platform.machine()}{', ' + name if name else ''}, {os.cpu_count()} cores"


def make_run(args):
    """(id, record), as bench/runs.py has them for GPUs."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    commit, dirty = commit_of_tree()
    words = (
        ["--data DIR"] * bool(args.data)
        + ["--minilm DIR"] * bool(args.minilm)
        + ["--again"] * args.again
        + [f"--only '{args.only}'"] * (args.only != "*")
    )
    command = " ".join(["python3 tools/accuracy.py", *words])
    return f"{now} {(commit or 'unknown')[:10]}", {
        "date": now,
        "commit": commit,
        "dirty": dirty,
        "machine": cpu_name(),
        "command": command,
    }


def run_line(run):
    code = (
        f"commit {run['commit'][:10]}" + (" with changes" if run["dirty"] else "")
        if run["commit"]
        else f"recorded with commit {run['committed_with']}"
    )
    return f"{run['date'][:10]}, {code}, {run['machine']}"


def wanted(name, only):
    return any(fnmatch.fnmatch(name, pattern) for pattern in only.split("|"))


def measure(model, program, only, scratch, rows, save, known_only, again, run):
    """Lines of a document; rows for the JSON are added to `rows`, and what is there already is taken from it."""
    lines = [f"## {model.name}", "", model.what + ".", ""]
    known = {r["options"]: r for r in rows if r["model"] == model.name and "error" not in r}
    fresh = set()
    for title, asked in rows_asked():
        # Rows that name the ViT's layers are its own.
        chosen = [
            row
            for row in asked
            if (row[1] in known or (wanted(row[0], only) and not known_only))
            and (isinstance(model, Cifar) or "blocks." not in row[1])
        ]
        if not chosen:
            continue
        lines += [f"### {title}", "", model.head, "|" + "---|" * (model.head.count("|") - 1)]
        for name, options, least, top1 in chosen:
            try:
                if options not in known or (again and wanted(name, only) and options not in fresh):
                    rows[:] = [r for r in rows if (r["model"], r["options"]) != (model.name, options)]
                    fresh.add(options)
                    known[options] = {
                        "model": model.name,
                        "options": options,
                        **model.run(program, options, scratch),
                        "run": run,
                    }
                    rows.append(known[options])
                    save()
                lines.append(model.line(name, known[options], least, top1))
            except RuntimeError as error:
                lines.append(f"| {name} | {error} |" + " |" * (model.head.count("|") - 3))
                rows.append({"model": model.name, "options": options, "error": str(error), "run": run})
            print(lines[-1], flush=True)
        lines.append("")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--minilm")
    parser.add_argument("--only", default="*")
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--out")
    parser.add_argument("--json")
    parser.add_argument("--again", action="store_true", help="measure the rows of --only although the JSON has them")
    parser.add_argument("--known", action="store_true", help="write what the JSON has, measure nothing")
    args = parser.parse_args()
    if not args.data and not args.minilm:
        parser.error("give --data or --minilm")
    program = os.environ.get("TESSERA_PROGRAM", "build/tessera")
    lines, rows, runs, top1 = [], [], {}, None
    if args.json and os.path.exists(args.json):
        with open(args.json) as f:
            record = json.load(f)
        rows, runs, top1 = [r for r in record["rows"] if "error" not in r], record["runs"], record.get("fp32_top1")
    run, made = make_run(args)
    runs[run] = made

    def save():
        if args.json:
            used = {name: runs[name] for name in sorted({r["run"] for r in rows})}
            with open(args.json + ".new", "w") as f:
                json.dump({"fp32_top1": models[0].top1 if args.data else top1, "runs": used, "rows": rows}, f, indent=1)
                f.write("\n")
            os.replace(args.json + ".new", args.json)

    with tempfile.TemporaryDirectory() as scratch:
        models = ([Cifar(args.data, scratch, args.images)] if args.data else []) + (
            [Minilm(args.minilm)] if args.minilm else []
        )
        for model in models:
            lines += measure(model, program, args.only, scratch, rows, save, args.known, args.again, run)
    save()
    if args.out:
        head, kept = "# Accuracy", []
        if os.path.exists(args.out):
            with open(args.out) as f:
                head, _, measured = f.read().partition("<!-- measured -->")
            # Models that were not given now keep their tables.
            kept = [
                part.rstrip()
                for part in re.split(r"(?m)^(?=## )", measured)[1:]
                if part.splitlines()[0][3:] not in {m.name for m in models}
            ]
        used = sorted({r["run"] for r in rows})
        counts = [f"- {run_line(runs[name])}: {sum(r['run'] == name for r in rows)} rows" for name in used]
        text = "\n".join(["Runs:", "", *counts, "", *lines]).rstrip()
        with open(args.out, "w") as f:
            f.write("\n\n".join([head.rstrip(), "<!-- measured -->", text, *kept]) + "\n")
    return 1 if any("error" in r for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
