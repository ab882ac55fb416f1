#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each precision of a robot policy costs in accuracy, against PyTorch in fp32 on the same machine.

  python3 bench/policy_accuracy.py --oracle pi05_reference.py [--config small.json | --model DIR] [--target sm90]

--oracle: a PyTorch program of pi0 and pi0.5 in openpi's names (classes Cfg and Pi0, function load_openpi). Both load
one folder with a model.safetensors: --model, or seeded random weights that the program writes (`tessera policy
weights --random 1`, published sizes unless --config has others). Observations are seeded, with fixed noise; some have
fewer words, some a camera less. Of each: the relative L2 error of K and V (all layers, valid rows), of the first
velocity, and of what the steps add to the noise, against the oracle in fp32 without TF32. The worst observation
counts.
  bf16           at most the larger of 2 % and 1.2 times the error of openpi's own bf16
  fp8, fp8_bf16  at most 1.15 times the error of the oracle in fp32 whose linear layers are rounded to the engine's own
                 codes: e4m3, the scales that `tessera inspect --json --scales` says, one for each channel of a weight
                 (its codes are checked to be those that the scales make) and a static one for each input
  fp32           at most 1e-4; not asked for unless --precisions names it
Needs torch, safetensors and numpy. The program is TESSERA_PROGRAM (default build/tessera). Prints a table, or with
--json FILE writes it too; exit code 1 where a row fails."""

import argparse
import collections
import concurrent.futures
import dataclasses
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from runs import Run  # noqa: E402

PROGRAM = os.environ.get("TESSERA_PROGRAM", str(HERE.parent / "build" / "tessera"))
QUANTITIES = ("K", "V", "v0", "actions - noise")
FP8_MAX = 448.0
LEAST_BF16, TIMES_BF16, TIMES_FP8, MOST_FP32 = 0.02, 1.2, 1.15, 1e-4


def tessera(*words):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"tessera {' '.join(map(str, words))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Clock:
    def __init__(self):
        self.last, self.seconds = time.monotonic(), {}

    def lap(self, name):
        now = time.monotonic()
        self.seconds[name] = round(now - self.last, 1)
        self.last = now


def observations(cfg, options):
    """Arrays of all observations, as `tessera policy run` takes them. Every fourth one has a camera less, and prompts
    have between a quarter of the words and all of them."""
    rng = np.random.default_rng(options.seed)
    count, views, words, size = options.observations, options.views, cfg.max_token_len, cfg.image_size
    arrays = {
        "images": rng.integers(0, 256, (count, views, size, size, 3), dtype=np.uint8),
        "image_valid": np.ones((count, views), bool),
        "tokens": rng.integers(0, cfg.vocab, (count, words)),
        "token_valid": np.arange(words)[None] < rng.integers(max(1, words // 4), words + 1, (count, 1)),
        "noise": rng.standard_normal((count, cfg.horizon, cfg.action_dim)).astype(np.float32),
    }
    if views > 1:
        arrays["image_valid"][3::4, -1] = False
    if not cfg.pi05:
        arrays["state"] = rng.uniform(-1, 1, (count, cfg.action_dim)).astype(np.float32)
    return arrays


def valid_rows(cfg, inputs, i):
    return np.concatenate([np.repeat(inputs["image_valid"][i], cfg.patches), inputs["token_valid"][i]])


def error(got, want):
    return float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want.astype(np.float64)))


# ---------------------------------------------------------------- the oracle


class Oracle:
    """PyTorch's policy over a folder's weights, each precision from a fresh copy of them."""

    def __init__(self, path, folder, options):
        import torch

        self.torch = torch
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.set_float32_matmul_precision("highest")
        spec = importlib.util.spec_from_file_location("policy_oracle", path)
        self.reference = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = self.reference
        spec.loader.exec_module(self.reference)
        self.folder = folder
        self.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
        known = {f.name for f in dataclasses.fields(self.reference.Cfg)}
        config = json.loads((folder / "config.json").read_text())
        self.cfg = self.reference.Cfg(**{k: v for k, v in config.items() if k in known})

    def model(self):
        torch = self.torch
        with torch.device("meta"):
            model = self.reference.Pi0(self.cfg)
        model = model.to_empty(device=self.device).float()
        missing, unexpected = self.reference.load_openpi(model, str(self.folder / "model.safetensors"))
        if missing:
            sys.exit(f"{self.folder}: the oracle misses {', '.join(missing[:5])}")
        return model.eval()

    def run(self, model, inputs):
        """Per observation what `policy run --stages` writes."""
        torch = self.torch
        results = []
        with torch.no_grad():
            for i in range(len(inputs["noise"])):
                one = {k: torch.from_numpy(v[i : i + 1]).to(self.device) for k, v in inputs.items() if k != "images"}
                pixels = inputs["images"][i : i + 1].transpose(0, 1, 4, 2, 3).astype(np.float32) / np.float32(127.5) - 1
                images = torch.from_numpy(np.ascontiguousarray(pixels)).to(self.device)
                state = one.get("state")
                embs, valid = model.prefix_embeddings(images, one["image_valid"], one["tokens"], one["token_valid"])
                k, v = model.prefill(embs, valid, full_last_layer=False)
                start = torch.ones(1, device=self.device)
                v0 = model.denoise_step(one["noise"], start, k, v, valid, state)
                actions = model.sample_actions(
                    images, one["image_valid"], one["tokens"], one["token_valid"], one["noise"], state
                )
                as_numpy = lambda t: t.float().cpu().numpy()
                results.append({"K": as_numpy(k), "V": as_numpy(v), "v0": as_numpy(v0), "actions": as_numpy(actions)})
        return results

    def round_weights(self, model, layers):
        """Linear layers of `layers` multiply codes: what goes in is rounded when it does, weights now."""
        torch = self.torch

        def rounded(x, scale):
            return (x / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn).to(x.dtype) * scale

        modules = dict(model.named_modules())
        for name, layer in layers.items():
            if name not in modules:
                sys.exit(f"the engine has an FP8 layer {name}, which the oracle has not")
            module = modules[name]
            weight = module.weight.data
            rows = weight.flatten(1)
            own = (rows.abs().amax(1) / FP8_MAX).cpu().numpy()
            scales = layer.weight_scales
            if len(scales) not in (1, len(own)):
                sys.exit(f"{name}: {len(scales)} scales of {len(own)} channels")
            # They are those of this weight: else other numbers were made codes of.
            nonzero = own > 0
            off = np.abs(scales / own.max() - 1) if len(scales) == 1 else np.abs(scales - own)[nonzero] / own[nonzero]
            if off.size and off.max() > 1e-5:
                sys.exit(f"{name}: the engine's scales are not those of the weight; the largest is {off.max():.1e} off")
            per_row = torch.tensor(scales, dtype=torch.float32, device=weight.device).reshape(-1, 1)
            module.weight.data = rounded(rows, per_row).reshape(weight.shape)
            module.register_forward_pre_hook(lambda _, x, s=layer.input_scale: (rounded(x[0], s), *x[1:]))


# ---------------------------------------------------------------- engines

Layer = collections.namedtuple("Layer", "input_scale weight_scales")


def padded_rows(attrs):
    """Whether a row of a weight is the layer's own, for each: triples of (count, kept, size)."""
    keep, triples = [], attrs.get("padded_rows", {}).get("list", [])
    for count, kept, size in zip(triples[::3], triples[1::3], triples[2::3]):
        keep += ([True] * kept + [False] * (size - kept)) * count
    return np.array(keep)


def fp8_layers(manifest):
    """name -> Layer, of every linear layer that the engine's plans multiply in e4m3."""
    layers = {}
    numbers = [np.array(c.get("numbers", []), np.float32) for c in manifest["constants"]]
    for plan in manifest["plans"]:
        if plan["arch"] == "ref":
            continue
        tensors = plan["tensors"]
        scale_of = lambda t: numbers[tensors[tensors[t]["scale"]]["index"]]
        for step in plan["steps"]:
            if step["op"] != "matmul" or not tensors[step["in"][1]]["type"].startswith("e4m3"):
                continue
            x, w = step["in"][:2]
            if tensors[x]["type"] != "e4m3:tensor(f32)":
                sys.exit(f"{step['layer']} multiplies {tensors[x]['type']}: the oracle knows static scales only")
            if any(s["step"] == "normalise" for s in step["then"]):
                sys.exit(f"{step['layer']} reads a folded norm: build with --keep-norms")
            scales = scale_of(w)
            own = padded_rows(step["attrs"])
            if len(own) == len(scales):
                scales = scales[own]
            names = step["layer"].split("+")
            widths = step["attrs"].get("joined", {}).get("list") or [len(scales) // len(names)] * len(names)
            ends = np.cumsum(widths)
            for name, begin, end in zip(names, ends - widths, ends):
                part = scales if len(scales) == 1 else scales[begin:end]
                layers[name] = Layer(float(scale_of(x)[0]), part)
    return layers


def build(folder, work, precision, options):
    engine = work / f"{precision}.tess"
    words = ["policy", "build", "--model", folder, "-o", engine, "--precision", precision, "--target", options.target]
    words += ["--views", options.views, "--no-verify", "--quiet"]
    if options.target != "cpu":  # whose norms are kernels anyway; the oracle does not fold them
        words.append("--keep-norms")
    if precision.startswith("fp8") and options.calib > 0:
        words += ["--calib", work / "calib.npz"]
    tessera(*words, *options.build.split())
    return engine


def run_engine(engine, work):
    out = work / (engine.stem + ".npz")
    tessera("policy", "run", "--model", engine, "--inputs", work / "observations.npz", "--outputs", out, "--stages",
            "--no-verify")  # fmt: skip
    with np.load(out) as arrays:
        got = dict(arrays)
    out.unlink()
    split = lambda i: {name: got[name][:, i : i + 1] if name in "KV" else got[name][i : i + 1] for name in got}
    return [split(i) for i in range(len(got["actions"]))]


# ---------------------------------------------------------------- the table


def errors(got, want, inputs, cfg):
    """quantity -> (worst error, observation)"""
    worst = {}
    for i, (g, w) in enumerate(zip(got, want)):
        rows = valid_rows(cfg, inputs, i)
        noise = inputs["noise"][i : i + 1]
        pairs = {name: (g[name][..., rows, :], w[name][..., rows, :]) for name in ("K", "V")}
        pairs |= {"v0": (g["v0"], w["v0"]), "actions - noise": (g["actions"] - noise, w["actions"] - noise)}
        for name, (a, b) in pairs.items():
            off = error(a, b)
            if name not in worst or not off <= worst[name][0]:
                worst[name] = (off, i)
    return worst


def rows_of(precision, got, base):
    """Rows of the table: a quantity each. `base`: the oracle's own errors that the limit is made of, or None."""
    rows = []
    for quantity in QUANTITIES:
        own, at = got[quantity]
        if base is None:
            of, limit = None, MOST_FP32
        else:
            of = base[quantity][0]
            limit = max(LEAST_BF16, TIMES_BF16 * of) if precision == "bf16" else TIMES_FP8 * of
        row = {"precision": precision, "quantity": quantity, "error": own, "observation": at, "oracle": of}
        rows.append(row | {"limit": limit, "ok": bool(own <= limit)})
    return rows


def print_table(rows):
    print(f"{'precision':10} {'quantity':16} {'error':>9} {'oracle':>9} {'limit':>9}  of the worst observation")
    for r in rows:
        oracle = "-" if r["oracle"] is None else f"{r['oracle']:9.2e}"
        verdict = "ok" if r["ok"] else "FAILS"
        print(f"{r['precision']:10} {r['quantity']:16} {r['error']:9.2e} {oracle:>9} {r['limit']:9.2e}  {verdict}")


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oracle", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, help="folder of a checkpoint (default: random weights)")
    parser.add_argument("--config", type=pathlib.Path, help="sizes of random weights (default: the published ones)")
    parser.add_argument("--random", type=int, default=1, help="their seed")
    parser.add_argument("--work", type=pathlib.Path, help="folder for weights and engines, kept (default: a temporary)")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--device", default="", help="of torch (default: cuda where it is)")
    parser.add_argument("--precisions", default="bf16,fp8_bf16")
    parser.add_argument("--observations", type=int, default=16)
    parser.add_argument("--calib", type=int, default=1, help="observations that scales come from; 0: random numbers")
    parser.add_argument("--views", type=int, default=2)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--build", default="", help="more options of `policy build`")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args(argv)
    if options.model and options.config:
        parser.error("--config has sizes of random weights; a checkpoint has its own")
    for precision in options.precisions.split(","):
        if precision not in ("fp32", "bf16", "fp8", "fp8_bf16"):
            parser.error(f"--precisions: no limit is known of {precision}")
    return options


def weights(options, work):
    if options.model:
        return options.model
    folder = work / "model"
    if not (folder / "model.safetensors").exists():
        config = ["--config", options.config] if options.config else []
        tessera("policy", "weights", "--random", options.random, "-o", folder, *config)
    return folder


def measure(options, work):
    clock = Clock()
    folder = weights(options, work)
    clock.lap("weights")
    oracle = Oracle(options.oracle, folder, options)
    inputs = observations(oracle.cfg, options)
    np.savez(work / "observations.npz", **inputs)
    few = {name: array[: options.calib] for name, array in inputs.items()}
    np.savez(work / "calib.npz", **few)
    precisions, rows = options.precisions.split(","), []
    with concurrent.futures.ThreadPoolExecutor(len(precisions)) as pool:
        engines = {p: pool.submit(build, folder, work, p, options) for p in precisions}
        want = oracle.run(oracle.model(), inputs)
        base = {"fp32": None}
        if "bf16" in precisions:
            base["bf16"] = errors(oracle.run(oracle.model().set_precision_("openpi"), inputs), want, inputs, oracle.cfg)
        clock.lap("oracle")
        for p in precisions:
            engines[p] = engines[p].result()
        clock.lap("builds after the oracle")
    for p in precisions:
        if p.startswith("fp8"):
            model = oracle.model()
            layers = fp8_layers(json.loads(tessera("inspect", engines[p], "--json", "--scales")))
            oracle.round_weights(model, layers)
            base[p] = errors(oracle.run(model, inputs), want, inputs, oracle.cfg)
            del model
            clock.lap(f"oracle in {p}, {len(layers)} layers")
        rows += rows_of(p, errors(run_engine(engines[p], work), want, inputs, oracle.cfg), base[p])
        clock.lap(f"engine in {p}")
    return rows, clock.seconds, oracle


def main(argv):
    options = parse(argv)
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or pathlib.Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        rows, seconds, oracle = measure(options, work)
    print_table(rows)
    print(f"{options.observations} observations, {options.target} against torch {oracle.torch.__version__} on "
          f"{oracle.device}; seconds: {', '.join(f'{k} {v}' for k, v in seconds.items())}")  # fmt: skip
    if options.json:
        run = Run(" ".join(argv)).record | {"measured_by": "bench/policy_accuracy.py", "seconds": seconds}
        run["versions"] = {"torch": oracle.torch.__version__}
        options.json.write_text(json.dumps({"run": run, "target": options.target, "rows": rows}, indent=1) + "\n")
    return 0 if all(r["ok"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
