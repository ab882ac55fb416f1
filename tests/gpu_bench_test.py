#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/gpu_bench.py and bench/plot_growth.py without a GPU: the program, the benches and the peers are stand-ins that print what the real ones print."""
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

PROGRAM = '''#!{python}
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
    steps = [{{"layer": f"blocks.{{b}}.{{l}}", "op": "matmul", "variant": "matmul/x", "steps": 1, "ms": 0.1}} for b in range(12) for l in ("attn.qkv", "mlp.fc1")]
    steps.append({{"layer": "head", "op": "matmul", "variant": "matmul/y", "steps": 1, "ms": 0.01}})
    plans = [{{"plan": f"batch{{b}}", "batch": int(b), "median_ms": int(b) * (0.04 if precision == "fp8" else 0.08) + 0.2, "p10_ms": 1, "p90_ms": 2, "steps": steps}}
             for b in batches.split(",")]
    print(json.dumps({{"repeats": 5, "plans": plans}}))
elif words[0] == "inspect":
    layers = [f"blocks.{{b}}.{{l}}" for b in range(12) for l in ("norm1", "attn.qkv", "attention", "mlp.fc1")] + ["head"]
    print(json.dumps({{"plans": [{{"name": f"batch{{b}}", "batch": int(b), "steps": [{{"layer": l}} for l in layers]}} for b in open(words[1]).read().split()[0].split(",")]}}))
elif words[0] == "run":
    import numpy as np
    want = np.random.default_rng(1).standard_normal((16, 10)).astype("f4")
    noise = 0 if "fp32" in words[1] else 0.1
    np.savez(after("-o"), logits=want + noise * np.random.default_rng(2).standard_normal((16, 10)).astype("f4"))
'''
OP_BENCH = '''#!{python}
import json, sys
out = next(w[6:] for w in sys.argv if w.startswith("--gpu="))
rows = {rows}
json.dump({{"gpu": "NVIDIA H200", "peaks": {{"tb_per_s": 4.8}}, "rows": rows}}, open(out, "w"))
sys.exit({code})
'''
VIT_PEERS = '''import argparse, json, os
p = argparse.ArgumentParser()
for flag in ("model", "batch", "mode", "sections", "total", "compile-limit", "out", "state"):
    p.add_argument("--" + flag, required=True)
a = p.parse_args()
json.dump({"rows": [{"name": "torch.compile fp8", "ms": 4.5, "cos_mean": 0.998, "cos_min": 0.99, "kind": "x"}, {"name": "torch eager", "error": "no memory"}]},
          open(os.path.join(a.out, "vit_peers.json"), "w"))
'''
GEMM_PEERS = '''import json, os, sys
json.dump({"gemm": [{"name": "vit_qkv", "fp16_us": 70.0}], "attention": [{"name": "vit_197", "backend": "CUDNN_ATTENTION", "us": 51.0}]},
          open(os.path.join(sys.argv[sys.argv.index("--out") + 1], "gemm_attention_peers.json"), "w"))
'''


def op_row(op, form, us, variant="x/sm90", config="", **more):
    return {"op": op, "form": form, "variant": variant, "config": config, "us": us, "tflops": 700.0, "worst_error": 0.3} | more


ATTENTION = [op_row("attention", "f16/b64 h12 s197 d64", 44.0), op_row("attention", "f16/b64 h12 s197 d64", 39.0, config="128x64"),
             op_row("attention", "f16/b64 h12 s197 d64", 1.0, variant="x/wrong", error="wrong result"),
             op_row("attention", "e4m3/b64 h12 s197 d64", 30.0), op_row("attention", "f16/b4 h16 s4096 d128", 800.0)]
MATMUL = [op_row("matmul", "fp8/970x2048x32768 gate(gelu_tanh)", 95.0), op_row("matmul", "fp8/970x2048x32768 gate(gelu_tanh)", 90.0, config="128x192"),
          op_row("matmul", "fp8/970x16384x2048", 45.0)]


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
            self.script(f"build/release/bin/ops_{op}_bench", OP_BENCH.format(python=sys.executable, rows=rows, code=code))
        self.script("tools/nvidia-smi", "#!/bin/sh\necho 'NVIDIA H200'\n")
        self.script("peers/vit_peers.py", VIT_PEERS)
        self.script("peers/gemm_attention_peers.py", GEMM_PEERS)
        path = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        os.environ["PATH"] = f"{self.folder}/tools:{path}"
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

    def test_peers_of_both_scripts_count(self):
        goals = load("goals")
        own = {"op": "attention", "form": "b4 h16 s4096 d128", "tflops": 571.0, "us": 962.0}
        theirs = {"op": "attention", "name": "long", "batch": 4, "heads": 16, "seq": 4096, "head": 128, "us": 866.0}  # states sizes, no form and no rate
        where = ("ops", "attention", "f16/b4 h16 s4096 d128")
        self.assertEqual(goals.measured_peer([own], where, "tflops"), 571.0)
        self.assertAlmostEqual(goals.measured_peer([own, theirs], where, "tflops"), 4e-6 * 4 * 16 * 4096**2 * 128 / 866.0)
        self.assertEqual(goals.measured_peer([own, theirs], where, "us"), 866.0)
        self.assertIsNone(goals.measured_peer([theirs | {"seq": 2048}], where, "us"))

    def test_everything_goes_on_past_what_fails(self):
        code, text = self.run_bench("--peers", "peers", "--repeats", "5", "--sections", "vit,cosine,ops,peers,growth")
        self.assertEqual(code, 1)  # int8 was refused, one result was wrong, one bench is missing
        vit = self.read("vit.json")
        self.assertEqual(vit["gpu"], "NVIDIA H200")
        self.assertEqual(vit["command"], "./run gpu-bench --repeats 5 --sections vit,cosine,ops,peers,growth")
        by = {(r["model"], r["precision"], r["batch"]): r for r in vit["rows"]}
        self.assertAlmostEqual(by["vit-b-16", "fp8", 64]["ms"], 64 * 0.04 + 0.2)
        self.assertEqual(by["vit-b-16", "fp8", 64]["kernels_per_block"], 4)
        self.assertEqual(len(by["vit-b-16", "fp8", 64]["steps"]), 3)
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
        peers = self.read("peers.json")["rows"]
        self.assertEqual(sum(r.get("name") == "torch.compile fp8" for r in peers), 3)
        self.assertTrue(any(r.get("name") == "vit_qkv" for r in peers))
        self.assertIn("fault: norm", text.replace("fault: norm -", "fault: norm"))
        calls = (self.folder / "calls.txt").read_text()
        self.assertIn("build build/gpu_bench/vit-b-16.onnx -o build/gpu_bench/vit:vit-b-16:fp8:64.tess --precision fp8 --attention fp8 --target sm90 --batch 64\n", calls)
        self.assertIn("zoo vit-b-256 -o build/gpu_bench/vit-b-256-image-1024.onnx --image 1024\n", calls)
        self.assertNotIn("--tune", calls)

        growth = self.read("growth.json")
        self.assertEqual(len(growth["rows"]), 2 * (9 + 7 + 4))
        self.assertEqual([r["x"] for r in growth["rows"] if r["axis"] == "sequence" and r["precision"] == "fp8"], [64, 144, 256, 576, 1024, 2304, 4096])
        subprocess.run([sys.executable, str(BENCH / "plot_growth.py"), "results/h200/growth.json"], check=True, capture_output=True)
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
