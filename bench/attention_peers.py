#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention of torch (cuDNN, FlashAttention-2, its own choice) in FP16 at the shapes of src/ops/attention/bench.cc
that other peers' scripts lack: query heads that share a key head, and heads of 72. Medians of CUDA-graph replays of
20 calls over rotated inputs larger than the L2. Prints JSON."""

import json
import statistics
import sys

FORMS = {  # batch, query heads, key heads, queries, keys, head size
    "b64 h12 s197 d64": (64, 12, 12, 197, 197, 64),
    "b64 h12 s256 d64": (64, 12, 12, 256, 256, 64),
    "b2 h16 s256 d72/80": (2, 16, 16, 256, 256, 72),
    "b1 h8/1 s712 d256": (1, 8, 1, 712, 712, 256),
    "b1 h8/1 s968 d256": (1, 8, 1, 968, 968, 256),
    "b4 h16 s4096 d128": (4, 16, 16, 4096, 4096, 128),
}
CALLS, REPLAYS = 20, 15


def main():
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def timed(call, sets):
        for s in sets[:2]:
            call(*s)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(max(CALLS, len(sets))):
                call(*sets[i % len(sets)])
        for _ in range(3):
            graph.replay()
        times = []
        for _ in range(REPLAYS):
            a, b = torch.cuda.Event(True), torch.cuda.Event(True)
            a.record()
            graph.replay()
            b.record()
            torch.cuda.synchronize()
            times.append(a.elapsed_time(b) * 1e3 / max(CALLS, len(sets)))
        return statistics.median(times)

    rows = []
    for form, (batch, heads, kv_heads, queries, keys, size) in FORMS.items():
        bytes_ = 2 * batch * size * (2 * heads * queries + 2 * kv_heads * keys)
        count = max(1, min(64, int(120e6 / bytes_) + 1))
        draw = lambda h, s: torch.randn(batch, h, s, size, device="cuda", dtype=torch.float16)
        sets = [(draw(heads, queries), draw(kv_heads, keys), draw(kv_heads, keys)) for _ in range(count)]
        for name, backend in (
            ("cuDNN", SDPBackend.CUDNN_ATTENTION),
            ("FlashAttention-2", SDPBackend.FLASH_ATTENTION),
            ("torch's choice", None),
        ):
            for shared in (True, False) if kv_heads != heads else (False,):
                # Shared keys are asked for as such; kernels that do not know them get keys repeated before the clock
                # starts.
                given = [
                    (q, k, v)
                    if shared or kv_heads == heads
                    else (q, k.repeat_interleave(heads // kv_heads, 1), v.repeat_interleave(heads // kv_heads, 1))
                    for q, k, v in sets
                ]

                def call(q, k, v):
                    if backend is None:
                        return F.scaled_dot_product_attention(q, k, v, enable_gqa=shared)
                    with sdpa_kernel(backend):
                        return F.scaled_dot_product_attention(q, k, v, enable_gqa=shared)

                row = {
                    "form": form,
                    "name": f"{name}{', shared keys' if shared else ', repeated keys' if kv_heads != heads else ''}",
                    "precision": "fp16",
                }
                try:
                    us = timed(call, given)
                    rows.append(row | {"us": us, "tflops": 4e-6 * batch * heads * queries * keys * size / us})
                except RuntimeError as fault:
                    rows.append(row | {"refused": " ".join(str(fault).split())[:160]})
    print(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
