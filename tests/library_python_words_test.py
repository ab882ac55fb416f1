# SPDX-License-Identifier: Apache-2.0
"""tessera.build with the words of the command: the same engines, byte for byte, which run, and the same sentences.
Skipped where the module was not built or onnx is missing. Argument: the folder with the program."""

import pathlib
import subprocess
import tempfile
import unittest

from python_package import BIN, DIGITS, needs, np, tessera

checkpoint_layouts = needs("checkpoint_layouts")
lengths_models = needs("lengths_models")
llama_models = needs("llama_models")
MODEL = DIGITS / "vit.onnx"
BATCH, CACHE = 2, 8
FLAGS = {"sparsity_by": "--sparsity-by", "calib_method": "--calib-method", "calib_samples": "--calib-samples",
         "keep_norms": "--keep-norms", "golden_samples": "--golden-samples", "golden_inputs": "--golden-inputs",
         "min_cosine": "--min-cosine"}  # fmt: skip


def line_of(words):
    """The same options on the command's line."""
    line = []
    for name, value in words.items():
        if name == "verify":
            line += [] if value else ["--no-verify"]
        elif value is True:
            line.append(FLAGS.get(name, f"--{name}"))
        else:
            for word in value if isinstance(value, list) else [value]:
                line += [FLAGS.get(name, f"--{name}"), str(word)]
    return line


class WordsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.llama = llama_models.Llama(seed=5, layers=1)
        for name in ("plain", "cached"):
            llama_models.onnx.save(cls.llama.onnx(cached=name == "cached"), cls.folder / f"{name}.onnx")
        cls.llama.write_checkpoint(cls.folder / "llama", checkpoint_layouts.write_safetensors)

    def command(self, model, name, words):
        line = [BIN / "tessera", "build", model, "-o", name, "--quiet", *line_of(words)]
        return subprocess.run([str(w) for w in line], capture_output=True, text=True, cwd=self.folder)

    def build(self, model, **words):
        """By both, which must write the same bytes."""
        ours = self.folder / "ours.tess"
        tessera.build(model, ours, **words)
        done = self.command(model, "theirs.tess", words)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(ours.read_bytes(), (self.folder / "theirs.tess").read_bytes(), words)
        return tessera.load(ours)

    def test_images_as_bytes(self):
        engine = self.build(MODEL, precision="fp16", io="image=u8,mean=0.25,std=0.5", batch=8)
        plain = self.folder / "floats.tess"
        tessera.build(MODEL, plain, precision="fp16", batch=8)
        pixels = np.random.default_rng(4).integers(0, 256, (11, 8, 8, 1), dtype=np.uint8)
        floats = ((pixels / 255.0 - 0.25) / 0.5).astype(np.float32).reshape(11, 1, 8, 8)
        np.testing.assert_array_equal(engine.run({"image": pixels})["logits"],
                                      tessera.load(plain).run({"image": floats})["logits"])  # fmt: skip

    def test_lengths(self):
        block = lengths_models.Block("mask")
        block.save(self.folder / "block.onnx")
        engine = self.build(self.folder / "block.onnx", precision="fp32", golden="smallest",
                            shape=["ids=1:2,1:16", "attention_mask=1:2,1:16"])  # fmt: skip
        self.assertEqual(len(engine.plans), 10)
        for samples, length in ((1, 1), (3, 7), (2, 16)):
            arrays = block.arrays(samples, length)
            want = block.answer(arrays)
            np.testing.assert_allclose(engine.run(arrays)["y"], want, atol=1e-4 * np.abs(want).max())

    def test_a_state(self):
        tokens, model = 5, self.llama
        ids = np.random.default_rng(6).integers(0, model.vocab, (BATCH, tokens))
        places = np.broadcast_to(np.arange(tokens), ids.shape).copy()
        plain = self.build(self.folder / "plain.onnx", precision="fp32", shape=f"input_ids={BATCH},{tokens}")
        want = plain.run({"input_ids": ids, "attention_mask": np.ones_like(ids), "position_ids": places})["logits"]
        engine = self.build(
            self.folder / "cached.onnx",
            precision="fp32",
            state="past_key_values.*=present.*",
            shape=[f"input_ids={BATCH},1", f"attention_mask={BATCH},{CACHE}",
                   f"past_key_values.0.key={BATCH},{model.kv_heads},{CACHE - 1},{model.size}"],
        )  # fmt: skip
        context = engine.context()
        for t in range(tokens):
            given = {"input_ids": ids[:, t : t + 1], "position_ids": places[:, t : t + 1],
                     "attention_mask": np.ones((BATCH, CACHE), np.int64),
                     "past_length": np.full(BATCH, t, np.int32)}  # fmt: skip
            got = context(*(np.ascontiguousarray(given[p.name]) for p in context.inputs if not p.is_state))
            np.testing.assert_allclose(got[:, 0], want[:, t], atol=1e-4 * np.abs(want).max())

    def test_a_family_and_its_graphs(self):
        words = {"family": "llama", "precision": "fp16", "batch": BATCH, "size": f"cache={CACHE}"}
        engine = self.build(self.folder / "llama", **words, graph=["prefill:tokens=3", "decode:tokens=1"])
        self.assertEqual([p.graph for p in engine.plans], ["prefill", "decode"])
        context = engine.context(graph="decode")
        self.assertEqual(context.inputs[0].shape, [BATCH, 1])
        ids, past = np.ones((BATCH, 1), np.int64), np.zeros(BATCH, np.int32)
        words["size"] = [words["size"], "tokens=1"]
        one = self.build(self.folder / "llama", **words, seed=3, golden_samples=1)
        np.testing.assert_array_equal(one.context()(ids, past), context(ids, past))

    def test_what_else_the_command_has(self):
        calib = DIGITS / "calib.npz"
        for words in (
            {"precision": "int8", "refine": "smooth,clip", "calib": calib, "calib_samples": 64},
            {"precision": "fp16", "sparsity": "2:4", "sparsity_by": "magnitude"},
            {"precision": "fp8", "calib": calib, "golden_inputs": DIGITS / "test.npz", "min_cosine": 0.5},
            {
                "precision": "fp8",
                "calib": calib,
                "target": "sm90",
                "verify": False,
                "keep_norms": True,
                "chains": True,
                "accumulate": "promoted",
                "tuning": "none",
            },
        ):
            with self.subTest(words):
                self.build(MODEL, **words)
        both = self.folder / "both.tess"
        tessera.build(MODEL, both, precision="int8", refine=["smooth", "clip"], calib=calib, calib_samples=64)
        again = self.build(MODEL, precision="int8", refine="smooth,clip", calib=calib, calib_samples=64)
        self.assertEqual([p.name for p in again.plans], [p.name for p in tessera.load(both).plans])
        self.assertEqual(both.read_bytes(), (self.folder / "ours.tess").read_bytes())

    def test_wrong_words_are_named_as_the_command_names_them(self):
        out = self.folder / "never.tess"
        for words in (
            {"shape": "image"},
            {"shape": "image=0,1"},
            {"shape": ["image=1,1,8,8", "image=2,1,8,8"]},
            {"state": "image"},
            {"io": "image=u9"},
            {"io": "image=u8,mean=a"},
            {"size": "tokens=1"},
            {"family": "vit", "size": "tokens"},
            {"family": "nothing"},
            {"random": 1},
            {"family": "llama", "random": 0},
            {"tune": True},
            {"tuning": "none"},
            {"graph": "main"},
            {"graph": "golden:image=1,1,8,8"},
            {"schedule": "a,b"},
            {"accumulate": "slow"},
            {"sparsity": "3:4"},
            {"sparsity_by": "magnitude"},
            {"refine": "polish"},
            {"refine": "smooth,awq"},
            {"preprocess": "size=8x8"},
            {"preprocess": "nothing"},
            {"target": "sm91"},
            {"chains": True},
            {"keep_norms": True},
            {"golden": "some"},
            {"golden": "all", "verify": False},
            {"golden_samples": 3, "verify": False},
            {"seed": 0, "verify": False},
            {"seed": 0, "golden_inputs": DIGITS / "test.npz"},
            {"calib_method": "median"},
            {"calib_samples": 7},
            {"recipe": "nothing"},
            {"tuning": "nothing.json"},
        ):
            words = {"precision": "fp16", **words}
            with self.subTest(words):
                done = self.command(MODEL, "never.tess", words)
                self.assertNotEqual(done.returncode, 0)
                with self.assertRaises(tessera.Error) as raised:
                    tessera.build(MODEL, out, **words)
                said = " ".join(done.stderr.split()).removeprefix("tessera: ")
                self.assertEqual(" ".join(str(raised.exception).split()), said)
                self.assertEqual(raised.exception.code, done.returncode)
        for words, said in (
            ({"shape": 8}, "shape is 8: text"),
            ({"io": [8]}, "one of io is 8: text"),
            ({"seed": 1.5}, "seed is 1.5"),
            ({"seed": -1}, "seed is -1: 0 to"),
            ({"golden_samples": 65}, "golden_samples is 65: 0 to 64"),
            ({"min_cosine": float("nan")}, "min_cosine is nan: from -1 to 1"),
            ({"min_cosine": "x"}, "min_cosine is 'x': a number"),
            ({"random": "7"}, "random is '7'"),
        ):
            with self.subTest(words), self.assertRaisesRegex(tessera.UsageError, said):
                tessera.build(MODEL, out, precision="fp16", **words)
        self.assertFalse(out.exists())


if __name__ == "__main__":
    unittest.main()
