#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Narrow elements against ml_dtypes and numpy: all codes as numbers, and the codes of many floats. Argument: the build's bin folder."""
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

# name: (type of the oracle, bits)
FLOATS = {"f16": (np.float16, 16), "bf16": (ml_dtypes.bfloat16, 16), "e4m3": (ml_dtypes.float8_e4m3fn, 8),
          "e5m2": (ml_dtypes.float8_e5m2, 8), "e8m0": (ml_dtypes.float8_e8m0fnu, 8), "e2m1": (ml_dtypes.float4_e2m1fn, 4)}
INTEGERS = {"i8": (np.int8, 8), "i4": (ml_dtypes.int4, 4)}


def storage(bits):
    """One code, unpacked."""
    return np.uint16 if bits == 16 else np.uint8


def unpack(data, bits, count):
    """Codes out of a packed array: the even index is in the low nibble."""
    if bits == 4:
        return np.stack([data & 15, data >> 4], -1).reshape(-1)[:count]
    return data.view(storage(bits))[:count]


def all_numbers(dtype, bits):
    return np.arange(1 << bits).astype(storage(bits)).view(dtype).astype(np.float32)


def finite_numbers(dtype, bits):
    """Every finite number of the type, ascending, in f64."""
    numbers = all_numbers(dtype, bits).astype(np.float64)
    return np.unique(numbers[np.isfinite(numbers)])


def inputs():
    """Floats at, between and around the numbers of each type, random bit patterns, and the limits."""
    parts = [np.random.default_rng(11).integers(0, 2**32, 1 << 20, dtype=np.uint32).view(np.float32)]
    for dtype, bits in (FLOATS | INTEGERS).values():
        numbers = finite_numbers(dtype, bits)
        middles = (numbers[:-1] + (numbers[1:] - numbers[:-1]) / 2).astype(np.float32)
        beyond = np.array([numbers[-1] + (numbers[-1] - numbers[-2]) / 2], np.float32)  # where overflow begins
        for x in (numbers.astype(np.float32), middles, beyond, -beyond):
            parts += [x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))]
    parts.append(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 464, 465, 65519.99, 65520, 3.4e38, 1e-45, -1e-45], np.float32))
    return np.concatenate(parts)


def cast(x, dtype, bits, saturate):
    """The oracle's codes. It overflows to Inf or NaN: where ours saturate, clip first. It keeps NaN."""
    if saturate:
        top = np.float32(finite_numbers(dtype, bits)[-1])
        x = np.clip(x, -top, top)
    return x.astype(dtype).view(storage(bits))


def cast_integer(x, bits):
    """Nearest even, saturating in either mode; NaN is 0."""
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return np.clip(np.rint(np.nan_to_num(x.astype(np.float64), nan=0.0)), low, high).astype(np.int64).astype(np.uint8) & ((1 << bits) - 1)


def check_elements(folder, program):
    """Wrong codes and numbers of all elements."""
    failures = 0
    x = inputs()
    x.tofile(folder / "inputs.f32")
    environment = dict(os.environ, TESSERA_DUMP_TYPES=str(folder))
    subprocess.run([program, "--gtest_filter=ElementDump.*"], env=environment, check=True, stdout=subprocess.DEVNULL)
    for element, (dtype, bits) in (FLOATS | INTEGERS).items():
        decoded = np.fromfile(folder / f"{element}.decoded", np.float32)
        want = all_numbers(dtype, bits)
        same = (decoded == want) & (np.signbit(decoded) == np.signbit(want)) | np.isnan(decoded) & np.isnan(want)
        wrong_numbers = int((~same).sum())

        wrong_codes = 0
        for name, saturate in (("codes", True), ("unsaturated", False)):
            codes = unpack(np.fromfile(folder / f"{element}.{name}", np.uint8), bits, x.size)
            right = cast_integer(x, bits) if element in INTEGERS else cast(x, dtype, bits, saturate)
            same = codes == right
            if element == "f16":  # numpy keeps the payload of a NaN
                same = np.where(np.isnan(x), np.isnan(codes.view(dtype)), same)
            wrong_codes += int((~same).sum())
            for i in np.flatnonzero(~same)[:5]:
                print(f"  {element} {name}: {x[i]!r} is {codes[i]:#x}, wanted {right[i]:#x}")
        print(f"{element}: {decoded.size} codes decoded, {wrong_numbers} wrong; {2 * x.size} floats encoded, {wrong_codes} wrong")
        failures += wrong_numbers + wrong_codes
    return failures


def main():
    bin_folder = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        failures = check_elements(pathlib.Path(name), bin_folder / "types_element_test")
    return 1 if failures else 0


if __name__ == "__main__":
    np.seterr(over="ignore", invalid="ignore")  # NaN and Inf are among the codes
    sys.exit(main())
