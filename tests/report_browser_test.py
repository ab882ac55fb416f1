#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reports in a real browser, where one is found: nothing on the console, every chart drawn, tables sorted by a click,
no page wider than a phone or a sheet of paper, nothing asked from a network. Argument: the folder with the program."""

import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from cli_program import CliTest, run_tests, tessera

PROFILES = pathlib.Path(__file__).resolve().parent / "data" / "profiles"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
PHONE, DESK, PAPER = 360, 1280, 673  # CSS pixels; A4 less its margins

# Looks into the report through a frame and leaves what it saw in the page.
LOOK = """<!doctype html><iframe id="frame" src="%s" style="border:0;height:800px"></iframe><pre id="seen"></pre>
<script>
const seen = {widths: {}, sorted: [], errors: []};
const frame = document.getElementById('frame');
const look = (width) => {
  frame.style.width = width + 'px';
  const page = frame.contentDocument, view = frame.contentWindow;
  const size = (e) => e.getBoundingClientRect();
  const charts = [...page.querySelectorAll('figure.chart')].map((figure) => {
    const drawn = [...figure.querySelectorAll('.scroll svg')].filter((s) => size(s).width > 50 && size(s).height > 10);
    return {drawings: drawn.length, marks: drawn.length ? drawn[0].querySelectorAll('rect, path, text').length : 0};
  });
  const wide = [...page.querySelectorAll('body *')].filter((e) => {
    if (e.closest('.scroll') && e !== e.closest('.scroll')) return false;  // its box scrolls
    return !e.closest('pre') && size(e).right > width + 1;
  });
  return {page: page.documentElement.scrollWidth, charts, wide: wide.map((e) => e.tagName + '.' + e.className)};
};
const printed = () => {  // the rules for paper, on a page of its width
  const page = frame.contentDocument;
  for (const rule of page.styleSheets[0].cssRules) {
    if (!(rule instanceof frame.contentWindow.CSSMediaRule)) continue;
    rule.media.mediaText = rule.media.mediaText === 'print' ? 'all' : 'not all';
  }
  page.querySelectorAll('details').forEach((d) => (d.open = true));
  frame.style.width = %d + 'px';
  const cut = [...page.querySelectorAll('table, svg, pre')].filter((e) => e.getBoundingClientRect().right > %d + 1);
  const over = [...page.querySelectorAll('td')].filter((e) => e.scrollWidth > e.clientWidth + 1);  // into the next cell
  return [...cut.map((e) => e.closest('figure, section').textContent.trim().slice(0, 60)),
    ...over.map((e) => e.textContent)];
};
const sort_all = () => {
  const page = frame.contentDocument;
  for (const table of page.querySelectorAll('table')) {
    if (table.tBodies[0].rows.length < 2) continue;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (!head.textContent.trim()) return;
      const values = () => [...table.tBodies[0].rows].map((r) => r.cells[column]).map((c) =>
        head.classList.contains('num') ? Number(c.dataset.v ?? '-Infinity') : c.textContent.trim());
      const inOrder = (v, up) => v.every((x, i) => i === 0 || (typeof x === 'number'
        ? (up ? v[i - 1] <= x : v[i - 1] >= x)
        : (up ? 1 : -1) * v[i - 1].localeCompare(x, 'en', {numeric: true}) <= 0));
      const number = head.classList.contains('num'), rows = table.tBodies[0].rows.length;
      head.click();
      const first = inOrder(values(), !number), mark = head.getAttribute('aria-sort');
      head.dispatchEvent(new frame.contentWindow.KeyboardEvent('keydown', {key: 'Enter', bubbles: true}));
      const second = inOrder(values(), number), turned = head.getAttribute('aria-sort');
      seen.sorted.push(first && second && mark !== turned && table.tBodies[0].rows.length === rows);
    });
  }
};
frame.addEventListener('load', () => {
  try {
    const page = frame.contentDocument, view = frame.contentWindow;
    seen.requests = view.performance.getEntriesByType('resource').map((e) => e.name);
    seen.scripts = page.scripts.length;
    seen.images = page.images.length;
    seen.attacked = view.attacked === true;
    seen.text = page.body.innerText;
    for (const width of [%d, %d]) seen.widths[width] = look(width);
    sort_all();
    seen.cut = printed();
  } catch (error) {
    seen.errors.push(String(error));
  }
  document.getElementById('seen').textContent = JSON.stringify(seen);
});
</script>"""


def browse(*words):
    """Runs the browser with a profile folder of its own."""
    profile = CliTest.folder / "browser"
    common = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
              "--disable-background-networking", f"--user-data-dir={profile}", "--virtual-time-budget=8000",
              "--enable-logging=stderr", "--allow-file-access-from-files")  # fmt: skip
    done = subprocess.run(
        [BROWSER, *common, *words], capture_output=True, timeout=240, env={**os.environ, "HOME": str(CliTest.folder)}
    )
    return done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


class Browser(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for n in range(2):  # many rows and every chart
            precision = ("fp16", "bf16")[n]
            tessera("build", "tiny.onnx", "-o", f"{precision}.tess", "--precision", precision, "--batch", 2)
        tessera("report", "fp16.tess", "bf16.tess", "-o", "engines.html", "--runs", 5)
        tessera("report", PROFILES / "seed_fp16.json", PROFILES / "seed_nvfp4.json", "-o", "seed.html")
        tessera("compare", "tiny.onnx", "--precisions", "fp16,bf16,fp32", "-o", "compared.html", "--runs", 3)
        cls.attack()

    @classmethod
    def attack(cls):
        bad = '<img src=x onerror="window.attacked=true"><script>window.attacked=true</script>\'">|`\u202e'
        profile = json.loads(tessera("profile", "fp16.tess", "--json", "--runs", 2).stdout)
        profile.update(model=bad, machine=bad, plan=bad, precision="fp16", notes=[bad])
        for kernel in profile["kernels"]:
            kernel["name"] += bad
            kernel["layer"] = bad + kernel.get("layer", "")
            kernel["arithmetic"] = bad
        (cls.folder / "bad.json").write_text(json.dumps(profile))
        tessera("report", "bad.json", "-o", "bad.html", "--title", bad)

    def look(self, name):
        """What the browser saw, and what it logged on the console."""
        page = self.folder / f"look_{name}"
        page.write_text(LOOK % (name, PAPER, PAPER, PHONE, DESK))
        dom, log = browse("--window-size=1400,1000", "--dump-dom", page.as_uri())
        found = re.search(r'<pre id="seen">(.*?)</pre>', dom, re.S)
        self.assertTrue(found and found[1], f"the browser saw nothing\n{dom[-2000:]}\n{log[-2000:]}")
        seen = json.loads(html.unescape(found[1]))
        self.assertEqual(seen["errors"], [])
        return seen, [line for line in log.splitlines() if "CONSOLE" in line]

    def see(self, name):
        seen, console = self.look(name)
        self.assertEqual(console, [])
        return seen

    def test_planted_faults_are_seen(self):
        whole = (self.folder / "seed.html").read_text()

        def plant(old, new):
            self.assertIn(old, whole)
            (self.folder / "planted.html").write_text(whole.replace(old, new))
            return self.look("planted.html")

        seen, _ = plant("body.append(...rows);", "")
        self.assertFalse(all(seen["sorted"]))
        seen, _ = plant(".scroll { overflow-x: auto;", ".scroll {")
        self.assertGreater(seen["widths"][str(PHONE)]["page"], PHONE)
        seen, _ = plant(".narrow { display: none; }", "")
        self.assertIn(2, [c["drawings"] for c in seen["widths"][str(DESK)]["charts"]])
        seen, _ = plant("svg { max-width: 100%; height: auto; }", "")
        self.assertNotEqual(seen["cut"], [])
        seen, _ = plant("</style>", "td.short { display: block; width: 9px; }</style>")
        self.assertNotEqual(seen["cut"], [])
        seen, console = plant("<main>", '<main><img src="http://127.0.0.1:9/x.png">')
        self.assertEqual(seen["images"], 1)
        self.assertNotEqual(console, [])  # the policy forbids it, and the browser says so
        _, console = plant("'use strict';", "'use strict'; console.error('planted');")
        self.assertNotEqual(console, [])

    def test_reports_are_whole(self):
        for name, charts in (("engines.html", 6), ("seed.html", 2), ("compared.html", 3)):
            with self.subTest(name):
                seen = self.see(name)
                self.assertEqual(seen["requests"], [])
                self.assertEqual((seen["scripts"], seen["images"]), (1, 0))
                for width in (PHONE, DESK):
                    view = seen["widths"][str(width)]
                    self.assertLessEqual(view["page"], width, view["wide"])
                    self.assertEqual(view["wide"], [])
                    self.assertGreaterEqual(len(view["charts"]), charts)
                    for chart in view["charts"]:
                        self.assertEqual(chart["drawings"], 1, view["charts"])  # the one for this width
                        self.assertGreater(chart["marks"], 3)
                self.assertGreater(len(seen["sorted"]), 10)
                self.assertTrue(all(seen["sorted"]), seen["sorted"])
                self.assertEqual(seen["cut"], [])  # nothing is wider than the paper

    def test_hostile_names_do_nothing(self):
        seen = self.see("bad.html")
        self.assertFalse(seen["attacked"])
        self.assertEqual((seen["scripts"], seen["images"]), (1, 0))
        self.assertIn("<script>window.attacked=true</script>", seen["text"])
        self.assertLessEqual(seen["widths"][str(PHONE)]["page"], PHONE)

    def test_it_prints(self):
        browse(
            f"--print-to-pdf={self.folder / 'out.pdf'}",
            "--no-pdf-header-footer",
            (self.folder / "engines.html").as_uri(),
        )
        pdf = (self.folder / "out.pdf").read_bytes()
        self.assertTrue(pdf.startswith(b"%PDF"))
        self.assertGreater(len(pdf), 20_000)


if __name__ == "__main__":
    if BROWSER is None:
        print("no Chromium here: skipped")
        sys.exit(77)
    run_tests()
