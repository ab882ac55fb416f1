#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small models of pi0 and pi0.5 on the GPU that is here, against results in f64 (policy_cases.py says where they lie):
skipped where there are none, and where there is no GPU. Every engine is loaded with its golden check. Arguments: the
folder with the program, and the target (default: sm90).

  ctest --test-dir build/release -R policy_gpu_test --output-on-failure"""

import json
import subprocess
import sys
import unittest

if len(sys.argv) == 2:
    sys.argv.append("sm90")
from checkpoint_cases import TARGET, distance, np
from policy_cases import MODELS, ORACLE, PolicyTest, arrays_of, shown_only, valid_rows, write_checkpoint

PRECISIONS = ("fp32", "bf16", "fp8_bf16", "fp16")
STAGES = ("image_tokens", "K", "V", "v0", "actions")
MOST_FP8 = 0.2


def gpu_is_here():
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() != ""


if TARGET != "cpu" and not gpu_is_here():
    print("no NVIDIA GPU here: skipped")
    sys.exit(77)


class OnGpu(PolicyTest):
    def errors(self, model, got):
        inputs, want = self.inputs(model), arrays_of(model, "expected")
        valid = valid_rows(inputs, want)
        seen = valid[: want["image_tokens"].shape[1]]
        rows = {"image_tokens": (slice(None), seen), "K": (..., valid, slice(None)), "V": (..., valid, slice(None))}
        return {name: distance(got[name][rows.get(name, ...)], want[name][rows.get(name, ...)]) for name in STAGES}

    def test_every_precision(self):
        for model in MODELS:
            want = arrays_of(model, "expected")
            openpi = distance(want["openpi_bf16_actions"], want["actions"])
            most = {"fp32": 1e-5, "bf16": 2 * openpi, "fp8_bf16": MOST_FP8, "fp16": 0.5 * openpi}
            for precision in PRECISIONS:
                with self.subTest(model=model, precision=precision):
                    engine = self.build(model, f"{precision}.tess", precision)
                    errors = self.errors(model, self.act(engine, self.inputs(model), "--stages"))
                    print(model, precision, ", ".join(f"{name} {e:.2e}" for name, e in errors.items()))
                    for name in STAGES if precision == "fp32" else ("actions",):
                        self.assertLess(errors[name], most[precision], name)
                    self.holds_what_was_asked(engine, precision)

    def holds_what_was_asked(self, engine, precision):
        """No layer runs in another precision than that which was asked for, and none was allowed to."""
        told = json.loads(self.tessera("inspect", engine, "--json"))
        self.assertEqual(told["allowed"], [])
        asked = {s["asked"] for p in told["plans"] for s in p["steps"] if s["role"].startswith("block.mlp")}
        self.assertEqual(asked, {precision})
        self.assertEqual({p["arch"] for p in told["plans"] if p["name"].endswith("batch1")}, {TARGET})

    def test_a_masked_view_is_an_omitted_one_bit_for_bit(self):
        for model in MODELS:
            inputs = self.inputs(model)
            noisy = inputs["images"].copy()
            noisy[:, 2] = np.random.default_rng(1).standard_normal(noisy[:, 2].shape)
            for precision in PRECISIONS:
                with self.subTest(model=model, precision=precision):
                    engine = self.build(model, "masked.tess", precision)
                    want = self.act(engine, inputs)["actions"]
                    for other in (inputs | {"images": noisy}, shown_only(inputs)):
                        np.testing.assert_array_equal(self.act(engine, other)["actions"], want)
                    third = inputs | {"image_valid": np.ones_like(inputs["image_valid"])}
                    self.assertGreater(distance(self.act(engine, third)["actions"], want), 1e-4)

    def test_prompts_of_three_lengths_through_one_engine(self):
        inputs = self.inputs("pi05_tiny")
        cases = []
        for words in (1, 5, 12):
            shown = np.zeros_like(inputs["token_valid"])
            shown[:, :words] = True
            cases.append(inputs | {"token_valid": shown})
        exact = [
            self.act(ORACLE / "pi05_tiny", case, "--precision", "fp32", "--no-verify")["actions"] for case in cases
        ]
        for precision, most in (("fp32", 1e-5), ("bf16", 0.02), ("fp8_bf16", MOST_FP8)):
            engine = self.build("pi05_tiny", "prompts.tess", precision)
            for case, want in zip(cases, exact):
                with self.subTest(precision=precision, words=int(case["token_valid"].sum())):
                    got = self.act(engine, case)["actions"]
                    self.assertLess(distance(got, want), most)
                    np.testing.assert_array_equal(self.act(engine, shown_only(case))["actions"], got)

    def test_names_of_openpi_and_lerobot(self):
        for model in MODELS:
            write_checkpoint(self.folder / model, model, lambda t: {"model." + k: v for k, v in t.items()})
            inputs = self.inputs(model)
            words = ("--precision", "bf16", "--target", TARGET)
            want = self.act(ORACLE / model, inputs, *words)["actions"]
            np.testing.assert_array_equal(self.act(model, inputs, *words)["actions"], want)


if __name__ == "__main__":
    unittest.main()
