# SPDX-License-Identifier: Apache-2.0
"""Tiny ONNX models, one operator or idiom each, with what ONNX Runtime computes for them: the oracle of the importer's tests.

Writes cases.npz (simple operators), indices.npz (tables, indices, reductions), natives.npz (attention, rotary and norms
of opsets 23 to 27), images.npz (image_cases.py) and detectors.npz (detector_cases.py): arrays <case>.onnx (the file's bytes), <case>.in<i> and <case>.out<i>. Every model passes onnx.checker.
At opset 27, which ONNX Runtime does not know, and where a case says so the oracle is onnx's reference evaluator.

    python tests/data/onnx/make.py            (or the files to make: `make.py images`)
"""

import io
import os
import pathlib
import sys

import numpy as np
import onnx
import onnx.reference
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import detector_cases
import image_cases

FOLDER = pathlib.Path(__file__).parent
RANDOM = np.random.default_rng(5)
CASES = {}


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def positive(*shape):
    return np.abs(normal(*shape)) + np.float32(0.1)


def ints(*numbers):
    return np.array(numbers, dtype=np.int64)


def case(name, nodes, inputs, constants=None, opset=17, functions=(), outputs=("z",), reference=False):
    """nodes: (op, inputs, outputs, attributes) with an optional domain; inputs: arrays of x, y, ...; constants: by name."""
    assert name not in CASES, name
    made = []
    for node in nodes:
        op, ins, outs = node[0].split("."), node[1].split(), node[2].split()
        attrs = node[3] if len(node) > 3 else {}
        ins = ["" if i == "_" else i for i in ins]
        made.append(helper.make_node(op[-1], ins, outs, domain=".".join(op[:-1]), **attrs))
    names = ["x", "y", "w", "m", "pk", "pv", "n"][: len(inputs)]
    graph = helper.make_graph(
        made,
        name,
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in zip(names, inputs)],
        [onnx.ValueInfoProto(name=n) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid("local", 1)] if functions else [])
    model = helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=8 if opset < 21 else 10 if opset < 25 else 13)
    # Output types come from shape inference, so that checker and runtime agree on them.
    inferred = onnx.shape_inference.infer_shapes(model)
    known = {v.name: v for v in list(inferred.graph.value_info) + list(inferred.graph.output)}
    del model.graph.output[:]
    for n in outputs:
        value = known[n] if known[n].type.WhichOneof("value") else helper.make_tensor_value_info(n, TensorProto.FLOAT, None)
        model.graph.output.append(value)
    CASES[name] = (model, dict(zip(names, inputs)), reference or opset > 26)


def attention(scale_node):
    return [("Transpose", "y", "kt", {"perm": [0, 1, 3, 2]}), ("MatMul", "x kt", "s"), scale_node, ("Softmax", "t", "p", {"axis": -1}), ("MatMul", "p w", "z")]


def make_cases():
    x = normal(2, 3, 4)
    for op in ("Neg", "Abs", "Exp", "Erf", "Tanh", "Sigmoid", "Relu", "Floor", "Ceil", "Round", "Sin", "Cos", "Identity", "Dropout"):
        case(op.lower(), [(op, "x", "z")], [x])
    for op in ("Log", "Sqrt", "Reciprocal"):
        case(op.lower(), [(op, "x", "z")], [positive(2, 3, 4)])
    for op in ("Add", "Sub", "Mul", "Div", "Min", "Max"):
        case(op.lower(), [(op, "x y", "z")], [x, positive(3, 1)])
    case("sum3", [("Sum", "x y w", "z")], [x, normal(4), normal(2, 1, 1)])
    case("pow", [("Pow", "x y", "z")], [positive(2, 3), normal(3)])
    case("pow_int", [("Pow", "x c", "z")], [x], {"c": ints(3)})
    case("mod_float", [("Mod", "x y", "z", {"fmod": 1})], [x, positive(4)])
    case("mod_int", [("Mod", "x y", "z")], [ints(-7, 7, -7, 7, 5), ints(3, -3, -3, 3, 2)])
    for op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
        case(op.lower(), [(op, "x y", "c"), ("Cast", "c", "z", {"to": TensorProto.FLOAT})], [np.round(x), np.round(normal(2, 3, 4))])
    logic = [("Less", "x y", "a"), ("Greater", "x c", "b")]
    for op in ("And", "Or"):
        case(op.lower(), logic + [(op, "a b", "c2"), ("Not", "c2", "n"), ("Where", "n x y", "z")], [x, normal(4)], {"c": np.float32(0)})
    case("cast_int", [("Cast", "x", "i", {"to": TensorProto.INT32}), ("Cast", "i", "z", {"to": TensorProto.FLOAT})], [3 * x])
    case("cast_bool", [("Floor", "x", "f"), ("Cast", "f", "b", {"to": TensorProto.BOOL}), ("Cast", "b", "z", {"to": TensorProto.FLOAT})], [x])
    case("cast_half", [("Cast", "x", "h", {"to": TensorProto.FLOAT16}), ("Cast", "h", "z", {"to": TensorProto.FLOAT})], [np.round(4 * x) / 4])
    case("castlike_bool", [("Greater", "x c", "b"), ("CastLike", "y b", "t"), ("Where", "t x c", "z")], [x, np.round(normal(4))], {"c": np.float32(0.25)})
    case("castlike_byte", [("CastLike", "x y", "i"), ("Cast", "i", "z", {"to": 1})], [np.abs(40 * x), np.array([1], dtype=np.uint8)])
    case("pow_int_by_fraction", [("Pow", "x c", "i"), ("Cast", "i", "z", {"to": 1})], [ints(2, 3, 9, 100)], {"c": np.array([0.5, 1.5, 0.5, 0.75], dtype=np.float32)})
    case("pow_float_by_int", [("Pow", "x c", "z")], [x], {"c": ints(0, 1, 2, 5)})
    case("mod_int_fmod", [("Mod", "x y", "z", {"fmod": 1})], [ints(-7, 7, -7, 7, 5), ints(3, -3, -3, 3, 2)])
    case("xor", [("Less", "x y", "a"), ("Greater", "x c", "b"), ("Xor", "a b", "t"), ("Where", "t x y", "z")], [x, normal(4)], {"c": np.float32(0)})
    case("isnan", [("Log", "x", "l"), ("IsNaN", "l", "n"), ("Where", "n c l", "z")], [x], {"c": np.float32(7)})
    for name, attr in (("both", {}), ("positive", {"detect_negative": 0}), ("negative", {"detect_positive": 0}), ("none", {"detect_positive": 0, "detect_negative": 0})):
        case(f"isinf_{name}", [("Div", "x c", "d"), ("IsInf", "d", "i", attr), ("Where", "i x y", "z")], [x, normal(4)], {"c": np.array([0, 1, 0, 2], dtype=np.float32)})
    case("sign", [("Sign", "x", "z")], [np.round(x)])
    case("sign_int", [("Sign", "x", "z")], [ints(-3, 0, 5)])
    for op in ("HardSigmoid", "HardSwish", "LeakyRelu", "Elu", "Celu", "Selu", "Softplus", "Softsign", "ThresholdedRelu"):
        case(op.lower(), [(op, "x", "z")], [3 * x])
    case("mish", [("Mish", "x", "z")], [3 * x], opset=18)
    case("softplus_far", [("Softplus", "x", "z")], [50 * x])
    case("elu_alpha", [("Elu", "x", "z", {"alpha": 0.5})], [40 * x])
    case("celu_alpha", [("Celu", "x", "z", {"alpha": 0.5})], [x])
    case("prelu", [("PRelu", "x c", "z")], [x], {"c": normal(3, 1)})
    case("quick_gelu", [("Mul", "x c", "a"), ("Sigmoid", "a", "b"), ("Mul", "x b", "z")], [x], {"c": np.float32(1.702)})
    case("castlike", [("CastLike", "x y", "i"), ("CastLike", "i x", "z")], [3 * x, ints(1)])
    case("clip", [("Clip", "x low high", "z")], [x], {"low": np.float32(-0.5), "high": np.float32(0.7)})
    case("clip_high", [("Clip", "x _ high", "z")], [x], {"high": np.float32(0.7)})
    case("gelu", [("Gelu", "x", "z")], [x], opset=20)
    case("gelu_tanh", [("Gelu", "x", "z", {"approximate": "tanh"})], [x], opset=20)

    case("reshape_zero", [("Reshape", "x c", "z")], [x], {"c": ints(0, -1)})
    case("reshape_of_transpose", [("Transpose", "x", "t", {"perm": [1, 0, 2]}), ("Reshape", "t c", "z")], [x], {"c": ints(3, 8)})
    case("reshape_to_scalar", [("ReduceSum", "x", "s"), ("Reshape", "s c", "z")], [x], {"c": ints()})
    case("transpose_default", [("Transpose", "x", "z")], [x])
    case("flatten", [("Flatten", "x", "z", {"axis": -1})], [x])
    case("concat", [("Concat", "x y x", "z", {"axis": -2})], [x, normal(2, 2, 4)])
    case("split_attr", [("Split", "x", "a b", {"axis": 1, "split": [1, 2]}), ("Concat", "b a", "z", {"axis": 1})], [x], opset=11)
    case("split_input", [("Split", "x c", "a b", {"axis": 2}), ("Add", "a b", "z")], [x], {"c": ints(2, 2)})
    case("split_even", [("Split", "x", "a b", {"axis": -1}), ("Sub", "a b", "z")], [x])
    case("split_outputs", [("Split", "x", "a b", {"axis": 1, "num_outputs": 2}), ("Concat", "b a", "z", {"axis": 1})], [x], opset=18)
    case("slice", [("Slice", "x s e a t", "z")], [normal(5, 7)], {"s": ints(1, -100), "e": ints(-1, 2**63 - 1), "a": ints(0, 1), "t": ints(1, 3)})
    case("slice_default_axes", [("Slice", "x s e", "z")], [normal(5, 7)], {"s": ints(2, -3), "e": ints(100, -1)})
    case("slice_backwards", [("Shape", "x", "d"), ("Slice", "d s e a t", "r"), ("Expand", "y r", "z")], [normal(5, 7, 2), normal(1)],
         {"s": ints(-1), "e": ints(-(2**63)), "a": ints(0), "t": ints(-1)})
    case("gather_scalar", [("Gather", "x c", "z", {"axis": 1})], [x], {"c": np.array(-1, dtype=np.int64)})
    case("gather_range", [("Gather", "x c", "z", {"axis": 2})], [x], {"c": ints(1, 3)})
    case("gather_list", [("Gather", "x c", "z", {"axis": 1})], [x], {"c": ints(2, 0, -1, 0).reshape(2, 2)})
    case("gather_rows", [("Gather", "c x", "z")], [ints(3, 0, -2).reshape(3, 1)], {"c": normal(4, 5)})
    case("unsqueeze_attr", [("Unsqueeze", "x", "z", {"axes": [0, 3]})], [x], opset=11)
    case("unsqueeze_input", [("Unsqueeze", "x c", "z")], [x], {"c": ints(-1, 1)})
    case("squeeze_attr", [("Squeeze", "x", "z", {"axes": [1]})], [normal(2, 1, 3)], opset=11)
    case("squeeze_all", [("Squeeze", "x", "z")], [normal(1, 2, 1, 3)])
    case("expand", [("Expand", "x c", "z")], [normal(3, 1)], {"c": ints(2, 1, 4)})
    case("tile", [("Tile", "x c", "z")], [normal(1, 3)], {"c": ints(2, 3)})
    case("shape_size", [("Shape", "x", "s", {"start": 1, "end": -1}), ("Size", "x", "n"), ("Add", "s n", "i"), ("Cast", "i", "f", {"to": 1}), ("Mul", "f x", "z")], [x])
    case("constant_of_shape", [("ConstantOfShape", "c", "k", {"value": helper.make_tensor("v", TensorProto.FLOAT, [1], [2.5])}), ("Mul", "x k", "z")], [x], {"c": ints(3, 1)})
    case("constants", [("Constant", "", "a", {"value_float": 1.5}), ("Constant", "", "b", {"value_floats": [1.0, 2.0, 3.0, 4.0]}), ("Constant", "", "i", {"value_ints": [0, 2]}),
                       ("Gather", "b i", "g"), ("Mul", "x a", "m"), ("Concat", "g g", "gg", {"axis": 0}), ("Add", "m gg", "z")], [x])
    case("range", [("Range", "a b c", "r"), ("Cast", "r", "f", {"to": 1}), ("Add", "x f", "z")], [x], {"a": np.int64(1), "b": np.int64(8), "c": np.int64(2)})

    case("matmul", [("MatMul", "x c", "z")], [x], {"c": normal(4, 5)})
    case("matmul_batched", [("MatMul", "x y", "z")], [normal(2, 1, 3, 4), normal(5, 4, 6)])
    case("matmul_vector", [("MatMul", "x y", "z")], [normal(4), normal(2, 4, 3)])
    case("matmul_dot", [("MatMul", "x y", "z")], [normal(4), normal(4)])
    case("matmul_left", [("MatMul", "c x", "z")], [normal(2, 4, 3)], {"c": normal(5, 4)})
    case("matmul_ones", [("MatMul", "x c", "z")], [x], {"c": normal(1, 4, 5)})
    case("gemm", [("Gemm", "x c b", "z", {"alpha": 0.5, "beta": 2.0, "transA": 1})], [normal(4, 3)], {"c": normal(4, 5), "b": normal(3, 1)})
    case("gemm_transposed", [("Gemm", "x c b", "z", {"transB": 1})], [normal(3, 4)], {"c": normal(5, 4), "b": normal(5)})
    case("conv_patches", [("Conv", "x c b", "z", {"strides": [2, 3], "kernel_shape": [2, 3]})], [normal(2, 3, 4, 9)], {"c": normal(5, 3, 2, 3), "b": normal(5)})
    case("conv_rest", [("Conv", "x c", "z", {"strides": [2, 2]})], [normal(2, 3, 5, 7)], {"c": normal(4, 3, 2, 2)})
    case("conv_point", [("Conv", "x c", "z")], [normal(2, 3, 5)], {"c": normal(4, 3, 1)})
    case("softmax_axis", [("Softmax", "x", "z", {"axis": 1})], [x])
    case("softmax_flattened", [("Softmax", "x", "z")], [x], opset=11)
    case("layernorm", [("LayerNormalization", "x g b", "z", {"epsilon": 1e-3})], [x], {"g": normal(4), "b": normal(4)})
    case("layernorm_axes", [("LayerNormalization", "x g", "z", {"axis": 1})], [x], {"g": normal(3, 4)})
    for op in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL2"):
        attr = {"keepdims": 0} if op == "ReduceSum" else {"axes": [0, 2]}
        case(op.lower(), [(op, "x c" if op == "ReduceSum" else "x", "z", attr)], [x], {"c": ints(-1, 0)} if op == "ReduceSum" else None)
    case("reduce_input_axes", [("ReduceMean", "x c", "z", {"keepdims": 0})], [x], {"c": ints(1)}, opset=18)
    case("reduce_noop", [("ReduceSum", "x", "z", {"noop_with_empty_axes": 1})], [x])
    case("global_average_pool", [("GlobalAveragePool", "x", "z")], [normal(2, 3, 4, 5)])

    q, k, v = normal(2, 2, 3, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 6)
    case("attention_div", attention(("Div", "s c", "t")), [q, k, v], {"c": np.float32(2)})
    case("attention_mul", attention(("Mul", "c s", "t")), [q, k, v], {"c": np.float32(0.3)})
    case("attention_plain", attention(("Identity", "s", "t")), [q, k, v])
    case("two_outputs", [("Relu", "x", "z"), ("Transpose", "z", "t", {"perm": [0, 2, 1]}), ("Identity", "x", "same")], [x], outputs=("z", "t", "same"))

    inner = helper.make_function("local", "Scale", ["a"], ["r"], [helper.make_node("Mul", ["a", "two"], ["r"]), ], [helper.make_opsetid("", 17)], [])
    inner.node.insert(0, helper.make_node("Constant", [], ["two"], value_float=2.0))
    leaky = helper.make_node("Clip", ["s", "low"], ["r"])
    low = helper.make_node("Constant", [], ["low"])
    attr = low.attribute.add()
    attr.name, attr.ref_attr_name, attr.type = "value_float", "floor", onnx.AttributeProto.FLOAT
    outer = helper.make_function("local", "ScaleAbove", ["a"], ["r"], [helper.make_node("Scale", ["a"], ["s"], domain="local"), low, leaky],
                                 [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)], ["floor"])
    case("functions", [("local.ScaleAbove", "x", "a", {"floor": -0.5}), ("local.ScaleAbove", "a", "z", {"floor": 0.25})], [x], functions=[inner, outer])


def make_index_cases():
    x = normal(2, 3, 4)
    far = -(2**63)
    case("slice_backwards_data", [("Slice", "x s e a t", "z")], [normal(5, 7)], {"s": ints(-1, 5), "e": ints(far, 0), "a": ints(0, 1), "t": ints(-1, -2)})
    case("slice_backwards_none", [("Slice", "x s e a t", "s1"), ("Concat", "s1 x", "z", {"axis": 0})], [normal(5, 7)], {"s": ints(1), "e": ints(3), "a": ints(0), "t": ints(-1)})
    case("gather_nd", [("GatherND", "x c", "z")], [x], {"c": np.array([[0, 1], [1, -1], [0, 0]], dtype=np.int64)})
    case("gather_nd_batch", [("GatherND", "x c", "z", {"batch_dims": 1})], [x], {"c": np.array([[2], [0]], dtype=np.int64)})
    case("gather_nd_input", [("GatherND", "x y", "z")], [x, np.array([[1, -1], [0, 2]], dtype=np.int64)])
    row, _, _, column = np.meshgrid(np.arange(2), [0], np.arange(3), np.arange(4), indexing="ij")
    grid = np.stack([row, column], axis=-1)
    case("gather_nd_grid", [("GatherND", "x c", "z")], [normal(2, 4)], {"c": grid.astype(np.int64)})
    case("gather_elements", [("GatherElements", "x c", "z", {"axis": 1})], [x], {"c": RANDOM.integers(-3, 3, (2, 5, 4))})
    case("gather_elements_input", [("GatherElements", "c x", "z", {"axis": 1})], [RANDOM.integers(0, 6, (2, 3))], {"c": normal(2, 6)})
    case("gather_strided", [("Gather", "x c", "z", {"axis": 1})], [normal(2, 9, 3)], {"c": ints(1, 3, 5, 4, 6, 8).reshape(2, 3)})
    case("gather_of_transpose", [("Transpose", "x", "t", {"perm": [2, 0, 1]}), ("Gather", "t c", "z", {"axis": 2})], [x], {"c": ints(2, 0)})
    case("scatter_nd", [("ScatterND", "x c y", "z")], [x, normal(2, 4)], {"c": np.array([[1, 0], [0, 2]], dtype=np.int64)})
    case("scatter_elements", [("ScatterElements", "x c y", "z", {"axis": 2})], [x, normal(2, 3, 2)], {"c": np.tile([1, -1], (2, 3, 1)).astype(np.int64)})
    case("one_hot", [("OneHot", "x d v", "z", {"axis": 1})], [ints(0, -1, 3, 9)], {"d": ints(5), "v": np.array([-1, 2], dtype=np.float32)})
    case("pad", [("Pad", "x p c", "z")], [x], {"p": ints(0, 1, -1, 1, 0, 2), "c": np.float32(0.5)})
    case("pad_axes", [("Pad", "x p _ a", "z")], [x], {"p": ints(1, 2), "a": ints(-1)}, opset=18)
    case("pad_edge", [("Pad", "x p", "z", {"mode": "edge"})], [x], {"p": ints(0, 1, 2, 1, 0, 2)})
    case("pad_reflect", [("Pad", "x p", "z", {"mode": "reflect"})], [x], {"p": ints(0, 2, 3, 1, 1, 2)})
    case("pad_wrap", [("Pad", "x p", "z", {"mode": "wrap"})], [x], {"p": ints(0, 2, 3, 1, 1, 2)}, opset=19)
    for upper in (0, 1):
        for k in (-1, 0, 2):
            case(f"trilu_{upper}_{k + 1}", [("Trilu", "x k", "z", {"upper": upper})], [normal(2, 3, 5)], {"k": np.int64(k)})
    case("trilu_mask", [("ConstantOfShape", "s", "o", {"value": helper.make_tensor("v", TensorProto.FLOAT, [1], [-1e4])}), ("Trilu", "o k", "t"), ("Add", "x t", "z")], [normal(2, 4, 4)],
         {"s": ints(4, 4), "k": np.int64(1)})
    case("eye_like", [("EyeLike", "x", "e", {"k": 1, "dtype": 1}), ("Add", "x e", "z")], [normal(3, 5)])
    for name, attr in (("", {}), ("_exclusive", {"exclusive": 1}), ("_reverse", {"reverse": 1}), ("_both", {"exclusive": 1, "reverse": 1})):
        case("cumsum" + name, [("CumSum", "x a", "z", attr)], [x], {"a": np.int64(1)})
    case("cumsum_positions", [("CumSum", "x a", "s"), ("Sub", "s c", "p"), ("Mul", "p x", "z")], [RANDOM.integers(0, 2, (2, 6))], {"a": np.int64(-1), "c": ints(1)})
    case("nonzero", [("NonZero", "c", "i"), ("Transpose", "i", "t"), ("GatherND", "x t", "z")], [x], {"c": np.array([[0, 1, 1], [1, 0, 0]], dtype=np.float32)})
    case("depth_to_space", [("DepthToSpace", "x", "z", {"blocksize": 2})], [normal(2, 12, 2, 3)])
    case("depth_to_space_crd", [("DepthToSpace", "x", "z", {"blocksize": 2, "mode": "CRD"})], [normal(2, 12, 2, 3)])
    case("space_to_depth", [("SpaceToDepth", "x", "z", {"blocksize": 2})], [normal(2, 3, 4, 6)])
    ties = np.array([[3, 1, 3], [0, 0, -1]], dtype=np.float32)
    for op in ("ArgMax", "ArgMin"):
        case(op.lower(), [(op, "x", "z", {"axis": 1, "keepdims": 0})], [ties])
        case(op.lower() + "_last", [(op, "x", "z", {"axis": -1, "select_last_index": 1})], [ties])
    case("argmax_text_end", [("Cast", "x", "i", {"to": 6}), ("ArgMax", "i", "a", {"axis": -1, "keepdims": 0}), ("Gather", "c a", "z")], [RANDOM.integers(0, 9, (3, 6))], {"c": normal(6, 2)})
    case("reduce_l1", [("ReduceL1", "x", "z", {"axes": [1]})], [x])
    case("reduce_log_sum_exp", [("ReduceLogSumExp", "x", "z", {"axes": [1], "keepdims": 0})], [80 * x])
    case("reduce_log_sum", [("ReduceLogSum", "x", "z", {"axes": [2]})], [positive(2, 3, 4)])
    case("log_softmax", [("LogSoftmax", "x", "z", {"axis": 1})], [30 * x])
    case("log_softmax_flattened", [("LogSoftmax", "x", "z")], [x], opset=11)
    case("lp_normalization", [("LpNormalization", "x", "z", {"axis": 1})], [x * (np.arange(4) > 0)])
    case("lp_normalization_1", [("LpNormalization", "x", "z", {"p": 1})], [x])
    for name, equation, shapes in (
        ("heads", "bqhd,bkhd->bhqk", [(2, 3, 2, 4), (2, 5, 2, 4)]), ("linear", "bsd,de->bse", [(2, 3, 4), (4, 5)]), ("outer", "i,j->ij", [(3,), (4,)]),
        ("sum", "bij->b", [(2, 3, 4)]), ("turn", "bij->jbi", [(2, 3, 4)]), ("implicit", "ij,jk", [(2, 3), (3, 4)]), ("dots", "...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
        ("three", "ab,bc,cd->ad", [(2, 3), (3, 4), (4, 2)]), ("weighted", "bi,bi,b->b", [(2, 3), (2, 3), (2,)]),
    ):
        case("einsum_" + name, [("Einsum", " ".join(["x", "y", "w"][: len(shapes)]), "z", {"equation": equation})], [normal(*shape) for shape in shapes])
    case("einsum_layer", [("Einsum", "x c", "z", {"equation": "bsd,hde->bhse"})], [x], {"c": normal(2, 4, 3)})
    half = normal(4, 5).astype(np.float16)
    case("half_weights", [("Cast", "c", "f", {"to": 1}), ("MatMul", "x f", "z")], [x], {"c": half})
    case("half_model", [("Cast", "x", "h", {"to": 10}), ("Mul", "h c", "m"), ("Cast", "m", "z", {"to": 1})], [np.round(4 * x) / 4], {"c": np.array([0.5, 2, 1, 0.25], dtype=np.float16)})
    case("input_is_output", [("Relu", "x", "z")], [x], outputs=("z", "x"))


def make_native_cases():
    b, h, g, s, t, d = 2, 4, 2, 3, 5, 8
    q4, k4, v4 = normal(b, h, s, d), normal(b, g, t, d), normal(b, g, t, 6)
    q3, k3, v3 = normal(b, t, h * d), normal(b, t, g * d), normal(b, t, g * d)
    heads = {"q_num_heads": h, "kv_num_heads": g}
    full = normal(b, h, t, d), normal(b, h, t, d), normal(b, h, t, d)
    some = (RANDOM.random((b, 1, s, t)) < 0.7) | (np.arange(t) == 0)
    blind = some.copy()
    blind[0, 0, 1] = False

    def attention(name, inputs, attrs=None, ins="x y w", opset=23, outs="z", constants=None, outputs=("z",), reference=False):
        case("attention_" + name, [("Attention", ins, outs, attrs or {})], list(inputs), constants, opset=opset, outputs=outputs, reference=reference)

    attention("full", full)
    attention("grouped", (q4, k4, v4))
    attention("grouped_3d", (q3, k3, v3), heads)
    attention("causal", full, {"is_causal": 1})
    attention("causal_3d", (q3, k3, v3), {**heads, "is_causal": 1, "scale": 0.2})
    attention("causal_longer", (q4, k4, v4), {"is_causal": 1})
    attention("float_mask", (q4, k4, v4, normal(s, t)), ins="x y w m")
    attention("float_mask_heads", (q4, k4, v4, normal(b, h, s, t)), ins="x y w m")
    attention("float_mask_constant", (q4, k4, v4), ins="x y w c", constants={"c": normal(1, 1, s, t)})
    attention("bool_mask", (q4, k4, v4, some), ins="x y w m")
    attention("bool_mask_causal", (*full, (RANDOM.random((t, t)) < 0.6) | np.eye(t, dtype=bool)), {"is_causal": 1}, ins="x y w m")
    attention("bool_mask_constant", (q4, k4, v4), ins="x y w c", constants={"c": some})
    attention("bool_mask_blind", (q4, k4, v4, blind), ins="x y w m")
    attention("softcap", (q4, k4, v4), {"softcap": 2.0})
    attention("softcap_mask", (q4, k4, v4, some), {"softcap": 2.0}, ins="x y w m")
    attention("softcap_blind", (q4, k4, v4, blind), {"softcap": 2.0}, ins="x y w m")
    attention("past", (q4, normal(b, g, s, d), normal(b, g, s, 6), normal(s, t), normal(b, g, 2, d), normal(b, g, 2, 6)), ins="x y w m pk pv", outs="z k v", outputs=("z", "k", "v"))
    attention("past_causal", (q4, normal(b, g, s, d), normal(b, g, s, 6), normal(s, t), normal(b, g, 2, d), normal(b, g, 2, 6)), {"is_causal": 1}, ins="x y w m pk pv", outs="z k v")
    for mode in range(4):
        attention(f"scores_{mode}", (q4, k4, v4, normal(s, t)), {"qk_matmul_output_mode": mode, "softcap": 3.0}, ins="x y w m", outs="z k v qk",
                  outputs=("z", "qk"))
    attention("opset24_lengths", (q4, k4, v4), {"is_causal": 1}, ins="x y w _ _ _ n", opset=24, constants={"n": ints(4, 5)})
    attention("opset24_short_mask", (q4, k4, v4, normal(s, 4)), ins="x y w m _ _ n", opset=24, constants={"n": ints(3, 4)}, reference=True)
    for opset in (24, 25, 26, 27):
        attention(f"opset{opset}", (q3, k3, v3), {**heads, "is_causal": 1}, opset=opset)
    attention("windows", (q4, k4, v4), {"left_window_size": 1, "right_window_size": 2}, opset=27)
    attention("window_causal", full, {"left_window_size": 2, "is_causal": 1}, opset=27)

    cache = normal(16, d // 2), normal(16, d // 2)
    positions = RANDOM.integers(0, 16, (b, t))
    for interleaved in (0, 1):
        attrs = {"interleaved": interleaved}
        case(f"rotary_4d_{interleaved}", [("RotaryEmbedding", "x y w m", "z", attrs)], [full[0], *cache, positions], opset=23)
        case(f"rotary_3d_{interleaved}", [("RotaryEmbedding", "x y w", "z", {**attrs, "num_heads": h})], [q3, normal(b, t, d // 2), normal(b, t, d // 2)], opset=23)
        case(f"rotary_partial_{interleaved}", [("RotaryEmbedding", "x c s p", "z", {**attrs, "rotary_embedding_dim": 4})], [full[0]], {"c": normal(16, 2), "s": normal(16, 2), "p": positions}, opset=27)
    x = normal(2, 3, 4)
    case("rms_norm", [("RMSNormalization", "x g", "z", {"epsilon": 1e-3})], [x], {"g": normal(4)}, opset=23)
    case("rms_norm_axes", [("RMSNormalization", "x g", "z", {"axis": 1})], [x], {"g": normal(3, 4)}, opset=27)
    case("swish", [("Swish", "x", "z")], [x], opset=24)
    case("swish_alpha", [("Swish", "x", "z", {"alpha": 1.702})], [x], opset=27)
    case("gelu_27", [("Gelu", "x", "z", {"approximate": "tanh"})], [x], opset=27)
    case("layernorm_27", [("LayerNormalization", "x g b", "z")], [x], {"g": normal(4), "b": normal(4)}, opset=27)
    case("range_27", [("Range", "a b c", "r"), ("Add", "x r", "z")], [x], {"a": np.float32(1), "b": np.float32(3), "c": np.float32(0.5)}, opset=27)


def write(path, data):
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def run(model, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def record(name, model, feeds, reference):
    """The case's arrays."""
    results = onnx.reference.ReferenceEvaluator(model).run(None, feeds) if reference else run(model, feeds)
    for output, value in zip(model.graph.output, results, strict=True):
        if not output.type.tensor_type.HasField("shape"):  # inference knows nothing of it
            output.CopyFrom(helper.make_tensor_value_info(output.name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape))
    if name != "functions":
        onnx.checker.check_model(model, full_check=True)
    arrays = {f"{name}.in{i}": value for i, value in enumerate(feeds.values())}
    arrays |= {f"{name}.out{i}": value for i, value in enumerate(results)}
    return arrays | {f"{name}.onnx": np.frombuffer(model.SerializeToString(), dtype=np.uint8)}


def main():
    files = {"cases": make_cases, "indices": make_index_cases, "natives": make_native_cases, "images": lambda: image_cases.make_image_cases(case),
             "detectors": lambda: detector_cases.make_detector_cases(case)}
    for file, make in files.items():
        if len(sys.argv) > 1 and file not in sys.argv[1:]:
            continue
        CASES.clear()
        make()
        arrays = {}
        for name, parts in CASES.items():
            arrays |= record(name, *parts)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        write(FOLDER / f"{file}.npz", buffer.getvalue())
        print(f"{file}: {len(CASES)} models")


if __name__ == "__main__":
    main()
