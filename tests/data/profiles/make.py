# SPDX-License-Identifier: Apache-2.0
"""Writes the profiles of this folder: small files of our own in the formats of other tools.

    python tests/data/profiles/make.py

seed_fp16.json, seed_nvfp4.json: ViT-B of batch 64 in FP16 and NVFP4 by TensorRT, in the form of trtexec's
--exportProfile. The kernels are those of a published analysis: names, instances and average times; what it does not
list, up to its 7.6 and 5.5 ms in all, is one entry `other`.

fp8_*: a made-up engine of four blocks whose linear layers are FP8, but for one that fell back to FP16
(blocks.2.attn.proj), as trtexec (fp8_profile.json, fp8_layers.json, fp8_times.json), Nsight Systems (fp8_nsight.sqlite,
two runs) and PyTorch (fp8_torch.json, two steps) would tell it.
"""

import json
import pathlib
import sqlite3

FOLDER = pathlib.Path(__file__).resolve().parent
RUNS = 100

NORM = "__myl_AddCastMeanSubMul..."
SEEDS = {
    "seed_fp16.json": (
        7600.0,
        [
            ("sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_tilesize256x128x32", 12, 188.3),
            ("sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_tilesize256x128x32", 12, 168.4),
            ("sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize128x256x32", 12, 126.0),
            ("sm80_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize160x128x32", 12, 47.5),
            ("_gemm_mha_v2", 12, 44.5),
            (NORM, 22, 16.8),
        ],
    ),
    "seed_nvfp4.json": (
        5500.0,
        [
            ("sm80_xmma_gemm_f16f16_f16f16_f16_nn_n", 12, 120.8),
            ("cutlass3x_sm120_bstensorop_s16864gemm_block_scaled_ue4m3xe2m1", 36, 38.1),
            ("__myl_DivCastErfCastAddMulMulResh", 12, 44.4),
            ("_gemm_mha_v2", 12, 44.0),
            (NORM, 22, 17.2),
            ("__myl_ReshReshCastMulReplCast...", 12, 13.4),
        ],
    ),
}


def exported_profile(layers):
    """trtexec's --exportProfile: the count of runs, then name and times of each layer."""
    total = sum(us for _, us in layers)
    return [{"count": RUNS}] + [
        {
            "name": name,
            "timeMs": round(us * RUNS / 1000, 6),
            "averageMs": round(us / 1000, 6),
            "medianMs": round(us / 1000, 6),
            "percentage": round(100 * us / total, 4),
        }
        for name, us in layers
    ]


# Layer, kernel, us, type of the layer; of a GEMM the rows, columns and depth too.
FP8_GEMM = "sm90_xmma_gemm_e4m3f16_e4m3f32_f32_tn_n_tilesize128x128x128_warpgroupsize1x1x1_bias_f16"
FP16_GEMM = "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_stage3_warpsize2x2x1_tensor16x8x16"
NORM_KERNEL = "__myl_AddCastMeanSubMulMeanAddSqrtDivMulCastMulAddMulRounCast"
FALLBACK = "/blocks.2/attn/proj/MatMul_myl0_17"


def fp8_layers():
    rows = 64 * 197
    at = 0
    for block in range(4):
        for layer, kernel, us, kind, shape in (
            (NORM_KERNEL, NORM_KERNEL, 12.5, "kgen", None),
            (f"/blocks.{block}/attn/qkv/MatMul", FP8_GEMM, 42.0, "gemm", (rows, 2304, 768)),
            ("_gemm_mha_v2", "_gemm_mha_v2_0x0123456789abcdef0123456789abcdef", 44.5, "kgen", None),
            (f"/blocks.{block}/attn/proj/MatMul", FP8_GEMM, 16.0, "gemm", (rows, 768, 768)),
            (f"/blocks.{block}/mlp/fc1/MatMul", FP8_GEMM, 55.0, "gemm", (rows, 3072, 768)),
            ("__myl_CastMulErfAddMulMulRounCast", "__myl_CastMulErfAddMulMulRounCast", 30.0, "kgen", None),
            (f"/blocks.{block}/mlp/fc2/MatMul", FP8_GEMM, 53.0, "gemm", (rows, 768, 3072)),
        ):
            name = f"{layer}_myl0_{at}"
            at += 1
            if name == FALLBACK:
                kernel, us = FP16_GEMM, 31.0
            yield name, kernel, us, kind, shape


def fp8_trtexec():
    layers = list(fp8_layers())
    write("fp8_profile.json", exported_profile([(name, us) for name, _, us, _, _ in layers]))

    def tensor(name, dims, datatype):
        return {"Name": name, "Location": "Device", "Dimensions": dims, "Format/Datatype": datatype}

    described = []
    for name, kernel, _, kind, shape in layers:
        datatype = "Half" if name == FALLBACK or shape is None else "FP8"
        if shape is None:
            inputs = [tensor(f"x of {name}", [64, 197, 768], datatype)]
            outputs = [tensor(f"y of {name}", [64, 197, 768], datatype)]
        else:
            m, n, k = shape
            inputs = [tensor(f"x of {name}", [64, m // 64, k], datatype), tensor("__mye_dconst", [k, n], datatype)]
            outputs = [tensor(f"y of {name}", [64, m // 64, n], "Half")]
        described.append(
            {
                "Name": name,
                "LayerType": kind,
                "Inputs": inputs,
                "Outputs": outputs,
                "TacticName": kernel,
                "StreamId": 0,
                "Metadata": f"[ONNX Layer: {name.split('_myl')[0]}]",
            }
        )
    text = ",\n".join("  " + json.dumps(layer) for layer in described)
    (FOLDER / "fp8_layers.json").write_text(
        '{"Layers": [\n' + text + '\n],\n"Bindings": ["image", "logits"],\n"engine_precision": "fp8"}\n'
    )
    runs, at = [], 0.0
    for i in range(20):
        compute = 1.2 + 0.01 * (i % 5)
        runs.append(
            {
                "startEnqMs": at,
                "endEnqMs": round(at + 0.25, 4),
                "startH2dMs": at,
                "endH2dMs": round(at + 0.5, 4),
                "startComputeMs": round(at + 0.5, 4),
                "endComputeMs": round(at + 0.5 + compute, 4),
                "startD2hMs": round(at + 0.5 + compute, 4),
                "endD2hMs": round(at + 0.52 + compute, 4),
                "h2dMs": 0.5,
                "computeMs": round(compute, 4),
                "d2hMs": 0.02,
                "latencyMs": round(0.52 + compute, 4),
            }
        )
        at = round(at + 2, 4)
    write("fp8_times.json", runs)


def fp8_nsight():
    """The tables and columns of Nsight Systems' exporter that the reader knows, and a few that it does not."""
    path = FOLDER / "fp8_nsight.sqlite"
    path.unlink(missing_ok=True)
    db = sqlite3.connect(path)
    db.executescript("""
        PRAGMA page_size=512;
        CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE TARGET_INFO_GPU (id INTEGER NOT NULL PRIMARY KEY, name TEXT, smCount INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
          start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
          contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
          demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, graphNodeId INTEGER,
          gridX INTEGER NOT NULL);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (
          start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
          streamId INTEGER NOT NULL, correlationId INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (
          start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
          streamId INTEGER NOT NULL, correlationId INTEGER, bytes INTEGER NOT NULL);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER,
          globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
        CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
          text TEXT, globalTid INTEGER, textId INTEGER, domainId INTEGER);
        INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200', 132);
    """)
    ids = {}

    def string(text):
        if text not in ids:
            ids[text] = len(ids) + 1
            db.execute("INSERT INTO StringIds VALUES (?, ?)", (ids[text], text))
        return ids[text]

    process = 7 << 24
    thread = process + 7
    gpu, host, correlation = 1_000_000, 500_000, 100
    for run in range(2):
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, 0, 7, ?, 1000, 1)", (gpu, gpu + 50_000, 1))
        gpu += 60_000
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (?, ?, 0, 7, ?, 4096)", (gpu, gpu + 1_000, 2))
        gpu += 1_000
        outer = host
        for name, kernel, us, _, _ in fp8_layers():
            correlation += 1
            db.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, NULL, NULL, ?, ?, 0)",
                (host, host + 4_000, thread, string(name)),
            )
            db.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, ?, 0)",
                (host + 1_000, host + 3_000, thread, correlation, string("cudaLaunchKernelExC_v11060")),
            )
            host += 5_000
            db.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, 7, ?, ?, ?, ?, NULL, NULL, 132)",
                (gpu, gpu + int(us * 1000), correlation, process, string(kernel), string(kernel.split("_0x")[0])),
            )
            gpu += int(us * 1000) + 500
        db.execute(
            "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, NULL, ?, ?, NULL, 0)", (outer, host, f"run {run}", thread)
        )
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, 0, 7, ?, 100, 2)", (gpu, gpu + 2_000, 3))
        gpu += 100_000
    db.commit()
    db.close()


def fp8_torch():
    events = [{"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "python"}}]
    at = 5_000_000.0

    def event(category, name, begin, us, **args):
        events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": 0,
                "tid": 7,
                "ts": round(begin, 3),
                "dur": us,
                "args": {"device": 0, "stream": 7, **args},
            }
        )

    for step in range(2):
        begin = at
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", at, 50.0, bytes=1000)
        at += 60
        event("gpu_memset", "Memset (Device)", at, 1.0, bytes=4096)
        at += 1
        for name, kernel, us, _, _ in fp8_layers():
            event("cpu_op", "aten::linear", at - 20, 3.0)
            event("kernel", kernel, at, us, grid=[132, 1, 1])
            at += us + 0.5
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", at, 2.0, bytes=100)
        at += 100
        for category in ("user_annotation", "gpu_user_annotation"):
            event(category, f"ProfilerStep#{step + 3}", begin, round(at - begin, 3))
    trace = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}],
        "traceEvents": events,
        "traceName": "fp8_torch.json",
    }
    (FOLDER / "fp8_torch.json").write_text(json.dumps(trace) + "\n")


def write(name, entries):
    lines = ",\n".join(" " + json.dumps(entry) for entry in entries)
    (FOLDER / name).write_text(f"[\n{lines}\n]\n")


def main():
    for name, (total, table) in SEEDS.items():
        layers = [(kernel, us) for kernel, calls, us in table for _ in range(calls)]
        layers.append(("other", total - sum(us for _, us in layers)))
        write(name, exported_profile(layers))
    fp8_trtexec()
    fp8_nsight()
    fp8_torch()


main()
