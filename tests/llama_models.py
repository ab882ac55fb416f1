# SPDX-License-Identifier: Apache-2.0
"""A small Llama as ONNX, spelt as exporters spell it, with past/present pairs or without a cache, and as a checkpoint.
Random weights from a seed."""

import json

import numpy as np

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError:
    onnx = None

LOWEST = np.finfo(np.float32).min


class Llama:
    """Its sizes and weights, which are the same with and without a cache."""

    def __init__(self, seed=0, vocab=97, width=64, layers=2, heads=4, kv_heads=2, size=16, hidden=96, positions=128):
        self.vocab, self.width, self.layers, self.heads, self.kv_heads = vocab, width, layers, heads, kv_heads
        self.size, self.hidden, self.positions = size, hidden, positions
        self.random = np.random.default_rng(seed)
        self.weights = {"embed": self.draw(vocab, width, scale=1.0)}
        for i in range(layers):
            for name, shape in (
                ("q", (width, heads * size)),
                ("k", (width, kv_heads * size)),
                ("v", (width, kv_heads * size)),
                ("o", (heads * size, width)),
                ("gate", (width, hidden)),
                ("up", (width, hidden)),
                ("down", (hidden, width)),
            ):
                self.weights[f"{i}.{name}"] = self.draw(*shape)
            for name in ("norm1", "norm2"):
                self.weights[f"{i}.{name}"] = (1 + 0.1 * self.random.standard_normal(width)).astype(np.float32)
        self.weights["norm"] = np.ones(width, np.float32)
        self.weights["head"] = self.draw(width, vocab)
        angles = np.arange(positions)[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size)[None]
        angles = np.concatenate([angles, angles], 1)
        self.weights["cos"], self.weights["sin"] = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def draw(self, *shape, scale=None):
        scale = shape[0] ** -0.5 if scale is None else scale
        return (scale * self.random.standard_normal(shape)).astype(np.float32)

    def onnx(self, cached, positions="input", embeds=None):
        """positions: "input": position_ids; "past": computed from the length of the past, as exporters do without it;
        "learned": and rows of a table are added, too; "mask": counted by a cumulative sum of attention_mask; "opt": as
        rows of a table that are added. embeds: "inputs_embeds" in the place of input_ids, its last axis "fixed" or
        "open"."""
        return _Writer(self, cached, positions, embeds).model()

    def write_checkpoint(self, folder, write_safetensors):
        """The same weights under the names of LlamaForCausalLM."""
        folder.mkdir()
        names = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj"}
        names |= {w: f"mlp.{w}_proj" for w in ("gate", "up", "down")}
        names |= {"norm1": "input_layernorm", "norm2": "post_attention_layernorm"}
        tensors = {"model.embed_tokens.weight": self.weights["embed"], "model.norm.weight": self.weights["norm"]}
        tensors["lm_head.weight"] = np.ascontiguousarray(self.weights["head"].T)
        for i in range(self.layers):
            for short, name in names.items():
                tensors[f"model.layers.{i}.{name}.weight"] = np.ascontiguousarray(self.weights[f"{i}.{short}"].T)
        write_safetensors(folder / "model.safetensors", tensors)
        config = {"hidden_size": self.width, "num_hidden_layers": self.layers, "num_attention_heads": self.heads}
        config |= {"num_key_value_heads": self.kv_heads, "head_dim": self.size, "intermediate_size": self.hidden}
        config |= {"vocab_size": self.vocab, "max_position_embeddings": self.positions, "rms_norm_eps": 1e-5}
        config |= {"model_type": "llama", "rope_theta": 10000.0, "hidden_act": "silu"}
        (folder / "config.json").write_text(json.dumps(config))


class _Writer:
    def __init__(self, llama, cached, positions, embeds):
        self.m, self.cached, self.positions, self.embeds = llama, cached, positions, embeds
        self.given = "inputs_embeds" if embeds else "input_ids"
        self.nodes, self.constants = [], {k: v for k, v in llama.weights.items()}
        self.count = 0

    def op(self, kind, *inputs, name=None, **attrs):
        self.count += 1
        out = name or f"v{self.count}"
        self.nodes.append(helper.make_node(kind, inputs, [out], name=f"/{out}/{kind}", **attrs))
        return out

    def const(self, value, kind=np.int64):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, kind)
        return name

    def norm(self, x, gain):
        square = self.op("Pow", x, self.const(2.0, np.float32))
        mean = self.op("ReduceMean", square, axes=[-1], keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.const(1e-5, np.float32)))
        return self.op("Mul", gain, self.op("Mul", x, self.op("Reciprocal", root)))

    def heads(self, x, w, count):
        y = self.op("MatMul", x, w)
        y = self.op("Reshape", y, self.const([0, 0, count, self.m.size]))
        return self.op("Transpose", y, perm=[0, 2, 1, 3])

    def rotate(self, x, cos, sin):
        half = self.m.size // 2
        first = self.op("Slice", x, self.const([0]), self.const([half]), self.const([3]))
        second = self.op("Slice", x, self.const([half]), self.const([2 * half]), self.const([3]))
        turned = self.op("Concat", self.op("Neg", second), first, axis=-1)
        return self.op("Add", self.op("Mul", x, cos), self.op("Mul", turned, sin))

    def repeat(self, x):
        """[b, kv, t, d] -> [b, heads, t, d]"""
        m, times = self.m, self.m.heads // self.m.kv_heads
        shape = self.op("Shape", x)
        b, t = (self.op("Gather", shape, self.const([i]), axis=0) for i in (0, 2))
        wide = self.op("Concat", b, self.const([m.kv_heads]), self.const([times]), t, self.const([m.size]), axis=0)
        flat = self.op("Concat", b, self.const([m.heads]), t, self.const([m.size]), axis=0)
        y = self.op("Expand", self.op("Unsqueeze", x, self.const([2])), wide)
        return self.op("Reshape", y, flat)

    def mask(self, ids):
        """Causal over old and new keys, and those that attention_mask hides: f32 [b, 1, s, t]"""
        seq = self.op("Gather", self.op("Shape", ids), self.const(1), axis=0)
        total = self.op("Gather", self.op("Shape", "attention_mask"), self.const(1), axis=0)
        past = self.op("Sub", total, seq)
        rows = self.op("Unsqueeze", self.op("Range", past, total, self.const(1)), self.const([1]))
        cols = self.op("Unsqueeze", self.op("Range", self.const(0), total, self.const(1)), self.const([0]))
        seen = self.op("Unsqueeze", self.op("LessOrEqual", cols, rows), self.const([0, 1]))
        shown = self.op("Cast", self.op("Unsqueeze", "attention_mask", self.const([1, 2])), to=TensorProto.BOOL)
        both = self.op("And", seen, shown)
        return self.op("Where", both, self.const(0, np.float32), self.const(LOWEST, np.float32))

    def model(self):
        m = self.m
        x = self.given if self.embeds else self.op("Gather", "embed", "input_ids", axis=0)
        mask = self.mask(self.given)
        positions = "position_ids"
        if self.positions in ("mask", "opt"):
            new = self.op("Gather", self.op("Shape", self.given), self.const([1]), axis=0)
            counted = self.op("Mul", self.op("CumSum", "attention_mask", self.const(1)), "attention_mask")
            counted = self.op("Slice", counted, self.op("Neg", new), self.const([1 << 30]), self.const([1]))
            if self.positions == "mask":
                positions = self.op("Sub", counted, self.const(1))
            else:
                table = self.const(m.draw(m.positions, m.width), np.float32)
                x = self.op("Add", x, self.op("Gather", table, counted, axis=0))
        elif self.positions != "input":
            new = self.op("Gather", self.op("Shape", self.given), self.const(1), axis=0)
            past = self.op("Gather", self.op("Shape", "past_key_values.0.key"), self.const(2), axis=0)
            past = self.op("Range", past, self.op("Add", past, new), self.const(1))
            if self.positions == "past":
                positions = self.op("Unsqueeze", past, self.const([0]))
            else:
                table = self.const(m.draw(m.positions, m.width), np.float32)
                x = self.op("Add", x, self.op("Gather", table, past, axis=0))
        angles = (self.op("Gather", t, positions, axis=0) for t in ("cos", "sin"))
        cos, sin = (self.op("Unsqueeze", a, self.const([1])) for a in angles)
        pairs = []
        for i in range(m.layers):
            h = self.norm(x, f"{i}.norm1")
            q = self.heads(h, f"{i}.q", m.heads)
            k, v = (self.heads(h, f"{i}.{w}", m.kv_heads) for w in "kv")
            q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
            if self.cached:
                k = self.op("Concat", f"past_key_values.{i}.key", k, name=f"present.{i}.key", axis=2)
                v = self.op("Concat", f"past_key_values.{i}.value", v, name=f"present.{i}.value", axis=2)
                pairs += [(f"past_key_values.{i}.{w}", f"present.{i}.{w}") for w in ("key", "value")]
            k, v = self.repeat(k), self.repeat(v)
            s = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
            s = self.op("Add", self.op("Mul", s, self.const(m.size**-0.5, np.float32)), mask)
            y = self.op("Transpose", self.op("MatMul", self.op("Softmax", s, axis=-1), v), perm=[0, 2, 1, 3])
            y = self.op("Reshape", y, self.const([0, 0, m.heads * m.size]))
            x = self.op("Add", x, self.op("MatMul", y, f"{i}.o"))
            h = self.norm(x, f"{i}.norm2")
            gate = self.op("MatMul", h, f"{i}.gate")
            gate = self.op("Mul", gate, self.op("Sigmoid", gate))
            x = self.op("Add", x, self.op("MatMul", self.op("Mul", gate, self.op("MatMul", h, f"{i}.up")), f"{i}.down"))
        self.op("MatMul", self.norm(x, "norm"), "head", name="logits")
        total = "total" if self.cached else "sequence"
        axes = {"input_ids": "sequence", "attention_mask": total, "position_ids": "sequence"}
        if self.positions in ("past", "mask"):
            del axes["position_ids"]
        inputs = [(name, TensorProto.INT64, ["batch", axis]) for name, axis in axes.items()]
        if self.embeds:
            width = {"fixed": m.width, "open": "width"}[self.embeds]
            inputs[0] = (self.given, TensorProto.FLOAT, ["batch", "sequence", width])
        outputs = [("logits", TensorProto.FLOAT, ["batch", "sequence", m.vocab])]
        for past, present in pairs:
            inputs.append((past, TensorProto.FLOAT, ["batch", m.kv_heads, "past", m.size]))
            outputs.append((present, TensorProto.FLOAT, ["batch", m.kv_heads, "total", m.size]))
        graph = helper.make_graph(
            self.nodes,
            "llama",
            [helper.make_tensor_value_info(*i) for i in inputs],
            [helper.make_tensor_value_info(*o) for o in outputs],
            [numpy_helper.from_array(v, k) for k, v in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        return model
