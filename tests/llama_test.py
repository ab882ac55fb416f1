#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small Llama with a KV cache gives what it gives without one: from ONNX with past/present pairs, from a checkpoint.
The bound is derived: both engines state how far each may be from its own golden run. Arguments: the folder with the
program, and the target (cpu)."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import checkpoint_layouts
    import llama_models
    import numpy as np
except ImportError as missing:
    print(f"{missing}: skipped")
    sys.exit(77)

if llama_models.onnx is None and "TESSERA_LLAMA" not in os.environ:
    print("no onnx: skipped")
    sys.exit(77)

PROGRAM = os.path.abspath(os.path.join(sys.argv.pop(1), "tessera"))
TARGET = sys.argv.pop(1) if len(sys.argv) > 1 else "cpu"
BATCH, CACHE, PROMPT, TOKENS = 2, 32, 11, 17


def distance(got, want):
    return float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want))


class Llamas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.model = llama_models.Llama(seed=5)
        for name in ("plain", "cached"):
            if made := os.environ.get("TESSERA_LLAMA"):  # where there is no onnx
                shutil.copy(pathlib.Path(made) / f"{name}.onnx", cls.folder)
            else:
                llama_models.onnx.save(cls.model.onnx(cached=name == "cached"), cls.folder / f"{name}.onnx")
        cls.model.write_checkpoint(cls.folder / "llama", checkpoint_layouts.write_safetensors)
        cls.ids = np.random.default_rng(6).integers(0, cls.model.vocab, (BATCH, TOKENS))
        cls.positions = np.broadcast_to(np.arange(TOKENS), (BATCH, TOKENS))

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def tessera(self, *words, code=0):
        done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, code, (words, done.stdout, done.stderr))
        return done

    def build(self, name, model, precision, *options):
        self.tessera("build", model, "-o", name, "--precision", precision, "--target", TARGET, "--quiet", *options)
        manifest = json.loads(self.tessera("inspect", name, "--json").stdout)
        return {o["name"]: b for o, b in zip(manifest["golden"]["outputs"], manifest["golden"]["bounds"])}["logits"]

    def run_on(self, engine, **arrays):
        np.savez(self.folder / "in.npz", **arrays)
        self.tessera("run", engine, "--inputs", "in.npz", "--outputs", "out.npz")
        with np.load(self.folder / "out.npz") as out:
            return dict(out)

    def plain(self, precision, mask):
        bound = self.build("plain.tess", "plain.onnx", precision, "--shape", f"input_ids={BATCH},{TOKENS}")
        out = self.run_on("plain.tess", input_ids=self.ids, attention_mask=mask, position_ids=self.positions)
        return out["logits"], bound

    def decode(self, run, rows):
        """Logits of all tokens: the prompt at once, then one by one, with what each run leaves handed to the next."""
        logits, states = [], {}
        for first, count in [(0, PROMPT)] + [(t, 1) for t in range(PROMPT, TOKENS)]:
            out = run(first, count, states)
            logits.append(out.pop("logits"))
            states = rows(out)
        return np.concatenate(logits, 1)

    def onnx_runs(self, precision, mask):
        bounds = {}
        for count in (PROMPT, 1):
            bounds[count] = self.build(
                f"cached{count}.tess",
                "cached.onnx",
                precision,
                *("--state", "past_key_values.*=present.*", "--shape", f"input_ids={BATCH},{count}"),
                *("--shape", f"attention_mask={BATCH},{CACHE}"),
                *("--shape", f"past_key_values.0.key={BATCH},{self.model.kv_heads},{CACHE - count},{self.model.size}"),
            )

        def run(first, count, states):
            shown = np.random.default_rng(first).integers(0, 2, (BATCH, CACHE))  # columns that are not read
            shown[:, :first] = mask[:, :first]
            shown[:, CACHE - count :] = mask[:, first : first + count]
            return self.run_on(
                f"cached{count}.tess",
                input_ids=self.ids[:, first : first + count],
                position_ids=self.positions[:, first : first + count],
                attention_mask=shown,
                past_length=np.full(BATCH, first, np.int32),
                **states,
            )

        logits = self.decode(run, lambda out: {k.replace("present", "past_key_values"): v for k, v in out.items()})
        return logits, max(bounds.values())

    def test_onnx_with_a_cache_equals_onnx_without(self):
        for precision in ("fp32", "fp16"):
            for padded in (False, True):
                mask = np.ones((BATCH, TOKENS), np.int64)
                if padded:
                    mask[1, :3] = 0  # the first tokens of one prompt are padding
                with self.subTest(precision=precision, padded=padded):
                    want, bound = self.plain(precision, mask)
                    got, cached = self.onnx_runs(precision, mask)
                    seen = mask == 1
                    self.assertLess(distance(got[seen], want[seen]), bound + cached)

    def test_family_with_a_cache_equals_one_run(self):
        """In fp32 it is the ONNX model, too; in fp16 that rounds at other places."""
        for precision in ("fp32", "fp16"):
            sizes = ("--batch", BATCH, "--size", f"tokens={TOKENS}", "--size", f"cache={CACHE}")
            bound = self.build("whole.tess", "llama", precision, "--family", "llama", *sizes)
            want = self.run_on("whole.tess", input_ids=self.ids, past_length=np.zeros(BATCH, np.int32))["logits"]
            if precision == "fp32":
                plain, of_plain = self.plain(precision, np.ones((BATCH, TOKENS), np.int64))
                self.assertLess(distance(want, plain), bound + of_plain)
            bounds = {
                count: self.build(
                    f"family{count}.tess",
                    "llama",
                    precision,
                    *("--family", "llama", "--batch", BATCH, "--size", f"tokens={count}", "--size", f"cache={CACHE}"),
                )
                for count in (PROMPT, 1)
            }

            def run(first, count, states):
                return self.run_on(
                    f"family{count}.tess",
                    input_ids=self.ids[:, first : first + count],
                    past_length=np.full(BATCH, first, np.int32),
                    **states,
                )

            got = self.decode(run, lambda out: {k.removesuffix(".after"): v for k, v in out.items()})
            with self.subTest(precision=precision):
                self.assertLess(distance(got, want), bound + max(bounds.values()))

    def test_two_graphs_of_one_engine_share_their_weights(self):
        """Prefill and decode in one engine: the same numbers as in two, the weights once, states of one size."""
        model = ("llama", "--family", "llama", "--batch", BATCH, "--size", f"cache={CACHE}")
        model += ("--precision", "fp16", "--target", TARGET)
        graphs = ("--graph", f"prefill:tokens={PROMPT}", "--graph", "decode:tokens=1")
        self.tessera("build", *model, *graphs, "-o", "both.tess", "--quiet")
        self.tessera("build", *model, "--size", "tokens=1", "-o", "one.tess", "--quiet")
        self.tessera("build", *model, "--size", f"tokens={PROMPT}", "-o", "many.tess", "--quiet")
        names = ("both", "one", "many")
        manifests = {n: json.loads(self.tessera("inspect", f"{n}.tess", "--json").stdout) for n in names}
        size = {n: sum(c["data"]["bytes"] for c in m["constants"]) for n, m in manifests.items()}
        self.assertLess(size["both"], max(size["one"], size["many"]) + 0.2 * size["one"])
        self.assertEqual(manifests["both"]["states"], manifests["one"]["states"])
        done = self.tessera("build", *model, *graphs, "--schedule", "prefill,decode", "-o", "x.tess", code=3)
        self.assertIn("input 'input_ids' is i64[2,11] and, of graph 'decode', i64[2,1]", " ".join(done.stderr.split()))
        self.tessera("verify", "both.tess")
        inputs = {"input_ids": self.ids[:, :1], "past_length": np.full(BATCH, 0, np.int32)}
        alone = self.run_on("one.tess", **inputs)
        np.savez(self.folder / "in.npz", **inputs)
        self.tessera("run", "both.tess", "--graph", "decode", "--inputs", "in.npz", "--outputs", "out.npz")
        with np.load(self.folder / "out.npz") as out:
            for name, want in alone.items():
                np.testing.assert_array_equal(out[name], want)
        done = self.tessera("run", "both.tess", "--inputs", "in.npz", code=3)
        says = "the engine has the graphs 'prefill', 'decode': say which one runs"
        self.assertIn(says, " ".join(done.stderr.split()))

    def test_a_wrong_length_is_far_off(self):
        """What the bounds above can tell apart: one key too few, and a stale row."""
        mask = np.ones((BATCH, TOKENS), np.int64)
        want, bound = self.plain("fp16", mask)
        real = np.full
        try:
            np.full = lambda shape, value, kind: real(shape, max(0, value - (value > PROMPT)), kind)
            got, cached = self.onnx_runs("fp16", mask)
        finally:
            np.full = real
        self.assertGreater(distance(got, want), 3 * (bound + cached))

    @unittest.skipIf(llama_models.onnx is None, "no onnx")
    def test_positions_of_a_full_cache_are_refused(self):
        """Computed from the length of the past, they would be wrong at every other length."""
        words = ("--state", "past_key_values.*=present.*", "--shape", f"input_ids={BATCH},1")
        words += ("--shape", f"attention_mask={BATCH},{CACHE}")
        words += ("--shape", f"past_key_values.0.key={BATCH},2,{CACHE - 1},16")
        for positions, says in (
            ("past", "turns by constant angles, those of a full cache"),
            ("learned", "depends on the length of the past, which is known only while running"),
            ("mask", f"input 'attention_mask' [{BATCH},{CACHE}] has a column for each key, and layer"),
            ("opt", "Only masks of attention may depend on it"),
        ):
            llama_models.onnx.save(self.model.onnx(True, positions), self.folder / f"{positions}.onnx")
            done = self.tessera("build", f"{positions}.onnx", "-o", "x.tess", *words, code=3)
            self.assertIn(says, " ".join(done.stderr.split()))
            self.assertIn("export it with position_ids", " ".join(done.stderr.split()))

    @unittest.skipIf(llama_models.onnx is None, "no onnx")
    def test_sizes_that_equal_the_cache_hide_nothing(self):
        """A cache of as many rows as the model is wide: it is found all the same what depends on the past's length."""
        rows = self.model.width
        words = ("--state", "past_key_values.*=present.*", "--precision", "fp32", "--no-verify")
        words += ("--shape", f"inputs_embeds={BATCH},1,{rows}")
        for embeds in ("fixed", "open"):
            for positions in ("learned", "input"):
                for past in (rows - 1, 1) if embeds == "fixed" else (rows - 1,):
                    given = (*words, "--shape", f"past_key_values.0.key={BATCH},2,{past},16")
                    given += ("--shape", f"attention_mask={BATCH},{past + 1}")
                    llama_models.onnx.save(self.model.onnx(True, positions, embeds), self.folder / "e.onnx")
                    with self.subTest(embeds=embeds, positions=positions, past=past):
                        refused = positions == "learned"
                        done = self.tessera("build", "e.onnx", "-o", "x.tess", *given, code=3 if refused else 0)
                        if refused:
                            self.assertIn("depends on the length of the past", " ".join(done.stderr.split()))

    @unittest.skipIf(llama_models.onnx is None, "no onnx")
    def test_a_past_that_cannot_be_another_is_refused(self):
        """Its axes are open, and a table inside fits one length alone: nothing can be found out."""
        model = self.model.onnx(True)
        where = next(n for n in model.graph.node if n.op_type == "Where")
        mask, where.output[0] = where.output[0], "of_any_length"
        added = llama_models.helper.make_node("Add", ["of_any_length", "table"], [mask], name="/table/Add")
        model.graph.node.insert(list(model.graph.node).index(where) + 1, added)
        table = llama_models.numpy_helper.from_array(np.full((1, 1, 1, CACHE), 0.5, np.float32), "table")
        model.graph.initializer.append(table)
        llama_models.onnx.save(model, self.folder / "table.onnx")
        words = ("--state", "past_key_values.*=present.*", "--shape", f"input_ids={BATCH},1")
        words += ("--shape", f"attention_mask={BATCH},{CACHE}")
        words += ("--shape", f"past_key_values.0.key={BATCH},2,{CACHE - 1},16", "-o", "x.tess")
        done = self.tessera("build", "table.onnx", *words, code=3)
        self.assertIn("cannot be read with one row less of it", " ".join(done.stderr.split()))

    @unittest.skipIf(llama_models.onnx is None, "no onnx")
    def test_golden_inputs_have_full_caches(self):
        names = {"input_ids": self.ids[:, :1], "position_ids": self.positions[:, :1]}
        names["attention_mask"] = np.ones((BATCH, CACHE), np.int64)
        for i in range(self.model.layers):
            for which in ("key", "value"):
                names[f"past_key_values.{i}.{which}"] = np.zeros((BATCH, 2, CACHE, 16), np.float32)
        words = ("--state", "past_key_values.*=present.*", "--shape", f"input_ids={BATCH},1")
        words += ("--shape", f"attention_mask={BATCH},{CACHE}", "--golden-inputs", "golden.npz")
        words += ("--shape", f"past_key_values.0.key={BATCH},2,{CACHE - 1},16", "-o", "x.tess")
        np.savez(self.folder / "golden.npz", past_length=np.full(BATCH, 3, np.int32), **names)
        done = self.tessera("build", "cached.onnx", *words, code=3)
        self.assertIn("the model can be compared at 31 alone", " ".join(done.stderr.split()))
        np.savez(self.folder / "golden.npz", past_length=np.full(BATCH, CACHE - 1, np.int32), **names)
        self.tessera("build", "cached.onnx", *words)

    def test_bad_states_are_refused(self):
        shape = ("--shape", f"input_ids={BATCH},1", "--shape", f"attention_mask={BATCH},{CACHE}")
        shape += ("--shape", f"past_key_values.0.key={BATCH},2,{CACHE - 1},16")
        for state, says in (
            ("past_key_values.*", "wanted INPUT=OUTPUT"),
            ("past.*=present.*", "no input of the model is called 'past.*'"),
            ("past_key_values.*=presents.*", "which the model does not have"),
            ("attention_mask=logits", "a state keeps its shape, or is a cache"),
        ):
            code = 3 if "=" in state else 2
            done = self.tessera("build", "cached.onnx", "-o", "x.tess", "--state", state, *shape, code=code)
            self.assertIn(says, " ".join(done.stderr.split()))


if __name__ == "__main__":
    unittest.main()
