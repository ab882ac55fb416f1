# SPDX-License-Identifier: Apache-2.0
"""Small quantized ONNX models in every representation that exporters write, with what they compute: the oracle of the import of types.

The numbers come from ml_dtypes and numpy alone, in f64 over decoded codes. Writes cases.npz: arrays <case>.onnx (the file's
bytes), <case>.in0, <case>.out0, and what the weight of the case's layer must be, bit for bit: <case>.type, <case>.codes
(packed bytes of [n, k]), <case>.scale and <case>.scale2 (raw bytes). <case>.attrs: "type.0=..." lines that the layers must
carry, with numbers as hexadecimal floats; between empty lines, where layers differ, those of one after the other.
<case>.slack0: what carriers in f16 may add to the error of out0, beside their rounding of results. Where attention rounds
probabilities before it normalises them: <case>.own0, what it computes, and <case>.apart0, how far from out0 that may be.

    python tests/data/quantized/make.py
"""

import io
import pathlib

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

FOLDER = pathlib.Path(__file__).parent
RANDOM = np.random.default_rng(8)
CASES = {}
E4M3, E5M2, E2M1, E8M0, I4 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e8m0fnu, ml_dtypes.int4
TYPES = {"e4m3": TensorProto.FLOAT8E4M3FN, "e5m2": TensorProto.FLOAT8E5M2, "e2m1": 23, "i8": TensorProto.INT8, "i4": TensorProto.INT4,
         "u4": TensorProto.UINT4, "u8": TensorProto.UINT8, "e8m0": 24, "f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "i32": TensorProto.INT32}
MAX = {"e4m3": 448, "e5m2": 57344, "e2m1": 6, "i8": 127, "i4": 7}
DTYPES = {"e4m3": E4M3, "e5m2": E5M2, "e2m1": E2M1, "i8": np.int8, "i4": np.int8, "e8m0": E8M0}
K, N = 32, 24


def normal(*shape, scale=1.0):
    return (RANDOM.standard_normal(shape) * scale).astype(np.float32)


def encode(q, element):
    """Quotients to codes as numbers: round to nearest even, saturating."""
    q = np.asarray(q, np.float32)
    if element in ("i8", "i4"):
        top = MAX[element]
        return np.clip(np.rint(q), -top - 1, top).astype(np.int8)
    return np.clip(q, -MAX[element], MAX[element]).astype(DTYPES[element])


def raw(codes, element):
    """Bytes of codes in row order, 4-bit ones packed."""
    flat = np.ascontiguousarray(codes).reshape(-1)
    if element in ("e2m1", "i4", "u4"):
        nibbles = flat.view(np.uint8) & 15
        if nibbles.size % 2:
            nibbles = np.append(nibbles, np.uint8(0))
        return (nibbles[0::2] | nibbles[1::2] << 4).astype(np.uint8).tobytes()
    return flat.tobytes()


def tensor(name, array, element):
    return helper.make_tensor(name, TYPES[element], array.shape, raw(array, element), raw=True)


def f32(name, array):
    array = np.asarray(array)
    return tensor(name, array, "f16" if array.dtype == np.float16 else "f32")


def spread(scale, shape, axis=None, block=0):
    scale = np.asarray(scale).astype(np.float64)
    if scale.size == 1:
        return scale.reshape(())
    if block:
        return np.repeat(scale, block, axis=axis).take(range(shape[axis]), axis=axis)
    return scale.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])


def rounded(x, scale, element="e4m3"):
    """x through codes and back, one scale."""
    scale = np.float32(scale)
    return encode(np.asarray(x, np.float32) / scale, element).astype(np.float64) * np.float64(scale)


def case(name, nodes, inputs, tensors, want, opset=21, weight=None, attrs=(), trt=False, listed=False, outputs=("z",), **beside):
    """nodes: (op, inputs, outputs, attributes); weight: (type, codes as bytes, scale as bytes, scale2 as bytes)."""
    assert name not in CASES, name
    made = []
    for node in nodes:
        op, ins, outs = node[0], node[1].split(), node[2].split()
        domain = "trt" if op.startswith("TRT_") or op.startswith("trt.") else "com.microsoft" if op == "MatMulNBits" else ""
        made.append(helper.make_node(op.removeprefix("trt."), ["" if i == "_" else i for i in ins], outs, domain=domain,
                                     name="node_" + outs[0], **(node[3] if len(node) > 3 else {})))
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in zip(["x", "y", "w"], inputs)]
    if listed:
        values += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in tensors]
    graph = helper.make_graph(made, name, values, [onnx.ValueInfoProto(name=n) for n in outputs], tensors)
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid("trt", 1)] if trt else [])
    imports += [helper.make_opsetid("com.microsoft", 1)] if any(n.domain == "com.microsoft" for n in made) else []
    model = helper.make_model(graph, opset_imports=imports, ir_version=11)
    out = {"onnx": np.frombuffer(model.SerializeToString(), np.uint8), "out0": np.asarray(want, np.float64)}
    out |= {key + "0": value for key, value in beside.items()}
    for i, a in enumerate(inputs):
        out[f"in{i}"] = a
    if weight:
        for key, value in zip(("type", "codes", "scale", "scale2"), weight):
            out[key] = np.frombuffer(value.encode() if isinstance(value, str) else value, np.uint8)
    if attrs:
        out["attrs"] = np.frombuffer("\n".join(attrs).encode(), np.uint8)
    CASES[name] = out


def attr(i, text, scale=None):
    return [f"type.{i}={text}"] + ([] if scale is None else [f"scale.{i}={float(np.float32(scale)).hex()}"])


X_SCALE = np.float32(0.0123)
FP8, INT8 = "e4m3:tensor(f32)", "i8:tensor(f32)"
MX, NV = "e4m3:block32(e8m0)", "e2m1:block16(e4m3):tensor(f32)"


def fp8_input(nodes_after, x="x", element="e4m3"):
    """x through Q and DQ to xd, with the scale sx."""
    return [("QuantizeLinear", f"{x} sx zx", "xq"), ("DequantizeLinear", "xq sx zx", "xd")] + nodes_after


def tensors_x(scale=X_SCALE, element="e4m3"):
    return [f32("sx", np.float32(scale)), tensor("zx", np.zeros((), DTYPES[element]), element)]


def product(x, w):
    """w: [n, k] in f64."""
    return np.asarray(x, np.float64) @ w.T


def near_ties():
    """FLOAT16 numbers whose quotient by the scale lies so close to the middle of two codes that FLOAT16 cannot tell."""
    top = np.float16(0.3)
    s = np.float16(np.float32(top) / 448)
    all16 = np.arange(1, 0x3400, dtype=np.uint16).view(np.float16)
    all16 = all16[all16 < top]
    apart = encode((all16 / s).astype(np.float32), "e4m3") != encode(all16.astype(np.float32) / np.float32(s), "e4m3")
    found = all16[apart]
    assert found.size >= 4, found.size
    return np.concatenate([[top], found[: K - 1], np.full(K, 0.1)]).astype(np.float16)


NEAR_TIES = near_ties()


def make_weights():
    x = normal(2, 3, K)
    w = normal(N, K, scale=0.1)
    for element in ("e4m3", "e5m2", "i8"):
        s = np.float32(np.abs(w).max() / MAX[element])
        codes = encode(w / s, element)
        zero = tensor("zw", np.zeros((), DTYPES[element]), element)
        xe = "i8" if element == "i8" else "e4m3"
        sx = np.float32(np.abs(x).max() / MAX[xe])
        case(f"{element}_tensor", fp8_input([("DequantizeLinear", "w sw zw", "wd"), ("MatMul", "xd wd", "z")]), [x],
             tensors_x(sx, xe) + [tensor("w", codes.T, element), f32("sw", s), zero], product(rounded(x, sx, xe), codes.astype(np.float64) * s), opset=19,
             weight=(f"{element}:tensor(f32)", raw(codes, element), s.tobytes()), attrs=attr(0, f"{xe}:tensor(f32)", sx))
        s = (np.abs(w).max(axis=1) / MAX[element]).astype(np.float32)
        codes = encode(w / s[:, None], element)
        want = product(rounded(x, sx, xe), codes.astype(np.float64) * s[:, None])
        made = dict(weight=(f"{element}:channel(f32)", raw(codes, element), s.tobytes()), attrs=attr(0, f"{xe}:tensor(f32)", sx))
        tensors = tensors_x(sx, xe) + [f32("sw", s)]
        case(f"{element}_channel_kn", fp8_input([("DequantizeLinear", "w sw", "wd", {"axis": 1}), ("MatMul", "xd wd", "z")]), [x],
             tensors + [tensor("w", codes.T, element)], want, opset=19, **made)
        case(f"{element}_channel_nk", fp8_input([("DequantizeLinear", "w sw", "wd", {"axis": 0}), ("Transpose", "wd", "wt", {"perm": [1, 0]}), ("MatMul", "xd wt", "z")]), [x],
             tensors + [tensor("w", codes, element)], want, opset=19, listed=True, **made)
        case(f"{element}_transposed_codes", fp8_input([("Transpose", "w", "wt", {"perm": [1, 0]}), ("DequantizeLinear", "wt sw", "wd", {"axis": -1}), ("MatMul", "xd wd", "z")]), [x],
             tensors + [tensor("w", codes, element)], want, opset=19, **made)
    # Gemm, with a bias in INT32 whose scale is that of the sum.
    s = (np.abs(w).max(axis=1) / 127).astype(np.float32)
    codes, sx, b = encode(w / s[:, None], "i8"), np.float32(0.02), RANDOM.integers(-900, 900, N).astype(np.int32)
    sb = (s * sx).astype(np.float32)
    x2 = normal(5, K)
    case("i8_gemm", fp8_input([("DequantizeLinear", "w sw", "wd", {"axis": 0}), ("DequantizeLinear", "b sb", "bd", {"axis": 0}), ("Gemm", "xd wd bd", "z", {"transB": 1, "alpha": 0.5})]), [x2],
         tensors_x(sx, "i8") + [tensor("w", codes, "i8"), f32("sw", s), tensor("b", b, "i32"), f32("sb", sb)],
         0.5 * product(rounded(x2, sx, "i8"), codes.astype(np.float64) * s[:, None]) + (b.astype(np.float32) * sb), opset=13,
         weight=("i8:channel(f32)", raw(codes, "i8"), s.tobytes()), attrs=attr(0, INT8, sx))
    # Weights in numbers, rounded at build; FLOAT16 scales divide in FLOAT16.
    for half in (False, True):
        wide = w.astype(np.float16).astype(np.float32) if half else w.copy()
        if half:  # one that FLOAT16 rounds onto the middle between two codes, where it then goes to the even one
            wide[0] = np.float32(NEAR_TIES)[:K]
        s = (np.abs(wide).max(axis=1) / 448).astype(np.float16 if half else np.float32)
        q = (wide.astype(s.dtype) / s[:, None]).astype(s.dtype)
        codes = encode(q.astype(np.float32), "e4m3")
        if half:  # the division's type shows
            assert (codes != encode(wide / s.astype(np.float32)[:, None], "e4m3")).any()
        case("e4m3_rounded_at_build" + ("_half" if half else ""),
             [("QuantizeLinear", "w sw zw", "wq", {"axis": 0}), ("DequantizeLinear", "wq sw zw", "wd", {"axis": 0}), ("Cast", "wd", "wc", {"to": 1}), ("Transpose", "wc", "wt", {"perm": [1, 0]}), ("MatMul", "x wt", "z")], [x],
             [f32("w", wide.astype(s.dtype)), f32("sw", s), tensor("zw", np.zeros(N, E4M3), "e4m3")],
             product(x, codes.astype(np.float64) * s.astype(np.float64)[:, None]),
             weight=("e4m3:channel(f32)", raw(codes, "e4m3"), s.astype(np.float32).tobytes()))
    # Blocks of integers, along k, in both orders of the weight.
    block = 8
    s = (np.abs(w).reshape(N, K // block, block).max(axis=2) / 7).astype(np.float32)
    codes = encode(w / np.repeat(s, block, axis=1), "i4")
    codes[0, 0] = -8  # kept as it is
    want = product(x, codes.astype(np.float64) * np.repeat(s, block, axis=1).astype(np.float64))
    made = ("i4:block8(f32)", raw(codes, "i4"), s.tobytes())
    case("i4_blocks_kn", [("DequantizeLinear", "w sw", "wd", {"axis": 0, "block_size": block}), ("MatMul", "x wd", "z")], [x],
         [tensor("w", codes.T, "i4"), f32("sw", s.T.copy())], want, weight=made)
    case("i4_blocks_nk_trt", [("trt.DequantizeLinear", "w sw", "wd", {"axis": 1, "block_size": block}), ("Transpose", "wd", "wt", {"perm": [1, 0]}), ("MatMul", "x wt", "z")], [x],
         [tensor("w", codes, "i4"), f32("sw", s)], want, weight=made, trt=True)
    case("i4_trt_op", [("TRT_INT4DequantizeLinear", "w sw", "wd", {"axis": 0, "block_size": block}), ("MatMul", "x wd", "z")], [x],
         [tensor("w", codes.T, "i4"), f32("sw", s.T.copy())], want, weight=made, trt=True)
    case("u4_middle_zero", [("DequantizeLinear", "w sw zw", "wd", {"axis": 0, "block_size": block}), ("MatMul", "x wd", "z")], [x],
         [tensor("w", (codes.T + 8).astype(np.uint8), "u4"), f32("sw", s.T.copy()), tensor("zw", np.full((K // block, N), 8, np.uint8), "u4")], want, weight=made)
    s8 = np.float32(np.abs(w).max() / 127)
    codes8 = encode(w / s8, "i8")
    case("u8_middle_zero", [("DequantizeLinear", "w sw zw", "wd"), ("MatMul", "x wd", "z")], [x],
         [tensor("w", (codes8.T.astype(np.int16) + 128).astype(np.uint8), "u8"), f32("sw", s8), tensor("zw", np.full((), 128, np.uint8), "u8")],
         product(x, codes8.astype(np.float64) * s8), weight=("i8:tensor(f32)", raw(codes8, "i8"), s8.tobytes()))
    # The patch convolution of a vision transformer.
    image, kernel = normal(1, 3, 8, 8), normal(N, 3, 4, 4, scale=0.1)
    s = (np.abs(kernel).reshape(N, -1).max(axis=1) / 448).astype(np.float32)
    codes = encode(kernel / s[:, None, None, None], "e4m3")
    patches = rounded(image, X_SCALE).reshape(1, 3, 2, 4, 2, 4).transpose(0, 2, 4, 1, 3, 5).reshape(4, 48)
    want = product(patches, codes.reshape(N, 48).astype(np.float64) * s[:, None]).reshape(1, 2, 2, N).transpose(0, 3, 1, 2)
    case("e4m3_conv", fp8_input([("DequantizeLinear", "w sw", "wd", {"axis": 0}), ("Conv", "xd wd", "z", {"strides": [4, 4], "kernel_shape": [4, 4]})]), [image],
         tensors_x() + [tensor("w", codes, "e4m3"), f32("sw", s)], want, opset=19,
         weight=("e4m3:channel(f32)", raw(codes, "e4m3"), s.tobytes()), attrs=attr(0, FP8, X_SCALE))


def nvfp4(w):
    s2 = np.float32(np.abs(w).max() / (6 * 448))
    amax = np.abs(w).reshape(*w.shape[:-1], -1, 16).max(axis=-1)
    block = np.maximum(((amax / np.float32(6)) / s2).astype(np.float32), np.float32(2**-9)).astype(E4M3)
    scale = np.repeat(block.astype(np.float32), 16, axis=-1) * s2
    return encode(w / scale, "e2m1"), block, s2


def decoded_nvfp4(codes, block, s2):
    return codes.astype(np.float64) * np.repeat(block.astype(np.float64), 16, axis=-1) * np.float64(s2)


def dynamic_nvfp4(x, s2):
    amax = np.abs(x).reshape(*x.shape[:-1], -1, 16).max(axis=-1)
    block = np.clip((amax / np.float32(6)) / s2, 2**-9, 448).astype(np.float32).astype(E4M3)
    scale = np.repeat(block.astype(np.float32), 16, axis=-1) * s2
    return decoded_nvfp4(encode(x / scale, "e2m1"), block, s2)


def mxfp8(w):
    amax = np.abs(w).reshape(*w.shape[:-1], -1, 32).max(axis=-1)
    power = np.ceil(np.log2(amax.astype(np.float64) / 448)).astype(np.int64)
    codes = encode(w * np.repeat(np.exp2(-power.astype(np.float64)), 32, axis=-1).astype(np.float32), "e4m3")
    return codes, (power + 127).astype(np.uint8), codes.astype(np.float64) * np.repeat(np.exp2(power.astype(np.float64)), 32, axis=-1)


def make_blocks():
    x, w = normal(2, 3, 2 * K), normal(N, 2 * K, scale=0.1)
    codes, block, s2 = nvfp4(w)
    sx = np.float32(np.abs(x).max() / (6 * 448))
    made = (NV, raw(codes, "e2m1"), block.tobytes(), s2.tobytes())
    w64 = decoded_nvfp4(codes, block, s2)
    two = [("DequantizeLinear", "w_f8_scale w_f8_scale_f32_scale", "ws"), ("DequantizeLinear", "w_f4 ws", "wd", {"axis": -1, "block_size": 16})]
    tensors = [tensor("w_f4", codes, "e2m1"), tensor("w_f8_scale", block, "e4m3"), f32("w_f8_scale_f32_scale", s2)]
    case("nvfp4_weight", two + [("Transpose", "wd", "wt", {"perm": [1, 0]}), ("MatMul", "x wt", "z")], [x], tensors, product(x, w64), opset=23, weight=made, listed=True)
    case("nvfp4_weight_kn", [("DequantizeLinear", "w_f8_scale s2", "ws"), ("DequantizeLinear", "w_f4 ws", "wd", {"axis": 0, "block_size": 16}), ("MatMul", "x wd", "z")], [x],
         [tensor("w_f4", codes.T, "e2m1"), tensor("w_f8_scale", block.T, "e4m3"), f32("s2", s2)], product(x, w64), opset=23, weight=made)
    trt = [("trt." + n[0], *n[1:]) for n in two]
    dynamic = [("TRT_FP4DynamicQuantize", "x sx", "xq xs", {"axis": -1, "block_size": 16, "scale_type": 17}), ("DequantizeLinear", "xs sx", "xss"),
               ("DequantizeLinear", "xq xss", "xd", {"axis": -1, "block_size": 16})]
    case("nvfp4_both", dynamic + trt + [("Transpose", "wd", "wt", {"perm": [1, 0]}), ("MatMul", "xd wt", "z")], [x], tensors + [f32("sx", sx)],
         product(dynamic_nvfp4(x, sx), w64), opset=23, weight=made, attrs=attr(0, NV + "!", sx), trt=True)
    rounded_codes, rounded_block, rounded_s2 = nvfp4(w)
    case("nvfp4_qdq_op", [("TRT_FP4QDQ", "w", "wd", {"block_size": 16}), ("Transpose", "wd", "wt", {"perm": [1, 0]}), ("MatMul", "x wt", "z")], [x], [f32("w", w)],
         product(x, decoded_nvfp4(rounded_codes, rounded_block, rounded_s2)), trt=True,
         weight=(NV, raw(rounded_codes, "e2m1"), rounded_block.tobytes(), rounded_s2.tobytes()))
    s = (np.abs(w).reshape(N, -1, 16).max(axis=2) / 6).astype(np.float32)
    codes4 = encode(w / np.repeat(s, 16, axis=1), "e2m1")
    case("e2m1_blocks", [("DequantizeLinear", "w sw", "wd", {"axis": 1, "block_size": 16}), ("Transpose", "wd", "wt", {"perm": [1, 0]}), ("MatMul", "x wt", "z")], [x],
         [tensor("w", codes4, "e2m1"), f32("sw", s)], product(x, codes4.astype(np.float64) * np.repeat(s, 16, axis=1).astype(np.float64)), opset=23,
         weight=("e2m1:block16(f32)", raw(codes4, "e2m1"), s.tobytes()))
    codes, powers, w64 = mxfp8(w)
    made = (MX, raw(codes, "e4m3"), powers.tobytes())
    weight = [("TRT_MXFP8DequantizeLinear", "w sw", "wd", {"axis": -1, "block_size": 32, "output_dtype": 10}), ("Transpose", "wd", "wt", {"perm": [1, 0]})]
    tensors = [tensor("w", codes, "e4m3"), tensor("sw", powers, "u8")]
    case("mxfp8_weight", weight + [("MatMul", "x wt", "z")], [x], tensors, product(x, w64), weight=made, trt=True)
    case("mxfp8_both", [("TRT_MXFP8DynamicQuantize", "x", "xq xs", {"axis": -1, "block_size": 32, "output_dtype": 17}),
                        ("TRT_MXFP8DequantizeLinear", "xq xs", "xd", {"axis": -1, "block_size": 32, "output_dtype": 1})] + weight + [("MatMul", "xd wt", "z")], [x], tensors,
         product(mxfp8(x)[2], w64), weight=made, attrs=attr(0, MX + "!"), trt=True)
    case("mxfp8_native", [("DequantizeLinear", "w sw", "wd", {"axis": 0, "block_size": 32, "output_dtype": 1}), ("MatMul", "x wd", "z")], [x],
         [tensor("w", codes.T, "e4m3"), tensor("sw", powers.T, "e8m0")], product(x, w64), opset=24, weight=made)


def make_placements():
    w = normal(N, K, scale=0.1)
    s = np.float32(np.abs(w).max() / 448)
    codes = encode(w / s, "e4m3")
    w64 = codes.astype(np.float64) * s
    weights = tensors_x() + [tensor("w", codes.T, "e4m3"), f32("sw", s)]
    made = dict(weight=(FP8, raw(codes, "e4m3"), s.tobytes()), attrs=attr(0, FP8, X_SCALE), opset=19)
    weight = ("DequantizeLinear", "w sw", "wd")
    x = normal(2, 4, 5, 8)
    turned = x.transpose(0, 2, 1, 3).reshape(2, 5, K)
    move = [("Transpose", "{0}", "xt", {"perm": [0, 2, 1, 3]}), ("Reshape", "xt shape", "{1}")]

    def moved(a, b):
        return [(n[0], n[1].format(a, b), n[2].format(a, b), *n[3:]) for n in move]

    shape = helper.make_tensor("shape", TensorProto.INT64, [3], [2, 5, K])
    want = product(rounded(turned, X_SCALE), w64)
    case("moved_before", moved("x", "r") + fp8_input([weight, ("MatMul", "xd wd", "z")], x="r"), [x], weights + [shape], want, **made)
    case("moved_between", [("QuantizeLinear", "x sx zx", "xq")] + moved("xq", "r") + [("DequantizeLinear", "r sx zx", "xd"), weight, ("MatMul", "xd wd", "z")], [x], weights + [shape], want, **made)
    case("moved_after", fp8_input(moved("xd", "r") + [weight, ("MatMul", "r wd", "z")]), [x], weights + [shape], want, **made)
    case("trt_fp8_ops", [("TRT_FP8QuantizeLinear", "x sx", "xq"), ("TRT_FP8DequantizeLinear", "xq sx", "xd")] + moved("xd", "r") + [weight, ("MatMul", "r wd", "z")], [x],
         weights + [shape], want, trt=True, **made)
    # One rounded value: two layers and a residual, which keeps the rounded numbers.
    x = normal(2, 3, K)
    case("shared", fp8_input([weight, ("MatMul", "xd wd", "a"), ("DequantizeLinear", "xq sx zx", "xe"), ("MatMul", "xe wd", "b"), ("Slice", "xd zero n two", "c"),
                              ("Add", "a b", "d"), ("Add", "c d", "z")]), [x],
         weights + [helper.make_tensor(n, TensorProto.INT64, [1], [v]) for n, v in (("zero", 0), ("n", N), ("two", 2))],
         2 * product(rounded(x, X_SCALE), w64) + rounded(x, X_SCALE)[..., :N], **made)
    # Around what is no layer: as asked.
    y = normal(2, 3, K)
    case("around_addition", fp8_input([("Add", "xd y", "z")]), [x, y], tensors_x(), rounded(x, X_SCALE) + y, opset=19)
    case("around_softmax", [("Softmax", "x", "p"), ("QuantizeLinear", "p sp zx", "pq"), ("DequantizeLinear", "pq sp zx", "pd"), ("Mul", "pd pd", "z")], [x],
         [f32("sp", np.float32(1 / 448)), tensor("zx", np.zeros((), E4M3), "e4m3")], rounded(softmax(x), np.float32(1 / 448)) ** 2, opset=19)
    # Only the activation: no layer multiplies codes, so that the rounding stays where it is.
    case("plain_weight", fp8_input([("MatMul", "xd w", "z")]), [x], tensors_x() + [f32("w", w.T.copy())], product(rounded(x, X_SCALE), w.astype(np.float64)), opset=19)
    # A table in codes that is only looked up.
    table, x = encode(normal(7, K, scale=50), "i8"), normal(3, K)
    case("table", [("DequantizeLinear", "t st", "td"), ("Gather", "td ids", "g", {"axis": 0}), ("Add", "x g", "z")], [x],
         [tensor("t", table, "i8"), f32("st", np.float32(0.01)), helper.make_tensor("ids", TensorProto.INT64, [3], [4, 0, 6])],
         x + table[[4, 0, 6]].astype(np.float64) * np.float64(np.float32(0.01)))


def softmax(s):
    e = np.exp(s.astype(np.float64) - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def wobble(t, bits):
    """Relative error of softmax(t) where scores and probabilities are rounded to so many bits: a score twice, before and after it is
    scaled, and an error of any score moves all probabilities of its row."""
    return 2.0**-bits * (1 + 4 * np.abs(t).max(axis=-1, keepdims=True))


def flips(p, off, scale, element, v):
    """How far sums of rounded probabilities go apart, where each may be off: by the codes that lie between."""
    return np.abs(rounded(p * (1 + off), scale, element) - rounded(p * (1 - off), scale, element)) @ np.abs(v)


def rounds_first(t, v, scale):
    """What attention does where it rounds to e4m3, and how far the same may be from rounding softmax(t) under this scale: half a step of
    each code, twice."""
    e = np.exp(t - t.max(axis=-1, keepdims=True))
    total, scale = e.sum(axis=-1, keepdims=True), np.float64(scale)

    def half_step(x):
        return 2.0 ** (np.maximum(np.floor(np.log2(x)), -6) - 4)

    apart = (half_step(448 * e) / (448 * total) + half_step(e / total / scale) * scale) @ np.abs(v)
    slack = flips(e, wobble(t, 20), np.float64(1 / 448), "e4m3", v) / total
    return dict(own=encode(448 * e, "e4m3").astype(np.float64) @ v / (448 * total), apart=apart, slack=slack)


def make_attention():
    q, k, v = (normal(2, 3, 5, 8) for _ in range(3))

    def through(name, scale, to):
        return [("QuantizeLinear", f"{name} {scale} zx", to + "q"), ("DequantizeLinear", f"{to}q {scale} zx", to)]

    def cast(name, to):
        return [("Cast", name, to, {"to": 1})]

    def scales_for(element):
        scales = {"sq": 0.011, "sk": 0.013, "sv": 0.017} if element == "e4m3" else {n: np.abs(a).max() / MAX[element] for n, a in (("sq", q), ("sk", k), ("sv", v))}
        return {n: np.float32(s) for n, s in scales.items()}

    def tensors_for(element):
        return [f32(n, s) for n, s in scales_for(element).items()] + [tensor("zx", np.zeros((), DTYPES[element]), element), f32("half", np.float32(0.5))]

    one = np.float32(1) / np.float32(448)
    for name, element, sp in (("", "e4m3", one), ("_half_scale", "e4m3", np.float32(np.float16(one))), ("_other_scale", "e4m3", np.float32(1 / 256)),
                              ("_small_scale", "e4m3", np.float32(0.5) * one), ("_i8", "i8", np.float32(1 / 127)), ("_i8_partly", "i8", None),
                              ("_e5m2", "e5m2", np.float32(1 / 57344))):
        scales, text = scales_for(element), f"{element}:tensor(f32)"
        qd, kd, vd = (rounded(a, scales[n], element) for a, n in ((q, "sq"), (k, "sk"), (v, "sv")))
        t = 0.5 * (qd @ kd.transpose(0, 1, 3, 2))
        p = softmax(t)
        nodes = through("x", "sq", "a") + [("Transpose", "y", "yt", {"perm": [0, 1, 3, 2]})] + through("yt", "sk", "b") + cast("a", "ac") + cast("b", "bc")
        nodes += [("MatMul", "ac bc", "s"), ("Mul", "s half", "t"), ("Softmax", "t", "p0", {"axis": -1})] + cast("p0", "p") + through("w", "sv", "c")
        nodes += (through("p", "sp", "pd") + cast("pd", "pc") if sp else cast("p", "pc")) + cast("c", "cc") + [("MatMul", "pc cc", "z")]
        tensors = tensors_for(element) + ([f32("sp", sp)] if sp else [])
        of_scores = attr(0, text, scales["sq"]) + attr(1, text, scales["sk"])
        if name in ("", "_half_scale"):
            made = dict(attrs=of_scores + attr(2, text, scales["sv"]) + [f"p={text}"], **rounds_first(t, vd, sp))
        elif sp:
            made = dict(attrs=of_scores + [""] + attr(0, text, sp) + attr(1, text, scales["sv"]), slack=flips(p, wobble(t, 11), sp, element, vd))
        else:  # the other product is one of numbers, rounded before it
            made = dict(attrs=of_scores + [""], slack=(p * wobble(t, 11)) @ np.abs(vd))
        case("attention" + name, nodes, [q, k, v], tensors, (rounded(p, sp, element) if sp else p) @ vd, opset=19, **made)
    for name, element in (("", "e4m3"), ("_i8", "i8"), ("_e5m2", "e5m2")):  # one that attention does not multiply stays rounded before it
        scales, text = scales_for(element), f"{element}:tensor(f32)"
        qd, kd, vd = (rounded(a, scales[n], element) for a, n in ((q, "sq"), (k, "sk"), (v, "sv")))
        t = 0.5 * (qd @ kd.transpose(0, 1, 3, 2))
        nodes = through("x", "sq", "a") + through("y", "sk", "b") + through("w", "sv", "c") + [("Attention", "a b c", "z", {"scale": 0.5})]
        made = dict(attrs=attr(0, text, scales["sq"]) + attr(1, text, scales["sk"]) + attr(2, text, scales["sv"])) if element == "e4m3" else {}
        # Numbers of q and k in f16 are off by as much as their scores would be, were all of their products of one sign.
        off = 0 if made else wobble(0.5 * (np.abs(qd) @ np.abs(kd).transpose(0, 1, 3, 2)), 11)
        case("attention_native" + name, nodes, [q, k, v], tensors_for(element), softmax(t) @ vd, opset=23, slack=(softmax(t) * off) @ np.abs(vd), **made)
    # The scale is on q, before it is rounded: it stays there. Without rounded probabilities, nothing is multiplied in codes.
    scales, tensors = scales_for("e4m3"), tensors_for("e4m3") + [f32("c", np.float32(0.3))]
    kd, vd = rounded(k, scales["sk"]), rounded(v, scales["sv"])
    scaled, sp = rounded(q * np.float32(0.3), scales["sq"]), one
    t = scaled @ kd.transpose(0, 1, 3, 2)
    p = softmax(t)
    nodes = [("Mul", "x c", "xc")] + through("xc", "sq", "a") + through("y", "sk", "b") + through("w", "sv", "c2")
    nodes += [("Transpose", "b", "bt", {"perm": [0, 1, 3, 2]}), ("MatMul", "a bt", "s"), ("Softmax", "s", "p", {"axis": -1})]
    typed = attr(0, FP8, scales["sq"]) + attr(1, FP8, scales["sk"]) + attr(2, FP8, scales["sv"])
    case("attention_scaled_query", nodes + through("p", "sp", "pd") + [("MatMul", "pd c2", "z")], [q, k, v], tensors + [f32("sp", sp)], rounded(p, sp) @ vd,
         opset=19, attrs=typed + [f"p={FP8}"], **rounds_first(t, vd, sp))
    case("attention_partly", nodes + [("MatMul", "p c2", "z")], [q, k, v], tensors, p @ vd, opset=19)


def make_nbits():
    """ONNX Runtime's weight-only layers: 4-bit codes of blocks along k, which have zeros of their own, and scales of either sign."""
    for name, k, block, zeros, negative, bias in (("plain", 32, 16, False, False, False), ("short_block", 40, 16, False, False, True), ("zero_points", 48, 16, True, False, False),
                                                  ("negative_scales", 64, 32, False, True, False), ("both", 50, 16, True, True, True)):
        blocks = -(-k // block)
        q = RANDOM.integers(0, 16, (N, blocks, block)).astype(np.uint8)
        s = (0.001 + 0.002 * RANDOM.random((N, blocks))).astype(np.float32)
        if negative:
            s *= RANDOM.choice([-1, 1], s.shape)
            s[0, 0] = 0
        zero = RANDOM.integers(0, 16, (N, blocks)).astype(np.uint8) if zeros else np.full((N, blocks), 8, np.uint8)
        codes = ((q.astype(np.int8) - zero.astype(np.int8)[..., None]) * np.sign(s).astype(np.int8)[..., None]).reshape(N, -1)[:, :k]
        held = np.where(s == 0, np.float32(1), np.abs(s)).astype(np.float32)
        tensors = [tensor("w", q[..., 0::2] | q[..., 1::2] << 4, "u8"), f32("s", s.reshape(-1))]
        if zeros:
            even = np.pad(zero, ((0, 0), (0, blocks % 2)))
            tensors.append(tensor("zp", even[:, 0::2] | even[:, 1::2] << 4, "u8"))
        operands, b = f"x w s {'zp' if zeros else '_'}", normal(N)
        if bias:
            operands, tensors = operands + " order b", tensors + [tensor("order", (np.arange(k) // block).astype(np.int32), "i32"), f32("b", b)]
        x, w = normal(2, 3, k), codes * np.repeat(held.astype(np.float64), block, axis=1)[:, :k]
        element = "i8" if zeros or negative else "i4"
        case("nbits_" + name, [("MatMulNBits", operands, "z", {"K": k, "N": N, "bits": 4, "block_size": block})], [x], tensors, product(x, w) + (b if bias else 0),
             opset=17, weight=(f"{element}:block{block}(f32)", raw(codes, element), held.tobytes()))


def convolved(x, w, stride, pad, groups):
    """x [b, c, h, w] with w [n, c / groups, kh, kw], in f64."""
    x = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    n, c, kh, kw = w.shape
    height, width = ((x.shape[2 + i] - w.shape[2 + i]) // stride + 1 for i in range(2))
    y = np.zeros((x.shape[0], n, height, width))
    for i in range(height):
        for j in range(width):
            window = x[:, :, i * stride : i * stride + kh, j * stride : j * stride + kw]
            for o in range(n):
                first = o // (n // groups) * c
                y[:, o, i, j] = (window[:, first : first + c] * w[o]).sum(axis=(1, 2, 3))
    return y


def make_convolutions():
    """Kernels whose codes a convolution reads in another order: pixels first, then channels."""
    for name, element, channels, n, groups, stride, pad in (
        ("i8_conv_padded", "i8", 6, 10, 1, 2, 1),
        ("e4m3_conv_padded", "e4m3", 6, 10, 1, 1, 1),
        ("i8_conv_groups", "i8", 8, 12, 2, 1, 0),
        ("e4m3_conv_depthwise", "e4m3", 8, 8, 8, 1, 1),
    ):
        x, w = normal(2, channels, 5, 5), normal(n, channels // groups, 3, 3, scale=0.1)
        sx = np.float32(np.abs(x).max() / MAX[element])
        s = (np.abs(w).reshape(n, -1).max(axis=1) / MAX[element]).astype(np.float32)
        codes = encode(w / s[:, None, None, None], element)
        want = convolved(rounded(x, sx, element), codes.astype(np.float64) * s.astype(np.float64)[:, None, None, None], stride, pad, groups)
        case(name, fp8_input([("DequantizeLinear", "w sw", "wd", {"axis": 0}), ("Conv", "xd wd", "z", {"strides": [stride] * 2, "pads": [pad] * 4, "group": groups, "kernel_shape": [3, 3]})]), [x],
             tensors_x(sx, element) + [tensor("w", codes, element), f32("sw", s)], want, opset=19,
             weight=(f"{element}:channel(f32)", raw(codes.transpose(0, 2, 3, 1), element), s.tobytes()), attrs=attr(0, f"{element}:tensor(f32)", sx))
    # Transposed, every pixel a block of its own: a scale for each channel is one for each of its pixels in the block.
    x, w = normal(2, 6, 3, 3), normal(6, 4, 2, 2, scale=0.1)
    sx = np.float32(np.abs(x).max() / 127)
    s = (np.abs(w).max(axis=(0, 2, 3)) / 127).astype(np.float32)
    codes = encode(w / s[None, :, None, None], "i8")
    want = np.einsum("bchw,cnij->bnhiwj", rounded(x, sx, "i8"), codes.astype(np.float64) * s.astype(np.float64)[None, :, None, None]).reshape(2, 4, 6, 6)
    case("i8_conv_transposed", fp8_input([("DequantizeLinear", "w sw", "wd", {"axis": 1}), ("ConvTranspose", "xd wd", "z", {"strides": [2, 2], "kernel_shape": [2, 2]})]), [x],
         tensors_x(sx, "i8") + [tensor("w", codes, "i8"), f32("sw", s)], want, opset=19,
         weight=("i8:channel(f32)", raw(codes.transpose(2, 3, 1, 0), "i8"), np.tile(s, 4).tobytes()), attrs=attr(0, INT8, sx))


def main():
    make_weights()
    make_blocks()
    make_placements()
    make_attention()
    make_nbits()
    make_convolutions()
    arrays = {f"{name}.{key}": value for name, parts in CASES.items() for key, value in parts.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    (FOLDER / "cases.npz").write_bytes(buffer.getvalue())
    print(len(CASES), "cases,", len(buffer.getvalue()), "bytes")


if __name__ == "__main__":
    main()
