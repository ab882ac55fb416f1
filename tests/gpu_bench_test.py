#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/gpu_bench.py and bench/plot_growth.py without a GPU: the program, the benches and the peers are stand-ins
that print what the real ones print."""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

BENCH = pathlib.Path(__file__).resolve().parent.parent / "bench"

PROGRAM = """#!{python}
import json, sys
words = sys.argv[1:]
after = lambda flag: words[words.index(flag) + 1]
open("calls.txt", "a").write(" ".join(words) + "\\n")
if words[0] == "zoo":
    open(after("-o"), "w").write("model")
elif words[0] == "build":
    if "int8" in words:
        sys.exit("tessera: 3 layers cannot run as asked on sm90")
    open(after("-o"), "w").write(after("--batch") + " " + after("--precision"))
elif words[0] == "bench":
    batches, precision = open(words[1]).read().split()
    ms = 0.04 if precision == "fp8" else 0.08
    plans = [{{"plan": f"batch{{b}}", "batch": int(b), "median_ms": int(b) * ms + 0.2, "p10_ms": 1, "p90_ms": 2}}
             for b in batches.split(",")]
    print(json.dumps({{"repeats": 5, "plans": plans}}))
elif words[0] == "profile":
    assert after("--plan").startswith("batch") and after("--runs") == "5", words
    kernels = [{{"layer": f"blocks.{{b}}.{{l}}", "name": "matmul/x 128x192", "us": 100}}
               for b in range(12) for l in ("attn.qkv", "mlp.fc1")]
    kernels.append({{"layer": "head", "name": "matmul/y", "us": 10}})
    print(json.dumps({{"kernels": kernels}}))
elif words[0] == "inspect":
    parts = ("norm1", "attn.qkv", "attention", "mlp.fc1")
    steps = [{{"layer": l}} for l in [f"blocks.{{b}}.{{p}}" for b in range(12) for p in parts] + ["head"]]
    batches = open(words[1]).read().split()[0].split(",")
    print(json.dumps({{"plans": [{{"name": f"batch{{b}}", "batch": int(b), "steps": steps}} for b in batches]}}))
elif words[0] == "run":
    import numpy as np
    want = np.random.default_rng(1).standard_normal((16, 10)).astype("f4")
    noise = 0 if "fp32" in words[1] else 0.1
    np.savez(after("-o"), logits=want + noise * np.random.default_rng(2).standard_normal((16, 10)).astype("f4"))
"""
OP_BENCH = """#!{python}
import json, sys
out = next(w[6:] for w in sys.argv if w.startswith("--gpu="))
rows = {rows}
json.dump({{"gpu": "NVIDIA H200", "peaks": {{"tb_per_s": 4.8}}, "rows": rows}}, open(out, "w"))
sys.exit({code})
"""
VIT_PEERS = """import argparse, json, os
p = argparse.ArgumentParser()
for flag in ("model", "batch", "mode", "sections", "total", "compile-limit", "out", "state"):
    p.add_argument("--" + flag, required=True)
a = p.parse_args()
assert not os.listdir(a.out), "rows of an earlier run"
notes = [] if int(a.total) > 200 else ["fp8 reduce-overhead: stopped after 50 s"]
rows = [{"name": "torch.compile fp8 linears + fp16 sdpa, reduce-overhead", "ms": %MS%, "cos_mean": 0.998,
         "cos_min": 0.99, "kind": "x"}, {"name": "torch eager fp16, sdpa default", "error": "no memory"}]
json.dump({"env": {"torch": "2.11.0", "gpu": "x"}, "notes": notes, "rows": rows},
          open(os.path.join(a.out, "vit_peers.json"), "w"))
"""
CUDNN_FP8 = """import json, os, sys
after = lambda flag: sys.argv[sys.argv.index(flag) + 1]
assert os.path.exists(after("--wheel"))
row = {"batch": 4, "heads": 16, "kv_heads": 16, "tokens": 4096, "head": 128, "kind": "fp8", "out": "fp8"}
rows = [row | {"us": 621.0, "tflops": 885.0}, row | {"batch": 2, "tokens": 256, "head": 72, "error": "head size"}]
json.dump({"cudnn": 91900, "rows": rows}, open(after("--out"), "w"))
"""
GEMM_PEERS = """import json, os, sys
attention = {"name": "vit_197", "batch": 64, "heads": 12, "seq": 197, "head": 64, "backend": "CUDNN_ATTENTION"}
json.dump({"gemm": [{"name": "vit_qkv", "fp16_us": 70.0}], "attention": [attention | {"us": 51.0}]},
          open(os.path.join(sys.argv[sys.argv.index("--out") + 1], "gemm_attention_peers.json"), "w"))
"""


def op_row(op, form, us, variant="x/sm90", config="", **more):
    return {
        "op": op,
        "form": form,
        "variant": variant,
        "config": config,
        "us": us,
        "tflops": 700.0,
        "worst_error": 0.3,
    } | more


CHECK = {"kind": "bounded", "relative_l2_allowed": 0.002, "mutations_caught": "9/9"}
ATTENTION = [
    op_row("attention", "f16/b64 h12 s197 d64", 44.0),
    op_row("attention", "f16/b64 h12 s197 d64", 39.0, config="128x64"),
    op_row("attention", "f16/b64 h12 s197 d64", 1.0, variant="x/wrong", error="wrong result"),
    op_row("attention", "e4m3/b64 h12 s197 d64", 30.0, check=CHECK),
    op_row("attention", "f16/b4 h16 s4096 d128", 800.0),
]
MATMUL = [
    op_row("matmul", "fp8/970x2048x32768 gate(gelu_tanh)", 95.0),
    op_row("matmul", "fp8/970x2048x32768 gate(gelu_tanh)", 90.0, config="128x192"),
    op_row("matmul", "fp8/970x16384x2048", 45.0),
]


def load(name):
    spec = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class GpuBench(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        self.script("build/tessera", PROGRAM.format(python=sys.executable))
        for op, rows, code in (("attention", ATTENTION, 1), ("matmul", MATMUL, 0)):
            self.script(
                f"build/release/bin/ops_{op}_bench", OP_BENCH.format(python=sys.executable, rows=rows, code=code)
            )
        self.script(
            "tools/nvidia-smi",
            "#!/bin/sh\ncase $1 in *=name) echo 'NVIDIA H200';; *) echo '580.10, 1755, 1980, 3201, 700.00, 640.10, "
            "61';; esac\n",
        )
        self.script("peers/vit_peers.py", VIT_PEERS.replace("%MS%", "4.5"))
        self.script("peers/attention_cudnn_fp8.py", CUDNN_FP8)
        self.script("peers/gemm_attention_peers.py", GEMM_PEERS)
        path = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        os.environ["PATH"] = f"{self.folder}/tools:{path}"
        for name in ("TESSERA_COMMIT", "TESSERA_CUDNN_WHEEL", "TESSERA_PEERS"):
            self.addCleanup(
                lambda n=name, v=os.environ.get(name): (
                    os.environ.pop(n, None) if v is None else os.environ.__setitem__(n, v)
                )
            )
            os.environ.pop(name, None)
        os.environ["TESSERA_COMMIT"] = "0123456789abcdef-dirty"
        self.bench = load("gpu_bench")

    def script(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IEXEC)

    def run_bench(self, *words):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = self.bench.main([*words, "--out", "results"])
        return code, out.getvalue()

    def read(self, name):
        return json.loads((self.folder / "results/h200" / name).read_text())

    def wheel(self):
        self.script(f"peers/nvidia_cudnn_frontend-1.2.3-cp{sys.version_info.major}{sys.version_info.minor}-x.whl", "")

    def known(self, work, precision):
        return next(
            (r for r in self.read("known_peers.json")["rows"] if (r["work"], r["precision"]) == (work, precision)), None
        )

    def test_peers_of_all_scripts_count(self):
        goals = load("goals")
        work = lambda name: next(w for w in goals.WORKS if w.name == name)
        best = lambda name, peers: {c["precision"]: c.get("value") for c in goals.peer_candidates(work(name), peers)}
        own = {"op": "attention", "form": "b4 h16 s4096 d128", "name": "cuDNN", "tflops": 571.0, "us": 962.0}
        theirs = {
            "op": "attention",
            "name": "long",
            "backend": "CUDNN_ATTENTION",
            "batch": 4,
            "heads": 16,
            "seq": 4096,
            "head": 128,
            "us": 866.0,
        }  # no form, no rate
        eight = {
            "op": "attention",
            "name": "cuDNN",
            "batch": 4,
            "heads": 16,
            "kv_heads": 16,
            "tokens": 4096,
            "head": 128,
            "kind": "fp8",
            "out": "fp8",
            "us": 621.0,
            "tflops": 885.0,
        }
        long16, long8 = "attention b4 h16 s4096 d128 FP16", "attention b4 h16 s4096 d128 FP8"
        self.assertEqual(best(long16, [own]), {"fp16": 571.0})
        self.assertAlmostEqual(best(long16, [theirs])["fp16"], 4e-6 * 4 * 16 * 4096**2 * 128 / 866.0)
        self.assertEqual(best(long8, [own, eight]), {"fp16": 571.0, "fp8": 885.0})
        self.assertEqual(best(long16, [eight]), {}, "FP8 is no peer of FP16")
        self.assertEqual(best(long16, [theirs | {"seq": 2048}]), {})
        self.assertEqual(best(long16, [own | {"error": "NaN"}]), {})
        shared = eight | {"batch": 1, "heads": 8, "kv_heads": 1, "tokens": 712, "head": 256, "us": 21.6}
        self.assertEqual(best("attention b1 8q/1kv d256 s712 FP8", [shared]), {"fp8": 21.6})
        padded = eight | {"batch": 2, "tokens": 256, "head": 80, "us": 9.0}
        self.assertEqual(best("attention b2 h16 s256 d72 FP8", [padded]), {"fp8": 9.0})
        products = [
            {"op": "matmul", "name": n, "fp16_us": 200.0, "fp8_us": us}
            for n, us in (("gemma_gateup_970", 105.0), ("gemma_down_970", 48.0))
        ]
        self.assertEqual(best("gated MLP 970x2048x16384 FP8", products), {"fp8": 153.0, "fp16": 400.0})
        self.assertEqual(best("gated MLP 970x2048x16384 FP8", products[:1]), {})

    def test_a_peer_is_held_to_its_own_precision(self):
        goals = load("goals")
        known = [
            {"work": "attention b64 h12 s197 d64 FP8", "precision": p, "unit": "us", "value": v, "peer": p, "run": "r"}
            for p, v in (("fp8", 59.7), ("fp16", 46.2))
        ]
        row = lambda us: next(
            r
            for r in goals.summary([], [op_row("attention", "e4m3/b64 h12 s197 d64", us)], known)
            if r["work"] == known[0]["work"]
        )
        self.assertEqual((row(25.0)["best_peer"]["value"], row(25.0)["faster_peer"]["value"]), (59.7, 46.2))
        self.assertAlmostEqual(row(25.0)["times_as_fast"], 59.7 / 25)
        self.assertFalse(row(25.0)["peer_ahead"])
        self.assertTrue(row(50.0)["peer_ahead"], "one in more bits that is faster is ahead, too")

    def test_a_worse_peer_never_replaces_a_better_one(self):
        work = "ViT-B/16 b64 FP8, FP8 attention"
        for ms, kept in (("4.5", 4.5), ("5.0", 4.5), ("4.25", 4.25)):
            self.script("peers/vit_peers.py", VIT_PEERS.replace("%MS%", ms))
            os.environ["TESSERA_COMMIT"] = f"run{ms}"
            self.run_bench("--peers", "peers", "--sections", "peer_vit", "--peer-models", "vit-b-16:64")
            self.assertEqual(self.known(work, "fp8")["value"], kept)
            record = self.read("known_peers.json")
            run = record["runs"][self.known(work, "fp8")["run"]]
            self.assertEqual(
                (run["commit"], run["machine"], run["versions"]["torch"]), (f"run{kept:g}", "NVIDIA H200", "2.11.0")
            )
            newest = [r["ms"] for r in self.read("peers.json")["rows"] if "ms" in r]
            self.assertEqual(newest, [float(ms)], "peers.json is the newest run")
            self.assertEqual(self.read("summary.json")["rows"][1]["best_peer"]["value"], kept)
        self.script("peers/vit_peers.py", "import sys; sys.exit('out of memory')")
        code, _ = self.run_bench("--peers", "peers", "--sections", "peer_vit", "--peer-models", "vit-b-16:64")
        self.assertEqual(code, 1)
        peers = self.read("peers.json")
        self.assertEqual([r["ms"] for r in peers["rows"] if "ms" in r], [4.25], "a peer that failed keeps its figure")
        self.assertIn("out of memory", max(peers["runs"].values(), key=lambda r: r["date"])["failed"][0])

    def test_ours_is_the_newest_run(self):
        self.run_bench("--sections", "ops,int8")
        slower = [r | {"us": r["us"] * 2} for r in ATTENTION if r["form"].startswith("f16/b64") and "error" not in r]
        self.script(
            "build/release/bin/ops_attention_bench", OP_BENCH.format(python=sys.executable, rows=slower, code=0)
        )
        os.environ["TESSERA_COMMIT"] = "fedcba"
        self.run_bench("--sections", "ops")
        rows = {r["work"]: r for r in self.read("summary.json")["rows"]}
        self.assertEqual(rows["attention b64 h12 s197 d64 FP16"]["ours"], 78.0)
        self.assertIsNone(
            rows["attention b64 h12 s197 d64 FP8"]["ours"], "a form that the bench no longer has leaves no figure"
        )
        self.assertTrue(all(r["run"].endswith("fedcba") for r in self.read("ops.json")["rows"]))
        before = self.read("vit.json")["rows"]
        self.run_bench(
            "--sections", "ops,vit", "--limit", "0"
        )  # everything is left out: figures stay, with their own run
        self.assertEqual(self.read("summary.json")["rows"][8]["ours"], 78.0)
        self.assertTrue(all(r in self.read("vit.json")["rows"] for r in before))
        last = max(self.read("ops.json")["runs"].values(), key=lambda r: r["date"])
        self.assertTrue(any("time limit" in text for text in last["left_out"]))

    def test_a_run_says_what_it_was(self):
        self.run_bench("--sections", "ops")
        for name in ("ops.json", "summary.json"):
            (run,) = self.read(name)["runs"].values()
            self.assertEqual(
                (run["commit"], run["dirty"], run["driver"], run["machine"]),
                ("0123456789abcdef", True, "580.10", "NVIDIA H200"),
            )
            self.assertEqual(
                (
                    run["clocks"]["start"]["power_limit_w"],
                    run["clocks"]["ops"]["sm_mhz"],
                    run["clocks"]["start"]["max_sm_mhz"],
                ),
                (700.0, 1755.0, 1980.0),
            )
            self.assertRegex(run["date"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        del os.environ["TESSERA_COMMIT"]
        os.environ["GIT_DIR"] = str(self.folder / "none")
        self.addCleanup(os.environ.pop, "GIT_DIR")
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as text:
            self.run_bench("--sections", "ops")
        self.assertIn("which code is this?", text.getvalue())
        self.script("carry/commit", "77aa\n")
        self.run_bench("--sections", "ops")
        self.assertEqual({r["commit"] for r in self.read("ops.json")["runs"].values()}, {"77aa"})

    def test_fp8_attention_of_cudnn_needs_its_wheel(self):
        code, text = self.run_bench("--peers", "peers", "--sections", "peer_fp8")
        self.assertEqual(code, 1)
        self.assertIn("left out: no wheel nvidia_cudnn_frontend", text)
        self.wheel()
        code, _ = self.run_bench("--peers", "peers", "--sections", "peer_fp8")
        self.assertEqual(code, 0, "a shape that cuDNN refuses is no fault")
        found = self.known("attention b4 h16 s4096 d128 FP8", "fp8")
        self.assertEqual((found["value"], found["peer"]), (885.0, "cuDNN FP8"))
        self.assertEqual(
            self.read("known_peers.json")["runs"][found["run"]]["versions"], {"cudnn": 91900, "cudnn_frontend": "1.2.3"}
        )
        self.assertEqual(self.known("attention b2 h16 s256 d72 FP8", "fp8")["refused"], "head size")

    def test_peers_get_the_time_that_they_need(self):
        for words, stopped in (((), False), (("--peer-limit", "50"), True)):
            code, text = self.run_bench("--peers", "peers", "--sections", "peer_vit", *words)
            self.assertEqual("torch fp8 reduce-overhead" in text, stopped, text)

    def test_results_of_another_machine_are_taken(self):
        store = load("store")
        self.run_bench("--sections", "ops")
        (self.folder / "results").rename("there")
        os.environ["TESSERA_COMMIT"] = "fedcba"
        self.wheel()
        self.run_bench("--peers", "peers", "--sections", "peers")
        for _ in range(2):  # twice is as once
            store.main(["there/h200", "--into", "results/h200"])
            rows = {r["work"]: r for r in self.read("summary.json")["rows"]}
            self.assertEqual(rows["attention b64 h12 s197 d64 FP16"]["ours"], 39.0)
            self.assertEqual(rows["attention b64 h12 s197 d64 FP16"]["best_peer"]["value"], 51.0)
            self.assertEqual(len(self.read("ops.json")["rows"]), len(ATTENTION) + len(MATMUL) + 1)
        newer, older = self.read("ops.json"), json.loads((self.folder / "there/h200/ops.json").read_text())
        for run in older["runs"].values():
            run["date"] = "2020-01-01T00:00:00Z"
        for row in older["rows"]:
            row["us"] = 1.0
        (self.folder / "there/h200/ops.json").write_text(json.dumps(older))
        store.main(["there/h200", "--into", "results/h200"])
        self.assertEqual(self.read("ops.json")["rows"], newer["rows"], "older rows replace nothing")

    def test_everything_goes_on_past_what_fails(self):
        self.wheel()
        code, text = self.run_bench("--peers", "peers", "--repeats", "5", "--sections", "vit,cosine,ops,peers,growth")
        self.assertEqual(code, 1)  # int8 was refused, one result was wrong, one bench is missing
        vit = self.read("vit.json")
        self.assertEqual(vit["gpu"], "NVIDIA H200")
        (run,) = vit["runs"].values()
        self.assertEqual(
            run["command"], "python3 bench/gpu_bench.py --repeats 5 --sections vit,cosine,ops,peers,growth"
        )
        self.assertTrue(all(r["run"] in vit["runs"] for r in vit["rows"] + vit["cosine"]))
        by = {(r["model"], r["precision"], r["batch"]): r for r in vit["rows"]}
        self.assertAlmostEqual(by["vit-b-16", "fp8", 64]["ms"], 64 * 0.04 + 0.2)
        self.assertEqual(by["vit-b-16", "fp8", 64]["kernels_per_block"], 4)
        steps = by["vit-b-16", "fp8", 64]["steps"]
        self.assertEqual(
            [(s["layer"], s["steps"], s["config"]) for s in steps[:1]], [("blocks.*.attn.qkv", 12, "128x192")]
        )
        self.assertEqual([round(s["ms"], 9) for s in steps], [1.2, 1.2, 0.01])
        self.assertIn("cannot run as asked", by["vit-b-16", "int8", 64]["error"])
        self.assertEqual({r["precision"] for r in vit["cosine"]}, {"fp16", "fp8", "int8", "torch fp8"})
        for row in vit["cosine"]:
            if "error" not in row:
                self.assertGreater(row["cos_mean"], 0.98)
                self.assertLess(row["cos_min"], 1)
        goals = {r["work"]: r for r in self.read("summary.json")["rows"]}
        self.assertEqual(goals["attention b64 h12 s197 d64 FP16"]["ours"], 39.0)
        self.assertEqual(goals["attention b64 h12 s197 d64 FP16"]["by"], "x/sm90 128x64")
        self.assertEqual(goals["attention b64 h12 s197 d64 FP16"]["verdict"], "goal")
        self.assertEqual(goals["attention b64 h12 s197 d64 FP8"]["verdict"], "at least")
        self.assertEqual(goals["attention b4 h16 s4096 d128 FP16"]["verdict"], "goal")
        self.assertEqual(goals["gated MLP 970x2048x16384 FP8"]["ours"], 135.0)
        self.assertEqual(goals["ViT-B/16 b64 FP8, FP8 attention"]["verdict"], "missed")
        self.assertEqual(goals["gated MLP 970x2048x16384 FP16"]["verdict"], "not measured")
        self.assertEqual(goals["attention b64 h12 s197 d64 FP8"]["check"], CHECK)
        self.assertIsNone(goals["attention b64 h12 s197 d64 FP16"]["check"], "old rows have none")
        self.assertTrue(text.rstrip().splitlines()[-1].startswith("gated MLP 970x2048x16384 FP16"), "the table is last")
        self.assertIn("L2 0.002, 9/9 faults", text)
        peers = self.read("peers.json")["rows"]
        self.assertEqual(sum(r.get("ms") == 4.5 for r in peers), 3)
        self.assertTrue(any(r.get("name") == "vit_qkv" for r in peers))
        self.assertIn("fault: norm", text.replace("fault: norm -", "fault: norm"))
        calls = (self.folder / "calls.txt").read_text()
        self.assertIn(
            "build build/gpu_bench/vit-b-16.onnx -o build/gpu_bench/vit:vit-b-16:fp8:64.tess --precision fp8 "
            "--attention fp8 --target sm90 --batch 64\n",
            calls,
        )
        self.assertIn("zoo vit-b-256 -o build/gpu_bench/vit-b-256-image-1024.onnx --image 1024\n", calls)
        self.assertNotIn("--tune", calls)

        growth = self.read("growth.json")
        self.assertEqual(len(growth["rows"]), 2 * (9 + 7 + 4))
        self.assertEqual(
            [r["x"] for r in growth["rows"] if r["axis"] == "sequence" and r["precision"] == "fp8"],
            [64, 144, 256, 576, 1024, 2304, 4096],
        )
        subprocess.run(
            [sys.executable, str(BENCH / "plot_growth.py"), "results/h200/growth.json"], check=True, capture_output=True
        )
        svg = xml.etree.ElementTree.parse("results/h200/growth.svg").getroot()
        lines = [e for e in svg.iter("{http://www.w3.org/2000/svg}path") if e.get("stroke")]
        self.assertEqual(len(lines), 6)
        self.assertEqual(len(list(svg.iter("{http://www.w3.org/2000/svg}circle"))), 40)

    def test_sections_and_tuning(self):
        code, _ = self.run_bench("--sections", "vit", "--tune", "--tuning", "table.json")
        self.assertEqual(code, 1)
        self.assertFalse((self.folder / "results/h200/ops.json").exists())
        calls = (self.folder / "calls.txt").read_text()
        self.assertEqual(calls.count("--tune --tuning table.json"), len(self.bench.ENGINES))
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            self.run_bench("--sections", "everything")

    def test_int8_and_growth_are_a_run_of_their_own(self):
        self.run_bench("--sections", "vit,cosine,growth")
        before = self.read("vit.json")
        (self.folder / "calls.txt").unlink()
        program = PROGRAM.replace('if "int8" in words:', "if False:")
        self.script("build/tessera", program.format(python=sys.executable))
        os.environ["TESSERA_COMMIT"] = "fedcba"
        code, text = self.run_bench("--sections", "int8,cosine,growth")
        self.assertEqual(code, 0, text)
        calls = (self.folder / "calls.txt").read_text()
        self.assertNotIn("vit:vit-b-256", calls)
        self.assertEqual(calls.count(".tess --precision int8"), 2)
        after = self.read("vit.json")
        for part in ("rows", "cosine"):
            self.assertEqual(
                [r for r in after[part] if r.get("precision") != "int8"],
                [r for r in before[part] if r.get("precision") != "int8"],
            )
            self.assertTrue(
                all(
                    "error" not in r and r["run"].endswith("fedcba")
                    for r in after[part]
                    if r.get("precision") == "int8"
                )
            )
        self.assertEqual(len(after["runs"]), 2)
        self.assertIn("batch    fp8   ms  1: 0.240", text)

    def test_nothing_starts_when_the_time_is_over(self):
        code, text = self.run_bench("--sections", "vit", "--limit", "0")
        self.assertEqual(code, 1)
        self.assertIn("the time limit is reached", text)
        self.assertTrue(all("error" in r for r in self.read("vit.json")["rows"]))


if __name__ == "__main__":
    sys.argv = sys.argv[:1]  # the folder of programs: none is needed
    try:
        import numpy  # noqa: F401
    except ImportError:
        sys.exit(77)
    unittest.main()
