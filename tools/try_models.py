#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which models of timm and transformers build, and whether they are right.

  python3 tools/try_models.py --tessera build/release/bin/tessera              # every name of models_to_try.py
  python3 tools/try_models.py resnet18 swin_tiny_patch4_window7_224 hf:detr    # these; any name of timm is known
  python3 tools/try_models.py --keep DIR --results FILE --table >> docs/models.md

Exports each model with both exporters of torch, small and with seeded random weights, builds it in fp32, runs it, and
compares its outputs with those of ONNX Runtime. Prints a line for each: the model, the exporter, and

  yes           the error: the largest over the outputs of the length of the difference, relative to that of the output;
                1e-5 at most
  rounding      it is above 1e-5, but so is that of f32 itself: ONNX Runtime is off f64 by at least half of what we are
  blind         an output hardly depends on the input (another one moves it by less than a hundredth of its length), so
                that a wrong layer would not show
  no            what the build says
  WRONG         the error
  not exported  what the exporter, or ONNX Runtime, says

--precisions builds each that is right for sm90 in fp16, fp8 and int8, without --allow and without running it, and runs
it on the CPU in bf16, fp8 and int8 (try_precisions.py says what the columns mean).

Random weights pass little on. Weights and statistics that start as one number (norms, layer scales) are made random, or
whole branches would add nothing; matrices are made as long as their fan-in asks for; batch norms get the statistics of
random pictures. Where ONNX Runtime has no kernel, or is further from torch's own outputs than 1e-4, these are compared.
Needs torch, timm, transformers, onnx, onnxruntime, onnxscript and scipy; no network."""

import argparse
import collections
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import warnings

from models_to_try import TIMM, TRANSFORMERS, Fixed, Ids
from more_models_to_try import MORE_TIMM, MORE_TRANSFORMERS
from try_precisions import COLUMNS, try_precisions

TIMM = {**TIMM, **MORE_TIMM}
TRANSFORMERS = {**TRANSFORMERS, **MORE_TRANSFORMERS}

TARGET_ERROR = 1e-5
LEAST_MOVE = 1e-2
LEAST_EXACT = 1e-4  # results of f32 that differ more than this from others of f32 are no oracle
VERDICTS = ("yes", "rounding", "blind", "no", "WRONG", "not exported")
RECOGNISED = ("attention", "norm", "matmul", "conv2d", "rotary")


def make_random(model, torch):
    """Weights and statistics that start as one number become random around it."""
    noise = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, value in list(model.named_parameters()) + list(model.named_buffers()):
            if not value.is_floating_point() or value.numel() < 2 or value.min() != value.max():
                continue
            if name.endswith("running_var"):
                value.copy_(0.5 + torch.rand(value.shape, generator=noise))
            elif value.flatten()[0].isfinite() and ("." in name or value.dim() > 1):
                value.add_(0.1 * torch.randn(value.shape, generator=noise))
        # Matrices that start so small that a layer passes next to nothing on: as long as their fan-in asks for.
        for value in model.parameters():
            if value.dim() < 2 or value.numel() < 2:
                continue
            wanted = value[0].numel() ** -0.5
            if 0 < value.std() < 0.5 * wanted:
                value.mul_(wanted / value.std())


def set_statistics(model, shapes, torch):
    """Batch norms normalise what reaches them: else a deep model's activations die out, or grow without end."""
    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    if not norms or any(isinstance(shape, Ids) for shape in shapes.values()):
        return
    for norm in norms:
        norm.train()
        norm.momentum = None  # statistics of this batch, and no others
        norm.reset_running_stats()
    random = torch.Generator().manual_seed(3)
    with torch.no_grad():
        model(*(torch.randn((4, *shape[1:]), generator=random) for shape in shapes.values()))
    for norm in norms:
        norm.eval()
        norm.running_var.lerp_(norm.running_var.mean(), 0.5)  # a channel that hardly varies would be blown up


def load_transformer(name, torch):
    """The model, whose forward gives the outputs that count, and the shapes of its inputs."""
    import functools

    import transformers

    kind, config, inputs, outputs = TRANSFORMERS[name]
    config = config(transformers)
    inner = functools.reduce(getattr, kind.split("."), transformers)(config)
    shapes = inputs if isinstance(inputs, dict) else {"": inputs}

    fixed = {key: shape.values for key, shape in shapes.items() if isinstance(shape, Fixed)}
    fixed = {key: torch.tensor(v) if isinstance(v, list) else v for key, v in fixed.items()}
    shapes = {key: shape for key, shape in shapes.items() if key not in fixed}

    class Picked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, *values):
            named = {**dict(zip(shapes, values)), **fixed}
            result = self.inner(named.pop(""), **named) if "" in named else self.inner(**named)
            return tuple(getattr(result, o) if o else result for o in outputs)

    return Picked(), {key or "x": shape for key, shape in shapes.items()}


def load(name, fused=True):
    """The model, in eval mode, and inputs for it, by name. `fused`: timm's attention is torch's, not spelt out."""
    import torch

    torch.manual_seed(1)
    if name.startswith("hf:"):
        model, shapes = load_transformer(name, torch)
    else:
        import timm

        timm.layers.set_fused_attn(fused)
        more = dict(TIMM.get(name, {"size": 0}))
        size = more.pop("size")
        model = timm.create_model(name, pretrained=False, **more)
        shapes = {"x": (1, 3, size, size) if size else (1, *model.default_cfg["input_size"])}
    model.eval()
    make_random(model, torch)
    set_statistics(model, shapes, torch)
    random = torch.Generator().manual_seed(2)
    inputs = {}
    for key, shape in shapes.items():
        if isinstance(shape, Ids):
            inputs[key] = torch.randint(shape.least, shape.below, shape.shape, generator=random)
        else:
            inputs[key] = torch.randn(shape, generator=random)
    return model, inputs


def export(name, exporter, path):
    import numpy as np
    import torch

    def write(fused):
        model, inputs = load(name, fused)
        values, words = tuple(inputs.values()), {"input_names": list(inputs)}
        with torch.no_grad():
            outputs = model(*values)
            if exporter == "dynamo":
                torch.onnx.export(model, values, path, dynamo=True, verbose=False, **words)
            else:
                torch.onnx.export(model, values, path, dynamo=False, opset_version=18, **words)
        return inputs, outputs

    try:
        inputs, outputs = write(fused=True)
    except TypeError:  # some of timm's models ask for torch's attention in a way that TorchScript does not take
        inputs, outputs = write(fused=False)
    outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    np.savez(path + ".torch.npz", **{str(i): value.numpy() for i, value in enumerate(outputs)})
    np.savez(path + ".npz", **{key: value.numpy() for key, value in inputs.items()})


def expected_outputs(path):
    """The outputs, by name, and how far another input moves the one that moves least."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        import onnx

        names = [o.name for o in onnx.load(path, load_external_data=False).graph.output]
        return outputs_of_torch(path, names), 1
    names = [o.name for o in session.get_outputs()]
    known = {i.name for i in session.get_inputs()}
    inputs = {key: value for key, value in np.load(path + ".npz").items() if key in known}
    changed = {key: np.ascontiguousarray(value[..., ::-1]) for key, value in inputs.items()}
    outputs = dict(zip(names, session.run(None, inputs)))
    other = dict(zip(names, session.run(None, changed)))
    return outputs, min(relative_error(other[name], outputs[name]) for name in names)


def outputs_of_torch(path, names):
    import numpy as np

    return dict(zip(names, np.load(path + ".torch.npz").values()))


def relative_error(got, expected):
    import numpy as np

    got, expected = got.astype(np.float64), expected.astype(np.float64)
    if got.shape != expected.shape:
        return float("inf")
    error = np.linalg.norm(got - expected) / max(np.linalg.norm(expected), 1e-30)
    return float(error) if np.isfinite(error) else float("inf")


def run_tessera(tessera, path, target, *more):
    """The outputs, or what the build or the run said."""
    import numpy as np

    engine, outputs = path + ".tess", path + ".out.npz"
    for words in (
        ["build", path, "-o", engine, "--precision", "fp32", "--target", target, *more],
        ["run", engine, "-i", path + ".npz", "-o", outputs],
    ):
        done = subprocess.run([tessera, *words, "--json"], capture_output=True, text=True)
        if done.returncode:
            try:
                return None, json.loads(done.stdout)["error"]
            except (ValueError, KeyError):
                return None, done.stderr.strip() or "exit code %d" % done.returncode
    return dict(np.load(outputs)), ""


def first_sentence(text):
    text = text.strip() if isinstance(text, str) else text.get("message", str(text))
    return text.split("\n")[0].split(". ")[0][:230]


def largest_error(got, expected):
    return max(relative_error(got[o], expected[o]) for o in expected)


def steps_of(tessera, engine):
    """How often each op occurs in the first plan: those that are recognised, and those that run one by one."""
    said = subprocess.run([tessera, "inspect", engine, "--json"], capture_output=True, text=True).stdout
    steps = collections.Counter(step["op"] for step in json.loads(said)["plans"][0]["steps"])
    listed = [[op for op in steps if (op in RECOGNISED) == wanted] for wanted in (True, False)]
    return [", ".join("%d %s" % (steps[op], op) for op in sorted(ops, key=lambda op: -steps[op])) for ops in listed]


def judge(args, path):
    """Verdict, text and steps of an exported model."""
    tessera, golden = args.tessera, ["--no-verify"] if args.no_verify else ["--golden-samples", "1"]
    try:
        expected, move = expected_outputs(path)
    except Exception as error:  # the exporter's file is not one that ONNX Runtime takes
        return "not exported", "ONNX Runtime: " + first_sentence(str(error)), ["", ""]
    got, message = run_tessera(tessera, path, args.target, *golden)
    if got is None:
        return "no", first_sentence(message), ["", ""]
    steps = steps_of(tessera, path + ".tess")
    if got.keys() != expected.keys():
        return "WRONG", "outputs %s instead of %s" % (sorted(got), sorted(expected)), steps
    error, torch = largest_error(got, expected), outputs_of_torch(path, list(expected))
    text, off = "%.1e" % error, largest_error(expected, torch)
    if error > TARGET_ERROR and off > LEAST_EXACT:
        expected, error = torch, largest_error(got, torch)
        text = "%.1e of torch, from which ONNX Runtime is off by %.1e" % (error, off)
    if error > TARGET_ERROR:
        exact, _ = run_tessera(tessera, path, "ref", "--no-verify")
        ours, theirs = (largest_error(outputs, exact) for outputs in (got, expected))
        text += ", off f64 by %.1e, theirs by %.1e" % (ours, theirs)
        return "rounding" if ours <= 2 * theirs <= 2 * LEAST_EXACT else "WRONG", text, steps
    if move < LEAST_MOVE:
        return "blind", "%s, outputs move by %.1e" % (text, move), steps
    return "yes", text, steps


def precisions(args, path):
    """What other precisions give, by column."""
    import numpy as np

    return try_precisions(args.tessera, path, dict(np.load(path + ".out.npz")))


def try_model(name, exporter, args, folder):
    """What is found out about one model."""
    path = os.path.join(folder, "%s.%s.onnx" % (name.replace(":", "_"), exporter))
    failed = path + ".failed"
    if not os.path.exists(path + ".npz") and not os.path.exists(failed):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                export(name, exporter, path)
            except Exception as error:  # an exporter fails in many ways; each is a row
                with open(failed, "w") as file:
                    file.write("%s: %s" % (type(error).__name__, first_sentence(str(error))))
    if os.path.exists(failed):
        with open(failed) as file:
            verdict, text, steps = "not exported", file.read(), ["", ""]
    else:
        verdict, text, steps = judge(args, path)
    row = {"verdict": verdict, "text": text, "recognised": steps[0], "others": steps[1]}
    if args.precisions and verdict in ("yes", "rounding", "blind"):
        row["precisions"] = precisions(args, path)
    return row


def print_table(results, exporters):
    """As docs/models.md has it."""
    import importlib.metadata

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    versions = ("torch", "timm", "transformers", "onnx", "onnxruntime", "onnxscript")
    said = ", ".join("%s %s" % (v, importlib.metadata.version(v).split("+")[0]) for v in versions)
    print("Made by `tools/try_models.py` at commit %s with %s.\n" % (commit, said))
    print("| exporter | " + " | ".join(VERDICTS) + " |\n" + "|---" * (1 + len(VERDICTS)) + "|")
    for exporter in exporters:
        rows = [r[exporter]["verdict"] for r in results.values() if exporter in r]
        print("| %s | %s |" % (exporter, " | ".join(str(rows.count(v)) for v in VERDICTS)))
    more = [c for c in COLUMNS if any(c in r[e].get("precisions", {}) for r in results.values() for e in r)]
    heads = ["model", *exporters, *more, "recognised", "op by op"]
    print("\n| %s |\n%s|" % (" | ".join(heads), "|---" * len(heads)))
    for name, row in sorted(results.items()):
        found = [row.get(e, {"verdict": "not tried", "text": "", "recognised": "", "others": ""}) for e in exporters]
        steps = next((f for f in found if f["recognised"] or f["others"]), found[0])
        words = [
            f["text"] if f["verdict"] == "yes" else ("%(verdict)s: %(text)s" % f).replace("|", "/").strip(": ")
            for f in found
        ]
        tried = next((f["precisions"] for f in found if "precisions" in f), {})
        words += [short(tried.get(c, "")) for c in more]
        print("| %s | %s | %s | %s |" % (name, " | ".join(words), steps["recognised"], steps["others"]))


def short(text):
    """Of a refusal the share, or the first line."""
    return text.split(":")[0] if " % refused" in text else first_sentence(text).replace("|", "/") if text else ""


def read_results(path):
    if path is None or not os.path.exists(path):
        return {}
    with open(path) as file:
        return json.load(file)


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("names", nargs="*", help="names of timm, or hf: names of models_to_try.py (default: all of it)")
    words.add_argument("--tessera", default="build/release/bin/tessera")
    words.add_argument("--target", default="cpu")
    words.add_argument("--exporters", default="torchscript,dynamo")
    words.add_argument("--keep", metavar="DIR", help="where exports stay; those that are there are not made again")
    words.add_argument("--results", metavar="FILE", help="json that rows are added to, and that --table reads")
    words.add_argument("--no-verify", action="store_true", help="make no golden values: faster")
    words.add_argument("--precisions", action="store_true", help="try lower precisions, too")
    words.add_argument("--table", action="store_true", help="try nothing, print the table of --results")
    args = words.parse_args()
    warnings.filterwarnings("ignore")
    results, exporters = read_results(args.results), args.exporters.split(",")
    if args.table:
        return print_table(results, exporters)
    counts = collections.Counter()
    with contextlib.ExitStack() as stack:
        folder = args.keep or stack.enter_context(tempfile.TemporaryDirectory())
        os.makedirs(folder, exist_ok=True)
        for name in args.names or [*TIMM, *TRANSFORMERS]:
            for exporter in exporters:
                row = try_model(name, exporter, args, folder)
                counts[row["verdict"]] += 1
                results.setdefault(name, {})[exporter] = row
                print("%s %s %s: %s" % (name, exporter, row["verdict"], row["text"]), flush=True)
                if args.results:
                    with open(args.results, "w") as file:
                        json.dump(results, file, indent=1)
    print("\n" + ", ".join("%s: %d" % item for item in sorted(counts.items())))
    return 1 if "WRONG" in counts else 0


if __name__ == "__main__":
    sys.exit(main())
