#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Narrow floats against ml_dtypes and numpy: all codes as numbers, and the codes of many floats. Argument: the build's bin folder."""
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import ml_dtypes
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TYPES = {"f16": (np.float16, np.uint16), "bf16": (ml_dtypes.bfloat16, np.uint16), "e4m3": (ml_dtypes.float8_e4m3fn, np.uint8)}


def finite_numbers(dtype, storage):
    """Every finite number of the type, ascending, in f64."""
    numbers = np.arange(np.iinfo(storage).max + 1).astype(storage).view(dtype).astype(np.float64)
    return np.unique(numbers[np.isfinite(numbers)])


def inputs():
    """Floats at, between and around the numbers of each type, random bit patterns, and the limits."""
    parts = [np.random.default_rng(11).integers(0, 2**32, 1 << 20, dtype=np.uint32).view(np.float32)]
    for dtype, storage in TYPES.values():
        numbers = finite_numbers(dtype, storage)
        middles = (numbers[:-1] + (numbers[1:] - numbers[:-1]) / 2).astype(np.float32)
        for x in (numbers.astype(np.float32), middles):
            parts += [x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))]
    parts.append(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 464, 465, 65519.99, 65520, 3.4e38], np.float32))
    return np.concatenate(parts)


def expected_codes(x, dtype, storage):
    """Ours saturate, theirs overflow to Inf or NaN: clip first. NaN stays NaN."""
    top = finite_numbers(dtype, storage)[-1]
    return np.clip(x, np.float32(-top), np.float32(top)).astype(dtype)


def main():
    program = pathlib.Path(sys.argv[1]) / "types_element_test"
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        x = inputs()
        x.tofile(folder / "inputs.f32")
        environment = dict(os.environ, TESSERA_DUMP_TYPES=str(folder))
        subprocess.run([program, "--gtest_filter=ElementDump.*"], env=environment, check=True, stdout=subprocess.DEVNULL)
        for element, (dtype, storage) in TYPES.items():
            decoded = np.fromfile(folder / f"{element}.decoded", np.float32)
            want = np.arange(np.iinfo(storage).max + 1).astype(storage).view(dtype).astype(np.float32)
            same = (decoded == want) & (np.signbit(decoded) == np.signbit(want)) | np.isnan(decoded) & np.isnan(want)
            wrong_numbers = int((~same).sum())

            codes = np.fromfile(folder / f"{element}.codes", storage)
            right = expected_codes(x, dtype, storage)
            nan = np.isnan(x)
            same = np.where(nan, np.isnan(codes.view(dtype)), codes == right.view(storage))
            wrong_codes = int((~same).sum())
            print(f"{element}: {decoded.size} codes decoded, {wrong_numbers} wrong; {x.size} floats encoded, {wrong_codes} wrong")
            for i in np.flatnonzero(~same)[:5]:
                print(f"  {x[i]!r}: {codes[i]:#x}, wanted {right.view(storage)[i]:#x}")
            failures += wrong_numbers + wrong_codes
    return 1 if failures else 0


if __name__ == "__main__":
    np.seterr(over="ignore", invalid="ignore")  # NaN and Inf are among the codes
    sys.exit(main())
