# SPDX-License-Identifier: Apache-2.0
"""Tiny ViT checkpoints in every layout that `tessera build --family vit` reads, and what they compute: the layouts
and roundings of docs/checkpoints.md a second time."""

import json
import math

import ml_dtypes
import numpy as np

E4M3, E2M1, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn, ml_dtypes.bfloat16
DTYPES = {
    np.dtype(np.float32): "F32",
    np.dtype(np.float16): "F16",
    np.dtype(BF16): "BF16",
    np.dtype(E4M3): "F8_E4M3",
    np.dtype(np.uint8): "U8",
    np.dtype(np.int8): "I8",
    np.dtype(np.int64): "I64",
}
IMAGE, PATCH, WIDTH, DEPTH, HEADS, MLP, CLASSES = 32, 8, 64, 2, 4, 128, 10


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, t in tensors.items():
        raw = np.ascontiguousarray(t).tobytes()
        header[name] = {
            "dtype": DTYPES[t.dtype],
            "shape": list(t.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


# ---- types: codes and scales from numbers, f32 throughout


def e4m3(x):
    return np.clip(x, -448, 448).astype(np.float32).astype(E4M3)


def e2m1_codes(x):
    codes = np.clip(x, -6, 6).astype(np.float32).astype(E2M1).view(np.uint8)
    return np.where(codes == 8, 0, codes).astype(np.uint8)  # block types have no -0


def e2m1(codes):
    return codes.astype(np.uint8).view(E2M1).astype(np.float32)


def blocks(x, n):
    return x.reshape(*x.shape[:-1], -1, n)


def nvfp4_scales(x, s2):
    amax = np.abs(blocks(x, 16)).max(-1).astype(np.float32)
    scale = np.clip((amax / np.float32(6)) / np.float32(s2), 2.0**-9, 448).astype(np.float32).astype(E4M3)
    return np.where(amax == 0, E4M3(1), scale)


def nvfp4(x, s2):
    """(codes one per byte, e4m3 scales)"""
    scale = nvfp4_scales(x, s2)
    step = (scale.astype(np.float32) * np.float32(s2))[..., None]
    return e2m1_codes((blocks(x.astype(np.float32), 16) / step).reshape(x.shape)), scale


def power_scales(x, rule):
    """e8m0 codes per block of 32, for e4m3."""
    amax = np.abs(blocks(x, 32)).max(-1).astype(np.float32)
    if rule == "rceil":
        mantissa, exponent = np.frexp(amax / np.float32(448))
        power = np.where(mantissa == 0.5, exponent - 1, exponent)
    else:  # even: up from 1.75 * 2^k
        mantissa, exponent = np.frexp(amax)
        power = exponent - 1 - 8 + (mantissa >= 0.875)
    return np.where(amax == 0, 0, np.clip(power + 127, 0, 254)).astype(np.uint8)


def mxfp8(x, rule):
    scale = power_scales(x, rule)
    step = np.exp2(scale.astype(np.float32) - 127)[..., None]
    return e4m3((blocks(x.astype(np.float32), 32) / step).reshape(x.shape)), scale


def pack(codes):
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)


# ---- inputs: numbers as they are after their rounding


def round_nvfp4(s2):
    def f(x):
        x = x.astype(np.float32)
        codes, scale = nvfp4(x, s2)
        return (blocks(e2m1(codes), 16) * scale.astype(np.float32)[..., None] * np.float32(s2)).reshape(x.shape)

    return f


def round_mxfp8(rule):
    def f(x):
        codes, scale = mxfp8(x.astype(np.float32), rule)
        return (blocks(codes.astype(np.float32), 32) * np.exp2(scale.astype(np.float32) - 127)[..., None]).reshape(
            x.shape
        )

    return f


def round_fp8(scale):
    return lambda x: e4m3(x.astype(np.float32) / np.float32(scale)).astype(np.float32) * np.float32(scale)


def round_token(largest, code):
    def f(x):
        x = x.astype(np.float32)
        scale = np.abs(x).max(-1, keepdims=True) / np.float32(largest)
        scale = np.where(scale == 0, np.float32(1), scale)
        return code(x / scale) * scale

    return f


def int8(x):
    return np.clip(np.rint(x), -127, 127).astype(np.int8)


as_is = lambda x: x


# ---- layouts: each returns (tensors of the module, weight as it multiplies, rounding of the input)


def quantize(algo, name, w, rng, input_amax=4.0):
    w = w.astype(np.float32)
    amax = np.float32(np.abs(w).max())
    f32 = lambda x: np.array(x, np.float32)
    one = lambda x: np.array([x], np.float32)
    factors = None
    if algo in ("NVFP4", "NVFP4_AWQ", "W4A16_NVFP4", "W4A8_NVFP4_FP8"):
        if algo == "NVFP4_AWQ":
            factors = rng.uniform(0.5, 2, w.shape[1]).astype(np.float32)
        s2 = amax / np.float32(448 if algo == "W4A8_NVFP4_FP8" else 2688)
        codes, scale = nvfp4(w, s2)
        product = blocks(e2m1(codes), 16) * scale.astype(np.float32)[..., None]
        if algo == "W4A8_NVFP4_FP8":
            product = e4m3(product).astype(np.float32)
        number = product.reshape(w.shape).astype(np.float64) * np.float64(s2)
        t = {"weight": pack(codes), "weight_scale": scale, "weight_scale_2": f32(s2)}
        rounding = as_is
        if algo in ("NVFP4", "NVFP4_AWQ"):
            s = np.float32(input_amax / 2688)
            t["input_scale"], rounding = f32(s), round_nvfp4(s)
        if algo == "W4A8_NVFP4_FP8":
            s = np.float32(input_amax / 448)
            t["input_scale"], rounding = f32(s), round_fp8(s)
        if factors is not None:
            t["pre_quant_scale"] = factors
    elif algo in ("nvfp4-pack-quantized", "nvfp4a16"):
        glob = np.float32(2688) / amax
        s2 = np.float32(1) / glob
        codes, scale = nvfp4(w, s2)
        number = (blocks(e2m1(codes), 16) * scale.astype(np.float32)[..., None]).reshape(w.shape).astype(
            np.float64
        ) * np.float64(s2)
        t, rounding = {"weight_packed": pack(codes), "weight_scale": scale, "weight_global_scale": one(glob)}, as_is
        if algo == "nvfp4-pack-quantized":
            given = np.float32(2688 / input_amax)
            t["input_global_scale"], rounding = one(given), round_nvfp4(np.float32(1) / given)
    elif algo in ("MXFP8", "mxfp8-quantized"):
        codes, scale = mxfp8(w, "rceil")
        number = (blocks(codes.astype(np.float64), 32) * np.exp2(scale.astype(np.float64) - 127)[..., None]).reshape(
            w.shape
        )
        t, rounding = {"weight": codes, "weight_scale": scale}, round_mxfp8("rceil" if algo == "MXFP8" else "even")
    elif algo == "FP8":
        s, a = amax / np.float32(448), np.float32(input_amax / 448)
        codes = e4m3(w / s)
        number, t, rounding = (
            codes.astype(np.float64) * np.float64(s),
            {"weight": codes, "weight_scale": f32(s), "input_scale": f32(a)},
            round_fp8(a),
        )
    elif algo in ("FP8_PER_CHANNEL_PER_TOKEN", "float-quantized"):
        s = (np.abs(w).max(-1) / 448).astype(BF16).astype(np.float32)
        codes = e4m3(w / s[:, None])
        number = codes.astype(np.float64) * s[:, None].astype(np.float64)
        stored = s if algo.startswith("FP8") else s[:, None].astype(BF16)
        t, rounding = {"weight": codes, "weight_scale": stored}, round_token(448, lambda x: e4m3(x).astype(np.float32))
    elif algo == "float-static":
        s, a = amax / np.float32(448), np.float32(input_amax / 448)
        codes = e4m3(w / s)
        number, t, rounding = (
            codes.astype(np.float64) * np.float64(s),
            {"weight": codes, "weight_scale": one(s), "input_scale": one(a)},
            round_fp8(a),
        )
    elif algo == "int-quantized":
        s = (np.abs(w).max(-1, keepdims=True) / np.float32(127)).astype(np.float32)
        codes = int8(w / s)
        number, t, rounding = (
            codes.astype(np.float64) * s.astype(np.float64),
            {"weight": codes, "weight_scale": s},
            round_token(127, lambda x: int8(x).astype(np.float32)),
        )
    else:
        raise ValueError(algo)
    return {f"{name}.{k}": v for k, v in t.items()}, number, rounding


def scheme(bits, kind, strategy, group=None, dynamic=False):
    return {
        "num_bits": bits,
        "type": kind,
        "strategy": strategy,
        "group_size": group,
        "symmetric": True,
        "dynamic": dynamic,
    }


SCHEMES = {  # algo: (format, weights, inputs)
    "nvfp4-pack-quantized": (
        "nvfp4-pack-quantized",
        scheme(4, "float", "tensor_group", 16),
        scheme(4, "float", "tensor_group", 16, "local"),
    ),
    "nvfp4a16": ("nvfp4-pack-quantized", scheme(4, "float", "tensor_group", 16), None),
    "mxfp8-quantized": ("mxfp8-quantized", scheme(8, "float", "group", 32), scheme(8, "float", "group", 32, True)),
    "float-quantized": ("float-quantized", scheme(8, "float", "channel"), scheme(8, "float", "token", None, True)),
    "float-static": ("float-quantized", scheme(8, "float", "tensor"), scheme(8, "float", "tensor")),
    "int-quantized": ("int-quantized", scheme(8, "int", "channel"), scheme(8, "int", "token", None, True)),
}
MODELOPT = ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "MXFP8", "NVFP4", "NVFP4_AWQ", "W4A16_NVFP4", "W4A8_NVFP4_FP8")
# One algorithm per layer of a block, by the last word of its name.
MIXED = {
    "query": "FP8",
    "key": "NVFP4",
    "value": "W4A16_NVFP4",
    "qkv": "NVFP4",
    "dense": "W4A8_NVFP4_FP8",
    "proj": "MXFP8",
    "fc1": "FP8",
    "fc2": "NVFP4_AWQ",
}


class Vit:
    """A random model: `tensors` and `config` are the checkpoint, `run` is what it computes, in f64 but for the
    stated roundings."""

    def __init__(self, algo=None, naming="hf", seed=1, dtype=np.float32):
        self.algo, self.naming, self.dtype = algo, naming, dtype
        self.rng = np.random.default_rng(seed)
        self.tensors, self.weights, self.roundings, self.vectors, self.factors, self.plain = {}, {}, {}, {}, {}, set()
        hf = naming == "hf"
        block = (lambda i, n: f"vit.encoder.layer.{i}.{n}") if hf else (lambda i, n: f"blocks.{i}.{n}")
        self.names = {
            "patches": "vit.embeddings.patch_embeddings.projection" if hf else "patch_embed.proj",
            "norm": "vit.layernorm" if hf else "norm",
            "head": "classifier" if hf else "head",
            "token": "vit.embeddings.cls_token" if hf else "cls_token",
            "positions": "vit.embeddings.position_embeddings" if hf else "pos_embed",
            "block": block,
            "parts": dict(
                norm1="layernorm_before",
                qkv=("attention.attention.query", "attention.attention.key", "attention.attention.value"),
                out="attention.output.dense",
                norm2="layernorm_after",
                fc1="intermediate.dense",
                fc2="output.dense",
            )
            if hf
            else dict(norm1="norm1", qkv=("attn.qkv",), out="attn.proj", norm2="norm2", fc1="mlp.fc1", fc2="mlp.fc2"),
        }
        n, p = self.names, self.names["parts"]
        tokens = (IMAGE // PATCH) ** 2 + 1
        self.vector(n["token"], (1, 1, WIDTH), 0, 0.5)
        self.vector(n["positions"], (1, tokens, WIDTH), 0, 0.5)
        self.vector(n["patches"] + ".weight", (WIDTH, 3, PATCH, PATCH), 0, 0.07)
        self.vector(n["patches"] + ".bias", (WIDTH,), 0, 0.1)
        for i in range(DEPTH):
            for norm in ("norm1", "norm2"):
                self.norm(block(i, p[norm]))
            for part in p["qkv"]:
                self.linear(block(i, part), 3 * WIDTH // len(p["qkv"]), WIDTH, 4.0 + len(part) / 10)
            self.linear(block(i, p["out"]), WIDTH, WIDTH, 2.0)
            self.linear(block(i, p["fc1"]), MLP, WIDTH, 4.0)
            self.linear(block(i, p["fc2"]), WIDTH, MLP, 3.0)
        self.norm(n["norm"])
        self.linear(n["head"], CLASSES, WIDTH, None)
        self.config = self.make_config()
        self.hf_quant = None
        if algo in MODELOPT or algo == "MIXED_PRECISION":
            q = {"quant_algo": algo, "kv_cache_quant_algo": None, "exclude_modules": [n["head"]]}
            if algo == "MIXED_PRECISION":
                q["quantized_layers"] = {m: {"quant_algo": a} for m, a in self.mixed.items()}
            self.hf_quant = {"producer": {"name": "modelopt", "version": "0.39"}, "quantization": q}
        elif algo is not None:
            form, weights, inputs = SCHEMES[algo]
            self.config["quantization_config"] = {
                "quant_method": "compressed-tensors",
                "format": form,
                "quantization_status": "compressed",
                "ignore": [n["head"]],
                "kv_cache_scheme": None,
                "config_groups": {
                    "group_0": {
                        "targets": ["Linear"],
                        "weights": weights,
                        "input_activations": inputs,
                        "output_activations": None,
                    }
                },
            }

    mixed = None

    def vector(self, name, shape, mean, deviation):
        x = self.rng.normal(mean, deviation, shape).astype(self.dtype)
        self.tensors[name] = x
        self.vectors[name] = x.astype(np.float64)

    def norm(self, name):
        self.vector(name + ".weight", (WIDTH,), 1, 0.1)
        self.vector(name + ".bias", (WIDTH,), 0, 0.1)

    def linear(self, name, outputs, inputs, amax):
        w = self.rng.normal(0, inputs**-0.5, (outputs, inputs))
        algo = self.algo if amax is not None else None
        if algo == "MIXED_PRECISION":
            self.mixed = self.mixed or {}
            algo = self.mixed[name] = MIXED[name.split(".")[-1]]
        if algo is None:
            w = w.astype(self.dtype)
            tensors, self.weights[name], self.roundings[name] = {name + ".weight": w}, w.astype(np.float64), as_is
            self.plain.add(name)
        else:
            tensors, self.weights[name], self.roundings[name] = quantize(algo, name, w, self.rng, amax)
            if name + ".pre_quant_scale" in tensors:
                self.factors[name] = tensors[name + ".pre_quant_scale"]
        self.tensors.update(tensors)
        self.vector(name + ".bias", (outputs,), 0, 0.1)

    def make_config(self):
        if self.naming == "hf":
            return {
                "model_type": "vit",
                "architectures": ["ViTForImageClassification"],
                "hidden_size": WIDTH,
                "num_hidden_layers": DEPTH,
                "num_attention_heads": HEADS,
                "intermediate_size": MLP,
                "image_size": IMAGE,
                "patch_size": PATCH,
                "num_channels": 3,
                "qkv_bias": True,
                "layer_norm_eps": 1e-6,
                "hidden_act": "gelu",
            }
        return {
            "architecture": "vit_tiny_test",
            "num_classes": CLASSES,
            "global_pool": "token",
            "model_args": {"img_size": IMAGE, "num_heads": HEADS, "depth": DEPTH, "embed_dim": WIDTH},
        }

    def save(self, folder, shards=1):
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        if self.hf_quant is not None:
            (folder / "hf_quant_config.json").write_text(json.dumps(self.hf_quant))
        if shards == 1:
            write_safetensors(folder / "model.safetensors", self.tensors)
            return
        index, names = {}, list(self.tensors)
        for s in range(shards):
            file = f"model-{s + 1:05}-of-{shards:05}.safetensors"
            mine = names[s::shards]
            write_safetensors(folder / file, {n: self.tensors[n] for n in mine})
            index.update({n: file for n in mine})
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))

    def run(self, image, copied=(), noise=0.0, seed=0, inputs=True):
        """In f64, rounded to f16 where an engine's values are: results of layers, of `copied` ones also before their
        input becomes codes (another kernel makes them). `noise`: relative, before each rounding; inputs=False:
        without the codes of inputs."""
        rng = np.random.default_rng(seed)
        n, p, erf = self.names, self.names["parts"], np.vectorize(math.erf)
        exact_half = lambda x: x.astype(np.float16).astype(np.float64)
        half = lambda x: exact_half(x if noise == 0 else x * (1 + noise * rng.uniform(-1, 1, x.shape)))
        v = {name: x.astype(np.float16).astype(np.float64) for name, x in self.vectors.items()}
        v[n["head"] + ".bias"] = self.vectors[n["head"] + ".bias"].astype(np.float64)  # of the type of the logits, f32

        def product(name, x, fused=False):
            """x: not yet rounded. fused: its factors are applied by the layer that makes it."""
            if name in self.factors:
                x = (x if fused else half(x)) * self.factors[name].astype(np.float16)
            rounding = self.roundings[name] if inputs else as_is
            if rounding is as_is or name in copied:
                x = half(x)
            elif noise != 0:
                x = x * (1 + noise * rng.uniform(-1, 1, x.shape))
            w = self.weights[name]
            return (
                rounding(x).astype(np.float64)
                @ (w.astype(np.float16).astype(np.float64) if rounding is as_is and name in self.plain else w).T
                + v[name + ".bias"]
            )

        def norm(name, x):
            mean = x.mean(-1, keepdims=True)
            return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-6) * v[name + ".weight"] + v[
                name + ".bias"
            ]

        batch, grid = image.shape[0], IMAGE // PATCH
        x = (
            image.astype(np.float64)
            .reshape(batch, 3, grid, PATCH, grid, PATCH)
            .transpose(0, 2, 4, 1, 3, 5)
            .reshape(batch, grid * grid, -1)
        )
        # What is learnt is one constant, summed before it is rounded: a row for the class token, whose patch is zeros,
        # and one for each patch.
        raw = {
            name: self.vectors[name].astype(np.float64) for name in (n["token"], n["positions"], n["patches"] + ".bias")
        }
        bias = np.broadcast_to(raw[n["patches"] + ".bias"], (1, grid * grid, WIDTH))
        learnt = exact_half((np.concatenate([raw[n["token"]], bias], 1) + raw[n["positions"]]).astype(np.float32))
        x = np.concatenate([np.zeros((batch, 1, x.shape[2])), exact_half(x)], 1)
        x = half(x @ v[n["patches"] + ".weight"].reshape(WIDTH, -1).T + learnt)
        for i in range(DEPTH):
            b = lambda part: n["block"](i, p[part] if isinstance(p.get(part), str) else part)
            h = norm(b("norm1"), x)
            parts = [half(product(b(part), h)) for part in p["qkv"]]
            if len(parts) == 1:
                parts = np.split(parts[0], 3, -1)
            q, k, w = (y.reshape(batch, -1, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3) for y in parts)
            s = q @ k.transpose(0, 1, 3, 2) / math.sqrt(WIDTH // HEADS)
            s = np.exp(s - s.max(-1, keepdims=True))
            h = (s / s.sum(-1, keepdims=True) @ w).transpose(0, 2, 1, 3).reshape(batch, -1, WIDTH)
            x = half(x + product(b("out"), h))
            h = product(b("fc1"), norm(b("norm2"), x))
            x = half(x + product(b("fc2"), h * (1 + erf(h / math.sqrt(2))) / 2, fused=True))
        return product(n["head"], norm(n["norm"], x[:, 0]))
