#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tessera build --family vit FOLDER`: codes and scales come out of the engine bit for bit as every layout stores
them, results are those of an emulation, and what is wrong with a checkpoint is said in a sentence. Argument: the
folder with the program."""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile

try:
    import checkpoint_layouts as cl
    import numpy as np
except ImportError as missing:
    print(f"{missing}: skipped")
    sys.exit(77)

FAILURES = []


def expect(ok, text):
    if not ok:
        FAILURES.append(text)
        print("FAILED:", text)


def restore_rows(stored, t):
    """Codes or scales of a weight in panels of 16 rows (src/types/layout.h), as rows."""
    rows, cols = t["shape"]
    group = {"panels16": 1, "panels16x4": 4, "panels16x8": 8}[t["layout"]]
    groups, four = -(-cols // group), t["type"].startswith(("e2m1", "i4"))
    codes = np.frombuffer(stored, np.uint8)
    if four:
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(-1)
    panels = -(-rows // 16)
    dense = (
        codes[: panels * groups * 16 * group]
        .reshape(panels, groups, 16, group)
        .transpose(0, 2, 1, 3)
        .reshape(panels * 16, groups * group)[:rows, :cols]
    )
    return cl.pack(dense).tobytes() if four else np.ascontiguousarray(dense).tobytes()


class Engine:
    """A .tess file, read by its description in src/plan/engine_file.h."""

    def __init__(self, path):
        self.bytes = path.read_bytes()
        manifest, size, _, self.data = struct.unpack_from("<4Q", self.bytes, 16)
        self.manifest = json.loads(self.bytes[manifest : manifest + size])
        self.golden = self.manifest["plans"][-1]

    def constant(self, tensor):
        place = self.manifest["constants"][tensor["index"]]["data"]
        start = self.data + place["offset"] + tensor["offset"]
        stored = self.bytes[start : self.data + place["offset"] + place["bytes"]]
        return stored if tensor.get("layout", "rows") == "rows" else restore_rows(stored, tensor)

    def operand(self, layer, i):
        """(type, bytes, scale bytes, scale2 bytes) of an operand of a matmul of the golden plan, the weight in rows."""
        steps = [s for s in self.golden["steps"] if s["layer"] == layer and s["op"] == "matmul"]
        if len(steps) != 1:
            return None
        tensors = self.golden["tensors"]
        t = tensors[steps[0]["in"][i]]
        at = lambda key: (
            self.constant(tensors[t[key]]) if t.get(key, -1) >= 0 and tensors[t[key]]["storage"] == "constant" else None
        )
        return t["type"], self.constant(t) if t["storage"] == "constant" else None, at("scale"), at("scale2")

    def copied_inputs(self):
        """Layers whose input becomes codes by a kernel of its own, in the first plan."""
        plan = self.manifest["plans"][0]
        return {
            s["layer"]
            for s in plan["steps"]
            if s["op"] == "matmul" and plan["tensors"][s["in"][0]]["name"].endswith(".codes")
        }


def run(program, *args):
    return subprocess.run([program, *map(str, args)], capture_output=True, text=True)


def check_bits(model, engine, case):
    for module, weight in model.weights.items():
        stored = {k.rsplit(".", 1)[1]: v for k, v in model.tensors.items() if k.rsplit(".", 1)[0] == module}
        if "weight_scale" not in stored:
            continue
        found = engine.operand(module, 1)
        if found is None:
            expect(False, f"{case}: no matmul {module}")
            continue
        _, codes, scale, scale2 = found
        raw = lambda key: stored[key].tobytes()
        expect(
            codes[: len(raw(w := "weight" if "weight" in stored else "weight_packed"))] == raw(w),
            f"{case}: codes of {module}",
        )
        want = (
            raw("weight_scale")
            if stored["weight_scale"].dtype in (np.uint8, cl.E4M3)
            else stored["weight_scale"].astype(np.float32).tobytes()
        )
        expect(scale is not None and scale[: len(want)] == want, f"{case}: scales of {module}")
        if "weight_scale_2" in stored:
            expect(scale2[:4] == raw("weight_scale_2"), f"{case}: second scale of {module}")
        if "weight_global_scale" in stored:
            expect(
                scale2[:4] == (np.float32(1) / stored["weight_global_scale"]).tobytes(),
                f"{case}: second scale of {module}",
            )
        given = (
            stored["input_scale"].tobytes()
            if "input_scale" in stored
            else (np.float32(1) / stored["input_global_scale"]).tobytes()
            if "input_global_scale" in stored
            else None
        )
        if given is not None:
            kind, _, s, s2 = engine.operand(module, 0)
            got = s2 if kind.startswith("e2m1") else s
            expect(got is not None and got[:4] == given, f"{case}: scale of the input of {module} ({kind})")


def relative(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def check_layout(program, scratch, algo, naming, dtype, targets, shards=1):
    case = f"{algo or 'plain'} {naming} {np.dtype(dtype).name}"
    model = cl.Vit(algo, naming, dtype=dtype)
    folder = scratch / "model"
    model.save(folder, shards)
    image = np.random.default_rng(7).normal(0, 1, (4, 3, cl.IMAGE, cl.IMAGE)).astype(np.float32)
    np.savez(scratch / "x.npz", image=image)
    for target in targets:
        built = run(
            program, "build", "--family", "vit", folder, "-o", scratch / "m.tess", "--target", target, "--batch", 4
        )
        if built.returncode != 0:
            expect(False, f"{case} on {target}: {built.stderr.strip()}")
            continue
        engine = Engine(scratch / "m.tess")
        check_bits(model, engine, f"{case} on {target}")
        expect(
            engine.manifest["precision"] == ("fp16" if algo is None else "imported"),
            f"{case}: precision {engine.manifest['precision']}",
        )
        expect("safetensors" in run(program, "inspect", scratch / "m.tess").stdout, f"{case}: inspect names no file")
        ran = run(program, "run", scratch / "m.tess", "--inputs", scratch / "x.npz", "--outputs", scratch / "y.npz")
        if ran.returncode != 0:
            expect(False, f"{case} on {target}: {ran.stderr.strip()}")
            continue
        copied = engine.copied_inputs()
        want = model.run(image, copied)
        # ref computes as the emulation does, in f64, and makes scales in f32: a few halves may fall the other way. The
        # CPU sums up to 192 products in f32, a few roundings more: what that does to the logits, by codes that fall the
        # other way, the emulation shows when it is shaken as much.
        bound = 2.0**-11
        if target != "ref":
            bound += 2 * max(relative(model.run(image, copied, 2.0**-20, seed), want) for seed in range(4))
        error = relative(np.load(scratch / "y.npz")["logits"].astype(np.float64), want)
        effect = relative(model.run(image, copied, inputs=False), want)
        print(f"{case:45} {target:4} error {error:.2e} of {bound:.2e}, rounding of inputs {effect:.2e}")
        if target == "ref" and any(r is not cl.as_is for r in model.roundings.values()):
            expect(effect > 10 * bound, f"{case}: the rounding of inputs would hide in the bound")
        expect(error <= bound, f"{case} on {target}: relative error {error:.3e}, bound {bound:.3e}")
    for f in folder.iterdir():
        f.unlink()


def refused(program, scratch, words, algo="NVFP4", naming="hf", change=None, config=None, hf_quant=None, files=None):
    """A checkpoint with one thing wrong fails with one sentence that has all of `words`."""
    model = cl.Vit(algo, naming)
    if change:
        change(model.tensors)
    if config:
        config(model.config)
    if hf_quant:
        hf_quant(model.hf_quant["quantization"])
    folder = scratch / "bad"
    model.save(folder)
    if files:
        files(folder)
    result = run(
        program, "build", "--family", "vit", folder, "-o", scratch / "bad.tess", "--target", "ref", "--no-verify"
    )
    said = " ".join(result.stderr.split())
    expect(
        result.returncode in (2, 3, 4) and all(w in said for w in words),
        f"wanted {words}: exit {result.returncode}, {said or result.stdout[:200]}",
    )
    expect(not (scratch / "bad.tess").exists(), f"{words}: an engine was written")
    for f in folder.iterdir():
        f.unlink()
    (scratch / "bad.tess").unlink(missing_ok=True)


Q = "vit.encoder.layer.1.attention.attention.query"


def set_at(name, index, value):
    def f(t):
        t[name] = t[name].copy()
        t[name][index] = value

    return f


def put(name, value):
    return lambda t: t.__setitem__(name, value)


def check_errors(program, scratch):
    no = lambda *words, **how: refused(program, scratch, words, **how)
    f32 = lambda x: np.array(x, np.float32)
    # missing, wrong shape, wrong dtype
    no(f"tensor '{Q}.weight_scale_2' is missing", change=lambda t: t.pop(Q + ".weight_scale_2"))
    no(f"tensor '{Q}.bias' is missing", change=lambda t: t.pop(Q + ".bias"))
    no(f"tensor '{Q}.input_scale' is missing", change=lambda t: t.pop(Q + ".input_scale"))
    no(
        "'vit.encoder.layer.1.layernorm_after.weight' is missing",
        change=lambda t: t.pop("vit.encoder.layer.1.layernorm_after.weight"),
    )
    no(f"'{Q}.weight_scale' has the shape [64,2]", "[64,4]", change=put(Q + ".weight_scale", np.ones((64, 2), cl.E4M3)))
    no(f"'{Q}.weight' has the shape [64,64]", "[64,32]", change=put(Q + ".weight", np.zeros((64, 64), np.uint8)))
    no(f"'{Q}.weight' is F8_E4M3", "U8", change=put(Q + ".weight", np.zeros((64, 32), cl.E4M3)))
    no(
        Q,
        "plain F32",
        "exclude_modules",
        change=lambda t: (t.__setitem__(Q + ".weight", np.zeros((64, 64), np.float32)), t.pop(Q + ".weight_scale")),
    )
    no("'classifier.weight' is U8", change=put("classifier.weight", np.zeros((10, 32), np.uint8)))
    # scales
    no(f"'{Q}.weight_scale': scale [3,1] is 0", change=set_at(Q + ".weight_scale", (3, 1), 0))
    no(f"'{Q}.weight_scale': scale [3,1] is nan", change=set_at(Q + ".weight_scale", (3, 1), np.nan))
    no(f"'{Q}.weight_scale': scale [63,3] is -2", change=set_at(Q + ".weight_scale", (63, 3), -2))
    for value, word in ((0, "0"), (np.nan, "nan"), (np.inf, "inf"), (-1, "-1")):
        no(f"'{Q}.weight_scale_2'", f"is {word};", change=put(Q + ".weight_scale_2", f32(value)))
        no(f"'{Q}.input_scale'", f"is {word};", change=put(Q + ".input_scale", f32(value)))
        no(
            f"'{Q}.weight_global_scale'",
            f"is {word};",
            algo="nvfp4-pack-quantized",
            change=put(Q + ".weight_global_scale", f32([value])),
        )
        no(
            f"'{Q}.weight_scale'",
            f"is {word};",
            algo="float-quantized",
            change=set_at(Q + ".weight_scale", (5, 0), value),
        )
    no(f"'{Q}.weight_scale': scale [2,0] is nan", algo="MXFP8", change=set_at(Q + ".weight_scale", (2, 0), 255))
    no(
        f"'{Q}.input_global_scale'",
        "reciprocal",
        algo="nvfp4-pack-quantized",
        change=put(Q + ".input_global_scale", f32([1e-40])),
    )
    no(f"'{Q}.weight': code [1,2] is NaN", algo="FP8", change=set_at(Q + ".weight", (1, 2), np.nan))
    no(f"'{Q}.pre_quant_scale'", "is -1", algo="NVFP4_AWQ", change=set_at(Q + ".pre_quant_scale", 4, -1))
    no(
        f"'{Q}.weight_zero_point'",
        "zero points",
        algo="int-quantized",
        change=put(Q + ".weight_zero_point", np.ones((64, 1), np.int8)),
    )
    # nothing is left out silently
    no(
        f"'{Q}.pre_quant_scale'",
        "nothing in this model reads",
        change=put(Q + ".pre_quant_scale", np.ones(64, np.float32)),
    )
    no(
        "'vit.encoder.layer.7.layernorm_before.weight'",
        "nothing in this model reads",
        change=put("vit.encoder.layer.7.layernorm_before.weight", np.ones(64, np.float32)),
    )
    no(f"'{Q}.k_scale'", "nothing in this model reads", algo="FP8", change=put(Q + ".k_scale", f32(1)))
    no(
        "'norm_pre.weight'",
        "nothing in this model reads",
        naming="timm",
        change=put("norm_pre.weight", np.ones(64, np.float32)),
    )
    # configurations
    no(
        "quant_algo 'W4A16_AWQ' is not read",
        "NVFP4",
        "MIXED_PRECISION",
        hf_quant=lambda q: q.update(quant_algo="W4A16_AWQ"),
    )
    no("group_size 32", "blocks of 16", hf_quant=lambda q: q.update(group_size=32))
    no("kv_cache_quant_algo", hf_quant=lambda q: q.update(kv_cache_quant_algo="FP8"))
    no("quantized_layers", algo="MIXED_PRECISION", hf_quant=lambda q: q.pop("quantized_layers"))
    no("'INT3'", Q, algo="MIXED_PRECISION", hf_quant=lambda q: q["quantized_layers"][Q].update(quant_algo="INT3"))
    ct = lambda **how: lambda c: c["quantization_config"].update(how)
    group = lambda f: lambda c: f(c["quantization_config"]["config_groups"]["group_0"])
    no(
        "quant_method 'gptq' is not read",
        algo=None,
        config=lambda c: c.update(quantization_config={"quant_method": "gptq"}),
    )
    no("'marlin-24'", "is not read", algo="int-quantized", config=ct(format="marlin-24"))
    no("not symmetric", algo="int-quantized", config=group(lambda g: g["weights"].update(symmetric=False)))
    no("by block", algo="float-quantized", config=group(lambda g: g["weights"].update(strategy="block")))
    no("output_activations", algo="float-quantized", config=group(lambda g: g.update(output_activations=g["weights"])))
    no("sparsity_config", algo="float-quantized", config=ct(sparsity_config={"format": "sparse-24-bitmask"}))
    no("'re:(a'", "not understood", algo="float-quantized", config=ct(ignore=["re:(a"]))
    no("hidden_act 'mish'", config=lambda c: c.update(hidden_act="mish"))
    no("num_hidden_layers is 3", config=lambda c: c.update(num_hidden_layers=3))
    no("'num_attention_heads' is not a whole number", config=lambda c: c.update(num_attention_heads="4"))
    no("5 heads do not divide", config=lambda c: c.update(num_attention_heads=5))
    no("the number of heads is 0", config=lambda c: c.update(num_attention_heads=0))
    no("position_embeddings", "has the shape", config=lambda c: c.update(image_size=64))
    no("model_args: 'reg_tokens'", naming="timm", config=lambda c: c["model_args"].update(reg_tokens=4))
    no(
        "num_heads",
        naming="timm",
        config=lambda c: (c["model_args"].pop("num_heads"), c.update(architecture="vit_other")),
    )
    # what is stated about the shapes must be so
    last = lambda block: lambda t: [t.pop(k) for k in list(t) if k.startswith(block)]
    no(
        f"num_hidden_layers is {cl.DEPTH}, the tensors are those of {cl.DEPTH - 1}",
        algo=None,
        change=last(f"vit.encoder.layer.{cl.DEPTH - 1}."),
    )
    for key, value in (
        ("hidden_size", 999),
        ("intermediate_size", 999),
        ("patch_size", 99),
        ("num_channels", 1),
        ("num_labels", 7),
    ):
        no(f"{key} is {value}", "the tensors are those of", config=lambda c: c.update({key: value}))
    no("id2label is a list of 1", f"{cl.CLASSES} classes", config=lambda c: c.update(id2label={"0": "cat"}))
    no(
        "architectures: 'ResNetForImageClassification'",
        config=lambda c: c.update(architectures=["ResNetForImageClassification"]),
    )
    timm = lambda *words, **how: no(*words, naming="timm", algo=None, **how)
    timm(
        f"model_args.depth is {cl.DEPTH}, the tensors are those of {cl.DEPTH - 1}",
        change=last(f"blocks.{cl.DEPTH - 1}."),
    )
    timm("'vit_tiny_test' has depth 12", "model_args.depth", config=lambda c: c["model_args"].pop("depth"))
    timm("'vit_tiny_test' has embed_dim 192", config=lambda c: c["model_args"].pop("embed_dim"))
    for key, value in (
        ("depth", 9),
        ("embed_dim", 999),
        ("patch_size", 99),
        ("in_chans", 1),
        ("num_classes", 7),
        ("mlp_ratio", 1.5),
        ("init_values", 1e-5),
    ):
        timm(
            f"model_args.{key} is {value}",
            "the tensors are those of",
            config=lambda c: c["model_args"].update({key: value}),
        )
    timm("num_classes is 7", config=lambda c: c.update(num_classes=7))
    timm("model_args.class_token is false", config=lambda c: c["model_args"].update(class_token=False))
    timm(
        "pretrained_cfg.input_size[0] is 1",
        config=lambda c: c.update(pretrained_cfg={"input_size": [1, cl.IMAGE, cl.IMAGE]}),
    )
    timm(
        "an image of 64 x 64 makes",
        "'pos_embed'",
        config=lambda c: (c["model_args"].pop("img_size"), c.update(pretrained_cfg={"input_size": [3, 64, 64]})),
    )
    timm("architecture 'resnet50' is not of this family", config=lambda c: c.update(architecture="resnet50"))
    timm("the number of heads is 0", config=lambda c: c["model_args"].update(num_heads=0))
    # files
    no("config.json", files=lambda d: (d / "config.json").unlink())
    no("holds no *.safetensors", files=lambda d: (d / "model.safetensors").unlink())
    no("is in", "and in", files=lambda d: (d / "other.safetensors").write_bytes((d / "model.safetensors").read_bytes()))
    no(
        "index",
        files=lambda d: (d / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"a": "model.safetensors"}})
        ),
    )
    result = run(program, "build", "--family", "vat", scratch)
    families = "there are gemma, llama, pi05, siglip, vit"
    expect(result.returncode == 2 and families in result.stderr, f"unknown family: {result.stderr}")
    result = run(program, "build", scratch)
    expect(result.returncode == 2 and "--family" in result.stderr, f"a folder without --family: {result.stderr}")


def check_harmless(program, scratch):
    model = cl.Vit(None)
    model.tensors["vit.pooler.dense.weight"] = np.zeros((64, 64), np.float32)
    model.save(scratch / "pooler")
    built = run(program, "build", "--family", "vit", scratch / "pooler", "-o", scratch / "p.tess", "--no-verify")
    expect(
        built.returncode == 0 and "left out: vit.pooler.dense.weight" in " ".join(built.stdout.split()),
        f"pooler: {built.stdout} {built.stderr}",
    )


def check_commands(program, scratch):
    """Commands beside build take the folder as build does."""
    folder = scratch / "vit-folder"
    cl.Vit(None).save(folder)
    np.savez(
        scratch / "in.npz", image=np.random.default_rng(3).normal(0, 1, (2, 3, cl.IMAGE, cl.IMAGE)).astype(np.float32)
    )
    ok = lambda *words: (lambda r: (expect(r.returncode == 0, f"{words}: {r.stderr}"), r)[1])(run(program, *words))
    ok("calibrate", "--family", "vit", folder, "--calib", scratch / "in.npz", "-o", scratch / "r.json")
    ok(
        "build",
        "--family",
        "vit",
        folder,
        "--precision",
        "fp8",
        "--calib",
        scratch / "r.json",
        "-o",
        scratch / "f.tess",
    )
    said = ok("verify", scratch / "f.tess", "--model", folder, "--family", "vit", "--kinds", "normal", "--json").stdout
    expect(len(json.loads(said)["quantization"]) == 2, "verify compares with the checkpoint")
    ok("check", "--family", "vit", folder)
    ok("run", "--family", "vit", folder, "-i", scratch / "in.npz", "-o", scratch / "y.npz")
    pixels = np.random.default_rng(4).integers(0, 256, (2, cl.IMAGE, cl.IMAGE, 3), dtype=np.uint8)
    floats = ((pixels / 255.0 - 0.5) / 0.25).astype(np.float32)
    np.savez(scratch / "bytes.npz", image=pixels)
    np.savez(scratch / "floats.npz", image=np.ascontiguousarray(floats.transpose(0, 3, 1, 2)))
    results = []
    for inputs, io in (("floats", ()), ("bytes", ("--io", "image=u8,mean=0.5,std=0.25", "--io", "logits=fp32"))):
        ok("build", "--family", "vit", folder, "--precision", "fp16", "-o", scratch / f"{inputs}.tess", *io)
        ok("run", scratch / f"{inputs}.tess", "-i", scratch / f"{inputs}.npz", "-o", scratch / "y.npz")
        results.append(np.load(scratch / "y.npz")["logits"])
    expect(np.array_equal(*results), "images as bytes and as floats give the same bits")
    ok("verify", scratch / "bytes.tess", "--model", folder, "--family", "vit")
    other = cl.Vit(None)
    other.tensors["classifier.weight"] = other.tensors["classifier.weight"] + np.float32(0.5)
    other.save(folder)
    result = run(program, "verify", scratch / "f.tess", "--model", folder, "--family", "vit")
    expect(
        result.returncode == 3 and "its weights are not those" in " ".join(result.stderr.split()),
        f"other weights: {result.stderr}",
    )


def main():
    program = pathlib.Path(sys.argv[1]) / "tessera"
    if not program.exists():
        print(f"no {program}: skipped")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        for dtype in (np.float32, np.float16, cl.BF16):
            check_layout(program, scratch, None, "hf", dtype, ["ref", "cpu"], shards=1 if dtype == np.float32 else 3)
        for algo in (*cl.MODELOPT, "MIXED_PRECISION", *cl.SCHEMES):
            check_layout(program, scratch, algo, "hf", np.float32, ["ref", "cpu"], shards=2)
        for algo in (None, "NVFP4", "MIXED_PRECISION", "float-static"):
            check_layout(program, scratch, algo, "timm", np.float16, ["ref", "cpu"])
        check_errors(program, scratch)
        check_harmless(program, scratch)
        check_commands(program, scratch)
    print(f"{len(FAILURES)} failures")
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
