#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Policies whose graphs have plans for several sizes, and policies that are drawn towards the chunk before.
Arguments: the folder with the program, and the target (cpu)."""

import json
import struct
import unittest

from checkpoint_cases import TARGET, distance, np
from policy_cases import MODELS, ORACLE, PolicyTest, shown_only


class PlansOfPolicies(PolicyTest):
    def plans_of(self, model, inputs):
        np.savez(self.folder / "in.npz", **inputs)
        words = ("policy", "run", "--model", model, "--inputs", "in.npz", "--outputs", "out.npz", "--json")
        return json.loads(self.tessera(*words))["plans"]

    def test_the_smallest_plans_that_hold_an_observation(self):
        for model in MODELS:
            inputs = self.inputs(model)
            length = inputs["tokens"].shape[1]
            sizes = ("--size", "views=3,1,2", "--size", f"prompt=4,{length}")
            seen = []
            for precision, most in (("fp32", 1e-5), ("bf16", 0.02)):
                largest = self.build(model, "largest.tess", precision)
                engine = self.build(model, "buckets.tess", precision, *sizes)
                for views, words in ((1, 2), (2, 4), (2, 5), (3, 4), (3, length), (0, 3), (1, 0)):
                    shown = {"image_valid": np.arange(3)[None] < views, "token_valid": np.arange(length)[None] < words}
                    given = inputs | shown
                    got = self.act(engine, given)["actions"]
                    self.assertLess(distance(got, self.act(largest, given)["actions"]), most, (views, words))
                    v, p = max(views, 1), 4 if words <= 4 else length
                    names = [f"vision.views{v}.batch1", f"prefix.prompt{p}.views{v}.batch1", "step.batch1"]
                    self.assertEqual(self.plans_of(engine, given), [names])
                    seen.append((given, got))
            # One after the other through one session: nothing that a larger plan left is read.
            several = {name: np.concatenate([given[name] for given, _ in seen[-7:]]) for name in inputs}
            want = np.concatenate([got for _, got in seen[-7:]])
            np.testing.assert_array_equal(self.act(engine, several)["actions"], want)
            stages = self.act(engine, several, "--stages")
            np.testing.assert_array_equal(stages["actions"], want)
            self.assertEqual(stages["K"].shape[3], stages["image_tokens"].shape[1] + length)

    def test_masked_and_missing_are_the_same_bits_in_a_bucket(self):
        inputs = self.inputs("pi05_tiny")
        engine = self.build("pi05_tiny", "buckets.tess", "fp32", "--size", "views=1,2,3", "--size", "prompt=4,12")
        masked = self.act(engine, inputs)["actions"]
        np.testing.assert_array_equal(self.act(engine, shown_only(inputs))["actions"], masked)

    def test_buckets_store_weights_once_and_verify(self):
        def data_bytes(path):
            return struct.unpack_from("<Q", (self.folder / path).read_bytes(), 48)[0]

        sizes = ("--size", "views=1,2,3", "--size", "prompt=4,12")
        inputs = self.inputs("pi05_tiny")
        np.savez(self.folder / "calib.npz", **inputs)
        with np.load(ORACLE / "pi05_tiny" / "expected.npz") as arrays:
            want = arrays["actions"]
        one = self.build("pi05_tiny", "one.tess", "fp8", "--no-verify")
        many = self.build("pi05_tiny", "many.tess", "fp8", "--no-verify", *sizes)
        self.assertLess(data_bytes(many), 1.1 * data_bytes(one))
        common = ("--images", "f32", "--precision", "fp8", "--target", TARGET, "--quiet", "--calib", "calib.npz")
        words = ("--views", "1,2,3", "--prompt", "4,12")
        self.tessera("policy", "build", "--model", ORACLE / "pi05_tiny", "-o", "p.tess", *common, *words)
        done = json.loads(self.tessera("policy", "verify", "p.tess", "--json"))
        self.assertTrue(done["ok"])
        plans = [g["plan"] for g in done["graphs"]]
        self.assertEqual(plans[:4], [*(f"vision.views{v}.batch1" for v in (3, 2, 1)), "prefix.prompt12.views3.batch1"])
        self.assertEqual(len(plans), 3 + 6 + 1)
        # Golden values are those of the smallest plans, unless all are asked for.
        held = {g["plan"] for g in done["graphs"] if any(c["what"] == "golden values" for c in g["checks"])}
        self.assertEqual(held, {"vision.views1.batch1", "prefix.prompt4.views1.batch1", "step.batch1"})
        self.assertIn("golden values are of the smallest sizes", " ".join(self.tessera("inspect", "p.tess").split()))
        small = ("--views", "2", "--prompt", "4,12")
        self.tessera(
            "policy", "build", "--model", ORACLE / "pi05_tiny", "-o", "all.tess", *common, *small, "--golden", "all"
        )
        done = json.loads(self.tessera("policy", "verify", "all.tess", "--json"))
        held = [g["plan"] for g in done["graphs"] if any(c["what"] == "golden values" for c in g["checks"])]
        self.assertEqual(len(held), 1 + 2 + 1)
        self.assertLess(distance(self.act("p.tess", inputs)["actions"], want), 0.02)
        timed = json.loads(self.tessera("policy", "bench", many, "--views", 1, "--prompt", 3, "--repeats", 2, "--json"))
        names = ["vision.views1.batch1", "prefix.prompt4.views1.batch1", "step.batch1"]
        self.assertEqual(timed["plans"], names)
        self.assertEqual([g["plan"] for g in timed["graphs"]], names)

    def test_wrong_buckets_are_told(self):
        build = ("policy", "build", "--model", ORACLE / "pi05_tiny", "-o", "never.tess", "--quiet")
        cases = (
            (("--views", "1,1"), "1 stands there twice"),
            (("--views", "1,2x"), "wanted is a whole number"),
            (("--views", "1,"), "wanted is a whole number"),
            (("--prompt", "0,4"), "wanted a number from 1 to"),
            (
                ("--size", "horizon=4,6"),
                "no graph has a plan for each; sizes that may have several are 'views', 'prompt'",
            ),
        )
        for words, says in cases:
            self.assertIn(says, self.tessera(*build, *words, code=2), words)
        family = ("build", ORACLE / "pi05_tiny", "--family", "pi05", "-o", "never.tess", "--size", "views=1,2")
        self.assertIn("batch 1 alone", self.tessera(*family, "--batch", 2, code=2))
        says = "graphs that hand each other numbers have ports of their own types, leave it out"
        self.assertIn(says, self.tessera(*family[:-2], "--io", "*=fp16", code=2))
        self.build("pi05_tiny", "one.tess", "fp32", "--no-verify")
        says = "a number from 1 to 3 is wanted"
        self.assertIn(says, self.tessera("policy", "bench", "one.tess", "--views", 4, code=2))
        words = ("policy", "bench", "one.tess", "--views", 1, "--inputs", "x.npz")
        self.assertIn("give one", self.tessera(*words, code=2))

    def test_real_time_chunking_draws_to_the_chunk_before(self):
        rng = np.random.default_rng(6)
        for model in MODELS:
            inputs = self.inputs(model)
            plain = self.act(self.build(model), inputs)["actions"]
            engine = self.build(model, "rtc.tess", "fp32", "--size", "rtc=on")
            np.testing.assert_array_equal(self.act(engine, inputs)["actions"], plain)
            prev = rng.standard_normal(plain.shape).astype(np.float32)
            weights = np.linspace(1, 0, plain.shape[1], dtype=np.float32)[None]
            off = {"prev_actions": prev, "prev_weights": np.zeros_like(weights)}
            np.testing.assert_array_equal(self.act(engine, inputs | off)["actions"], plain)
            drawn = self.act(engine, inputs | {"prev_actions": prev, "prev_weights": weights})["actions"]
            near, far = (np.linalg.norm((a - prev)[0], axis=-1) for a in (drawn, plain))
            self.assertLess(near[0], 0.5 * far[0])
            self.assertGreater(distance(drawn, plain), 1e-2)
            # Every step by itself, from its own velocity, in f64.
            times = [np.float32(1)]
            while times[-1] - np.float32(0.1) >= np.float32(0.05):
                times.append(times[-1] - np.float32(0.1))
            for k, t in enumerate(np.array(times, np.float64)):
                x = rng.standard_normal(plain.shape).astype(np.float32)
                given = {"x": x, "step": np.array([k], np.int32), "rtc.prev": prev, "rtc.weights": weights}
                np.savez(self.folder / "step.npz", **given)
                words = ("run", engine, "--graph", "step", "--inputs", "step.npz", "--outputs", "step_out.npz")
                self.tessera(*words)
                with np.load(self.folder / "step_out.npz") as out:
                    v, got = out["velocity"].astype(np.float64), out["actions"]
                s = 1 - t
                w = min((1 - s) / s * ((1 - s) ** 2 + s**2) / (1 - s) ** 2, 10) if s > 0 else 10
                v -= w * weights[..., None] * (prev - (x - t * v))
                self.assertLess(distance(got, x - 0.1 * v), 1e-6, k)
        low = self.act(self.build("pi05_tiny", "low.tess", "fp8", "--size", "rtc=on"), self.inputs("pi05_tiny"))
        np.testing.assert_array_equal(
            self.act(self.build("pi05_tiny", "low.tess", "fp8"), self.inputs("pi05_tiny"))["actions"], low["actions"]
        )

    def test_wrong_chunks_before_are_told(self):
        right = self.inputs("pi05_tiny")
        both = {"prev_actions": right["noise"], "prev_weights": np.ones(right["noise"].shape[:2], np.float32)}
        self.tessera(
            *("policy", "build", "--model", ORACLE / "pi05_tiny", "-o", "rtc.tess", "--images", "f32", "--rtc"),
            *("--precision", "fp32", "--quiet", "--no-verify"),
        )
        self.build("pi05_tiny", "plain.tess", "fp32", "--no-verify")
        cases = (
            ("plain.tess", both, "build it with --rtc"),
            ("rtc.tess", {"prev_actions": both["prev_actions"]}, "array 'prev_weights' is missing"),
            ("rtc.tess", both | {"prev_weights": 2 * both["prev_weights"]}, "holds 2; 0 to 1 is wanted"),
            ("rtc.tess", both | {"prev_actions": right["noise"][:, :2]}, "array 'prev_actions' has the shape"),
            ("rtc.tess", both | {"prev_actions": np.full_like(right["noise"], np.nan)}, "holds NaN or Inf"),
        )
        for engine, change, says in cases:
            np.savez(self.folder / "in.npz", **(right | change))
            words = ("policy", "run", "--model", engine, "--inputs", "in.npz", "--outputs", "out.npz")
            self.assertIn(says, self.tessera(*words, code=3), says)


if __name__ == "__main__":
    unittest.main()
