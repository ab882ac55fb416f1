# SPDX-License-Identifier: Apache-2.0
"""A block of a decoder like Gemma whose padding leaves rows without a key, its mask spelt as exporters spell it.

padded.npz holds, per case, `<case>.onnx` (bytes) and `<case>.out`, what it gives for `ids` and `mask` node by node in
the file's own type (onnx.reference, numpy). In `mask` the first sample has no padding, the second begins with padding
(queries that see padding alone, as a causal mask leaves them), the third is padding wholly. RMSNorm, rotary embedding,
two query heads over one of keys and values, gated MLP; `window...`: a query sees the last two keys only.

    python tests/data/masks/make_padded.py      made with onnx 1.23
"""

import pathlib
import warnings

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

FOLDER = pathlib.Path(__file__).parent
TOKENS, WIDTH, HEADS, SIZE, MLP, WORDS, WINDOW = 8, 16, 2, 8, 32, 24, 2
LOWEST, HALF_LOWEST = float(np.finfo(np.float32).min), float(np.finfo(np.float16).min)


class Block:
    def __init__(self, dtype=np.float32, window=False):
        self.nodes, self.weights, self.dtype, self.window = [], [], dtype, window
        self.random = np.random.default_rng(11)

    def constant(self, array, name=None):
        name = name or f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def number(self, x):
        return self.constant(self.dtype(x))

    def op(self, kind, *inputs, name=None, **attrs):
        out = name or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=out, **attrs))
        return out

    def shaped(self, x, *shape):
        return self.op("Reshape", x, self.constant(np.array(shape, np.int64)))

    def linear(self, x, inner, out, name):
        weight = self.random.standard_normal((inner, out)) * inner**-0.5
        return self.op("MatMul", x, self.constant(weight.astype(self.dtype), name + ".weight"), name=name)

    def norm(self, x):
        mean = self.op("ReduceMean", self.op("Mul", x, x), self.constant(np.array([-1], np.int64)), keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.number(1e-6)))
        gain = self.constant((1 + 0.2 * self.random.standard_normal(WIDTH)).astype(self.dtype))
        return self.op("Mul", self.op("Div", x, root), gain)

    def heads(self, x, heads, name):
        by_head = self.shaped(self.linear(x, WIDTH, heads * SIZE, name), -1, TOKENS, heads, SIZE)
        return self.op("Transpose", by_head, perm=[0, 2, 1, 3])

    def rotated(self, x):
        angle = np.outer(np.arange(TOKENS), 100.0 ** (-np.arange(SIZE // 2) / (SIZE // 2)))
        cos, sin = (self.constant(np.tile(f(angle), 2).astype(self.dtype)) for f in (np.cos, np.sin))
        first, second = (self.op("Slice", x, *(self.constant(np.array([i], np.int64)) for i in (a, b, 3)))
                         for a, b in ((0, SIZE // 2), (SIZE // 2, SIZE)))  # fmt: skip
        turned = self.op("Concat", self.op("Neg", second), first, axis=-1)
        return self.op("Add", self.op("Mul", x, cos), self.op("Mul", turned, sin))

    # The parts of masks.
    def padding(self):
        """bool [batch, 1, 1, tokens]"""
        return self.shaped(self.op("Cast", "mask", to=TensorProto.BOOL), -1, 1, 1, TOKENS)

    def causal(self):
        """bool [1, 1, tokens, tokens]"""
        back = np.subtract.outer(np.arange(TOKENS), np.arange(TOKENS))
        return self.constant(((back >= 0) & (back < (WINDOW if self.window else TOKENS)))[None, None])

    def allowed(self):
        return self.op("And", self.padding(), self.causal())

    def added(self, mask, hidden):
        return self.op("Where", mask, self.number(0), self.number(hidden))

    def build(self, attend, opset=18):
        table = self.constant(self.random.standard_normal((WORDS, WIDTH)).astype(self.dtype), "words")
        x = self.op("Mul", self.op("Gather", table, "ids"), self.number(2))
        y = self.norm(x)
        q, k = self.rotated(self.heads(y, HEADS, "q")), self.rotated(self.heads(y, 1, "k"))
        y = attend(self, q, k, self.heads(y, 1, "v"))
        y = self.shaped(self.op("Transpose", y, perm=[0, 2, 1, 3]), -1, TOKENS, HEADS * SIZE)
        x = self.op("Add", x, self.linear(y, HEADS * SIZE, WIDTH, "o"))
        y = self.norm(x)
        gate = self.linear(y, WIDTH, MLP, "gate")
        gate = self.op("Mul", gate, self.op("Sigmoid", gate))
        y = self.linear(self.op("Mul", gate, self.linear(y, WIDTH, MLP, "up")), MLP, WIDTH, "down")
        x = self.op("Add", x, y)
        if self.dtype != np.float32:
            x = self.op("Cast", x, to=TensorProto.FLOAT)
        self.nodes.append(helper.make_node("Identity", [x], ["hidden"], name="hidden"))
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", TOKENS]) for name in ("ids", "mask")]
        output = helper.make_tensor_value_info("hidden", TensorProto.FLOAT, ["batch", TOKENS, WIDTH])
        graph = helper.make_graph(self.nodes, "block", inputs, [output], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        onnx.checker.check_model(model, full_check=True)
        return model


def spelt_out(biased, guarded=False):
    """softmax(biased(scale q k^T)) v, keys and values repeated for the heads that share them."""

    def attend(m, q, k, v):
        k, v = (m.op("Expand", x, m.constant(np.array([1, HEADS, 1, 1], np.int64))) for x in (k, v))
        scores = m.op("MatMul", q, m.op("Transpose", k, perm=[0, 1, 3, 2]), name="scores")
        scores = m.op("Mul", scores, m.number(2 * SIZE**-0.5))
        weights = m.op("Softmax", biased(m, scores), axis=-1, name="softmax")
        if guarded:
            weights = m.op("Where", m.op("IsNaN", weights), m.number(0), weights)
        return m.op("MatMul", weights, v, name="context")

    return attend


def add(hidden):
    return lambda m, s: m.op("Add", s, m.added(m.allowed(), hidden))


def add_twice(hidden):
    return lambda m, s: m.op("Add", m.op("Add", s, m.added(m.causal(), hidden)), m.added(m.padding(), hidden))


def replace(hidden):
    return lambda m, s: m.op("Where", m.allowed(), s, m.number(hidden))


def capped(biased):
    """A soft cap, as Gemma 2 has it: no attention is recognised."""
    return lambda m, s: biased(m, m.op("Mul", m.op("Tanh", m.op("Div", s, m.number(30))), m.number(30)))


def one_node(m, q, k, v):
    return m.op("Attention", q, k, v, m.allowed(), scale=2 * SIZE**-0.5)


# name: (attention, what Block takes, opset)
CASES = {
    "lowest": (spelt_out(add(LOWEST)), {}, 18),
    "billion": (spelt_out(add(-1e9)), {}, 18),
    "half_lowest": (spelt_out(add(HALF_LOWEST)), {}, 18),
    "ten_thousand": (spelt_out(add(-1e4)), {}, 18),
    "infinite": (spelt_out(add(-np.inf), guarded=True), {}, 18),
    "replaced": (spelt_out(replace(LOWEST)), {}, 18),
    "replaced_infinite": (spelt_out(replace(-np.inf), guarded=True), {}, 18),
    "twice": (spelt_out(add_twice(LOWEST), guarded=True), {}, 18),
    "window": (spelt_out(add(LOWEST)), {"window": True}, 18),
    "one_node": (one_node, {}, 23),
    "window_one_node": (one_node, {"window": True}, 23),
    "half": (spelt_out(add(HALF_LOWEST)), {"dtype": np.float16}, 18),
    "half_window": (spelt_out(add(HALF_LOWEST)), {"dtype": np.float16, "window": True}, 18),
    "half_one_node": (one_node, {"dtype": np.float16}, 23),
    "capped_half": (spelt_out(capped(add(HALF_LOWEST))), {"dtype": np.float16}, 18),
    "capped_lowest": (spelt_out(capped(add(LOWEST))), {}, 18),
    "capped_billion": (spelt_out(capped(add(-1e9))), {}, 18),
    "capped_half_lowest": (spelt_out(capped(add(HALF_LOWEST))), {}, 18),
    "capped_ten_thousand": (spelt_out(capped(add(-1e4))), {}, 18),
    "capped_infinite": (spelt_out(capped(add(-np.inf)), guarded=True), {}, 18),
    "capped_window": (spelt_out(capped(add(LOWEST))), {"window": True}, 18),
}
# ONNX has NaN for a Softmax over minus infinity alone; here it is what it is with the guard that exporters write.
BARE = {
    "bare_infinite": ("infinite", spelt_out(add(-np.inf))),
    "capped_bare_infinite": ("capped_infinite", spelt_out(capped(add(-np.inf)))),
}


def main():
    random = np.random.default_rng(3)
    ids = random.integers(0, WORDS, (3, TOKENS))
    mask = np.ones((3, TOKENS), np.int64)
    mask[1, :3] = 0
    mask[2] = 0
    arrays = {"ids": ids, "mask": mask}
    for name, (attend, block, opset) in CASES.items():
        model = Block(**block).build(attend, opset)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            out = ReferenceEvaluator(model).run(None, {"ids": ids, "mask": mask})[0]
        assert np.isfinite(out).all(), name
        arrays[name + ".onnx"] = np.frombuffer(model.SerializeToString(), np.uint8)
        arrays[name + ".out"] = out
    for name, (guarded, attend) in BARE.items():
        arrays[name + ".onnx"] = np.frombuffer(Block().build(attend).SerializeToString(), np.uint8)
        arrays[name + ".out"] = arrays[guarded + ".out"]
    np.savez_compressed(FOLDER / "padded.npz", **arrays)


if __name__ == "__main__":
    main()
