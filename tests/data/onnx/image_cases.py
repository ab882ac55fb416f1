# SPDX-License-Identifier: Apache-2.0
"""Cases of make.py on images: convolutions, pools, Resize, norms by channels, and what exporters leave constant."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(23)


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def ints(*numbers):
    return np.array(numbers, dtype=np.int64)


def floats(*numbers):
    return np.array(numbers, dtype=np.float32)


def convolutions(case):
    def conv(name, x, w, op="Conv", bias=None, **attrs):
        constants = {"c": 0.5 * normal(*w)}
        if bias:
            constants["d"] = normal(bias)
        case(name, [(op, "x c d" if bias else "x c", "z", attrs)], [normal(*x)], constants)

    conv("conv_3x3", (2, 2, 7, 6), (5, 2, 3, 3), bias=5, pads=[1, 1, 1, 1])
    conv("conv_strides", (1, 2, 9, 8), (3, 2, 3, 2), strides=[2, 3], pads=[0, 1, 2, 0])
    conv("conv_dilated", (1, 2, 9, 9), (3, 2, 3, 3), dilations=[2, 3], pads=[2, 3, 2, 3])
    conv("conv_same_upper", (1, 2, 7, 8), (3, 2, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER")
    conv("conv_same_lower", (1, 2, 7, 8), (3, 2, 2, 4), strides=[2, 1], auto_pad="SAME_LOWER")
    conv("conv_valid", (1, 2, 7, 8), (3, 2, 3, 3), auto_pad="VALID")
    conv("conv_groups", (1, 6, 5, 5), (4, 3, 3, 3), bias=4, group=2, pads=[1, 1, 1, 1])
    conv("conv_depthwise", (2, 6, 6, 5), (6, 1, 3, 3), bias=6, group=6, pads=[1, 1, 1, 1])
    conv("conv_depthwise_twice", (1, 3, 6, 5), (6, 1, 3, 3), group=3)
    conv("conv_one", (1, 6, 5, 4), (3, 6, 1, 1), bias=3)
    conv("conv_one_strided", (1, 6, 5, 4), (3, 6, 1, 1), strides=[2, 2])
    conv("conv_line", (2, 3, 11), (4, 3, 3), bias=4, strides=[2], pads=[1, 1])
    conv("conv_line_depthwise", (1, 4, 9), (4, 1, 5), group=4, dilations=[2], pads=[4, 4])
    conv("conv_patches", (1, 3, 8, 6), (4, 3, 2, 3), bias=4, strides=[2, 3])
    chain = [("Conv", "x c", "a", {"pads": [1] * 4}), ("Relu", "a", "b"), ("Conv", "b d", "e", {"pads": [1] * 4}), ("Add", "e a", "f"), ("Sigmoid", "f", "g"), ("Mul", "f g", "z")]
    case("conv_chain", chain, [normal(1, 2, 5, 4)], {"c": 0.3 * normal(3, 2, 3, 3), "d": 0.3 * normal(3, 3, 3, 3)})
    joined = [("Conv", "x c", "a", {"pads": [1] * 4}), ("Conv", "x d", "b"), ("Concat", "a b", "e", {"axis": 1}), ("Flatten", "e", "f", {"axis": 2}), ("Softmax", "f", "z", {"axis": -1})]
    case("conv_concat", joined, [normal(1, 2, 4, 4)], {"c": 0.3 * normal(3, 2, 3, 3), "d": 0.3 * normal(2, 2, 1, 1)})
    tokens = [("Conv", "x c", "a", {"pads": [1] * 4}), ("Reshape", "a s", "b"), ("Transpose", "b", "t", {"perm": [0, 2, 1]}), ("MatMul", "t d", "z")]
    case("conv_tokens", tokens, [normal(2, 2, 4, 3)], {"c": 0.3 * normal(5, 2, 3, 3), "s": ints(2, 5, -1), "d": 0.3 * normal(5, 4)})
    case("conv_computed_kernel", [("Conv", "x y", "z", {"pads": [1] * 4})], [normal(1, 2, 5, 4), normal(3, 2, 3, 3)])

    conv("convt_blocks", (1, 3, 4, 3), (3, 5, 2, 2), op="ConvTranspose", bias=5, strides=[2, 2])
    conv("convt_overlapped", (1, 2, 4, 3), (2, 3, 3, 3), op="ConvTranspose", bias=3, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
    conv("convt_one", (2, 2, 4, 3), (2, 3, 3, 3), op="ConvTranspose")
    conv("convt_groups", (1, 4, 4, 3), (4, 3, 3, 2), op="ConvTranspose", group=2, strides=[1, 2], dilations=[2, 1])
    conv("convt_line", (1, 2, 5), (2, 3, 4), op="ConvTranspose", bias=3, strides=[2], pads=[1, 1])
    conv("convt_shape", (1, 2, 4, 3), (2, 3, 3, 3), op="ConvTranspose", strides=[2, 2], output_shape=[8, 6])
    conv("convt_same", (1, 2, 4, 3), (2, 3, 3, 3), op="ConvTranspose", strides=[2, 2], auto_pad="SAME_UPPER")


def norms(case):
    def vectors(n):
        return {"g": normal(n), "b": normal(n), "m": normal(n), "v": np.abs(normal(n)) + np.float32(0.2)}

    case("batch_norm", [("BatchNormalization", "x g b m v", "z")], [normal(2, 3, 4, 2)], vectors(3))
    case("batch_norm_rows", [("BatchNormalization", "x g b m v", "z", {"epsilon": 1e-3})], [normal(4, 3)], vectors(3))
    folded = [("Conv", "x c d", "a", {"pads": [1] * 4}), ("BatchNormalization", "a g b m v", "e"), ("Relu", "e", "z")]
    case("batch_norm_folded", folded, [normal(1, 2, 5, 4)], {"c": 0.3 * normal(3, 2, 3, 3), "d": normal(3), **vectors(3)})
    one = [("Conv", "x c", "a"), ("BatchNormalization", "a g b m v", "e"), ("Clip", "e low high", "z")]
    case("batch_norm_of_one", one, [normal(1, 4, 5, 4)], {"c": 0.3 * normal(3, 4, 1, 1), "low": np.float32(0), "high": np.float32(6), **vectors(3)})
    twice = [("Conv", "x c", "a"), ("BatchNormalization", "a g b m v", "e"), ("Add", "a e", "z")]
    case("batch_norm_of_two_readers", twice, [normal(1, 4, 5, 4)], {"c": 0.3 * normal(3, 4, 1, 1), **vectors(3)})
    case("instance_norm", [("InstanceNormalization", "x g b", "z")], [normal(2, 3, 4, 2)], {"g": normal(3), "b": normal(3)})
    case("group_norm_21", [("GroupNormalization", "x g b", "z", {"num_groups": 2})], [normal(2, 4, 3, 2)], {"g": normal(4), "b": normal(4)}, opset=21)


def pools(case):
    x = normal(2, 3, 7, 8)
    for name, attrs in {
        "plain": {"kernel_shape": [2, 2], "strides": [2, 2]},
        "padded": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        "uneven": {"kernel_shape": [3, 2], "strides": [1, 3], "pads": [2, 0, 0, 1]},
        "ceil": {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1},
        "ceil_padded": {"kernel_shape": [3, 3], "strides": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1},
        "same": {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
        "whole": {"kernel_shape": [7, 8]},
    }.items():
        case(f"max_pool_{name}", [("MaxPool", "x", "z", attrs)], [x])
        case(f"average_pool_{name}", [("AveragePool", "x", "z", attrs)], [x], opset=19)
        if "pads" in attrs:
            case(f"average_pool_{name}_counted", [("AveragePool", "x", "z", attrs | {"count_include_pad": 1})], [x], opset=19)
    case("max_pool_dilated", [("MaxPool", "x", "z", {"kernel_shape": [2, 3], "dilations": [3, 2]})], [x])
    case("max_pool_line", [("MaxPool", "x", "z", {"kernel_shape": [3], "strides": [2], "pads": [1, 1]})], [normal(1, 3, 9)])
    case("global_max_pool", [("GlobalMaxPool", "x", "z")], [x])
    pooled = [("Conv", "x c", "a", {"pads": [1] * 4}), ("Relu", "a", "b"), ("MaxPool", "b", "p", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}), ("GlobalAveragePool", "p", "z")]
    case("max_pool_of_conv", pooled, [x], {"c": 0.3 * normal(4, 3, 3, 3)})


def resizes(case):
    x = normal(1, 2, 5, 4)

    def resize(name, constants, opset=18, x=x, reference=False, **attrs):
        operands = " ".join(("x", "r" if "r" in constants else "_", "s" if "s" in constants else "_", "n" if "n" in constants else "_"))
        while operands.endswith(" _"):
            operands = operands[:-2]
        case(f"resize_{name}", [("Resize", operands, "z", attrs)], [x], constants, opset=opset, reference=reference)

    up, down, odd = {"s": floats(1, 1, 2, 3)}, {"s": floats(1, 1, 0.6, 0.5)}, {"n": ints(1, 2, 7, 9)}
    for positions in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"):
        for mode in ("nearest", "linear", "cubic"):
            for name, constants in (("up", up), ("down", down), ("odd", odd)):
                resize(f"{mode}_{positions}_{name}", constants, mode=mode, coordinate_transformation_mode=positions)
    for nearest in ("round_prefer_ceil", "floor", "ceil"):
        resize(f"nearest_{nearest}", odd, mode="nearest", nearest_mode=nearest)
        resize(f"nearest_{nearest}_down", down, mode="nearest", nearest_mode=nearest, coordinate_transformation_mode="asymmetric")
    for mode in ("linear", "cubic"):
        for outside in (0, 1):
            resize(f"{mode}_antialias_{outside}", {"n": ints(1, 2, 3, 2)}, mode=mode, antialias=1, exclude_outside=outside)
            resize(f"{mode}_antialias_up_{outside}", odd, mode=mode, antialias=1, exclude_outside=outside)
    resize("cubic_exclude", odd, mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5)
    resize("cubic_symmetric", {"s": floats(1, 1, 1.3, 0.7)}, opset=19, mode="linear", coordinate_transformation_mode="half_pixel_symmetric")
    resize("crop", {"r": floats(0, 0, 0.2, -0.2, 1, 1, 0.8, 1.3), "n": ints(1, 2, 4, 6)}, mode="linear", coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=7.0)
    resize("axes", {"n": ints(10, 2)}, mode="linear", axes=[2, 3])
    resize("not_larger", {"n": ints(12, 5)}, opset=19, mode="linear", axes=[2, 3], keep_aspect_ratio_policy="not_larger")
    resize("not_smaller", {"n": ints(12, 5)}, opset=19, mode="linear", axes=[2, 3], keep_aspect_ratio_policy="not_smaller")
    resize("old", {"r": floats(), **up}, opset=11, mode="linear", coordinate_transformation_mode="asymmetric")
    resize("line", {"s": floats(1, 1, 2)}, x=normal(1, 2, 5), mode="linear")
    of_conv = [("Conv", "x c", "a", {"pads": [1] * 4}), ("Resize", "a _ s", "b", {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}), ("Conv", "b d", "z")]
    case("resize_of_conv", of_conv, [normal(1, 2, 4, 3)], {"c": 0.3 * normal(3, 2, 3, 3), "s": floats(1, 1, 2, 2), "d": 0.3 * normal(2, 3, 1, 1)})


def constants(case):
    """What is the same for every input."""
    table = [("Resize", "c _ _ n", "r", {"mode": "cubic"}), ("Reshape", "r s", "t"), ("Transpose", "t", "p", {"perm": [0, 2, 1]}), ("Add", "x p", "z")]
    case("folded_positions", table, [normal(2, 30, 3)], {"c": normal(1, 3, 4, 4), "n": ints(1, 3, 5, 6), "s": ints(1, 3, 30)}, opset=18)

    def branch(name, nodes, tensors=()):
        result = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
        return helper.make_graph(nodes, name, [], [result], [numpy_helper.from_array(a, n) for n, a in tensors])

    double = branch("double", [helper.make_node("Mul", ["x", "two"], ["inner"]), helper.make_node("Add", ["inner", "d"], ["yes"])], [("two", floats(2))])
    sizes = [("Shape", "x", "s"), ("Gather", "s i", "n"), ("Equal", "n four", "e")]
    for name, four in (("then", 4), ("else", 5)):
        chosen = {"then_branch": double, "else_branch": branch("neg", [helper.make_node("Neg", ["x"], ["no"])])}
        case(f"if_{name}", [*sizes, ("If", "e", "y2", chosen), ("Neg", "y2", "z")], [normal(2, 4)], {"i": ints(1)[0], "four": ints(four)[0], "d": normal(4)})
    inner = helper.make_node("If", ["e"], ["deep"], then_branch=double, else_branch=branch("abs", [helper.make_node("Abs", ["x"], ["yes"])]))
    outer = branch("outer", [inner, helper.make_node("Neg", ["deep"], ["no"])])
    other = branch("other", [helper.make_node("Neg", ["x"], ["no"])])
    case("if_nested", [*sizes, ("If", "e", "z", {"then_branch": outer, "else_branch": other})], [normal(2, 4)], {"i": ints(1)[0], "four": ints(4)[0], "d": normal(4)})
    for reduction in ("add", "mul", "max", "min"):
        case(f"scatter_{reduction}", [("ScatterElements", "x i y", "z", {"axis": 0, "reduction": reduction})], [normal(4, 2), normal(3, 2)], {"i": np.array([[0, 1], [2, 1], [0, 1]])}, opset=18)
        case(f"scatter_nd_{reduction}", [("ScatterND", "x i y", "z", {"reduction": reduction})], [normal(4, 2), normal(3, 2)], {"i": np.array([[1], [3], [1]])}, opset=18)
    written = [("ScatterElements", "c i d", "t", {"axis": 1}), ("Add", "x t", "z")]
    case("scatter_constants", written, [normal(2, 4)], {"c": normal(2, 4), "i": np.array([[1, 3], [0, 2]]), "d": normal(2, 2)})


def make_image_cases(case):
    for make in (convolutions, norms, pools, resizes, constants):
        make(case)
