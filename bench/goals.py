# SPDX-License-Identifier: Apache-2.0
"""The goals for one H200, and how far measured rows are from them (bench/gpu_bench.py)."""

class Times(float):
    """So many times as fast as the best peer."""


# The goals: what, where it is found, unit, best peer, at least, goal. Milliseconds, microseconds, TFLOP/s (the last: larger is better). The peer is an earlier measurement:
# where the run has measured one, that one stands in its place. Bars that are Times of the peer follow it.
GOALS = [
    ("ViT-B/16 b64 FP16", ("vit", "vit-b-16", "fp16", 64), "ms", 5.95, 4.5, 4.2),
    ("ViT-B/16 b64 FP8, FP8 attention", ("vit", "vit-b-16", "fp8", 64), "ms", 4.36, 2.6, 2.2),
    ("ViT-B/16 b64 INT8", ("vit", "vit-b-16", "int8", 64), "ms", None, None, None),
    ("ViT-B/16 b1 FP16", ("vit", "vit-b-16", "fp16", 1), "ms", 0.491, None, None),
    ("ViT-B/16 b1 FP8", ("vit", "vit-b-16", "fp8", 1), "ms", 0.473, 0.30, 0.23),
    ("256-token ViT-B b64 FP16", ("vit", "vit-b-256", "fp16", 64), "ms", 7.13, 5.6, 5.2),
    ("256-token ViT-B b64 FP8", ("vit", "vit-b-256", "fp8", 64), "ms", 5.39, 3.3, 2.8),
    ("attention b64 h12 s197 d64 FP16", ("ops", "attention", "f16/b64 h12 s197 d64"), "us", 51, 45, 40),
    ("attention b64 h12 s197 d64 FP8", ("ops", "attention", "e4m3 to e4m3/b64 h12 s197 d64", "e4m3/b64 h12 s197 d64"), "us", 51, 32, 25),
    ("attention b2 h16 s256 d72 FP8", ("ops", "attention", "e4m3 to e4m3/b2 h16 s256 d72/80", "e4m3/b2 h16 s256 d72/80"), "us", 11.2, 9, 7),
    ("attention b1 8q/1kv d256 s712 FP8", ("ops", "attention", "e4m3 to e4m3/b1 h8/1 s712 d256", "e4m3/b1 h8/1 s712 d256"), "us", None, Times(1.5), Times(2)),
    ("attention b1 8q/1kv d256 s968 FP8", ("ops", "attention", "e4m3 to e4m3/b1 h8/1 s968 d256", "e4m3/b1 h8/1 s968 d256"), "us", None, Times(1.5), Times(2)),
    ("attention b4 h16 s4096 d128 FP16", ("ops", "attention", "f16/b4 h16 s4096 d128"), "tflops", 624, 560, 640),
    ("attention b4 h16 s4096 d128 FP8", ("ops", "attention", "e4m3 to e4m3/b4 h16 s4096 d128", "e4m3/b4 h16 s4096 d128"), "tflops", 624, 700, 900),
    ("gated MLP 970x2048x16384 FP8", ("gated", "fp8"), "us", 178, 158, 140),
    ("gated MLP 970x2048x16384 FP16", ("gated", "fp16"), "us", 295, None, None),
]


def best_op(ops, op, forms, unit):
    """The fastest right result of any variant on the first of the forms that has one."""
    for form in forms:
        fine = [r for r in ops if r.get("op") == op and r.get("form") == form and "us" in r and "error" not in r]
        if fine:
            best = min(fine, key=lambda r: r["us"])
            return best[unit], f"{best['variant']} {best['config']}".strip()
    return None, None


def gated(ops, precision):
    """Both halves with their gate, and the way down, each by its fastest kernel."""
    pieces = [[f"{precision}/970x2048x32768 gate(gelu_tanh)", f"{precision}/970x2048x32768 gate(silu)"], [f"{precision}/970x16384x2048"]]
    times = [best_op(ops, "matmul", forms, "us")[0] for forms in pieces]
    return (sum(times), "gate + down") if all(t is not None for t in times) else (None, None)


def peer_form(row):
    """The shape of a row of attention as bench/attention_peers.py names it; peers' own scripts state batch, heads, tokens and head size."""
    return row.get("form") or f"b{row.get('batch')} h{row.get('heads')} s{row.get('seq')} d{row.get('head')}"


def peer_figure(row, unit):
    if unit not in row and unit == "tflops" and {"us", "batch", "heads", "seq", "head"} <= row.keys():
        return 4e-6 * row["batch"] * row["heads"] * row["seq"] ** 2 * row["head"] / row["us"]
    return row.get(unit)


def measured_peer(peers, where, unit):
    """The best peer of this run at the same work: an FP8 or a 16-bit model, or attention of any library (16 bits: none has FP8 at these shapes)."""
    if where[0] == "vit":
        times = [r["ms"] for r in peers if r.get("ms") and (r.get("model"), r.get("batch")) == (where[1], where[3]) and f" {where[2]}" in f" {r['name']}"]
        return min(times) if times else None
    form = where[2].split("/", 1)[1] if where[0] == "ops" else None
    rows = [peer_figure(r, unit) for r in peers if form and r.get("op") == where[1] and peer_form(r) in (form, form.split("/80")[0])]
    return (max if unit == "tflops" else min)((x for x in rows if x), default=None)


def summary(records):
    rows = []
    vit, ops, peers = records.get("vit", []), records.get("ops", []), records.get("peers", [])
    for what, where, unit, peer, least, goal in GOALS:
        ours, by = None, None
        if where[0] == "vit":
            row = next((r for r in vit if (r.get("model"), r.get("precision"), r.get("batch")) == where[1:] and "ms" in r), None)
            ours = row["ms"] if row else None
        elif where[0] == "ops":
            ours, by = best_op(ops, where[1], where[2:], unit)
        else:
            ours, by = gated(ops, where[1])
        here = measured_peer(peers, where, unit)
        peer = peer if here is None else here
        least, goal = ((None if not peer else peer * bar if unit == "tflops" else peer / bar) if isinstance(bar, Times) else bar for bar in (least, goal))
        if ours is None:
            verdict = "not measured"
        elif least is None:
            verdict = ""
        else:
            reached = (lambda bar: ours >= bar) if unit == "tflops" else (lambda bar: ours <= bar)
            verdict = "goal" if reached(goal) else "at least" if reached(least) else "missed"
        rows.append({"work": what, "unit": unit, "ours": ours, "by": by, "best_peer": peer, "peer_in_this_run": here is not None, "at_least": least, "goal": goal, "verdict": verdict})
    return rows


def print_summary(rows):
    number = lambda x: "-" if x is None else f"{x:.3f}" if x < 1 else f"{x:.2f}" if x < 100 else f"{x:.0f}"
    print(f"\n{'work':38} {'unit':>6} {'ours':>8} {'peer':>9} {'at least':>8} {'goal':>8}  verdict (peer*: of an earlier run)")
    for r in rows:
        print(f"{r['work']:38} {r['unit']:>6} {number(r['ours']):>8} {number(r['best_peer']) + ('' if r['peer_in_this_run'] or r['best_peer'] is None else '*'):>9} {number(r['at_least']):>8} {number(r['goal']):>8}  {r['verdict']}"
              + (f"  ({r['by']})" if r["by"] else ""))
