# SPDX-License-Identifier: Apache-2.0
"""One block of attention over token ids as ONNX, in the forms that decide whether padding changes its results, and the
same in numpy: what lengths_test.py builds with ranges of lengths."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, WIDTH = 600, 64
HIDES = -1e9


class Block:
    """`sees`: all (every token), mask (those that attention_mask says) or causal. `ends`: hidden (a row per token),
    mean (over all tokens), masked_mean, class (a row in front), squares (an output whose length is the square of
    theirs), halves (every second row), choice (the index of the largest number of each row)."""

    def __init__(self, sees, ends="hidden", seed=3):
        self.sees, self.ends = sees, ends
        random = np.random.default_rng(seed)
        draw = lambda *shape: (random.standard_normal(shape) / np.sqrt(shape[0])).astype("f4")
        self.table = random.standard_normal((VOCABULARY, WIDTH)).astype("f4")
        self.weights = {name: draw(WIDTH, WIDTH) for name in ("query", "key", "value", "out")}
        self.token = random.standard_normal((1, 1, WIDTH)).astype("f4")

    @property
    def masked(self):
        return self.sees == "mask" or self.ends == "masked_mean"

    def save(self, path):
        constants = {
            "table": self.table, **self.weights, "scale": np.float32(WIDTH**-0.5), "hides": np.float32(HIDES),
            "one": np.float32(1), "zero": np.float32(0), "axis0": np.array([0]), "axis1": np.array([1]),
            "axis2": np.array([2]), "from": np.int64(0), "step": np.int64(1), "second": np.array(1),
            "token": self.token, "flat": np.array([0, -1]),
            "two": np.array([2]), "most": np.array([1000]), "rest": np.array([1, WIDTH]),
        }  # fmt: skip
        nodes = []
        add = lambda op, inputs, output, **more: nodes.append(helper.make_node(op, inputs, [output], output, **more))
        add("Gather", ["table", "ids"], "embedded")
        for name in ("query", "key", "value"):
            add("MatMul", ["embedded", name], f"{name}s")
        add("Transpose", ["keys"], "turned", perm=[0, 2, 1])
        add("MatMul", ["querys", "turned"], "products")
        add("Mul", ["products", "scale"], "scores")
        seen = "scores"
        if self.masked:
            add("Cast", ["attention_mask"], "truth", to=TensorProto.FLOAT)
        if self.sees == "mask":
            add("Sub", ["one", "truth"], "hidden_ones")
            add("Mul", ["hidden_ones", "hides"], "bias")
            add("Unsqueeze", ["bias", "axis1"], "bias_of_keys")
            add("Add", ["scores", "bias_of_keys"], "masked")
            seen = "masked"
        if self.sees == "causal":
            add("Shape", ["ids"], "shape")
            add("Gather", ["shape", "second"], "length")
            add("Range", ["from", "length", "step"], "places")
            add("Unsqueeze", ["places", "axis1"], "rows")
            add("Unsqueeze", ["places", "axis0"], "columns")
            add("Greater", ["columns", "rows"], "later")
            add("Where", ["later", "hides", "zero"], "bias")
            add("Add", ["scores", "bias"], "masked")
            seen = "masked"
        add("Softmax", [seen], "shares", axis=-1)
        add("MatMul", ["shares", "values"], "mixed")
        add("MatMul", ["mixed", "out"], "projected")
        add("Add", ["embedded", "projected"], "sum")
        shape, kind = ["batch", None, WIDTH], TensorProto.FLOAT
        if self.ends == "mean":
            add("ReduceMean", ["sum"], "y", axes=[1], keepdims=0)
            shape = ["batch", WIDTH]
        elif self.ends == "masked_mean":
            add("Unsqueeze", ["truth", "axis2"], "weight")
            add("Mul", ["sum", "weight"], "weighted")
            add("ReduceSum", ["weighted", "axis1"], "total", keepdims=0)
            add("ReduceSum", ["truth", "axis1"], "count", keepdims=1)
            add("Div", ["total", "count"], "y")
            shape = ["batch", WIDTH]
        elif self.ends == "class":
            add("Shape", ["ids"], "batch_and_length")
            add("Gather", ["batch_and_length", "axis0"], "samples")
            add("Concat", ["samples", "rest"], "wanted", axis=0)
            add("Expand", ["token", "wanted"], "tokens")
            add("Concat", ["tokens", "sum"], "y", axis=1)
        elif self.ends == "halves":
            add("Slice", ["sum", "axis0", "most", "axis1", "two"], "y")
        elif self.ends == "squares":
            add("Reshape", ["shares", "flat"], "y")
            shape = ["batch", None]
        elif self.ends == "choice":
            add("ArgMax", ["sum"], "y", axis=2, keepdims=0)
            shape, kind = ["batch", None], TensorProto.INT64
        else:
            add("Identity", ["sum"], "y")
        inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "sequence"])]
        if self.masked:
            inputs.append(helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "sequence"]))
        graph = helper.make_graph(
            nodes, "block", inputs, [helper.make_tensor_value_info("y", kind, shape)],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
        )  # fmt: skip
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

    def arrays(self, samples, length, seed=1):
        """Ids, and a mask that hides the last tokens of every second sample."""
        ids = np.random.default_rng([seed, length]).integers(0, VOCABULARY, (samples, length))
        if not self.masked:
            return {"ids": ids}
        seen = np.arange(length) < np.where(np.arange(samples) % 2, max(1, length - 2), length)[:, None]
        return {"ids": ids, "attention_mask": seen.astype(np.int64)}

    def answer(self, arrays):
        """In f64."""
        ids, length = arrays["ids"], arrays["ids"].shape[1]
        truth = arrays.get("attention_mask", np.ones_like(ids)).astype("f8")
        embedded = self.table.astype("f8")[ids]
        query, key, value = (embedded @ self.weights[name] for name in ("query", "key", "value"))
        scores = query @ key.transpose(0, 2, 1) * WIDTH**-0.5
        if self.sees == "mask":
            scores = scores + (1 - truth)[:, None] * HIDES
        if self.sees == "causal":
            scores = np.where(np.arange(length)[None] > np.arange(length)[:, None], HIDES, scores)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        y = embedded + shares @ value @ self.weights["out"].astype("f8")
        if self.ends == "mean":
            return y.mean(1)
        if self.ends == "masked_mean":
            return (y * truth[..., None]).sum(1) / truth.sum(1, keepdims=True)
        if self.ends == "class":
            return np.concatenate([np.repeat(self.token, len(ids), 0), y], 1)
        if self.ends == "squares":
            return shares.reshape(len(ids), -1)
        if self.ends == "halves":
            return y[:, ::2]
        return y.argmax(2) if self.ends == "choice" else y


def cross_attention(path, seed=5):
    """Rows of x, each by itself, over rows of y that y_mask lets it see: two lengths. 'fixed' has no open axis."""
    random = np.random.default_rng(seed)
    weight = (random.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)).astype("f4")
    constants = {"w": weight, "one": np.float32(1), "hides": np.float32(HIDES), "axis1": np.array([1])}
    nodes = []
    add = lambda op, inputs, output, **more: nodes.append(helper.make_node(op, inputs, [output], output, **more))
    add("MatMul", ["x", "w"], "queries")
    add("Transpose", ["y"], "turned", perm=[0, 2, 1])
    add("MatMul", ["queries", "turned"], "scores")
    add("Sub", ["one", "y_mask"], "gone")
    add("Mul", ["gone", "hides"], "bias")
    add("Unsqueeze", ["bias", "axis1"], "bias_of_keys")
    add("Add", ["scores", "bias_of_keys"], "masked")
    add("Softmax", ["masked"], "shares", axis=-1)
    add("MatMul", ["shares", "y"], "mixed")
    add("Add", ["mixed", "x"], "sum")
    add("Add", ["sum", "fixed"], "out")
    value = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(
        nodes, "cross",
        [value("x", "batch", "rows", WIDTH), value("y", "batch", "seen", WIDTH), value("y_mask", "batch", "seen"),
         value("fixed", "batch", 1, WIDTH)],
        [value("out", "batch", "rows", WIDTH)],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

    def answer(arrays):
        x, y, mask = (arrays[name].astype("f8") for name in ("x", "y", "y_mask"))
        scores = x @ weight @ y.transpose(0, 2, 1) + (1 - mask)[:, None] * HIDES
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        return shares / shares.sum(-1, keepdims=True) @ y + x + arrays["fixed"]

    return answer


def convolutions(path, border, seed=6):
    """Two of 3 x 3 over pictures whose height and width are open; `border`: zeros around each."""
    random = np.random.default_rng(seed)
    weights = [random.standard_normal(shape).astype("f4") for shape in ((4, 3, 3, 3), (5, 4, 3, 3))]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["inner"], "first", pads=[border] * 4, kernel_shape=[3, 3]),
        helper.make_node("Conv", ["inner", "w1"], ["y"], "second", pads=[border] * 4, kernel_shape=[3, 3]),
    ]
    value = lambda name, channels: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", channels, None, None])
    graph = helper.make_graph(
        nodes, "convolutions", [value("x", 3)], [value("y", 5)],
        [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

    def answer(x):
        y = x.astype("f8")
        for w in weights:
            y = np.pad(y, ((0, 0), (0, 0), (border, border), (border, border)))
            windows = np.lib.stride_tricks.sliding_window_view(y, (3, 3), axis=(2, 3))
            y = np.einsum("ncijuv,ocuv->noij", windows, w)
        return y

    return answer
