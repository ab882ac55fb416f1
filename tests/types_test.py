#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Types against ml_dtypes and numpy: all codes of narrow elements as numbers and the codes of many floats;
quantizers and layouts against the rules of docs/formats.md written down a second time. Argument: the build's bin
folder."""

import os
import pathlib
import re
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
FLOATS = {
    "f16": (np.float16, 16),
    "bf16": (ml_dtypes.bfloat16, 16),
    "e4m3": (ml_dtypes.float8_e4m3fn, 8),
    "e5m2": (ml_dtypes.float8_e5m2, 8),
    "e8m0": (ml_dtypes.float8_e8m0fnu, 8),
    "e2m1": (ml_dtypes.float4_e2m1fn, 4),
}
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
    parts.append(
        np.array(
            [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 464, 465, 65519.99, 65520, 3.4e38, 1e-45, -1e-45], np.float32
        )
    )
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
    return np.clip(np.rint(np.nan_to_num(x.astype(np.float64), nan=0.0)), low, high).astype(np.int64).astype(
        np.uint8
    ) & ((1 << bits) - 1)


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
        print(
            f"{element}: {decoded.size} codes decoded, {wrong_numbers} wrong; {2 * x.size} floats encoded, "
            f"{wrong_codes} wrong"
        )
        failures += wrong_numbers + wrong_codes
    return failures


WIDE = {"f32": (np.float32, 32)}
TYPES = [
    "e4m3:tensor(f32)",
    "e4m3:channel(f32)",
    "e4m3:token(f32)",
    "e4m3:tensor(f16)",
    "e5m2:tensor(f32)",
    "e5m2:channel(f32)",
    "i8:tensor(f32)",
    "i8:channel(f32)",
    "i8:token(f16)",
    "i4:tensor(f32)",
    "i4:channel(f32)",
    "i4:block32(f16)",
    "e4m3:block32(e8m0)",
    "e4m3:block32(e8m0,floor)",
    "e4m3:block32(e8m0,ceil)",
    "e4m3:block32(e8m0,even)",
    "e5m2:block32(e8m0)",
    "e2m1:block32(e8m0)",
    "e2m1:block32(e8m0,even)",
    "e2m1:block16(e4m3):tensor(f32)",
    "e2m1:block16(e4m3):tensor(f32):as(e4m3)",
    "e2m1:block16(e4m3)",
    "e4m3:block128(f32)",
]


def largest(element):
    dtype, bits = (FLOATS | WIDE | INTEGERS)[element]
    if element in INTEGERS:
        return (1 << (bits - 1)) - 1
    return float(ml_dtypes.finfo(dtype).max) if element != "e8m0" else 2.0**127


def to_codes(y, element):
    """Saturating cast of f32 to one code per number."""
    if element in WIDE:
        return y.view(np.uint32)
    dtype, bits = (FLOATS | INTEGERS)[element]
    return cast_integer(y, bits) if element in INTEGERS else cast(y, dtype, bits, True)


def to_numbers(codes, element):
    dtype, _ = (FLOATS | WIDE | INTEGERS)[element]
    return codes.view(dtype).astype(np.float32)


def power_codes(amax, element, rule):
    """MX scales by name, through exponents of f64."""
    top = int(np.floor(np.log2(largest(element))))
    of = (amax / np.float32(largest(element))).astype(np.float64) if rule == "rceil" else amax.astype(np.float64)
    part, exponent = np.frexp(of)  # of = part * 2^exponent, part in [0.5, 1)
    power = {
        "rceil": exponent - (part == 0.5),
        "floor": exponent - 1 - top,
        "ceil": exponent - (part == 0.5) - top,
        "even": exponent - (part < 0.875) - top,
    }[rule]
    codes = np.clip(power, -127, 127) + 127
    codes = np.where(of == 0, 0, np.where(np.isinf(amax), 254, codes))
    return np.where(np.isnan(amax), 255, codes).astype(np.uint8)


def quantize(x, text):
    """(codes, scale, scale2, numbers, products) by the rules, one code per entry."""
    element, *parts = text.split(":")
    levels = [re.fullmatch(r"([a-z]+)(\d*)\((\w+)(?:,(\w+))?\)", p).groups() for p in parts]
    product = next((scale for kind, _, scale, _ in levels if kind == "as"), None)
    levels = [level for level in levels if level[0] != "as"]
    (kind, block, scale_element, rule), top = levels[0], np.float32(largest(element))
    rows, cols = x.shape
    s2, s2_codes = np.float32(1), np.zeros(0, np.uint32)
    if len(levels) > 1:
        seen = np.abs(x[~np.isnan(x)])
        whole = largest(product) if product else largest(element) * largest(scale_element)
        s2 = (seen.max() if seen.size else np.float32(0)) / np.float32(whole)
        s2 = np.float32(1) if s2 == 0 else s2
        s2_codes = np.array([s2], np.float32).view(np.uint32)
    width = {"tensor": cols, "channel": cols, "token": cols}.get(kind) or int(block)
    padded = np.pad(x, ((0, 0), (0, -cols % width))).reshape(rows, -1, width)
    amax = np.abs(padded).max(axis=2)  # NaN wins
    if kind == "tensor":
        amax = np.abs(x).max().reshape(1, 1)
    if scale_element == "e8m0":
        s_codes = power_codes(amax, element, rule or "rceil")
    else:
        wanted = amax / top / s2
        wanted = np.where(wanted == 0, np.float32(1), wanted)
        smallest = {"f32": 2.0**-149, "f16": 2.0**-24, "e4m3": 2.0**-9}[scale_element]
        wanted = np.where(wanted < smallest, np.float32(smallest), wanted)
        s_codes = to_codes(wanted.astype(np.float32), scale_element).reshape(amax.shape)
    scale = to_numbers(s_codes.reshape(-1), scale_element).reshape(amax.shape)
    divisor = np.broadcast_to((scale * s2)[:, :, None], padded.shape).astype(np.float32)
    usable = (divisor > 0) & np.isfinite(divisor)
    y = np.where(usable, padded / np.where(usable, divisor, np.float32(1)), np.float32(0)).astype(np.float32)
    if kind == "block":
        y = np.where(y == 0, np.float32(0), y)
    cut = lambda a: a.reshape(rows, -1)[:, :cols].reshape(-1)
    codes = to_codes(cut(np.clip(y, -top, top)), element)
    numbers = to_numbers(codes, element) * cut(np.broadcast_to(scale[:, :, None], padded.shape))
    products = to_codes(numbers, product) if product else None
    if product:
        numbers = to_numbers(products, product)
    return codes, s_codes.reshape(-1), s2_codes, numbers * s2 if len(levels) > 1 else numbers, products


def arrays():
    """(name, array): shapes with short last blocks and odd lengths, numbers of every kind that a rule treats in its
    own way."""
    random = np.random.default_rng(5)
    gauss = lambda *shape: random.standard_normal(shape).astype(np.float32)
    yield "gauss", gauss(64, 256)
    yield "ragged", gauss(7, 45)
    yield "odd", gauss(5, 33)
    yield "short", gauss(3, 5)
    yield "one", gauss(1, 1)
    yield "long", gauss(2, 5001)
    yield "narrow", gauss(999, 3)
    yield "outliers", (gauss(32, 128) * 10.0 ** random.integers(-6, 7, (32, 128))).astype(np.float32)
    x = gauss(16, 128)
    x[:, 16:64] = 0
    x[3] = 0
    x[5, ::3] = -0.0
    yield "zero_blocks", x
    yield "zeros", np.zeros((3, 40), np.float32)
    yield "minus_zeros", np.full((3, 40), -0.0, np.float32)
    yield "subnormal", (gauss(8, 96) * np.float32(1e-39)).astype(np.float32)
    yield "smallest", random.integers(0, 1000, (8, 96)).astype(np.uint32).view(np.float32)
    yield "around_2_to_minus_127", (gauss(64, 64) * np.float32(2.0**-119)).astype(np.float32)
    x = gauss(8, 96)
    yield "huge", (x / np.abs(x).max() * np.finfo(np.float32).max).astype(np.float32)
    yield "mixed_ranges", (gauss(256, 64) * 2.0 ** random.integers(-140, 120, (256, 1))).astype(np.float32)
    yield (
        "powers",
        (random.choice([-1.0, 1.0], (64, 64)) * 2.0 ** random.integers(-20, 20, (64, 64))).astype(np.float32),
    )
    # Largest numbers at, just below and just above what the rules turn on: 2^k, 1.5 * 2^k, 1.75 * 2^k (448, 57344), 1.5
    # * 2^k (6).
    edges = np.array([m * 2.0**k for m in (1, 1.25, 1.5, 1.75) for k in range(-126, 127, 3)], np.float32)
    edges = np.concatenate([edges, np.nextafter(edges, np.float32(0)), np.nextafter(edges, np.float32(np.inf))])
    x = np.clip(gauss(edges.size, 32), -4, 4) * (edges[:, None] / np.float32(8))
    x[:, 7] = edges
    yield "edges", x.astype(np.float32)
    x = gauss(8, 128)
    x[2, 37], x[5, 3], x[5, 100] = np.nan, np.nan, -np.nan
    yield "nan", x
    x = gauss(8, 128)
    x[2, 37], x[6, 1] = np.inf, -np.inf
    yield "inf", x
    # Quotients that are ties of the element under a scale of one.
    x = (random.integers(-14, 15, (32, 64)) / 2).astype(np.float32)
    x[:, 0::16] = 7.0
    yield "ties7", x
    x = (random.integers(-24, 25, (32, 64)) / 4).astype(np.float32)
    x[:, 0::16] = 6.0
    x[0, 0] = 2688.0
    yield "ties6", x


def same_numbers(a, b):
    return (a == b) & (np.signbit(a) == np.signbit(b)) | np.isnan(a) & np.isnan(b)


def check_quantizers(folder, program):
    cases = [(f"{name}_{i}", text, x) for name, x in arrays() for i, text in enumerate(TYPES)]
    (folder / "quantize.txt").write_text(
        "".join(f"{name} {text} {x.shape[0]} {x.shape[1]}\n" for name, text, x in cases)
    )
    for name, _, x in cases:
        x.tofile(folder / f"{name}.f32")
    environment = dict(os.environ, TESSERA_DUMP_TYPES=str(folder))
    subprocess.run([program, "--gtest_filter=QuantizeDump.*"], env=environment, check=True, stdout=subprocess.DEVNULL)
    failures = numbers = 0
    for name, text, x in cases:
        codes, scale, scale2, back, products = quantize(x, text)
        read = lambda part: np.fromfile(folder / f"{name}.{part}", np.uint8)
        element = text.split(":")[0]
        bits = (FLOATS | INTEGERS)[element][1]
        got_scale, got_scale2 = read("scale").view(scale.dtype), read("scale2").view(np.uint32)
        if scale.dtype == np.uint8:
            right_scale = got_scale == scale
        else:  # a NaN is a NaN
            floats = np.float32 if scale.dtype == np.uint32 else np.float16
            right_scale = same_numbers(got_scale.view(floats), scale.view(floats))
        wrong = {
            "codes": unpack(read("codes"), bits, x.size) != codes,
            "scale": ~right_scale,
            "scale2": ~same_numbers(got_scale2.view(np.float32), scale2.view(np.float32)),
            "back": ~same_numbers(read("back").view(np.float32), back),
        }
        if products is not None:
            right = read("products") == products
            wrong["products"] = ~right
        for part, bad in wrong.items():
            if bad.any():
                print(
                    f"  {name}, {text}: {int(bad.sum())} of {bad.size} in {part} are wrong, the first at "
                    f"{int(np.flatnonzero(bad)[0])}"
                )
                failures += int(bad.sum())
        numbers += x.size
    print(f"quantizers: {len(cases)} arrays of {len(TYPES)} types, {numbers} numbers, {failures} wrong")
    return failures


def place(r, k, scales):
    """Byte of scale k of row r among 128 x 4 tiles."""
    return ((r // 128) * -(-scales // 4) + k // 4) * 512 + (r % 32) * 16 + ((r % 128) // 32) * 4 + k % 4


def tile(scales):
    rows, cols = scales.shape
    out = np.zeros(-(-rows // 128) * -(-cols // 4) * 512, np.uint8)
    for r in range(rows):
        for k in range(cols):
            out[place(r, k, cols)] = scales[r, k]
    return out


def compress(codes, zero):
    """(kept codes, metadata bytes) of 2:4 rows; `zero` says which codes are zeros."""
    rows, cols = codes.shape
    padded = np.pad(codes, ((0, 0), (0, -cols % 4)))
    groups = padded.shape[1] // 4
    kept, nibbles = np.zeros((rows, 2 * groups), codes.dtype), np.full((rows, groups + groups % 2), 4, np.uint8)
    for r in range(rows):
        for g in range(groups):
            four = padded[r, 4 * g : 4 * g + 4]
            chosen = [i for i in range(4) if not zero(int(four[i]))]
            chosen += [i for i in range(4) if i not in chosen]
            low, high = sorted(chosen[:2])
            kept[r, 2 * g : 2 * g + 2] = four[low], four[high]
            nibbles[r, g] = low | high << 2
    return kept.reshape(-1), (nibbles[:, 0::2] | nibbles[:, 1::2] << 4).reshape(-1)


def prune(x):
    out = np.zeros_like(x)
    for r in range(x.shape[0]):
        for c in range(0, x.shape[1], 4):
            four = np.abs(x[r, c : c + 4])
            for i in sorted(range(len(four)), key=lambda i: (-four[i], i))[:2]:
                out[r, c + i] = x[r, c + i]
    return out


def check_layouts(folder, program):
    environment = dict(os.environ, TESSERA_DUMP_TYPES=str(folder))
    subprocess.run([program, "--gtest_filter=LayoutDump.*"], env=environment, check=True, stdout=subprocess.DEVNULL)
    widths = {
        "e4m3": (8, 0x7F),
        "e2m1": (4, 0x7),
        "f16": (16, 0x7FFF),
        "i8": (8, 0xFF),
    }  # bits, and those that count for zero
    wrong = arrays_seen = 0
    for path in sorted(folder.glob("scales.*.in")):
        _, shape, _ = path.name.split(".")
        rows, cols = map(int, shape.split("x"))
        read = lambda name, dtype=np.uint8: np.fromfile(folder / name, dtype)
        tests = {
            "tiles": (read(f"scales.{shape}.tiles"), tile(read(f"scales.{shape}.in").reshape(rows, cols))),
            "pruned": (
                read(f"prune.{shape}.out", np.float32),
                prune(read(f"prune.{shape}.in", np.float32).reshape(rows, cols)).reshape(-1),
            ),
        }
        for element, (bits, mask) in widths.items():
            codes = unpack(read(f"{element}.{shape}.codes"), bits, rows * cols).reshape(rows, cols)
            kept, metadata = compress(codes, lambda code: code & mask == 0)
            tests[element + " kept"] = unpack(read(f"{element}.{shape}.kept"), bits, kept.size), kept
            tests[element + " metadata"] = read(f"{element}.{shape}.metadata"), metadata
        for name, (got, want) in tests.items():
            arrays_seen += 1
            if not np.array_equal(got, want):
                print(f"  {shape}: {name} is wrong")
                wrong += 1
    print(f"layouts: {arrays_seen} arrays, {wrong} wrong")
    return wrong + (arrays_seen == 0)


def main():
    bin_folder = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        failures = check_elements(pathlib.Path(name), bin_folder / "types_element_test")
        failures += check_quantizers(pathlib.Path(name), bin_folder / "types_quantize_array_test")
        failures += check_layouts(pathlib.Path(name), bin_folder / "types_layouts_test")
    return 1 if failures else 0


if __name__ == "__main__":
    np.seterr(all="ignore")  # NaN and Inf are among the codes
    sys.exit(main())
