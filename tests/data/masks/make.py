# SPDX-License-Identifier: Apache-2.0
"""One layer of a text encoder whose attention mask is spelt in all the ways that exporters and quantizers have.

cases.npz holds, per case, `<case>.onnx` (bytes), and once for all `ids`, `mask` and `other_ids`: the same ids but for positions that the
mask hides, where other ids stand. `<case>.out` is the output for `ids` by ONNX Runtime (fp32, graph optimisations off); for
`other_ids` it gave the same numbers where the mask is 1, bit by bit: this is checked here. Cases called float... take 0 where `mask` is 1 and
the lowest float elsewhere.

    python tests/data/masks/make.py      made with onnx 1.23, onnxruntime 1.31
"""

import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

FOLDER = pathlib.Path(__file__).parent
TOKENS, WIDTH, HEADS, WORDS = 8, 16, 2, 24
SIZE = WIDTH // HEADS
LOWEST = float(np.finfo(np.float32).min)
INT8_SCALE = -LOWEST / 127  # 2.7e36, as calibration by the largest number makes it


class Model:
    def __init__(self, mask_type, opset):
        self.nodes, self.weights, self.opset, self.mask_type = [], [], opset, mask_type
        self.random = np.random.default_rng(7)

    def constant(self, array, name=None):
        name = name or f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def number(self, x):
        return self.constant(np.float32(x))

    def op(self, kind, *inputs, name=None, **attrs):
        out = name or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=out, **attrs))
        return out

    def shaped(self, x, *shape):
        return self.op("Reshape", x, self.constant(np.array(shape, np.int64)))

    def linear(self, x, out, name):
        width = WIDTH if name != "fc2" else 2 * WIDTH
        weight = self.random.standard_normal((width, out)).astype(np.float32) * width**-0.5
        product = self.op("MatMul", x, self.constant(weight, name + ".weight"), name=name)
        return self.op("Add", product, self.constant(self.random.standard_normal(out).astype(np.float32) * 0.2))

    def norm(self, x):
        gain = self.constant((1 + 0.2 * self.random.standard_normal(WIDTH)).astype(np.float32))
        shift = self.constant(self.random.standard_normal(WIDTH).astype(np.float32) * 0.2)
        return self.op("LayerNormalization", x, gain, shift, axis=-1)

    def rounded(self, x, scale, zero_point):
        """QuantizeLinear and DequantizeLinear."""
        codes = (self.number(scale), self.weights_of(zero_point))
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, *codes), *codes)

    def weights_of(self, zero_point):
        if zero_point == "e4m3":
            name = f"c{len(self.weights)}"
            self.weights.append(helper.make_tensor(name, TensorProto.FLOAT8E4M3FN, [], [0.0]))
            return name
        return self.constant(zero_point)

    # The parts of masks.
    def seen(self):
        """bool [batch, 1, 1, tokens]"""
        mask = "mask" if self.mask_type == TensorProto.BOOL else self.op("Cast", "mask", to=TensorProto.BOOL)
        return self.shaped(mask, -1, 1, 1, TOKENS)

    def added(self, hidden=LOWEST):
        """0 where a key is seen, `hidden` elsewhere."""
        if self.mask_type == TensorProto.FLOAT:  # the caller's own numbers
            return self.shaped("mask", -1, 1, 1, TOKENS)
        return self.op("Where", self.seen(), self.number(0), self.number(hidden))

    def causal(self, hidden=LOWEST):
        return self.constant(np.triu(np.full((TOKENS, TOKENS), hidden, np.float32), 1)[None, None])

    def scaled(self, scores):
        return self.op("Mul", scores, self.number(SIZE**-0.5))

    def build(self, biased, pooled=False):
        x = self.op("Gather", self.constant(self.random.standard_normal((WORDS, WIDTH)).astype(np.float32), "words"), "ids")
        x = self.norm(x)
        heads = []
        for name in "qkv":
            by_head = self.shaped(self.linear(x, WIDTH, name), -1, TOKENS, HEADS, SIZE)
            heads.append(self.op("Transpose", by_head, perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]))
        scores = biased(self, self.op("MatMul", heads[0], heads[1], name="scores"))
        y = self.op("MatMul", self.op("Softmax", scores, axis=-1, name="softmax"), heads[2], name="context")
        y = self.shaped(self.op("Transpose", y, perm=[0, 2, 1, 3]), -1, TOKENS, WIDTH)
        x = self.op("Add", x, self.linear(y, WIDTH, "o"))
        y = self.op("Relu", self.linear(self.norm(x), 2 * WIDTH, "fc1"))
        x = self.norm(self.op("Add", x, self.linear(y, WIDTH, "fc2")))
        shape = ["batch", TOKENS, WIDTH]
        if pooled:
            x, shape = self.op(pooled, x, axes=[1], keepdims=0), ["batch", WIDTH]
        self.nodes.append(helper.make_node("Identity", [x], ["hidden"], name="hidden"))
        graph = helper.make_graph(
            self.nodes, "masked",
            [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", TOKENS]),
             helper.make_tensor_value_info("mask", self.mask_type, ["batch", TOKENS])],
            [helper.make_tensor_value_info("hidden", TensorProto.FLOAT, shape)], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9)
        onnx.checker.check_model(model, full_check=True)
        return model


def add(*masks, scaled_after=False):
    def biased(m, scores):
        if not scaled_after:
            scores = m.scaled(scores)
        for mask in masks:
            scores = m.op("Add", scores, mask(m))
        return m.scaled(scores) if scaled_after else scores
    return biased


def rounded_mask(scale, zero_point):
    return lambda m: m.rounded(m.added(), scale, zero_point)


def replaced(hidden):
    return lambda m, scores: m.op("Where", m.seen(), m.scaled(scores), m.number(hidden))


def beside_rounded_scores(scale, zero_point):
    """What quantizers make that round both sides of every addition."""
    return lambda m, scores: m.op("Add", m.rounded(m.scaled(scores), 0.04, np.int8(0)), m.rounded(m.added(), scale, zero_point))


def inverted(m):
    seen = m.op("Cast", m.shaped("mask", -1, 1, 1, TOKENS), to=TensorProto.FLOAT)
    return m.op("Mul", m.op("Sub", m.number(1), seen), m.number(LOWEST))


def sum_first(m):
    return m.op("Add", m.causal(), m.added())


INT, BOOL, FLOAT = TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT
CASES = {
    # Rounded masks, the finding: codes of -3.4e38 in a type of 16 bits are lost.
    "rounded_i8": (INT, add(rounded_mask(INT8_SCALE, np.int8(0)))),
    "rounded_u8": (INT, add(rounded_mask(INT8_SCALE, np.uint8(128)))),
    "rounded_fp8": (INT, add(rounded_mask(-LOWEST / 448, "e4m3"))),
    "rounded_beside_scores_i8": (INT, beside_rounded_scores(INT8_SCALE, np.int8(0))),
    "rounded_beside_scores_u8": (INT, beside_rounded_scores(INT8_SCALE, np.uint8(128))),
    "rounded_beside_scores_fp8": (INT, beside_rounded_scores(-LOWEST / 448, "e4m3")),
    # Spellings of the number.
    "lowest": (BOOL, add(lambda m: m.added())),
    "half_lowest": (INT, add(lambda m: m.added(-65504.0))),
    "billion": (INT, add(lambda m: m.added(-1e9))),
    "infinite": (INT, add(lambda m: m.added(-np.inf))),
    # Places.
    "replaced": (INT, replaced(LOWEST)),
    "replaced_infinite": (INT, replaced(-np.inf)),
    "replaced_billion": (BOOL, replaced(-1e9)),
    "replaced_half": (INT, replaced(-65504.0)),
    "before_scaling": (INT, add(lambda m: m.added(), scaled_after=True)),
    "multiplied": (INT, add(inverted)),
    # Two masks.
    "two_masks": (INT, add(lambda m: m.added(), lambda m: m.causal())),
    "two_masks_summed": (INT, add(sum_first)),
    "two_masks_billion": (INT, add(lambda m: m.added(-1e9), lambda m: m.causal(-1e9))),
    "two_masks_rounded": (INT, add(lambda m: m.rounded(sum_first(m), INT8_SCALE, np.int8(0)))),
    "causal_rounded": (INT, add(lambda m: m.added(), lambda m: m.rounded(m.causal(), INT8_SCALE, np.int8(0)))),
    "causal_twice": (INT, add(lambda m: m.added(), lambda m: m.op("Add", m.causal(), m.causal()))),
    # The caller adds.
    "float": (FLOAT, add(lambda m: m.added())),
    "float_softcapped": (FLOAT, lambda m, s: m.op("Add", m.op("Tanh", m.scaled(s)), m.added())),
    "float_rounded_beside_scores": (FLOAT, beside_rounded_scores(INT8_SCALE, np.int8(0))),
    "softcapped": (INT, lambda m, s: m.op("Add", m.op("Mul", m.op("Tanh", m.scaled(s)), m.number(4)), m.added())),
}


def run(model, ids, mask, mask_type):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    spelt = {BOOL: mask.astype(bool), FLOAT: np.where(mask == 1, 0, LOWEST).astype(np.float32), INT: mask}
    return session.run(None, {"ids": ids, "mask": spelt[mask_type]})[0]


def main():
    random = np.random.default_rng(3)
    ids = random.integers(0, WORDS, (2, TOKENS))
    mask = np.ones((2, TOKENS), np.int64)
    mask[0, 5:] = 0
    mask[1, 6:] = 0
    other = np.where(mask == 1, ids, (ids + 7) % WORDS)
    arrays = {"ids": ids, "mask": mask, "other_ids": other}
    for name, (mask_type, biased) in CASES.items():
        model = Model(mask_type, 19 if "fp8" in name else 17).build(biased)
        out, again = (run(model, x, mask, mask_type) for x in (ids, other))
        assert np.array_equal(out[mask == 1], again[mask == 1]), name
        assert not np.array_equal(out, again), name
        arrays[name + ".onnx"] = np.frombuffer(model.SerializeToString(), np.uint8)
        arrays[name + ".out"] = out
    np.savez_compressed(FOLDER / "cases.npz", **arrays)


if __name__ == "__main__":
    main()
