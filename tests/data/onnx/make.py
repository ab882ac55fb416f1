# SPDX-License-Identifier: Apache-2.0
"""Tiny ONNX models, one operator or idiom each, with what ONNX Runtime computes for them: the oracle of the importer's tests.

Writes cases.npz: arrays <case>.onnx (the file's bytes), <case>.in<i> and <case>.out<i>. Every model passes onnx.checker.

    python tests/data/onnx/make.py
"""

import io
import os
import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

FOLDER = pathlib.Path(__file__).parent
RANDOM = np.random.default_rng(5)
CASES = {}


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def positive(*shape):
    return np.abs(normal(*shape)) + np.float32(0.1)


def ints(*numbers):
    return np.array(numbers, dtype=np.int64)


def case(name, nodes, inputs, constants=None, opset=17, functions=(), outputs=("z",)):
    """nodes: (op, inputs, outputs, attributes) with an optional domain; inputs: arrays of x, y, ...; constants: by name."""
    assert name not in CASES, name
    made = []
    for node in nodes:
        op, ins, outs = node[0].split("."), node[1].split(), node[2].split()
        attrs = node[3] if len(node) > 3 else {}
        ins = ["" if i == "_" else i for i in ins]
        made.append(helper.make_node(op[-1], ins, outs, domain=".".join(op[:-1]), **attrs))
    names = ["x", "y", "w"][: len(inputs)]
    graph = helper.make_graph(
        made,
        name,
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in zip(names, inputs)],
        [onnx.ValueInfoProto(name=n) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid("local", 1)] if functions else [])
    model = helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=8)
    # Output types come from shape inference, so that checker and runtime agree on them.
    inferred = onnx.shape_inference.infer_shapes(model)
    known = {v.name: v for v in list(inferred.graph.value_info) + list(inferred.graph.output)}
    del model.graph.output[:]
    for n in outputs:
        value = known[n] if known[n].type.WhichOneof("value") else helper.make_tensor_value_info(n, TensorProto.FLOAT, None)
        model.graph.output.append(value)
    CASES[name] = (model, dict(zip(names, inputs)))


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
    case("cast_half", [("Cast", "x", "h", {"to": TensorProto.FLOAT16}), ("Cast", "h", "z", {"to": TensorProto.FLOAT})], [x])
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


def write(path, data):
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def main():
    make_cases()
    arrays = {}
    for name, (model, feeds) in CASES.items():
        if name != "functions":
            onnx.checker.check_model(model, full_check=True)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for i, value in enumerate(feeds.values()):
            arrays[f"{name}.in{i}"] = value
        for i, value in enumerate(session.run(None, feeds)):
            arrays[f"{name}.out{i}"] = value
        arrays[f"{name}.onnx"] = np.frombuffer(model.SerializeToString(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write(FOLDER / "cases.npz", buffer.getvalue())
    print(f"{len(CASES)} models")


if __name__ == "__main__":
    main()
