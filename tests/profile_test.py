# SPDX-License-Identifier: Apache-2.0
"""tessera profile: tables, JSON, timelines, predictions, and what it refuses."""

import json
import os
import pathlib
import re
import subprocess

from cli_program import PROGRAM, CliTest, failure, run_tests, tessera

import checkpoint_layouts  # isort: skip  (after the check for numpy)
import llama_models  # isort: skip


PROFILES = pathlib.Path(__file__).resolve().parent / "data" / "profiles"
SMALL_POLICY = {
    "pi05": True, "image_size": 28, "patch": 14, "v_width": 32, "v_layers": 1, "v_heads": 2, "v_mlp": 64,
    "width": 64, "mlp": 128, "e_width": 48, "e_mlp": 96, "layers": 2, "heads": 4, "kv_heads": 1, "head_dim": 16,
    "vocab": 64, "action_dim": 8, "horizon": 4, "max_token_len": 6, "num_steps": 4,
}  # fmt: skip


class Profile(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cache = cls.folder / "cache"
        os.environ["XDG_CACHE_HOME"] = str(cls.cache)  # not the user's
        tessera("build", "tiny.onnx", "-o", "gpu.tess", "--precision", "fp8", "--calib", "in.npz", "--target", "sm90")

    def profile(self, *words):
        return json.loads(tessera("profile", "tiny.tess", "--runs", 5, *words, "--json").stdout)

    def test_every_step_is_there_once(self):
        steps = json.loads(tessera("inspect", "tiny.tess", "--json").stdout)["plans"][0]["steps"]
        p = self.profile("--ceilings", "none")
        self.assertEqual([k["layer"] for k in p["kernels"]], [s["layer"] for s in steps])
        for kernel, step in zip(p["kernels"], steps):
            self.assertTrue(kernel["name"].startswith(step["variant"]), kernel)
            self.assertGreater(kernel["us"], 0, kernel)
            self.assertEqual(kernel["calls"], 1)
        self.assertAlmostEqual(p["kernel_us"], sum(k["us"] for k in p["kernels"]), places=6)
        for a, b in zip(p["kernels"], p["kernels"][1:]):
            self.assertLessEqual(a["end_us"][0], b["begin_us"][0])
        self.assertEqual(p["plan"], "batch1")
        self.assertEqual(p["precision"], "fp16")
        self.assertIn("this is plan batch1, one of 2", p["notes"][-1])
        self.assertEqual(self.profile("--plan", "batch3", "--ceilings", "none")["batch"], 3)

    def test_flops_of_a_linear_layer(self):
        steps = {
            s["layer"]: s for s in json.loads(tessera("inspect", "tiny.tess", "--json").stdout)["plans"][0]["steps"]
        }
        one = self.profile("--ceilings", "none")["kernels"]
        three = self.profile("--plan", "batch3", "--ceilings", "none")["kernels"]
        products = [(a, b) for a, b in zip(one, three) if a["class"] == "gemm" and a["layer"] in steps]
        self.assertGreater(len(products), 4)
        for a, b in products:
            self.assertEqual(3 * a["flops"], b["flops"], "three samples are three times the work")
            self.assertEqual(a["asked"], "fp16")
        attention = [k for k in one if k["class"] == "attention"]
        self.assertTrue(attention)
        self.assertEqual({k["asked"] for k in attention}, {"fp16"})
        self.assertLess(products[1][1]["bytes"], 3 * products[1][0]["bytes"], "weights are read once")

    def test_latency(self):
        latency = self.profile("--ceilings", "none", "--warmup", 0)["latency"]
        order = [latency[k] for k in ("least_ms", "median_ms", "p90_ms", "p95_ms", "p99_ms", "most_ms")]
        self.assertEqual(order, sorted(order))
        self.assertEqual(latency["runs"], 5)
        self.assertTrue(latency["least_ms"] <= latency["mean_ms"] <= latency["most_ms"])

    def test_text(self):
        done = tessera("profile", "tiny.tess", "--runs", 3, "--ceilings", "none", "--all", "--intensity")
        self.expect_narrow(done.stdout)
        for words in (
            "median ms",
            "p99 ms",
            "kernels  ",
            "residual  ",
            "bound by",
            "layers, slowest first",
            "flop/byte",
        ):
            self.assertIn(words, done.stdout)
        short = tessera("profile", "tiny.tess", "--runs", 3, "--ceilings", "none").stdout
        self.assertIn("the 10 slowest of ", short)
        self.assertLess(len(short), len(done.stdout))
        self.assertIn("--trace FILE", tessera("profile", "--help").stdout)

    def test_ceilings_are_measured_once(self):
        for known in (self.cache / "tessera").glob("ceilings-*.json"):  # of the tests before this one
            known.unlink()
        first = tessera("profile", "tiny.tess", "--runs", 1)
        self.assertIn("measuring what this machine can do", first.stderr)
        self.assertRegex(first.stdout, r"ceilings +[\d.]+ .B/s, .*fp32 [\d.]+ .FLOP/s")
        (file,) = (self.cache / "tessera").glob("ceilings-*.json")
        for _ in range(5):  # on a busy machine it says so, and measures again when the cores are free
            kept = json.loads(file.read_text())
            if "doubt" not in kept:
                break
            doubted = tessera("profile", "tiny.tess", "--runs", 1, "--json")
            if "doubt" in json.loads(file.read_text()):
                self.assertIn("may be too low", " ".join(json.loads(doubted.stdout)["notes"]))
        if "doubt" not in kept:
            again = tessera("profile", "tiny.tess", "--runs", 1, "--json")
            was_beaten = " ".join(json.loads(again.stdout)["notes"])
            if "was faster than the ceiling" not in was_beaten:
                self.assertEqual(again.stderr, "", "the second time it is known")
                self.assertEqual(json.loads(again.stdout)["ceilings"]["bytes_per_s"], kept["bytes_per_s"])
        p = self.profile()
        self.assertTrue(p["ceilings"]["measured"])
        self.assertEqual({k["bound"] for k in p["kernels"]} - {"memory", "products", "caches", "neither"}, set())
        rates = p["ceilings"]["flops_per_s"]
        for kernel in p["kernels"]:
            if kernel["class"] in ("gemm", "attention") and kernel["precision"] in rates:
                self.assertLess(kernel["flops_per_s"], 1.1 * rates[kernel["precision"]] + 1, kernel)
        for kernel in p["kernels"]:
            self.assertAlmostEqual(kernel["bytes_per_s"] / (kernel["bytes"] / kernel["us"] * 1e6), 1)
        faster = json.dumps(kept | {"bytes_per_s": 1e15})
        for broken in ("{", "", "[]", faster, "x" * 3_000_000, json.dumps(kept)[:100]):
            file.write_text(broken)
            done = tessera("profile", "tiny.tess", "--runs", 1, "--json")
            self.assertIn("were damaged and have been measured again", " ".join(json.loads(done.stdout)["notes"]))
            self.assertTrue(0 < json.loads(file.read_text())["bytes_per_s"] < 1e14)
        self.assertIn("measuring", tessera("profile", "tiny.tess", "--runs", 1, "--ceilings", "again").stderr)

    def test_a_cache_that_cannot_be_written_is_a_note(self):
        where = self.folder / "a_file"
        where.write_text("")
        environment = {**os.environ, "XDG_CACHE_HOME": str(where)}
        done = subprocess.run(
            [PROGRAM, "profile", "tiny.tess", "--runs", "1", "--json"],
            capture_output=True, text=True, cwd=self.folder, env=environment,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("are not kept and will be measured again", " ".join(json.loads(done.stdout)["notes"]))

    def test_trace(self):
        done = tessera("profile", "tiny.tess", "--runs", 3, "--ceilings", "none", "--trace", "run.trace.json")
        self.assertIn("written run.trace.json", done.stdout)
        trace = json.loads((self.folder / "run.trace.json").read_text())
        events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        run = [e for e in events if e["cat"] == "run"]
        steps = [e for e in events if e["cat"] == "kernel"]
        self.assertEqual(len(run), 1)
        self.assertEqual(len(steps), len(self.profile("--ceilings", "none")["kernels"]))
        for e in steps:  # whole nanoseconds, inside the run, one after the other
            self.assertGreaterEqual(e["ts"], run[0]["ts"])
            self.assertLessEqual(round((e["ts"] + e["dur"]) * 1e3), round((run[0]["ts"] + run[0]["dur"]) * 1e3))
            self.assertIn("kernel", e["args"])
        for a, b in zip(steps, steps[1:]):
            self.assertLessEqual(round((a["ts"] + a["dur"]) * 1e3), round(b["ts"] * 1e3))
        self.assertEqual({e["name"] for e in trace["traceEvents"] if e["ph"] == "M"}, {"process_name", "thread_name"})
        # Before anything is measured: a million runs would take hours.
        for path, said in (
            ("no/such/folder/x.json", "there is no folder no/such/folder; make it first"),
            (".", "is a folder; name a file in it"),
            ("tiny.tess", "--trace would overwrite the engine tiny.tess"),
        ):
            self.assertIn(said, failure("profile", "tiny.tess", "--runs", 1000000, "--trace", path, code=2))

    def test_predictions(self):
        said = failure("profile", "gpu.tess", code=5) if "without CUDA" in tessera("version").stdout else None
        if said:
            self.assertIn("the engine is for sm90, which cannot run here", said)
            self.assertIn("--chip NAME predicts its times from a chip's data", said)
        text = tessera("profile", "gpu.tess", "--chip", "h200", "--intensity").stdout
        self.expect_narrow(text)
        self.assertIn("predicted for NVIDIA H200 from the chip's data, not measured", " ".join(text.split()))
        self.assertIn("predicted us", text)
        self.assertNotIn("median", text)
        p = json.loads(tessera("profile", "gpu.tess", "--chip", "NVIDIA H200", "--json").stdout)
        self.assertTrue(p["predicted"])
        self.assertNotIn("latency", p)
        self.assertFalse(p["ceilings"]["measured"])
        rates = p["ceilings"]["flops_per_s"]
        for k in p["kernels"]:
            by_rate = k["flops"] / rates[k["precision"]] if k["class"] in ("gemm", "attention") else 0
            self.assertAlmostEqual(k["us"], 1e6 * max(by_rate, k["bytes"] / p["ceilings"]["bytes_per_s"]), places=9)
        self.assertIn("the plan is for cpu", failure("profile", "tiny.tess", "--chip", "h200", code=3))
        self.assertIn("there are 'NVIDIA H200'", failure("profile", "gpu.tess", "--chip", "abacus", code=2))

    def test_bad_options(self):
        for words, said in (
            (
                ("--plan", "bach3"),
                "tiny.tess: no plan is called 'bach3'; there are batch1, batch3; did you mean batch3?",
            ),
            (("--plan", "golden"), "no plan is called 'golden'"),
            (("--ceilings", "often"), "--ceilings takes again or none, not 'often'"),
            (("--runs", "0"), "--runs"),
            (("--warmup", "-1"), "--warmup"),
        ):
            self.assertIn(said, failure("profile", "tiny.tess", *words, code=2))
        self.assertIn("did you mean tiny.tess?", failure("profile", "tiny.tes", code=3))
        self.assertIn("build it first", failure("profile", "tiny.onnx", code=3))
        self.assertTrue(re.fullmatch(r"\{.*\}\s*", tessera("profile", "none", "--json", code=3).stdout, re.S))

    def test_profiles_of_other_tools_become_ones_of_tessera(self):
        trt = [PROFILES / f"fp8_{name}.json" for name in ("profile", "layers", "times")]
        beside = ("--beside", trt[1], "--beside", trt[2])
        p = json.loads(tessera("profile", trt[0], *beside, "--json").stdout)
        self.assertEqual((p["format"], p["source"]), ("tessera profile", "trtexec"))
        self.assertGreater(p["latency"]["median_ms"], 0)
        self.assertTrue(any("flops" in k for k in p["kernels"]), "shapes of the layer information")
        alone = json.loads(tessera("profile", trt[0], "--json").stdout)
        self.assertFalse("latency" in alone or any("flops" in k for k in alone["kernels"]))
        twice = json.loads(tessera("profile", PROFILES / "fp8_torch.json", "--runs", 4, "--json").stdout)
        told = json.loads(tessera("profile", PROFILES / "fp8_torch.json", "--json").stdout)
        self.assertEqual((told["runs"], twice["runs"]), (2, 4))
        self.assertAlmostEqual(told["kernel_us"], 2 * twice["kernel_us"])
        (self.folder / "my.rules").write_text("*f16f16* copy int8\n")
        ruled = json.loads(tessera("profile", trt[0], *beside, "--rules", "my.rules", "--json").stdout)
        self.assertEqual({k["class"] for k in ruled["kernels"] if "f16f16" in k["name"]}, {"copy"})
        # What was made is read again, with all that the several files held.
        (self.folder / "trt.json").write_text(json.dumps(p))
        e = json.loads(tessera("explain", "trt.json", "--json").stdout)
        self.assertAlmostEqual(e["a"]["latency_ms"], p["latency"]["median_ms"])
        tessera("report", "trt.json", "-o", "trt.md")
        self.assertIn("How latency is spread", (self.folder / "trt.md").read_text())
        text = tessera("profile", trt[0], *beside).stdout
        self.expect_narrow(text)
        self.assertIn("of trtexec", text)
        self.assertIn("gemm", text)
        for words, said in (
            ((trt[0], "--chip", "h200"), "--chip is for engines"),
            ((trt[0], "--trace", "t.json"), "--trace is for engines"),
            (("tiny.tess", "--beside", trt[1]), "--beside is for profiles of other tools"),
            (("tiny.tess", "--rules", "my.rules"), "--rules is for profiles of other tools"),
        ):
            self.assertIn(said, failure("profile", *words, code=2))
        self.assertIn("give the file of --exportProfile", failure("profile", trt[1], code=3))
        (self.folder / "garbage.json").write_text("{]")
        self.assertIn("or an engine of tessera build", failure("profile", "garbage.json", code=3))

    def test_graphs_with_states(self):
        model = llama_models.Llama(seed=5)
        model.write_checkpoint(self.folder / "llama", checkpoint_layouts.write_safetensors)
        tessera(
            *("build", "llama", "--family", "llama", "-o", "llama.tess", "--precision", "fp16", "--size", "cache=32"),
            *("--graph", "prefill:tokens=11", "--graph", "decode:tokens=1"),
        )
        plans = json.loads(tessera("inspect", "llama.tess", "--json").stdout)["plans"]
        names = [p["name"] for p in plans if not p["name"].startswith("golden")]
        self.assertEqual(len(names), 2)
        classes = {}
        for name in names:
            done = tessera("profile", "llama.tess", "--plan", name, "--runs", 2, "--ceilings", "none", "--json")
            p = json.loads(done.stdout)
            self.assertEqual(p["plan"], name)
            classes[name] = {k["layer"]: k for k in p["kernels"]}
            caches = [k for k in p["kernels"] if k["name"].startswith("write/")]
            self.assertTrue(caches, "new rows are written into the cache")
            self.assertLess(max(k["bytes"] for k in caches), 32 * 1024, "and not the whole cache")
        prefill, decode = (classes[n] for n in sorted(names, key=lambda n: "decode" in n))
        shared = [name for name in prefill if name in decode and prefill[name]["class"] == "gemm"]
        self.assertTrue(any(prefill[n]["flops"] == 11 * decode[n]["flops"] for n in shared), "eleven tokens beside one")

    def test_a_schedule_is_profiled_as_a_whole(self):
        (self.folder / "small.json").write_text(json.dumps(SMALL_POLICY))
        tessera("policy", "build", "--random", 3, "--config", "small.json", "-o", "p.tess", "--target", "cpu")
        done = tessera("profile", "p.tess", "--runs", 5, "--ceilings", "none")
        self.expect_narrow(done.stdout)
        text = " ".join(done.stdout.split())
        self.assertIn("schedule vision.batch1, prefix.batch1, 4 x step.batch1", text)
        self.assertIn("as one run; its graphs add up to", text)
        p = json.loads(tessera("profile", "p.tess", "--runs", 9, "--ceilings", "none", "--json").stdout)
        self.assertEqual([(g["graph"], g["times"]) for g in p["graphs"]], [("vision", 1), ("prefix", 1), ("step", 4)])
        self.assertAlmostEqual(p["kernel_us"], sum(g["times"] * g["kernel_us"] for g in p["graphs"]), places=3)
        self.assertEqual({k["calls"] for k in p["kernels"] if k["graph"] == "step"}, {4})
        step = json.loads(tessera("profile", "p.tess", "--plan", "step.batch1", "--ceilings", "none", "--json").stdout)
        self.assertNotIn("graphs", step)
        own = [k for k in p["kernels"] if k["graph"] == "step"]
        self.assertEqual([k["layer"] for k in own], [k["layer"] for k in step["kernels"]])
        for whole, one in zip(own, step["kernels"]):
            self.assertEqual(whole["flops"], 4 * one["flops"])
        # What reads profiles has the whole too.
        (self.folder / "p.json").write_text(json.dumps(p))
        e = json.loads(tessera("explain", "p.json", "--json").stdout)
        self.assertEqual([(g["graph"], g["a_times"]) for g in e["graphs"]], [("vision", 1), ("prefix", 1), ("step", 4)])
        self.assertIn("Kernel time by graph", tessera("explain", "p.tess", "p.json").stdout)
        (row,) = json.loads(tessera("compare", "p.tess", "--runs", 3, "--json").stdout)["rows"]
        self.assertEqual([g["times"] for g in row["graphs"]], [1, 1, 4])
        self.assertIsNotNone(row["cosine"])
        tessera("report", "p.tess", "-o", "p.md", "--runs", 3)
        report = (self.folder / "p.md").read_text()
        for words in ("Graphs of a schedule", "step.batch1", "vision: "):
            self.assertIn(words, report)
        tessera("profile", "p.tess", "--runs", 2, "--ceilings", "none", "--trace", "p.trace.json")
        events = json.loads((self.folder / "p.trace.json").read_text())["traceEvents"]
        kernels = [e for e in events if e["ph"] == "X" and e["cat"] == "kernel"]
        self.assertEqual(len(kernels), sum(k["calls"] for k in p["kernels"]))


if __name__ == "__main__":
    run_tests()
