# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the fuzz targets to fuzz/corpus/<target>/: small files, valid ones and some that are wrong in
a telling way.

    python fuzz/make_corpus.py [tessera]    (the program, to make engines; without it the engine seeds stay)

Inputs that once broke a reader are kept beside them under found_*; this script never touches those.
"""

import gzip
import io
import json
import pathlib
import sqlite3
import struct
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORPUS = ROOT / "fuzz" / "corpus"


def write(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def onnx_seeds():
    cases = np.load(ROOT / "tests" / "data" / "onnx" / "cases.npz")
    for key in cases.files:
        if key.endswith(".onnx"):
            write("onnx", key[: -len(".onnx")], cases[key].tobytes())

    quantized = np.load(ROOT / "tests" / "data" / "quantized" / "cases.npz")
    for key in quantized.files:
        if key.endswith(".onnx"):
            write("onnx", "quantized_" + key[: -len(".onnx")], quantized[key].tobytes())

    def model(nodes, tensors=(), shape=(2, 4), opset=17, functions=(), inputs=()):
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), *inputs],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
            tensors,
        )
        imports = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
        return helper.make_model(
            graph, opset_imports=imports, functions=list(functions), ir_version=8
        ).SerializeToString()

    def ints(name, *numbers):
        return numpy_helper.from_array(np.array(numbers, dtype=np.int64), name)

    huge = 1 << 40
    write(
        "onnx",
        "huge_constant_of_shape",
        model(
            [
                helper.make_node("ConstantOfShape", ["s"], ["c"]),
                helper.make_node("ReduceSum", ["c"], ["r"]),
                helper.make_node("Add", ["x", "r"], ["z"]),
            ],
            [ints("s", huge, 1)],
        ),
    )
    write(
        "onnx",
        "huge_expand",
        model(
            [helper.make_node("Expand", ["x", "s"], ["c"]), helper.make_node("ReduceSum", ["c"], ["z"])],
            [ints("s", 1 << 36, 2, 4)],
        ),
    )
    write(
        "onnx",
        "huge_range",
        model(
            [
                helper.make_node("Range", ["a", "b", "c"], ["r"]),
                helper.make_node("Cast", ["r"], ["f"], to=1),
                helper.make_node("ReduceSum", ["f"], ["g"]),
                helper.make_node("Add", ["x", "g"], ["z"]),
            ],
            [numpy_helper.from_array(np.array(v, dtype=np.int64), n) for n, v in (("a", 0), ("b", 1 << 60), ("c", 1))],
        ),
    )
    write("onnx", "huge_tile", model([helper.make_node("Tile", ["x", "s"], ["z"])], [ints("s", 4096, 4096)]))
    write(
        "onnx",
        "cycle",
        model(
            [
                helper.make_node("Add", ["x", "b"], ["a"]),
                helper.make_node("Relu", ["a"], ["b"]),
                helper.make_node("Relu", ["b"], ["z"]),
            ]
        ),
    )
    external = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "w.bin"), ("offset", "64"), ("length", "64")):
        external.external_data.add(key=key, value=value)
    write("onnx", "external", model([helper.make_node("MatMul", ["x", "w"], ["z"])], [external]))
    external.external_data[0].value = "../w.bin"
    write("onnx", "external_climbs", model([helper.make_node("MatMul", ["x", "w"], ["z"])], [external]))

    # One block of a transformer, as exporters spell it.
    rng = np.random.default_rng(3)

    def weight(name, *shape):
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)

    nodes = [
        helper.make_node("LayerNormalization", ["x", "g", "b"], ["n"]),
        helper.make_node("MatMul", ["n", "wqkv"], ["qkv"]),
        helper.make_node("Reshape", ["qkv", "s5"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[2, 0, 3, 1, 4]),
        helper.make_node("Split", ["t"], ["q0", "k0", "v0"], axis=0),
        helper.make_node("Squeeze", ["q0", "zero"], ["q"]),
        helper.make_node("Squeeze", ["k0", "zero"], ["k"]),
        helper.make_node("Squeeze", ["v0", "zero"], ["v"]),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("Mul", ["q", "c"], ["qs"]),
        helper.make_node("MatMul", ["qs", "kt"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["o"]),
        helper.make_node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["ot", "s3"], ["of"]),
        helper.make_node("MatMul", ["of", "wo"], ["proj"]),
        helper.make_node("Add", ["proj", "x"], ["z"]),
    ]
    write(
        "onnx",
        "block",
        model(
            nodes,
            [
                weight("g", 8),
                weight("b", 8),
                weight("wqkv", 8, 24),
                weight("wo", 8, 8),
                ints("s5", 2, 3, 3, 2, 4),
                ints("s3", 2, 3, 8),
                ints("zero", 0),
                numpy_helper.from_array(np.float32(0.5), "c"),
            ],
            shape=(2, 3, 8),
        ),
    )

    # The same ideas spelt out in small operators, which passes recognise.
    def number(name, value):
        return numpy_helper.from_array(np.float32(value), name)

    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[-1]),
        helper.make_node("Sub", ["x", "m"], ["d"]),
        helper.make_node("Pow", ["d", "two"], ["d2"]),
        helper.make_node("ReduceMean", ["d2"], ["v"], axes=[-1]),
        helper.make_node("Add", ["v", "eps"], ["ve"]),
        helper.make_node("Sqrt", ["ve"], ["s"]),
        helper.make_node("Div", ["d", "s"], ["n0"]),
        helper.make_node("Mul", ["n0", "g"], ["n1"]),
        helper.make_node("Add", ["n1", "b"], ["n"]),
        helper.make_node("MatMul", ["n", "w"], ["h0"]),
        helper.make_node("Add", ["h0", "wb"], ["h"]),
        helper.make_node("Div", ["h", "root2"], ["e0"]),
        helper.make_node("Erf", ["e0"], ["e1"]),
        helper.make_node("Add", ["e1", "one"], ["e2"]),
        helper.make_node("Mul", ["h", "e2"], ["e3"]),
        helper.make_node("Mul", ["e3", "half"], ["z"]),
    ]
    write(
        "onnx",
        "spelt_norm_gelu",
        model(
            nodes,
            [
                weight("g", 8),
                weight("b", 8),
                weight("w", 8, 4),
                weight("wb", 4),
                number("two", 2),
                number("eps", 1e-5),
                number("root2", 2**0.5),
                number("one", 1),
                number("half", 0.5),
            ],
            shape=(2, 3, 8),
        ),
    )
    # One of every other op that runs.
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"]),
        helper.make_node("Add", ["x", "e"], ["a"]),
        helper.make_node("Concat", ["a", "x"], ["c"], axis=1),
        helper.make_node("ReduceMax", ["c"], ["r"], axes=[1], keepdims=1),
        helper.make_node("Sub", ["c", "r"], ["d"]),
        helper.make_node("Softmax", ["d"], ["p"], axis=1),
        helper.make_node("Slice", ["p", "from", "to", "axes", "steps"], ["sl"]),
        helper.make_node("Transpose", ["sl"], ["t"], perm=[0, 2, 1]),
        helper.make_node("LayerNormalization", ["t", "g"], ["n"]),
        helper.make_node("Greater", ["n", "half"], ["q"]),
        helper.make_node("Where", ["q", "n", "t"], ["wh"]),
        helper.make_node("Cast", ["wh"], ["i"], to=6),
        helper.make_node("Cast", ["i"], ["f"], to=1),
        helper.make_node("Clip", ["f", "half"], ["z"]),
    ]
    write(
        "onnx",
        "mixed",
        model(
            nodes,
            [
                weight("table", 200, 1),
                ints("from", 0),
                ints("to", 6),
                ints("axes", 1),
                ints("steps", 2),
                weight("g", 3),
                number("half", 0.5),
            ],
            shape=(2, 3, 8),
            inputs=[helper.make_tensor_value_info("ids", TensorProto.UINT8, (2, 3))],
        ),
    )
    # A list of numbers in a function that is called 2^14 times.
    functions = [
        helper.make_function(
            "local",
            "F0",
            ["a"],
            ["b"],
            [helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0] * 200)],
            [helper.make_opsetid("", 17)],
        )
    ]
    for i in range(1, 15):
        inner = [helper.make_node(f"F{i - 1}", [a], [b], domain="local") for a, b in (("a", "c"), ("c", "b"))]
        functions.append(
            helper.make_function(
                "local", f"F{i}", ["a"], ["b"], inner, [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
            )
        )
    write(
        "onnx", "functions_double", model([helper.make_node("F14", ["x"], ["z"], domain="local")], functions=functions)
    )
    # Numbers by the million out of one number, again and again.
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["c0"])] + [
        helper.make_node("Neg", [f"c{i}"], [f"c{i + 1}"]) for i in range(30)
    ]
    nodes += [helper.make_node("ReduceSum", ["c30"], ["r"]), helper.make_node("Add", ["x", "r"], ["z"])]
    write("onnx", "folds_grow", model(nodes, [ints("s", 1 << 21)]))


def npz_seeds():
    for dtype in ("<f4", "<f8", "<f2", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "|b1", ">f4", "<c8"):
        out = io.BytesIO()
        np.save(out, np.arange(6).reshape(2, 3).astype(dtype))
        write("npz", f"npy_{dtype.strip('<>|')}_{'big' if dtype[0] == '>' else 'little'}", out.getvalue())
    for name, array in (
        ("fortran", np.asfortranarray(np.arange(24.0).reshape(2, 3, 4))),
        ("scalar", np.float32(3)),
        ("empty", np.zeros((0, 3))),
    ):
        out = io.BytesIO()
        np.save(out, array)
        write("npz", f"npy_{name}", out.getvalue())
    for name, save in (("stored", np.savez), ("deflated", np.savez_compressed)):
        out = io.BytesIO()
        save(out, x=np.arange(5, dtype=np.float32), y=np.ones((2, 2), dtype=np.int64))
        write("npz", f"npz_{name}", out.getvalue())
    # A bomb: a megabyte of zeros in a kilobyte, with the shape that goes with it.
    out = io.BytesIO()
    np.savez_compressed(out, x=np.zeros(1 << 17))
    write("npz", "npz_bomb", out.getvalue())
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in ("x.txt", "../x.npy"):
            archive.writestr(zipfile.ZipInfo(name), "hello")  # a fixed date: the same bytes every time
    write("npz", "zip_of_others", out.getvalue())
    dict_text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999), }"
    write("npz", "npy_huge_shape", b"\x93NUMPY\x01\0" + struct.pack("<H", len(dict_text)) + dict_text)
    write(
        "npz",
        "npy_version2",
        b"\x93NUMPY\x02\0" + struct.pack("<I", 54) + b"{'descr':'|u1','fortran_order':True,'shape':(1,2,1),}\n" + b"ab",
    )


def safetensors_seeds():
    def file(header, data=b""):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data

    def entry(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    types = {
        "F64": 8,
        "F32": 4,
        "F16": 2,
        "BF16": 2,
        "F8_E4M3": 1,
        "F8_E5M2": 1,
        "I64": 8,
        "I32": 4,
        "I16": 2,
        "I8": 1,
        "U64": 8,
        "U32": 4,
        "U16": 2,
        "U8": 1,
        "BOOL": 1,
    }
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for dtype, size in types.items():
        header[dtype.lower()] = entry(dtype, [2, 1], at, at + 2 * size)
        at += 2 * size
    write("safetensors", "every_type", file(header, bytes(range(at))))
    write("safetensors", "nothing", file({}))
    write(
        "safetensors", "scalar_and_empty", file({"s": entry("F32", [], 0, 4), "e": entry("F32", [0, 7], 0, 0)}, b"abcd")
    )
    write("safetensors", "hole", file({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 3, 5)}, b"abcde"))
    write("safetensors", "overlap", file({"a": entry("U8", [3], 0, 3), "b": entry("U8", [3], 2, 5)}, b"abcde"))
    write("safetensors", "huge", file({"a": entry("F32", [1 << 31, 1 << 31], 0, 1 << 62)}))
    write("safetensors", "unknown_type", file({"a": entry("F4", [2], 0, 1)}, b"a"))
    write(
        "safetensors",
        "repeated",
        file(
            b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
            b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
            b"a",
        ),
    )
    write("safetensors", "deep", file(b'{"a":' + b"[" * 40 + b"]" * 40 + b"}"))
    write("safetensors", "long_header", struct.pack("<Q", 1 << 40) + b"{}")
    parts = {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "sub/m-1.safetensors"}
    write("safetensors", "index", json.dumps({"metadata": {"total_size": 9}, "weight_map": parts}))
    write("safetensors", "index_climbs", json.dumps({"weight_map": {"a": "../m-1.safetensors", "b": "/etc/m"}}))


def ir_text_seeds():
    for path in sorted((ROOT / "tests" / "data" / "passes").glob("*.ir")):
        write("ir_text", path.stem, path.read_bytes())
    write(
        "ir_text",
        "types",
        "graph t {\n  in %x: e4m3:tensor(f32)[2,3] scale=%s\n  const %s: f32[1] = {0.5}\n  const %d: u8[3] = "
        "data(0a0b0c)\n"
        '  %y: f16[2,3] = copy(%x) {a=-1.5e3, b=[1,-2], c="w\\x41", d=inf} @"layer" role block asked fp8\n  out '
        "%y\n}\n",
    )
    write("ir_text", "huge", "graph h {\n" + "".join(f"  const %c{i}: f32[67108864]\n" for i in range(40)) + "}\n")
    write("ir_text", "two", 'graph a {}\ngraph "b c" { # empty\n}\n')


def words_seeds():
    for i, text in enumerate(
        (
            "f32",
            "e4m3:tensor(f32)",
            "e4m3:channel(f32)",
            "e4m3:block16(e4m3):tensor(f32)",
            "e4m3:token(f32)!",
            "bf16!",
            "blocks.*.mlp.fc2=fp16",
            "head=",
            "=fp8",
            "a=b=c",
            "e4m3:block-1(f32)",
            "e4m3:block99999999999(f32)",
            "e4m3:(",
            "",
            "size=8x12,mean=0.5:0.25:0,std=1,layout=nhwc",
            "size=4,resize=9,filter=bicubic",
            "percentile=99.9",
            "mse",
            "mean=0.485:0.456:0.406,std=0.229:0.224:0.225,layout=nhwc",
            "image=u8,mean=0.5,std=0.25:0.5:1",
            "a=b=bf16",
        )
    ):
        write("words", f"word_{i:02}", text)


def tuning_seeds():
    def file(entries, **more):
        return json.dumps(
            {"tessera": "tuning 1", "gpu": "NVIDIA H200", "arch": "sm90", "entries": entries} | more
        ).encode()

    time = {"variant": "matmul/sm90_f16", "config": "128x192", "us": 37.25}
    write(
        "tuning",
        "whole",
        file(
            {
                "sm90 matmul f16[1,8] f16[8,8]c -> f16[1,8]": [time, {**time, "config": "", "us": 1e-9}],
                "other": [{**time, "us": 1e9}],
            }
        ),
    )
    write("tuning", "too_long", file({"a": [{**time, "us": 1e300}]}))
    write("tuning", "empty", file({}))
    write("tuning", "twice", file({"a": [time, time]}))
    write("tuning", "negative", file({"a": [{**time, "us": -1}]}))
    write("tuning", "other_arch", file({}, arch="cpu"))


def ranges_seeds():
    def file(values, **more):
        top = {
            "tessera": "ranges 1",
            "model": "m",
            "weights": "0" * 16,
            "method": "amax",
            "how": "amax over 2 samples of x.npz",
            "samples": 2,
            "preprocess": "",
            "warnings": [],
            "checksum": "0" * 16,
            "values": values,
        }
        return json.dumps({**top, **more})

    whole = {
        "amax": 3.25,
        "percentiles": {"99": 2.5, "99.9": 3.0, "99.99": 3.1, "99.999": 3.2},
        "mse": {"e4m3": 3.25, "i8": 2.9, "e2m1": 3.25},
    }
    write("ranges", "whole", file({"x": whole, "y": {**whole, "clip": 1.5}}))
    write(
        "ranges",
        "percentile",
        file({"x": whole}, method="percentile=99.9", preprocess="size=8x8", warnings=["a single sample"]),
    )
    write("ranges", "not_finite", file({"mask": {"amax": "inf"}, "lost": {"amax": "nan"}}))
    write("ranges", "negative", file({"x": {"amax": -1}}))
    write("ranges", "too_large", file({"x": {"amax": 1e300}}))
    write("ranges", "not_json", b'{"tessera": "ranges 1", "values": {"x": {"amax": NaN}}}')


def image_seeds():
    folder = ROOT / "tests" / "data" / "images"
    for path in sorted(folder.glob("*.png")) + sorted(folder.glob("*.jpg")):
        write("image", path.name.replace(".", "_"), path.read_bytes())
    write("image", "cut_png", (folder / "rgb.png").read_bytes()[:900])
    write("image", "cut_jpg", (folder / "rgb.jpg").read_bytes()[:900])


def write_engine_seeds(name, file, whole=False):
    """As manifest, zero byte, data; with `whole` also as the file."""
    (manifest_bytes,) = struct.unpack_from("<Q", file, 24)
    (data_offset,) = struct.unpack_from("<Q", file, 40)
    if whole:
        write("engine", f"file_{name}", file)
    write("engine", f"parts_{name}", file[64 : 64 + manifest_bytes] + b"\0" + file[data_offset:])


def torch_trace_seeds():
    def event(category, name, begin, us, **args):
        return {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": us, "args": {"device": 0, **args}}

    def trace(*events):
        properties = [{"id": 0, "name": "NVIDIA H200", "numSms": 132}]
        return json.dumps({"schemaVersion": 1, "deviceProperties": properties, "traceEvents": events})

    run = (
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 0, 4, bytes=64),
        event("gpu_memset", "Memset (Device)", 5, 1),
        event("kernel", "nvjet_sm90_qqhsh_192x192", 7, 10, grid=[1, 2, 3]),
        event("kernel", "triton_per_fused_native_layer_norm_0", 16, 3),
        event("cpu_op", "aten::linear", 1, 30),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 30, 2),
    )
    steps = [event("user_annotation", f"ProfilerStep#{i}", 40 * i, 40) for i in range(3)]
    write("torch_trace", "one_run", trace(*run))
    write("torch_trace", "three_steps", trace(*run, *run, *run, *steps))
    write("torch_trace", "a_list", json.dumps(run))
    write("torch_trace", "packed", gzip.compress(trace(*run).encode(), mtime=0))
    write("torch_trace", "packed_cut", gzip.compress(trace(*run).encode(), mtime=0)[:150])
    write("torch_trace", "two_devices", trace(*run, event("kernel", "softmax", 3, 9, device=1)))
    write("torch_trace", "negative", trace(event("kernel", "a", 0, -1)))
    write("torch_trace", "no_kernel", trace(run[4]))
    write(
        "torch_trace",
        "odd",
        '{"traceEvents": [[{"ts": []}], 7, {"cat": {}, "name": [1]}, {"args": [{"device": "x"}]}]}',
    )


def trtexec_seeds():
    profile = json.dumps(
        [{"count": 4}]
        + [{"name": n, "timeMs": ms, "averageMs": ms / 4, "medianMs": 1} for n, ms in (("a", 4), ("b", 2), ("a", 1))]
    )

    def tensor(dims, datatype):
        return {"Name": "t", "Dimensions": dims, "Format/Datatype": datatype}

    layers = json.dumps(
        {
            "Layers": [
                {
                    "Name": "a",
                    "LayerType": "gemm",
                    "Inputs": [tensor([4, 8, 16], "FP8"), tensor([16, 32], "FP8")],
                    "Outputs": [tensor([4, 8, 32], "Half")],
                    "TacticName": "sm90_xmma_gemm_e4m3f16_e4m3f32_f32",
                },
                "b",
            ],
            "Bindings": ["x"],
        }
    )
    times = json.dumps(
        [{"startEnqMs": 0, "endEnqMs": 1, "h2dMs": 1, "computeMs": 2, "d2hMs": 1, "latencyMs": 4 + i} for i in range(3)]
    )
    write("trtexec", "profile", profile)
    write("trtexec", "all", "\0".join((profile, layers, times)))
    write("trtexec", "times_first", "\0".join((times, profile)))
    write("trtexec", "layers_alone", layers)
    write("trtexec", "twice", profile + "\0" + profile)
    write("trtexec", "negative", '[{"count": 4}, {"name": "a", "timeMs": -1}]')
    write("trtexec", "dynamic", profile + "\0" + layers.replace("[4, 8, 16]", "[-1, 8, 16]"))


def profile_json_seeds():
    def kernel(name, kind, precision, us, **more):
        return {"name": name, "class": kind, "precision": precision, "calls": 12, "us": us, **more}

    def profile(kernels, **more):
        return json.dumps({"format": "tessera profile", "version": 1, "source": "tessera", "kernels": kernels, **more})

    rest = [
        kernel("attention/x", "attention", "fp16", 90),
        kernel("norm/x", "norm", "fp16", 40),
        kernel("copy/x", "conversion", "", 20),
    ]
    work = {"flops": 2e11, "bytes": 1e7}
    high = [kernel("matmul/h", "gemm", "fp16", 700, layer="blocks.0.fc1", **work), *rest]
    low = [
        kernel("matmul/q", "gemm", "fp8", 300, layer="blocks.0.fc1", asked="fp8", sparsity="2:4", **work),
        kernel("matmul/h", "gemm", "fp16", 50, layer="blocks.0.fc2", asked="fp8", **work),
        *rest,
    ]
    rates = {"fp16": 8e14, "fp8": 1.5e15, "fp8 2:4": 2.5e15}
    more = {
        "machine": "NVIDIA H200", "model": "m", "plan": "batch1", "batch": 8, "gap_us": 30, "overlap_us": 2,
        "latency": {"mean_ms": 1, "median_ms": 0.9, "runs": 9}, "weight_bytes": 1 << 24, "engine_bytes": 1 << 25,
        "ceilings": {"machine": "NVIDIA H200", "measured": True, "bytes_per_s": 4e12, "flops_per_s": rates},
    }  # fmt: skip
    graphs = [{"graph": g, "plan": g, "times": n, "kernel_us": 300} for g, n in (("prefix", 1), ("step", 10))]
    write("profile_json", "two", profile(high, **more) + "\0" + profile(low, precision="fp8", **more))
    write("profile_json", "one", profile(low, source="pytorch", capability=89, machine="NVIDIA L4"))
    write("profile_json", "predicted", profile(low, predicted=True, making="2:4", **more))
    write("profile_json", "graphs", profile([{**k, "graph": "step"} for k in low], graphs=graphs))
    write("profile_json", "no_times", profile([kernel("a", "gemm", "fp8", 0)]) + "\0" + profile([]))
    write("profile_json", "slow_machine", profile(low, ceilings={"bytes_per_s": 1e-30, "flops_per_s": {"fp8": 1e-30}}))
    write("profile_json", "no_time", profile([kernel("a", "gemm", "fp8", -1)]))


def nsight_seeds():
    def file(*sql):
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch) / "x.sqlite"
            db = sqlite3.connect(path)
            db.executescript("PRAGMA page_size=512;" + ";".join(sql))
            db.close()
            return path.read_bytes()

    strings = "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)"
    kernels = (
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, correlationId INTEGER,"
        " globalPid INTEGER, demangledName INTEGER)"
    )
    rows = (
        "INSERT INTO StringIds VALUES (1, 'nvjet_sm90_hsh_x'), (2, 'softmax'), (3, 'layer')",
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 0, 1, 16777216, 1), (15, 30, 0, 2, 16777216, 2)",
    )
    write("nsight", "kernels", file(strings, kernels, *rows))
    write(
        "nsight",
        "all",
        file(
            strings,
            kernels,
            *rows,
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, copyKind INTEGER)",
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1, 5, 0, 1), (40, 45, 0, 2), (31, 32, 0, 8)",
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER)",
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (6, 7, 0)",
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, globalTid INTEGER, correlationId INTEGER)",
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (2, 16777217, 1), (5, 16777217, 2)",
            "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER,"
            " textId INTEGER)",
            "INSERT INTO NVTX_EVENTS VALUES (1, 9, 59, 'outer', 16777217, NULL), (4, 6, 59, NULL, 16777217, 3)",
            "CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT)",
            "INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200')",
        ),
    )
    write("nsight", "a_view", file(strings, "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start, 2 AS end"))
    write("nsight", "graphs", file("CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER)"))
    write("nsight", "cut", file(strings, kernels, *rows)[:1000])


def engine_seeds(program):
    """Small engines of every precision."""
    rng = np.random.default_rng(3)
    block = onnx.load_from_string((CORPUS / "onnx" / "block").read_bytes())
    mlp = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        mlp (float[1,4] x) => (float[1,3] z) <float[4,3] w> { y = MatMul(x, w)  z = Relu(y) }""")
    mlp.graph.initializer.append(numpy_helper.from_array(rng.standard_normal((4, 3)).astype(np.float32), "w"))
    mixed = onnx.load_from_string((CORPUS / "onnx" / "mixed").read_bytes())
    for name, model in (("mlp", mlp), ("block", block), ("mixed", mixed)):
        for precision, target in (("fp32", "cpu"), ("fp16", "cpu"), ("fp8", "cpu"), ("fp16", "ref")):
            if name != "block" and precision == "fp8":
                continue  # no layer that would be fp8
            if name == "mixed" and target == "ref":
                precision = "fp32"  # one of its values is infinite, and no kernel of ref reads it in f32
            with tempfile.TemporaryDirectory() as scratch:
                source, out = pathlib.Path(scratch) / "m.onnx", pathlib.Path(scratch) / "m.tess"
                onnx.save(model, source)
                dims = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
                np.savez(source.with_suffix(".npz"), x=rng.standard_normal(dims).astype(np.float32))
                command = [program, "build", source, "--precision", precision, "--target", target]
                command += ["--batch", str(dims[0]), "-o", out, "--json"]
                if precision == "fp8":
                    command += ["--calib", source.with_suffix(".npz")]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                write_engine_seeds(f"{name}_{precision}_{target}", out.read_bytes(), whole=name == "mlp")


def length_seeds(program):
    """Plans for several lengths: one that may be padded, and one that may not (what is summed up sees the zeros)."""
    for name, body in (("padded", "z = Relu(x)"), ("exact", "z = Softmax <axis = 1> (x)")):
        model = onnx.parser.parse_model(f"""
            <ir_version: 8, opset_import: ["" : 17]>
            rows (float[n,rows,2] x) => (float[n,rows,2] z) {{ {body} }}""")
        with tempfile.TemporaryDirectory() as scratch:
            source, out = pathlib.Path(scratch) / "m.onnx", pathlib.Path(scratch) / "m.tess"
            onnx.save(model, source)
            command = [program, "build", source, "--precision", "fp32", "-o", out, "--json", "--golden-samples", "1"]
            subprocess.run([*command, "--shape", "x=1/2,3/5,2"], check=True, stdout=subprocess.DEVNULL)
            write_engine_seeds(f"lengths_{name}", out.read_bytes())


def state_seeds(program):
    """A state that is read and written, two graphs over one KV cache, and a schedule."""
    rng = np.random.default_rng(4)
    sum_of_all = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        sums (float[1,4] x, float[1,4] before) => (float[1,4] z, float[1,4] after)
        { after = Add(x, before)  z = Relu(after) }""")
    llama = {
        "model_type": "llama",
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 8,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e4,
        "max_position_embeddings": 16,
    }
    shapes = {"model.embed_tokens.weight": (8, 8), "model.norm.weight": (8,), "lm_head.weight": (8, 8)}
    layer = {"self_attn.q_proj": (8, 8), "self_attn.k_proj": (4, 8), "self_attn.v_proj": (4, 8)}
    layer |= {"self_attn.o_proj": (8, 8), "mlp.gate_proj": (8, 8), "mlp.up_proj": (8, 8), "mlp.down_proj": (8, 8)}
    layer |= {"input_layernorm": (8,), "post_attention_layernorm": (8,)}
    shapes |= {f"model.layers.0.{k}.weight": v for k, v in layer.items()}
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        out = scratch / "m.tess"

        def build(name, *words, whole=False):
            subprocess.run([program, "build", *words, "-o", out, "--json"], check=True, stdout=subprocess.DEVNULL)
            write_engine_seeds(name, out.read_bytes(), whole)

        onnx.save(sum_of_all, scratch / "sums.onnx")
        build("state", scratch / "sums.onnx", "--state", "before=after", "--precision", "fp32", "--target", "cpu")
        folder = scratch / "llama"  # its name becomes the model's
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(llama))
        header, data = {}, b""
        for name, shape in shapes.items():
            values = rng.standard_normal(shape).astype(np.float32).tobytes()
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
            data += values
        text = json.dumps(header).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        model = (folder, "--family", "llama", "--size", "cache=6", "--precision", "fp32", "--target", "cpu")
        scheduled = (*model, "--graph", "a:tokens=1", "--graph", "b:tokens=1", "--schedule", "a,b*2")
        build("schedule", *scheduled)
        build("schedule_no_golden", *scheduled, "--no-verify", whole=True)
        build("graphs", *model, "--graph", "prefill:tokens=3", "--graph", "decode:tokens=1")


def policy_seeds(program):
    """Buckets of three graphs that hand each other states: plans of two numbers of views."""
    small = {"pi05": True, "image_size": 2, "patch": 2, "v_width": 4, "v_layers": 1, "v_heads": 1, "v_mlp": 4}
    small |= {"width": 4, "mlp": 4, "e_width": 4, "e_mlp": 4, "layers": 1, "heads": 1, "kv_heads": 1, "head_dim": 4}
    small |= {"vocab": 4, "action_dim": 4, "horizon": 1, "max_token_len": 2, "num_steps": 2}
    with tempfile.TemporaryDirectory() as scratch:
        source, out = pathlib.Path(scratch) / "policy.json", pathlib.Path(scratch) / "m.tess"
        source.write_text(json.dumps(small))
        command = [program, "build", source, "--family", "pi05", "--random", "1", "--precision", "fp32", "-o", out]
        command += ["--target", "cpu", "--size", "views=1,2", "--no-verify", "--json"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        write_engine_seeds("policy", out.read_bytes())


def main():
    onnx_seeds()
    npz_seeds()
    safetensors_seeds()
    ir_text_seeds()
    words_seeds()
    ranges_seeds()
    tuning_seeds()
    image_seeds()
    torch_trace_seeds()
    trtexec_seeds()
    nsight_seeds()
    profile_json_seeds()
    if len(sys.argv) > 1:
        engine_seeds(sys.argv[1])
        state_seeds(sys.argv[1])
        length_seeds(sys.argv[1])
        policy_seeds(sys.argv[1])
    for target in sorted(CORPUS.iterdir()):
        sizes = [f.stat().st_size for f in target.iterdir()]
        print(f"{target.name}: {len(sizes)} files, {sum(sizes)} bytes")


main()
