# SPDX-License-Identifier: Apache-2.0
"""Cases of make.py that detectors and segmenters need: TopK, GridSample, Col2Im; and reductions."""

import numpy as np

RANDOM = np.random.default_rng(29)


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def ints(*numbers):
    return np.array(numbers, dtype=np.int64)


def top_k(case):
    x = normal(2, 5, 6)
    for name, attrs in {"": {}, "_least": {"largest": 0}, "_axis": {"axis": 1}, "_front_least": {"axis": 0, "largest": 0}}.items():
        case("topk" + name, [("TopK", "x k", "z i", attrs)], [x], {"k": ints(2)}, outputs=("z", "i"))
    case("topk_all", [("TopK", "x k", "z i")], [x], {"k": ints(6)}, outputs=("z", "i"))
    case("topk_ties", [("TopK", "x k", "z i")], [np.round(x)], {"k": ints(4)}, outputs=("z", "i"))
    case("topk_whole", [("TopK", "x k", "z i")], [RANDOM.integers(0, 99, (3, 7))], {"k": ints(3)}, outputs=("z", "i"))
    chosen = [("ReduceMax", "x", "m", {"axes": [-1], "keepdims": 0}), ("TopK", "m k", "v i", {"axis": 1}), ("Unsqueeze", "i a", "u"), ("Tile", "u r", "t"), ("GatherElements", "x t", "z", {"axis": 1})]
    case("topk_chosen", chosen, [x], {"k": ints(3), "a": ints(-1), "r": ints(1, 1, 6)})


def grid_samples(case):
    def sample(name, x, grid, opset=20, **attrs):
        case(f"grid_sample_{name}", [("GridSample", "x y", "z", attrs)], [x, grid], opset=opset)

    x = normal(2, 3, 5, 4)
    grid = np.concatenate([RANDOM.uniform(-1.9, 1.9, (2, 4, 7, 2)), RANDOM.uniform(-7, 7, (2, 1, 7, 2))], axis=1).astype(np.float32)
    for corners in (0, 1):
        for outside in ("zeros", "border", "reflection"):
            for mode in ("linear", "nearest", "cubic"):
                sample(f"{mode}_{outside}_{corners}", x, grid, mode=mode, padding_mode=outside, align_corners=corners)
    sample("old_names", x, grid, opset=16, mode="bilinear")
    sample("old_cubic", x, grid, opset=16, mode="bicubic", padding_mode="border")
    sample("pixel", normal(1, 2, 1, 1), grid[:1], padding_mode="reflection", align_corners=1)
    deep = RANDOM.uniform(-1.5, 1.5, (1, 2, 3, 4, 3)).astype(np.float32)
    sample("volume", normal(1, 2, 3, 4, 5), deep)
    sample("volume_nearest", normal(1, 2, 3, 4, 5), deep, mode="nearest", padding_mode="border")


def columns(case):
    def fold(name, x, image, block, **attrs):
        case(f"col2im_{name}", [("Col2Im", "x i k", "z", attrs)], [normal(*x)], {"i": ints(*image), "k": ints(*block)}, opset=18)

    fold("blocks", (2, 12, 6), (4, 6), (2, 2), strides=[2, 2])
    fold("overlapped", (2, 18, 20), (4, 5), (3, 3), pads=[1, 1, 1, 1])
    fold("strides", (1, 6, 6), (6, 5), (2, 3), strides=[2, 2])
    fold("holes", (1, 4, 4), (5, 7), (2, 2), strides=[3, 4])
    fold("dilated", (1, 4, 15), (5, 6), (2, 2), dilations=[2, 1])
    fold("line", (2, 6, 4), (9,), (3,), strides=[2])
    x = normal(2, 3, 4)
    case("reduce_prod", [("ReduceProd", "x", "z", {"axes": [1, 2]})], [x])
    case("reduce_prod_flat", [("ReduceProd", "x", "z", {"keepdims": 0})], [x])
    case("mean3", [("Mean", "x y w", "z")], [x, normal(4), normal(2, 1, 1)])
    case("tan", [("Tan", "x", "z")], [np.clip(x, -1.2, 1.2)])


def asked_scatters(case):
    """Indices that depend on the input."""
    x = normal(3, 5)
    chosen = [("ArgMax", "x", "a", {"axis": 1}), ("Mul", "x c", "t"), ("ScatterElements", "t a d", "z", {"axis": 1})]
    case("scatter_asked", chosen, [x], {"c": np.float32(0), "d": np.ones((3, 1), np.float32)}, opset=18)
    best = [("TopK", "x k", "v i"), ("Neg", "v", "n"), ("ScatterElements", "x i n", "z", {"axis": -1})]
    case("scatter_asked_some", best, [x], {"k": ints(2)}, opset=18)
    front = [("TopK", "x k", "v i", {"axis": 0}), ("Neg", "v", "n"), ("ScatterElements", "x i n", "z", {"axis": 0})]
    case("scatter_asked_front", front, [x], {"k": ints(2)}, opset=18)
    rows = [("TopK", "y k", "v i"), ("Unsqueeze", "i a", "u"), ("ScatterND", "x u d", "z")]
    case("scatter_nd_asked", rows, [x, normal(3)], {"k": ints(2), "a": ints(1), "d": normal(2, 5)}, opset=18)


def volumes(case):
    def conv(name, x, w, **attrs):
        case(f"conv_volume_{name}", [("Conv", "x c d", "z", attrs)], [normal(*x)], {"c": 0.5 * normal(*w), "d": normal(w[0])})

    conv("plain", (1, 2, 4, 4, 3), (3, 2, 2, 2, 2))
    conv("padded", (2, 2, 3, 4, 4), (3, 2, 3, 2, 2), pads=[1, 1, 0, 2, 0, 1])
    conv("strided", (1, 1, 5, 4, 4), (2, 1, 2, 3, 2), strides=[2, 1, 1], dilations=[2, 1, 2])
    conv("flat", (1, 1, 4, 4, 5), (3, 1, 3, 3, 1), pads=[1, 1, 0, 1, 1, 0])
    conv("groups", (1, 4, 3, 3, 3), (4, 2, 2, 2, 2), group=2, pads=[1] * 6)
    weights = [("Reshape", "c s", "r"), ("BatchNormalization", "r g b m v", "n n1 n2", {"training_mode": 1, "epsilon": 1e-3}), ("Reshape", "n t", "k"), ("Conv", "x k", "z")]
    vectors = {"g": normal(3), "b": normal(3), "m": normal(3), "v": np.ones(3, np.float32)}
    case("standardised_weights", weights, [normal(1, 2, 5, 4)], {"c": normal(3, 2, 2, 2), "s": ints(1, 3, -1), "t": ints(3, 2, 2, 2), **vectors})


def make_detector_cases(case):
    for make in (top_k, grid_samples, columns, asked_scatters, volumes):
        make(case)
