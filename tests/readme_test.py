#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The README's figures are those of bench/results, every result names its run, and docs use the field's words. Needs
no program."""

import json
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import tables  # noqa: E402
from goals import WORKS, better, summary  # noqa: E402

# Units of figures that are measured; a bare number of at least 0.5 with four decimals or more is a cosine.
FIGURE = re.compile(r"(?<![\w.,-])(\d[\d,]*(?:\.\d+)?) ?(ms|us|TFLOP/s|images/s|MB|%|kernels|MHz|W)(?![\w/])")
COSINE = re.compile(r"(?<![\w.])(0\.[5-9]\d{3,}|1\.0{4,})(?!\w|\.\d)")
NOT_OUR_WORDS = re.compile(
    r"copy engine|are no kernels|that are no kernels|(layer|kernel|matmul) behind\b|\bprocessors\b", re.I
)


def values_by_unit(results):
    """Everything that prose may quote."""
    known = results.known_peers["rows"]
    of = lambda unit: (
        [r["value"] for r in known if r["unit"] == unit and "value" in r]
        + [r["ours"] for r in results.summary["rows"] if r["unit"] == unit and r["ours"]]
    )
    ops = [r for r in results.ops["rows"] + results.peers["rows"] if "us" in r]
    vit = [r for r in results.vit["rows"] if "ms" in r]
    accuracy = [r for r in results.accuracy["rows"] if "error" not in r]
    cosines = [r[k] for r in results.vit["cosine"] for k in ("cos_mean", "cos_min", "cos_centred") if k in r]
    return {
        "ms": of("ms")
        + [r["ms"] for r in vit + results.growth["rows"] + results.peers["rows"] + results.policy["rows"] if "ms" in r],
        "us": of("us") + [r["us"] for r in ops],
        "TFLOP/s": of("tflops") + [r["tflops"] for r in ops if "tflops" in r],
        "images/s": [r["batch"] / r["ms"] * 1e3 for r in vit],
        "MB": [r["engine_bytes"] / 1e6 for r in accuracy],
        "%": [100 * r["top1"] for r in accuracy if "top1" in r] + [100 * results.accuracy["fp32_top1"]],
        "kernels": [r["kernels_per_block"] for r in vit],
        "MHz": [],
        "W": [],
        "cosine": cosines + [r[k] for r in accuracy for k in ("cosine", "cosine_worst")],
    }


def unfounded(text, values):
    """Figures of hand-written text that no result rounds to."""
    text = tables.BLOCK.sub("", text)
    text = re.sub(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", " ", text, flags=re.S)
    found = [(m[1], m[2]) for m in FIGURE.finditer(text)] + [(m[1], "cosine") for m in COSINE.finditer(text)]
    digits = lambda word: len(word.partition(".")[2])
    return [
        f"{word} {unit}"
        for word, unit in found
        if not any(f"{v:.{digits(word)}f}" == word.replace(",", "") for v in values[unit])
    ]


def result_files():
    return [(p.name, json.loads(p.read_text())) for p in sorted((ROOT / "bench/results/h200").glob("*.json"))]


class Readme(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text, cls.results = (ROOT / "README.md").read_text(), tables.Results()

    def test_tables_are_made_of_the_results(self):
        self.assertEqual(
            {m[2] for m in tables.BLOCK.finditer(self.text)}, set(tables.BLOCKS), "each block is there once"
        )
        self.assertEqual(tables.filled(self.text, self.results), self.text, "python3 bench/tables.py writes them anew")

    def test_a_table_that_differs_fails(self):
        for block in tables.BLOCK.finditer(self.text):
            number = re.search(r"\d+(\.\d+)?", block[0])
            faulty = block[0].replace(number[0], number[0][:-1] + str((int(number[0][-1]) + 1) % 10), 1)
            text = self.text.replace(block[0], faulty)
            self.assertNotEqual(tables.filled(text, self.results), text, block[2])
        left_out = next(block[0] for block in tables.BLOCK.finditer(self.text) if block[2] == "left-out")
        line = next(line for line in left_out.splitlines(True) if line.startswith("- "))
        text = self.text.replace(line, "")
        self.assertNotEqual(tables.filled(text, self.results), text, "a failure that the README does not tell")

    def test_figures_written_by_hand_are_in_the_results(self):
        values = values_by_unit(self.results)
        self.assertEqual(unfounded(self.text, values), [])
        for planted in (
            "It takes 2.11 ms.",
            "Ours has 884 TFLOP/s.",
            "The cosine is 0.99123.",
            "That is 27,279 images/s.",
            "top-1 75.34 %",
            "in 6 kernels",
            "at 1,755 MHz",
        ):
            self.assertEqual(len(unfounded(self.text + planted, values)), 1, planted)

    def test_cosines_of_the_accuracy_page_are_in_the_results(self):
        values = values_by_unit(self.results)
        page = (ROOT / "docs/accuracy.md").read_text()
        prose, tables_of_page = page.split("<!-- measured -->")
        for part in (prose, tables_of_page):
            self.assertEqual([w for w in unfounded(part, values) if w.endswith("cosine")], [])
        self.assertIn("| mean cosine | worst cosine |", tables_of_page)
        self.assertEqual(len(unfounded(prose + "It keeps 0.99123.", values)) - len(unfounded(prose, values)), 1)

    def test_peers_that_are_ahead_are_marked(self):
        rows = {r["work"]: r for r in self.results.summary["rows"]}
        marked = tables.filled(self.text, self.results).count("peer ahead**")
        ahead = 0
        for r in rows.values():
            for peer in (r["best_peer"], r["faster_peer"]):
                ahead += (
                    r["ours"] is not None
                    and bool(peer)
                    and "value" in peer
                    and better(r["unit"], peer["value"], r["ours"])
                )
        # One more stands in the sentence that explains the mark.
        self.assertEqual(marked, ahead + 1)
        row = rows["attention b4 h16 s4096 d128 FP8"] | {
            "ours": 700.0,
            "best_peer": {"value": 885.0, "peer": "cuDNN FP8", "run": "r"},
            "faster_peer": None,
        }
        self.assertIn("peer ahead", tables.ratio_cell(row))
        self.assertNotIn("peer ahead", tables.ratio_cell(row | {"ours": 900.0}))

    def test_the_check_of_a_row_is_shown(self):
        row = {"kind": "bounded", "relative_l2_allowed": 0.002, "mutations_caught": "9/9"}
        self.assertEqual(tables.short_check(row), "L2 0.002, 9/9 faults")
        self.assertEqual(
            tables.short_check({"kind": "bit-equal", "relative_l2_allowed": 0, "mutations_caught": "8/9"}),
            "bit-equal, 8/9 faults",
        )
        self.assertEqual(tables.short_check(None), "not recorded")

    def test_figures_of_elsewhere_are_marked(self):
        for name, run in self.results.known_peers["runs"].items():
            text = tables.run_text(run)
            self.assertEqual("measured by" in text, run["measured_by"] != "bench/gpu_bench.py", name)
            self.assertTrue(run["driver"] or "not recorded" in text, name)


class ResultFiles(unittest.TestCase):
    def test_every_row_names_its_run(self):
        for name, record in result_files():
            self.assertTrue(record["runs"], name)
            for row in record["rows"] + record.get("cosine", []):
                if name == "summary.json":
                    names = [row["run"]] if row["ours"] is not None else []
                    names += [p["run"] for p in (row["best_peer"], row["faster_peer"]) if p]
                else:
                    names = [row["run"]]
                self.assertTrue(set(names) <= set(record["runs"]), (name, row.get("work")))
            for run in record["runs"].values():
                self.assertTrue(
                    {"date", "machine", "commit", "dirty", "driver", "clocks", "versions", "command", "measured_by"}
                    <= set(run),
                    name,
                )
                self.assertTrue(
                    run.get("note")
                    or (run["commit"] and run["driver"] and run["clocks"].get("start", {}).get("power_limit_w")),
                    "what a run does not say, it says that it does not",
                )

    def test_the_summary_is_made_of_the_other_files(self):
        records = {name.removesuffix(".json"): record for name, record in result_files()}
        self.assertEqual(
            summary(records["vit"]["rows"], records["ops"]["rows"], records["known_peers"]["rows"]),
            records["summary"]["rows"],
        )

    def test_known_peers_are_the_best_of_all(self):
        records = {name.removesuffix(".json"): record for name, record in result_files()}
        from goals import peer_candidates

        known = {(r["work"], r["precision"]): r for r in records["known_peers"]["rows"]}
        for work in WORKS:
            for c in peer_candidates(work, records["peers"]["rows"]):
                if "value" in c:
                    self.assertFalse(better(c["unit"], c["value"], known[c["work"], c["precision"]]["value"]), c)

    def test_accuracy_has_the_worst_sample(self):
        record = json.loads((ROOT / "bench/results/accuracy.json").read_text())
        for row in record["rows"]:
            self.assertLessEqual(row["cosine_worst"], row["cosine"])
            self.assertIn(row["run"], record["runs"])


class Words(unittest.TestCase):
    def test_docs_use_the_words_of_the_field(self):
        for path in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]:
            for number, line in enumerate(path.read_text().splitlines(), 1):
                self.assertIsNone(NOT_OUR_WORDS.search(line), f"{path.relative_to(ROOT)}:{number}: {line[:120]}")
        for planted in ("by the copy engine", "norms that are no kernels", "the layer behind it", "132 processors"):
            self.assertTrue(NOT_OUR_WORDS.search(planted))

    def test_links_of_the_docs_lead_somewhere(self):
        for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text()):
                if "://" not in target:
                    self.assertTrue((path.parent / target).exists(), f"{path.relative_to(ROOT)}: {target}")

    def test_the_check_of_the_script_is_the_same(self):
        self.assertEqual(
            subprocess.run([sys.executable, str(ROOT / "bench/tables.py"), "--check"], capture_output=True).returncode,
            0,
        )


if __name__ == "__main__":
    sys.argv = sys.argv[:1]  # the folder of programs: none is needed
    unittest.main()
