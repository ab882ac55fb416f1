#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pi0 and pi0.5 from checkpoint to actions, against results in f64 that lie beside the project (../shared/oracle;
skipped where they are not). Arguments: the folder with the program, and the target (cpu)."""

import json
import unittest

from checkpoint_cases import TARGET, distance, np, read_safetensors
from policy_cases import MODELS, ORACLE, PolicyTest, write_checkpoint

# Sizes of the small models, for random weights.
SMALL = {
    **{"v_width": 32, "v_layers": 1, "v_heads": 2, "v_mlp": 40, "width": 32, "mlp": 48, "e_width": 32, "e_mlp": 48},
    **{"layers": 2, "heads": 4, "kv_heads": 1, "head_dim": 16, "vocab": 64, "horizon": 4, "max_token_len": 8},
    **{"num_steps": 2},
}


def observation(views, prompt):
    rng = np.random.default_rng(4)
    return {
        "image_valid": np.ones((1, views), bool),
        "tokens": rng.integers(0, 64, (1, prompt)),
        "token_valid": np.ones((1, prompt), bool),
        "noise": rng.standard_normal((1, 4, 32)).astype(np.float32),
    }


class Policies(PolicyTest):
    def test_every_stage_in_fp32(self):
        for model in MODELS:
            inputs = self.inputs(model)
            with np.load(ORACLE / model / "expected.npz") as arrays:
                want = dict(arrays)
            got = self.act(self.build(model), inputs, "--stages")
            tokens = want["image_tokens"].shape[1]
            seen = np.repeat(inputs["image_valid"][0], tokens // inputs["images"].shape[1])
            valid = np.concatenate([seen, inputs["token_valid"][0]])
            for name, rows in (("image_tokens", (slice(None), seen)), ("K", (..., valid, slice(None)))):
                self.assertLess(distance(got[name][rows], want[name][rows]), 1e-5, (model, name))
            rows = (..., valid, slice(None))
            for name in ("V", "v0", "actions"):
                at = rows if name == "V" else ...
                self.assertEqual(got[name].shape, want[name].shape)
                self.assertLess(distance(got[name][at], want[name][at]), 1e-5, (model, name))
            self.assertFalse(got["K"][..., ~valid, :].any(), "rows of dropped tokens are zeros")
            # All graphs as one call give the same bits as one by one.
            np.testing.assert_array_equal(self.act("policy.tess", inputs)["actions"], got["actions"])

    def test_a_masked_view_is_a_missing_one(self):
        for model in MODELS:
            inputs = self.inputs(model)
            engine = self.build(model)
            masked = self.act(engine, inputs)["actions"]
            noisy = inputs["images"].copy()
            noisy[:, 2] = np.random.default_rng(1).standard_normal(noisy[:, 2].shape)
            np.testing.assert_array_equal(self.act(engine, inputs | {"images": noisy})["actions"], masked)
            fewer = {"images": inputs["images"][:, :2], "image_valid": inputs["image_valid"][:, :2]}
            np.testing.assert_array_equal(self.act(engine, inputs | fewer)["actions"], masked)
            words = int(inputs["token_valid"].sum())
            fewer |= {"tokens": inputs["tokens"][:, :words], "token_valid": inputs["token_valid"][:, :words]}
            np.testing.assert_array_equal(self.act(engine, inputs | fewer)["actions"], masked)
            # A view more does change them.
            third = self.act(engine, inputs | {"image_valid": np.ones_like(inputs["image_valid"])})["actions"]
            self.assertGreater(distance(third, masked), 1e-4)

    def test_prompts_of_any_length_through_one_engine(self):
        inputs = self.inputs("pi05_tiny")
        engine = self.build("pi05_tiny")
        results = []
        for words in (1, 5, 12):
            shown = np.zeros_like(inputs["token_valid"])
            shown[:, :words] = True
            got = self.act(engine, inputs | {"token_valid": shown})["actions"]
            small = self.build("pi05_tiny", "small.tess", "fp32", "--size", f"prompt={words}", "--size", "views=2")
            fewer = {"tokens": inputs["tokens"][:, :words], "token_valid": shown[:, :words]}
            fewer |= {"images": inputs["images"][:, :2], "image_valid": inputs["image_valid"][:, :2]}
            self.assertLess(distance(got, self.act(small, inputs | fewer)["actions"]), 1e-5)
            results.append(got)
        self.assertGreater(distance(results[0], results[1]), 1e-4)

    def test_fewer_steps(self):
        inputs = self.inputs("pi05_tiny")
        ten = self.act(self.build("pi05_tiny"), inputs)["actions"]
        three = self.act(self.build("pi05_tiny", "three.tess", "fp32", "--size", "steps=3"), inputs)["actions"]
        self.assertGreater(distance(three, ten), 1e-4)
        self.assertLess(distance(three, ten), 0.5)

    def test_lower_precisions_stay_near(self):
        for model in MODELS:
            with np.load(ORACLE / model / "expected.npz") as arrays:
                want = arrays["actions"]
                openpi = distance(arrays["openpi_bf16_actions"], want)  # in the published model's own bf16
            for precision, most in (("fp16", 0.5 * openpi), ("bf16", 2 * openpi), ("fp8", 0.2), ("fp8_bf16", 0.2)):
                got = self.act(self.build(model, "low.tess", precision), self.inputs(model))["actions"]
                self.assertLess(distance(got, want), most, (model, precision))

    def test_images_in_bytes(self):
        rng = np.random.default_rng(3)
        for model in MODELS:
            right = self.inputs(model)
            count, views, _, side, _ = right["images"].shape
            pixels = rng.integers(0, 256, (count, views, side, side, 3), dtype=np.uint8)
            numbers = pixels.transpose(0, 1, 4, 2, 3).astype(np.float32) / 127.5 - 1
            want = self.act(self.build(model), right | {"images": numbers})["actions"]
            # An engine of numbers is given the same numbers; one of bytes makes them itself.
            given = self.act("policy.tess", right | {"images": pixels})["actions"]
            np.testing.assert_array_equal(given, want)
            self.tessera(
                *("policy", "build", "--model", ORACLE / model, "-o", "bytes.tess"),
                *("--precision", "fp32", "--target", TARGET, "--quiet"),
            )
            self.assertLess(distance(self.act("bytes.tess", right | {"images": pixels})["actions"], want), 1e-6)
            black = pixels.copy()
            black[:, :2] = 0
            self.assertGreater(distance(self.act("bytes.tess", right | {"images": black})["actions"], want), 1e-4)
            np.savez(self.folder / "in.npz", **right)
            words = ("policy", "run", "--model", "bytes.tess", "--inputs", "in.npz", "--outputs", "out.npz")
            self.assertIn("the engine takes bytes", self.tessera(*words, code=3))

    def test_cameras_of_any_size(self):
        """Resized as the published client does it."""
        (self.folder / "config.json").write_text(json.dumps(SMALL | {"image_size": 224, "patch": 56}))
        seeded = ("--random", 2, "--config", "config.json", "--precision", "fp32", "--no-verify")
        right = observation(views=1, prompt=3)
        with np.load(ORACLE / "preprocess.npz") as cases:
            images = {name: cases[name] for name in cases if name.startswith(("image_", "resized_"))}
        results = []
        for case in ("wide", "tall", "exact", "small"):
            got, want = (
                self.act("", right | {"images": images[f"{part}_{case}"][None, None]}, *seeded)["actions"]
                for part in ("image", "resized")
            )
            np.testing.assert_array_equal(got, want, case)
            results.append(got)
        self.assertGreater(distance(results[0], results[1]), 1e-5)

    def test_rope_of_either_program(self):
        inputs = self.inputs("pi05_tiny")
        keys = {}
        for rope in ("jax", "openpi-pytorch"):
            self.tessera(
                *("policy", "build", "--model", ORACLE / "pi05_tiny", "-o", "rope.tess", "--images", "f32"),
                *("--precision", "fp32", "--target", TARGET, "--rope", rope, "--quiet"),
            )
            keys[rope] = self.act("rope.tess", inputs, "--stages")["K"][0, 0, 0].astype(np.float64)
        valid = keys["jax"].any(-1)
        size = keys["jax"].shape[-1]
        exact = 10000.0 ** (-np.arange(0, size, 2) / size)
        bits = exact.astype(np.float32).view(np.uint32)
        rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)  # to bf16, ties to even
        turn = np.arange(valid.sum())[:, None] * (rounded.astype(np.float64) - exact)
        a, b = np.split(keys["jax"][valid], 2, -1)
        want = np.concatenate([a * np.cos(turn) - b * np.sin(turn), b * np.cos(turn) + a * np.sin(turn)], -1)
        self.assertLess(distance(keys["openpi-pytorch"][valid], want), 1e-5)
        self.assertGreater(distance(keys["jax"][valid], want), 1e-4)
        words = ("policy", "build", "--model", ORACLE / "pi05_tiny", "--rope", "torch", "-o", "never.tess")
        self.assertIn("accepted are jax, openpi-pytorch", self.tessera(*words, code=2))

    def test_random_weights(self):
        for model in MODELS:
            config = json.loads((ORACLE / model / "config.json").read_text())
            (self.folder / "config.json").write_text(json.dumps(config))
            seeded = ("--random", 5, "--config", "config.json")
            self.tessera("policy", "weights", *seeded, "-o", f"w_{model}", "--type", "f32")
            made = read_safetensors(self.folder / f"w_{model}" / "model.safetensors")
            published = read_safetensors(ORACLE / model / "model.safetensors")
            self.assertEqual({k: v.shape for k, v in made.items()}, {k: v.shape for k, v in published.items()})
            self.assertEqual(json.loads((self.folder / f"w_{model}" / "config.json").read_text()), config)
            inputs = self.inputs(model)
            precision = ("--precision", "fp32", "--no-verify")
            want = self.act(f"w_{model}", inputs, *precision)["actions"]
            np.testing.assert_array_equal(self.act("", inputs, *seeded, *precision)["actions"], want)
            other = self.act("", inputs, "--random", 6, "--config", "config.json", *precision)["actions"]
            self.assertGreater(distance(other, want), 0.1)
            # Activations stay sane: actions are of the noise's size.
            self.assertLess(abs(np.log2(np.std(want) / np.std(inputs["noise"]))), 2)

    def test_bench_times_schedule_and_graphs(self):
        self.tessera("policy", "build", "--model", ORACLE / "pi05_tiny", "-o", "p.tess", "--target", TARGET, "--quiet")
        done = json.loads(self.tessera("policy", "bench", "p.tess", "--repeats", 5, "--json"))
        runs = [(g["graph"], g["times"]) for g in done["graphs"]]
        self.assertEqual(runs, [("vision", 1), ("prefix", 1), ("step", 10)])
        self.assertEqual([g["latency"]["runs"] for g in done["graphs"]], [5, 5, 50])
        for times in (done["resident"], done["host_to_host"], *(g["latency"] for g in done["graphs"])):
            self.assertGreater(times["least_ms"], 0)
            self.assertLessEqual(times["least_ms"], times["median_ms"])
            self.assertLessEqual(times["median_ms"], times["p90_ms"])
            self.assertLessEqual(times["p90_ms"], times["p99_ms"])
        parts = sum(g["times"] * g["latency"]["least_ms"] for g in done["graphs"])
        self.assertLess(done["resident"]["least_ms"], 4 * parts)
        self.assertGreater(done["resident"]["least_ms"], parts / 4)
        # A step runs by itself more often than there are steps.
        plans = json.loads(self.tessera("bench", "p.tess", "--repeats", 25, "--json"))["plans"]
        self.assertEqual([p["plan"] for p in plans], ["vision.batch1", "prefix.batch1", "step.batch1"])
        np.savez(self.folder / "in.npz", **self.inputs("pi05_tiny"))
        words = ("policy", "bench", "p.tess", "--inputs", "in.npz", "--repeats", 2)
        self.assertIn("the engine takes bytes", self.tessera(*words, code=3))

    def test_verify_says_a_sentence_per_graph(self):
        for precision in ("bf16", "fp8"):
            self.build("pi05_tiny", precision=precision)
            done = json.loads(self.tessera("policy", "verify", "policy.tess", "--json"))
            self.assertTrue(done["ok"])
            self.assertEqual([g["graph"] for g in done["graphs"]], ["vision", "prefix", "step"])
            for g in done["graphs"]:
                self.assertTrue(g["sentence"])
                self.assertEqual(len(g["checks"]), 2)
        text = self.tessera("policy", "verify", "policy.tess")
        for graph in ("vision: ", "prefix: ", "step: "):
            self.assertIn(graph, text)

    def test_calibration_from_observations(self):
        """Scales that are of what graphs read in use are better than those of random keys and image tokens."""
        for model in MODELS:
            inputs = self.inputs(model)
            with np.load(ORACLE / model / "expected.npz") as arrays:
                want = arrays["actions"]
            np.savez(self.folder / "calib.npz", **inputs)
            common = ("--images", "f32", "--precision", "fp8", "--target", TARGET, "--quiet")
            self.tessera("policy", "build", "--model", ORACLE / model, "-o", "p.tess", "--calib", "calib.npz", *common)
            told = json.loads(self.tessera("inspect", "p.tess", "--json"))
            self.assertIn("calib.npz", json.dumps(told))
            scaled = json.loads(self.tessera("inspect", "p.tess", "--json", "--scales"))["constants"]
            numbers = [x for constant in scaled for x in constant.get("numbers", [])]
            self.assertTrue(numbers and min(numbers) > 0)
            self.assertNotIn("numbers", json.dumps(told["constants"]))
            self.assertIn("--scales adds numbers to --json", self.tessera("inspect", "p.tess", "--scales", code=2))
            error = distance(self.act("p.tess", inputs)["actions"], want)
            self.tessera("policy", "build", "--model", ORACLE / model, "-o", "p.tess", *common)
            self.assertLess(error, 0.9 * distance(self.act("p.tess", inputs)["actions"], want), model)

    def test_a_recipe_for_each_part(self):
        parts = (("vision_tower", "fp16"), ("gemma_expert", "int8"))
        rules = [{"layer": f"*{part}*", "precision": precision} for part, precision in parts]
        recipe = {"tessera_recipe": 1, "precision": "fp8", "rules": rules}
        (self.folder / "mixed.json").write_text(json.dumps(recipe))
        build = ("policy", "build", "--model", ORACLE / "pi05_tiny", "--recipe", "mixed.json", "-o", "p.tess")
        self.tessera(*build, "--images", "f32", "--quiet")
        asked = {}
        for plan in json.loads(self.tessera("inspect", "p.tess", "--json"))["plans"]:
            for step in plan["steps"]:
                if step["op"] == "matmul" and step["role"].startswith("block"):
                    asked.setdefault(plan["graph"], set()).add(step["asked"])
        self.assertEqual(asked, {"vision": {"fp16"}, "prefix": {"fp8"}, "step": {"int8"}})
        inputs = self.inputs("pi05_tiny")
        with np.load(ORACLE / "pi05_tiny" / "expected.npz") as arrays:
            self.assertLess(distance(self.act("p.tess", inputs)["actions"], arrays["actions"]), 0.05)
        rules.append({"layer": "*decoder*", "precision": "fp16"})
        (self.folder / "mixed.json").write_text(json.dumps(recipe))
        self.assertIn("rule 3: no linear layer of any graph has the name '*decoder*'", self.tessera(*build, code=2))

    def test_options_of_other_actions_are_refused(self):
        self.assertIn("policy bench has no --stages", self.tessera("policy", "bench", "p.tess", "--stages", code=2))
        self.assertIn("did you mean bench", self.tessera("policy", "benhc", "p.tess", code=2))
        self.assertIn("give one of the two", self.tessera("policy", "build", "-o", "p.tess", code=2))
        self.tessera("zoo", "vit-ti-16", "--depth", 1, "-o", "vit.onnx")
        self.tessera("build", "vit.onnx", "-o", "vit.tess", "--no-verify", "--quiet")
        for action in ("bench", "verify"):
            self.assertIn("is no policy", self.tessera("policy", action, "vit.tess", code=3))

    def test_names_of_lerobot(self):
        write_checkpoint(self.folder / "lerobot", "pi05_tiny", lambda t: {"model." + k: v for k, v in t.items()})
        inputs = self.inputs("pi05_tiny")
        want = self.act(ORACLE / "pi05_tiny", inputs, "--precision", "fp32", "--no-verify")["actions"]
        got = self.act("lerobot", inputs, "--precision", "fp32", "--no-verify")["actions"]
        np.testing.assert_array_equal(got, want)

    def test_a_tied_embedding_under_its_other_name(self):
        table = "paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"
        head = "paligemma_with_expert.paligemma.lm_head.weight"
        write_checkpoint(
            self.folder / "tied", "pi05_tiny", lambda t: {(head if k == table else k): v for k, v in t.items()}
        )
        inputs = self.inputs("pi05_tiny")
        want = self.act(ORACLE / "pi05_tiny", inputs, "--precision", "fp32", "--no-verify")["actions"]
        np.testing.assert_array_equal(self.act("tied", inputs, "--precision", "fp32", "--no-verify")["actions"], want)

    def test_wrong_checkpoints_are_told(self):
        name = "paligemma_with_expert.gemma_expert.model.layers.1.mlp.up_proj.weight"
        cases = {
            "missing": (lambda t: {k: v for k, v in t.items() if k != name}, f"tensor '{name}' is missing"),
            "shape": (lambda t: t | {name: t[name][:, 1:]}, f"'{name}' has the shape [96,47]; wanted is [96,48]"),
            "extra": (lambda t: t | {"action_mid_proj.weight": np.zeros((2, 2))}, "action_mid_proj.weight"),
            "other": (lambda t: {"w": np.zeros((2, 2))}, "no checkpoint of pi0 or pi0.5"),
        }
        np.savez(self.folder / "in.npz", **self.inputs("pi05_tiny"))
        for case, (change, says) in cases.items():
            write_checkpoint(self.folder / case, "pi05_tiny", change)
            words = ("--inputs", "in.npz", "--outputs", "out.npz")
            self.assertIn(says, self.tessera("policy", "run", "--model", case, *words, code=3), case)

    def test_keys_and_values_of_the_last_layer_are_as_asked(self):
        self.build("pi05_tiny", "low.tess", "fp8")
        plans = {p["name"]: p for p in json.loads(self.tessera("inspect", "low.tess", "--json"))["plans"]}
        layers = [s for s in plans["prefix.batch1"]["steps"] if s["op"] == "matmul"]
        self.assertEqual({s["asked"] for s in layers if "_proj" in s["layer"]}, {"fp8"})

    def test_heads_of_the_tower_are_said_or_published(self):
        write_checkpoint(self.folder / "mute", "pi05_tiny", lambda tensors: tensors)
        config = json.loads((self.folder / "mute" / "config.json").read_text())
        config.pop("v_heads")
        (self.folder / "mute" / "config.json").write_text(json.dumps(config))
        words = ("build", "mute", "--family", "pi05", "--target", TARGET, "-o", "x.tess")
        self.assertIn("must say its heads as 'v_heads'", self.tessera(*words, code=3))

    def test_nothing_is_ignored_or_written_over(self):
        engine = self.build("pi05_tiny")
        np.savez(self.folder / "in.npz", **self.inputs("pi05_tiny"))
        before = (self.folder / engine).read_bytes()
        words = ("policy", "run", "--model", engine, "--inputs", "in.npz", "--outputs")
        for outputs in (engine, "./" + engine, "in.npz"):
            self.assertIn("would overwrite", self.tessera(*words, outputs, code=2))
        self.assertEqual((self.folder / engine).read_bytes(), before)
        for option in (("--precision", "fp8"), ("--steps", 3), ("--target", "cpu"), ("--calib", "in.npz")):
            says = f"{option[0]} says how an engine is built"
            self.assertIn(says, self.tessera(*words, "out.npz", *option, code=2))
        for option in (("--precision", "fp8"), ("--no-verify",)):
            self.assertIn("says how an engine is built", self.tessera("policy", "bench", engine, *option, code=2))
        self.assertIn("not both", self.tessera(*words, "out.npz", "--random", 2, code=2))

    def test_wrong_observations_are_told(self):
        engine = self.build("pi05_tiny")
        right = self.inputs("pi05_tiny")
        cases = (
            ({"noise": right["noise"][:, :5]}, "array 'noise' has the shape [1,5,32]; wanted is [1, 6, 32]"),
            ({"images": right["images"][..., :50]}, "array 'images' has the shape"),
            ({"images": np.zeros((1, 3, 3, 56, 56), np.uint8)}, "wanted is [1, any, any, any, 3]"),
            ({"images": np.full_like(right["images"], np.nan)}, "array 'images' holds NaN or Inf"),
            (
                {"tokens": np.full_like(right["tokens"], 512)},
                "array 'tokens' holds 512 in observation 0; ids are 0 to 511",
            ),
            ({"token_valid": right["token_valid"][:, :3]}, "array 'token_valid' has the shape [1,3]"),
            (
                {name: np.zeros_like(right[name]) for name in ("image_valid", "token_valid")},
                "no view and no token",
            ),
            (
                {"tokens": np.tile(right["tokens"], 2), "token_valid": np.tile(right["token_valid"], 2)},
                "--views 3 --prompt 18",
            ),
        )
        for change, says in cases:
            np.savez(self.folder / "in.npz", **(right | change))
            words = ("policy", "run", "--model", engine, "--inputs", "in.npz", "--outputs", "out.npz")
            self.assertIn(says, self.tessera(*words, code=3), says)


if __name__ == "__main__":
    unittest.main()
