#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera sensitivity as users meet it. Argument: the folder with the program."""

import json

from cli_program import CliTest, failure, np, run_tests, tessera


class Sensitivity(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        np.savez(cls.folder / "five.npz", image=cls.images[:5])
        cls.words = ("sensitivity", "tiny.onnx", "--calib", "five.npz")

    def test_layers_are_ranked_by_what_they_cost(self):
        said = json.loads(tessera(*self.words, "--precision", "fp8", "--json").stdout)
        self.assertEqual(said["samples"], 5)
        layers = said["layers"]
        self.assertEqual(len(layers), 8)  # four linear layers in two blocks
        alone = [layer["alone"]["relative_l2"] for layer in layers]
        self.assertEqual(alone, sorted(alone, reverse=True))
        for layer in layers:
            # One layer costs more than none and less than all; all but one less than all, give or take the luck of
            # roundings.
            self.assertGreater(layer["alone"]["relative_l2"], said["carrier"]["relative_l2"], layer)
            self.assertLess(layer["alone"]["relative_l2"], said["all"]["relative_l2"], layer)
            self.assertLess(layer["all_but_it"]["relative_l2"], 1.3 * said["all"]["relative_l2"], layer)
            self.assertGreater(layer["bytes_saved"], 0)
        # Errors of independent roundings add like squares: far from it, the trials would not be what they are named.
        together = sum(x * x for x in alone) ** 0.5
        self.assertLess(said["all"]["relative_l2"], 3 * together)
        self.assertGreater(said["all"]["relative_l2"], together / 3)

    def test_the_same_numbers_as_build_and_run(self):
        said = json.loads(tessera(*self.words, "--precision", "fp8", "--json").stdout)
        logits = {}
        for name, words in (("fp32", ("--precision", "fp32")), ("fp8", ("--precision", "fp8", "--calib", "five.npz"))):
            tessera("run", "tiny.onnx", "-i", "five.npz", "-o", f"{name}.npz", "--no-verify", *words)
            logits[name] = np.load(self.folder / f"{name}.npz")["logits"].astype("f8")
        off = np.linalg.norm(logits["fp8"] - logits["fp32"]) / np.linalg.norm(logits["fp32"])
        self.assertAlmostEqual(said["all"]["relative_l2"], off, delta=0.02 * off)

    def test_a_table_for_people(self):
        text = tessera(*self.words, "--precision", "fp8", "--samples", 2).stdout
        self.assertIn("over 2 samples", text)
        self.expect_narrow(text)
        self.assertIn("mlp.fc1", text)

    def test_slips_get_a_sentence(self):
        for words, said in (
            (("--precision", "fp16"), "it has no scales"),
            (("--precision", "fp9"), "'fp9' is unknown"),
        ):
            self.assertIn(said, failure(*self.words, *words, code=2))
        told = tessera(*self.words, "--precision", "fp8", "--all", "--json", code=2).stdout
        self.assertIn("leave --all out", json.loads(told)["error"])


if __name__ == "__main__":
    run_tests()
