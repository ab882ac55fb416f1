# SPDX-License-Identifier: Apache-2.0
"""Writes the profiles of this folder: small files of our own in the formats of other tools.

    python tests/data/profiles/make.py

seed_fp16.json, seed_nvfp4.json: ViT-B of batch 64 in FP16 and NVFP4 by TensorRT, in the form of trtexec's
--exportProfile. The kernels are those of a published analysis: names, instances and average times; what it does not
list, up to its 7.6 and 5.5 ms in all, is one entry `other`.
"""

import json
import pathlib

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


def write(name, entries):
    lines = ",\n".join(" " + json.dumps(entry) for entry in entries)
    (FOLDER / name).write_text(f"[\n{lines}\n]\n")


def main():
    for name, (total, table) in SEEDS.items():
        layers = [(kernel, us) for kernel, calls, us in table for _ in range(calls)]
        layers.append(("other", total - sum(us for _, us in layers)))
        write(name, exported_profile(layers))


main()
