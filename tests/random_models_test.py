#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Families with seeded random weights (gemma, siglip), against the same models written down in numpy in f64; and a
checkpoint that is written from a seed is the model that the seed gives. Arguments: the folder with the program, and
the target (cpu)."""

import json
import unittest

from checkpoint_cases import TARGET, FolderTest, distance, np, read_safetensors

GEMMA = {
    **{"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "max_position_embeddings": 64},
}
SIGLIP = {
    **{"image_size": 28, "patch_size": 7, "hidden_size": 48, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "intermediate_size": 80},
}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def gelu(x):
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


def layer_norm(w, name, x):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    return x * w[name + ".weight"] + w[name + ".bias"]


def linear(w, name, x):
    return x @ w[name + ".weight"].T + w.get(name + ".bias", 0)


def heads(x, size):
    return x.reshape(*x.shape[:2], -1, size).transpose(0, 2, 1, 3)


def attend(q, k, v, hidden=None):
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
    y = softmax(scores if hidden is None else np.where(hidden, -np.inf, scores)) @ v
    return y.transpose(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1)


def gemma(w, c, ids):
    """Logits of all tokens, each seeing those before it."""
    size, tokens = c["head_dim"], ids.shape[1]

    def norm(name, x):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * (1 + w[name + ".weight"])

    angle = np.arange(tokens)[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size)
    cos, sin = np.cos(angle), np.sin(angle)

    def rotated(x):
        a, b = x[..., : size // 2], x[..., size // 2 :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    x = w["model.embed_tokens.weight"][ids] * np.sqrt(c["hidden_size"])
    hidden = np.triu(np.ones((tokens, tokens), bool), 1)
    groups = c["num_attention_heads"] // c["num_key_value_heads"]
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        y = norm(at + "input_layernorm", x)
        q, k, v = (heads(linear(w, at + f"self_attn.{p}_proj", y), size) for p in "qkv")
        k, v = (np.repeat(t, groups, 1) for t in (rotated(k), v))
        x = x + linear(w, at + "self_attn.o_proj", attend(rotated(q), k, v, hidden))
        y = norm(at + "post_attention_layernorm", x)
        y = gelu(linear(w, at + "mlp.gate_proj", y)) * linear(w, at + "mlp.up_proj", y)
        x = x + linear(w, at + "mlp.down_proj", y)
    return norm("model.norm", x) @ w["model.embed_tokens.weight"].T


def siglip(w, c, pixels):
    n, patch, grid = len(pixels), c["patch_size"], c["image_size"] // c["patch_size"]
    size, at = c["hidden_size"] // c["num_attention_heads"], "vision_model."
    x = pixels.reshape(n, 3, grid, patch, grid, patch).transpose(0, 2, 4, 1, 3, 5).reshape(n, grid * grid, -1)
    kernel = w[at + "embeddings.patch_embedding.weight"]
    x = x @ kernel.reshape(len(kernel), -1).T + w[at + "embeddings.patch_embedding.bias"]
    x = x + w[at + "embeddings.position_embedding.weight"]
    for i in range(c["num_hidden_layers"]):
        b = f"{at}encoder.layers.{i}."
        y = layer_norm(w, b + "layer_norm1", x)
        q, k, v = (heads(linear(w, b + f"self_attn.{p}_proj", y), size) for p in "qkv")
        x = x + linear(w, b + "self_attn.out_proj", attend(q, k, v))
        y = gelu(linear(w, b + "mlp.fc1", layer_norm(w, b + "layer_norm2", x)))
        x = x + linear(w, b + "mlp.fc2", y)
    x = layer_norm(w, at + "post_layernorm", x)
    head, width = at + "head.", c["hidden_size"]
    joined, bias = w[head + "attention.in_proj_weight"], w[head + "attention.in_proj_bias"]
    probe = np.repeat(w[head + "probe"], n, 0)
    q, k, v = (
        heads(t @ joined[i * width : (i + 1) * width].T + bias[i * width : (i + 1) * width], size)
        for i, t in enumerate((probe, x, x))
    )
    y = linear(w, head + "attention.out_proj", attend(q, k, v))
    y = y + linear(w, head + "mlp.fc2", gelu(linear(w, head + "mlp.fc1", layer_norm(w, head + "layernorm", y))))
    return x, y[:, 0]


class RandomModels(FolderTest):
    def weights(self, family, config, *words):
        (self.folder / "config.json").write_text(json.dumps(config))
        seeded = ("--family", family, "--random", 3, "--config", "config.json")
        self.tessera("policy", "weights", *seeded, "-o", family, *words)
        return read_safetensors(self.folder / family / "model.safetensors")

    def build(self, model, family, engine, *words, precision="fp32"):
        common = ("--precision", precision, "--target", TARGET, "--quiet")
        self.tessera("build", model, "--family", family, "-o", engine, *common, *words)

    def run_on(self, engine, **arrays):
        np.savez(self.folder / "in.npz", **arrays)
        self.tessera("run", engine, "--inputs", "in.npz", "--outputs", "out.npz")
        with np.load(self.folder / "out.npz") as out:
            return dict(out)

    def test_gemma(self):
        w = self.weights("gemma", GEMMA)
        ids = np.random.default_rng(1).integers(0, GEMMA["vocab_size"], (1, 12))
        want = gemma(w, GEMMA, ids)
        self.build("gemma", "gemma", "all.tess", "--size", "tokens=12", "--size", "cache=32")
        none = np.zeros(1, np.int32)
        caches = {
            f"model.layers.{i}.{part}": np.zeros((1, 32, 2, 16), np.float32)
            for i in range(3)
            for part in ("key", "value")
        }
        got = self.run_on("all.tess", input_ids=ids, past_length=none, **caches)
        self.assertLess(distance(got["logits"], want), 1e-5)
        # The same by a prompt and single tokens over the cache that it left.
        self.build("gemma", "gemma", "prompt.tess", "--size", "tokens=7", "--size", "cache=32")
        self.build("gemma", "gemma", "one.tess", "--size", "cache=32")
        got = self.run_on("prompt.tess", input_ids=ids[:, :7], past_length=none, **caches)
        logits = [got["logits"]]
        for t in range(7, 12):
            caches = {name: got[name + ".after"] for name in caches}
            past = np.full(1, t, np.int32)
            got = self.run_on("one.tess", input_ids=ids[:, t : t + 1], past_length=past, **caches)
            logits.append(got["logits"])
        self.assertLess(distance(np.concatenate(logits, 1), want), 1e-5)
        self.build("gemma", "gemma", "low.tess", "--size", "tokens=12", "--size", "cache=32", precision="bf16")

    def test_siglip(self):
        w = self.weights("siglip", SIGLIP)
        self.build("siglip", "siglip", "siglip.tess", "--batch", "2")
        pixels = np.random.default_rng(2).uniform(-1, 1, (2, 3, 28, 28)).astype(np.float32)
        hidden, pooled = siglip(w, SIGLIP, pixels.astype(np.float64))
        got = self.run_on("siglip.tess", pixel_values=pixels)
        self.assertLess(distance(got["last_hidden_state"], hidden), 1e-5)
        self.assertLess(distance(got["pooler_output"], pooled), 1e-5)

    def test_a_seed_is_its_checkpoint(self):
        """From the seed, from a file of bf16 and from one of f32: one model."""
        self.weights("siglip", SIGLIP)
        pixels = np.random.default_rng(2).uniform(-1, 1, (1, 3, 28, 28)).astype(np.float32)
        self.build("siglip", "siglip", "file.tess")
        want = self.run_on("file.tess", pixel_values=pixels)["last_hidden_state"]
        self.tessera(
            *("policy", "weights", "--family", "siglip", "--random", 3, "--config", "config.json"),
            *("-o", "wide", "--type", "f32"),
        )
        self.build("wide", "siglip", "wide.tess")
        self.build("config.json", "siglip", "seed.tess", "--random", "3")
        self.build("config.json", "siglip", "other.tess", "--random", "4")
        for engine in ("wide.tess", "seed.tess"):
            np.testing.assert_array_equal(self.run_on(engine, pixel_values=pixels)["last_hidden_state"], want)
        self.assertGreater(distance(self.run_on("other.tess", pixel_values=pixels)["last_hidden_state"], want), 0.1)

    def test_weights_have_the_sizes_they_should(self):
        w = self.weights("gemma", GEMMA | {"hidden_size": 256, "intermediate_size": 512})
        q = w["model.layers.0.self_attn.q_proj.weight"]
        self.assertAlmostEqual(float(q.std() * np.sqrt(256)), 1, delta=0.05)
        self.assertAlmostEqual(float(q.mean() * np.sqrt(256)), 0, delta=0.05)
        self.assertAlmostEqual(float(w["model.norm.weight"].std()), 0.1, delta=0.03)
        self.assertGreater(distance(w["model.layers.1.self_attn.q_proj.weight"], q), 1)

    def test_wrong_configurations_are_told(self):
        cases = (
            ("gemma", {"widht": 3}, "'widht' is nothing that random weights depend on; there are"),
            ("gemma", {"num_attention_heads": 3, "num_key_value_heads": 2}, "3 heads over 2 key heads"),
            ("gemma", {"model_type": "gemma2"}, "model_type 'gemma2' is no first Gemma"),
            ("siglip", {"image_size": 30}, "image_size 30 in patches of 14"),
            ("siglip", {"hidden_size": -1}, "'hidden_size' is -1"),
        )
        for family, config, says in cases:
            (self.folder / "config.json").write_text(json.dumps(config))
            words = ("--family", family, "--random", 1, "--config", "config.json", "-o", "never")
            self.assertIn(says, self.tessera("policy", "weights", *words, code=3), says)
            self.assertFalse((self.folder / "never").exists())
        self.assertIn("no random weights", self.tessera("build", "x", "--family", "vit", "--random", 1, code=2))
        self.assertIn("name it with --family", self.tessera("build", "config.json", "--random", 1, code=2))


if __name__ == "__main__":
    unittest.main()
