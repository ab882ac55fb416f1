# SPDX-License-Identifier: Apache-2.0
"""The works whose figures are published, their peers, and our own bars on one H200 (bench/gpu_bench.py,
bench/store.py)."""

from typing import NamedTuple, Optional


class Times(float):
    """So many times as fast as the best known peer of any precision."""


class Work(NamedTuple):
    name: str
    precision: str  # a peer is compared in the same one
    where: tuple  # vit: model, batch; attention: form; gated: nothing
    unit: str  # ms and us: smaller is better; tflops: larger is
    least: Optional[float] = None
    goal: Optional[float] = None

    def label(self):
        """What it is, for a reader of the README."""
        if self.where[0] == "vit":
            return {"vit-b-16": "ViT-B/16, 197 tokens", "vit-b-256": "ViT-B, 256 tokens, mean of tokens"}[self.where[1]]
        if self.where[0] == "gated":
            return "gated MLP, 970 tokens, 2048 -> 2 x 16384 -> 2048"
        batch, heads, tokens, size = (w[1:] for w in self.where[1].split())
        heads = f"{heads.split('/')[0]} heads" + (" on 1 key head" if "/" in heads else "")
        return f"attention, batch {batch}, {heads} of {size.split('/')[0]}, {tokens} tokens"


WORKS = [
    Work("ViT-B/16 b64 FP16", "fp16", ("vit", "vit-b-16", 64), "ms", 4.5, 4.2),
    Work("ViT-B/16 b64 FP8, FP8 attention", "fp8", ("vit", "vit-b-16", 64), "ms", 2.6, 2.2),
    Work("ViT-B/16 b64 INT8", "int8", ("vit", "vit-b-16", 64), "ms"),
    Work("ViT-B/16 b1 FP16", "fp16", ("vit", "vit-b-16", 1), "ms"),
    Work("ViT-B/16 b1 FP8", "fp8", ("vit", "vit-b-16", 1), "ms", 0.30, 0.23),
    Work("ViT-B/16 b1 INT8", "int8", ("vit", "vit-b-16", 1), "ms"),
    Work("256-token ViT-B b64 FP16", "fp16", ("vit", "vit-b-256", 64), "ms", 5.6, 5.2),
    Work("256-token ViT-B b64 FP8", "fp8", ("vit", "vit-b-256", 64), "ms", 3.3, 2.8),
    Work("attention b64 h12 s197 d64 FP16", "fp16", ("attention", "b64 h12 s197 d64"), "us", 45, 40),
    Work("attention b64 h12 s197 d64 FP8", "fp8", ("attention", "b64 h12 s197 d64"), "us", 32, 25),
    Work("attention b2 h16 s256 d72 FP8", "fp8", ("attention", "b2 h16 s256 d72/80"), "us", 9, 7),
    Work("attention b1 8q/1kv d256 s712 FP8", "fp8", ("attention", "b1 h8/1 s712 d256"), "us", Times(1.5), Times(2)),
    Work("attention b1 8q/1kv d256 s968 FP8", "fp8", ("attention", "b1 h8/1 s968 d256"), "us", Times(1.5), Times(2)),
    Work("attention b4 h16 s4096 d128 FP16", "fp16", ("attention", "b4 h16 s4096 d128"), "tflops", 560, 640),
    Work("attention b4 h16 s4096 d128 FP8", "fp8", ("attention", "b4 h16 s4096 d128"), "tflops", 700, 900),
    Work("gated MLP 970x2048x16384 FP8", "fp8", ("gated",), "us", 158, 140),
    Work("gated MLP 970x2048x16384 FP16", "fp16", ("gated",), "us"),
]
BITS = {"fp8": 8, "int8": 8, "fp16": 16}
FORMS = {"fp16": ["f16"], "fp8": ["e4m3 to e4m3", "e4m3"]}  # of src/ops/attention/bench.cc, best first


def better(unit, a, b):
    return a > b if unit == "tflops" else a < b


# ---------------------------------------------------------------- ours


def best_op(ops, op, forms):
    """The row of the fastest right result of any variant on the first of the forms that has one."""
    for form in forms:
        fine = [r for r in ops if r.get("op") == op and r.get("form") == form and "us" in r and "error" not in r]
        if fine:
            return min(fine, key=lambda r: r["us"])
    return None


def common_check(rows):
    """The check of several kernels together: the weakest word on each count."""
    checks = [r.get("check") for r in rows]
    if not checks or None in checks:
        return None
    if len(checks) == 1 or all(c == checks[0] for c in checks):
        return checks[0]
    kinds = {c.get("kind") for c in checks}
    counts = [str(c.get("mutations_caught", "")).split("/") for c in checks]
    fine = all(len(c) == 2 and all(n.isdigit() for n in c) for c in counts)
    return {
        "kind": kinds.pop() if len(kinds) == 1 else "bounded",
        "relative_l2_allowed": max(c.get("relative_l2_allowed") or 0 for c in checks),
        "mutations_caught": "/".join(str(sum(int(c[i]) for c in counts)) for i in (0, 1)) if fine else None,
    }


def our_figure(work, vit, ops):
    """(figure, by what, run, check) of the newest rows; Nones where there is none."""
    if work.where[0] == "vit":
        row = next(
            (
                r
                for r in vit
                if (r.get("model"), r.get("batch"), r.get("precision")) == (*work.where[1:], work.precision)
                and "ms" in r
            ),
            None,
        )
        return (row["ms"], None, row.get("run"), row.get("check")) if row else (None,) * 4
    if work.where[0] == "attention":
        row = best_op(ops, "attention", [f"{p}/{work.where[1]}" for p in FORMS[work.precision]])
        return (
            (row[work.unit], f"{row['variant']} {row['config']}".strip(), row.get("run"), row.get("check"))
            if row
            else (None,) * 4
        )
    # Both halves with their gate, and the way down, each by its fastest kernel.
    pieces = [
        [f"{work.precision}/970x2048x32768 gate(gelu_tanh)", f"{work.precision}/970x2048x32768 gate(silu)"],
        [f"{work.precision}/970x16384x2048"],
    ]
    rows = [best_op(ops, "matmul", forms) for forms in pieces]
    return (
        (sum(r["us"] for r in rows), "gate + down", rows[0].get("run"), common_check(rows))
        if all(rows)
        else (None,) * 4
    )


# ---------------------------------------------------------------- peers


def peer_form(row):
    """The shape of a row of attention as bench/attention_peers.py names it; peers' own scripts state batch, heads,
    tokens and head size."""
    if "form" in row:
        return row["form"]
    heads, kv = row.get("heads"), row.get("kv_heads", row.get("heads"))
    size = {72: "72/80", 80: "72/80"}.get(
        row.get("head"), row.get("head")
    )  # heads of 72 lie 80 apart; a caller may pad them to 80
    return (
        f"b{row.get('batch')} h{heads if heads == kv else f'{heads}/{kv}'} s{row.get('seq', row.get('tokens'))} d{size}"
    )


def peer_figure(row, unit):
    if unit not in row and unit == "tflops" and row.get("us") and {"batch", "heads", "head"} <= row.keys():
        return 4e-6 * row["batch"] * row["heads"] * row.get("seq", row.get("tokens")) ** 2 * row["head"] / row["us"]
    return row.get(unit)


def attention_peer_name(row):
    if "backend" in row:  # gemm_attention_peers.py: a graph of one call
        return {"CUDNN_ATTENTION": "cuDNN", "FLASH_ATTENTION": "FlashAttention-2"}.get(
            row["backend"], row["backend"]
        ) + " FP16, one call per replay"
    if "kind" in row:  # attention_cudnn_fp8.py
        padded = ", heads padded to 80" if row.get("head") == 80 else ""
        return (
            f"cuDNN {row['kind'].upper()}" + (f" to {row['out'].upper()}" if row["out"] != row["kind"] else "") + padded
        )
    return f"{row['name']} FP16".replace("torch's choice", "PyTorch's choice")


def peer_candidates(work, peers):
    """Figures, and refusals, of peers at this work with as many bits or more: fewer bits are other work."""
    return (c for c in candidates(work, peers) if BITS[c["precision"]] >= BITS[work.precision])


def vit_peer_name(name):
    """vit_peers.py's names, shorter."""
    if name.startswith("torch.compile fp8"):
        return "torch.compile, FP8 linear layers, FP16 attention"
    return (
        "torch.compile FP16"
        if name.startswith("torch.compile")
        else "PyTorch FP16, eager"
        if name.startswith("torch eager fp16")
        else name
    )


def candidates(work, peers):
    for r in peers:
        base = {"work": work.name, "unit": work.unit, "run": r.get("run")}
        if work.where[0] == "vit" and r.get("script") == "vit" and (r.get("model"), r.get("batch")) == work.where[1:]:
            if r.get("ms") and "error" not in r:
                yield base | {
                    "precision": "fp8" if " fp8" in r["name"] else "fp16",
                    "value": r["ms"],
                    "peer": vit_peer_name(r["name"]),
                }
        elif work.where[0] == "attention" and r.get("op") == "attention" and peer_form(r) == work.where[1]:
            precision, value = r.get("kind", "fp16"), peer_figure(r, work.unit)
            if value and "error" not in r:
                yield base | {"precision": precision, "value": value, "peer": attention_peer_name(r)}
            elif "refused" in r and "kind" in r:
                yield base | {"precision": precision, "peer": attention_peer_name(r), "refused": r["refused"]}
    if work.where[0] == "gated":
        rows = {r.get("name"): r for r in peers if r.get("op") == "matmul"}
        halves = [rows.get(n, {}) for n in ("gemma_gateup_970", "gemma_down_970")]
        for precision in ("fp8", "fp16"):
            times = [h.get(f"{precision}_us") for h in halves]
            if all(times):
                yield {
                    "work": work.name,
                    "unit": work.unit,
                    "run": halves[0].get("run"),
                    "precision": precision,
                    "value": sum(times),
                    "peer": f"cuBLASLt {precision.upper()}, both products without the gate",
                }


# ---------------------------------------------------------------- together


def verdict(work, ours, least, goal):
    if ours is None:
        return "not measured"
    if least is None:
        return ""
    reached = lambda bar: not better(work.unit, bar, ours)
    return "goal" if reached(goal) else "at least" if reached(least) else "missed"


def summary(vit, ops, known):
    """Per work our newest figure beside the best known peer of the same precision; and, where one in more bits is
    faster still, that one."""
    rows = []
    for work in WORKS:
        ours, by, run, check = our_figure(work, vit, ops)
        peers = [{k: v for k, v in r.items() if k not in ("work", "unit")} for r in known if r["work"] == work.name]
        same = next((p for p in peers if p["precision"] == work.precision), None)
        timed = [p for p in peers if "value" in p]
        best = next(
            (p for p in timed if all(p is q or not better(work.unit, q["value"], p["value"]) for q in timed)), None
        )
        faster = best if best is not None and best is not same else None
        bar = lambda b: (
            b
            if not isinstance(b, Times)
            else None
            if best is None
            else best["value"] * b
            if work.unit == "tflops"
            else best["value"] / b
        )
        least, goal = bar(work.least), bar(work.goal)
        ratio = None
        if ours is not None and best is not None:
            of = lambda p: ours / p["value"] if work.unit == "tflops" else p["value"] / ours
            ratio = of(same if same and "value" in same else best)
        rows.append(
            {
                "work": work.name,
                "precision": work.precision,
                "unit": work.unit,
                "ours": ours,
                "by": by,
                "run": run,
                "check": check,
                "best_peer": same,
                "faster_peer": faster,
                "times_as_fast": ratio,
                "peer_ahead": ours is not None and best is not None and better(work.unit, best["value"], ours),
                "at_least": least,
                "goal": goal,
                "verdict": verdict(work, ours, least, goal),
            }
        )
    return rows


def number(x):
    return (
        "-" if x is None else f"{x:.3f}" if x < 1 else f"{x:.2f}" if x < 10 else f"{x:.1f}" if x < 100 else f"{x:.0f}"
    )


def short_check(check):
    """The power of a row's check in a few characters."""
    if not check:
        return "not recorded"
    what = (
        "bit-equal"
        if check.get("kind") == "bit-equal"
        else f"L2 {check['relative_l2_allowed']:.1g}"
        if check.get("relative_l2_allowed")
        else "bounded"
    )
    return what + (f", {check['mutations_caught']} faults" if check.get("mutations_caught") else "")


def print_summary(rows):
    print(
        f"\n{'work':36} {'unit':>6} {'ours':>7} {'peer':>7} {'times':>6} {'least':>7} {'goal':>7}  verdict; check; peer"
    )
    for r in rows:
        peer = r["best_peer"] if r["best_peer"] and "value" in r["best_peer"] else r["faster_peer"]
        print(
            f"{r['work']:36} {r['unit']:>6} {number(r['ours']):>7} {number(peer['value'] if peer else None):>7} "
            f"{number(r['times_as_fast']):>6} {number(r['at_least']):>7} "
            f"{number(r['goal']):>7}  {r['verdict'] or '-'}{', PEER AHEAD' if r['peer_ahead'] else ''}; "
            f"{short_check(r['check'])}; {peer['peer'] if peer else 'none known'}"
        )
