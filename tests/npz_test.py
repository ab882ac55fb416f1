#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files by numpy, in every form it writes, through our reader and writer and back into numpy. Argument: the folder
with io_npz_test."""

import io
import pathlib
import subprocess
import sys
import tempfile
import zipfile

try:
    import numpy as np
except ImportError:
    print("no numpy: skipped")
    sys.exit(77)

TYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4), (0, 4), (1, 1, 2, 1, 3)]


def make_arrays(rng):
    arrays = {}
    for t in TYPES:
        for shape in SHAPES:
            raw = rng.integers(0, 256, size=int(np.prod(shape)) * np.dtype(t).itemsize, dtype=np.uint8)
            a = (raw & 1).view(np.bool_) if t == "?" else raw.view(t)
            a = np.nan_to_num(a, posinf=1, neginf=-1) if t[0] == "f" else a
            a = a.reshape(shape)
            arrays[f"{t.replace('?', 'b1')}_{'x'.join(map(str, shape)) or 'scalar'}_c"] = a
            arrays[f"{t.replace('?', 'b1')}_{'x'.join(map(str, shape)) or 'scalar'}_f"] = np.asfortranarray(a)
    return arrays


def zip_of(arrays, version, compression):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as z:
        for name, a in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, a, version=version)
            z.writestr(name + ".npy", member.getvalue())
    return out.getvalue()


def zip64_of(arrays):
    """Every limit of zip set low, so that all 64-bit records are written for small arrays."""
    limits = {"ZIP64_LIMIT": 10, "ZIP_FILECOUNT_LIMIT": 1}
    kept = {name: getattr(zipfile, name) for name in limits}
    try:
        for name, value in limits.items():
            setattr(zipfile, name, value)
        return zip_of(arrays, None, zipfile.ZIP_DEFLATED)
    finally:
        for name, value in kept.items():
            setattr(zipfile, name, value)


def main():
    program = pathlib.Path(sys.argv[1]) / "io_npz_test"
    if not program.exists():
        print(f"no {program}: skipped")
        return 77
    rng = np.random.default_rng(20260)
    arrays = make_arrays(rng)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)

        def copy(data, name="in.npz"):
            (scratch / name).write_bytes(data)
            done = subprocess.run(
                [program, "--copy", scratch / name, scratch / "out.npz"],
                capture_output=True,
                text=True,
                errors="replace",
            )
            return done.returncode, done.stderr

        def expect_copied(what, data, want, name="in.npz"):
            code, said = copy(data, name)
            assert code == 0, f"{what}: {said}"
            with np.load(scratch / "out.npz", allow_pickle=False) as got:
                assert sorted(got.files) == sorted(want), what
                for key, a in want.items():
                    assert got[key].dtype == a.dtype and got[key].shape == a.shape, (
                        what,
                        key,
                        got[key].dtype,
                        got[key].shape,
                    )
                    assert np.array_equal(got[key], a), (what, key)

        def expect_refused(what, data, words):
            code, said = copy(data)
            assert code == 3 and words in said and said.count("\n") == 1, (what, code, said)

        for save in (np.savez, np.savez_compressed):
            out = io.BytesIO()
            save(out, **arrays)
            expect_copied(save.__name__, out.getvalue(), arrays)
        for version in ((1, 0), (2, 0), (3, 0)):
            for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                expect_copied(
                    f"npy version {version}, method {compression}", zip_of(arrays, version, compression), arrays
                )
        expect_copied("zip64", zip64_of(arrays), arrays)
        for name in ("f4_2x3x4_f", "i8_scalar_c", "u1_0x4_c"):
            out = io.BytesIO()
            np.save(out, arrays[name])
            expect_copied(f"single {name}", out.getvalue(), {name: arrays[name]}, name + ".npy")
        large = {"large": rng.standard_normal((1000, 3000)).astype("f4")}
        out = io.BytesIO()
        np.savez_compressed(out, **large)
        expect_copied("large", out.getvalue(), large)
        expect_copied("our own", (scratch / "out.npz").read_bytes(), large)

        for what, a, words in (
            ("big-endian", np.arange(3, dtype=">f4"), "'>f4' is not read"),
            ("text", np.array(["a"]), "'<U1' is not read"),
            ("complex", np.zeros(2, "c8"), "'<c8' is not read"),
            ("records", np.zeros(2, [("a", "f4")]), "structured"),
            ("objects", np.array([None, {}], dtype=object), "'|O' is not read"),
        ):
            out = io.BytesIO()
            np.savez(out, x=a)
            expect_refused(what, out.getvalue(), words)
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as z:
            z.writestr("notes.txt", "hello")
        expect_refused("another zip", out.getvalue(), "member 'notes.txt': is not a .npy array")
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_BZIP2) as z:
            member = io.BytesIO()
            np.lib.format.write_array(member, np.arange(4))
            z.writestr("x.npy", member.getvalue())
        expect_refused("bzip2", out.getvalue(), "method 12")
        expect_refused("no zip at all", b"GIF89a", "neither")

        # Damage to packed bytes is reported, wherever it is, and never crashes.
        out = io.BytesIO()
        np.savez_compressed(out, **{k: arrays[k] for k in list(arrays)[:6]})
        good = out.getvalue()
        for _ in range(60):
            bad = bytearray(good[: rng.integers(1, len(good))]) if rng.random() < 0.5 else bytearray(good)
            bad[rng.integers(0, len(bad))] ^= 1 << rng.integers(0, 8)
            code, said = copy(bytes(bad))
            assert code in (0, 3), (code, said)
    print(f"{len(arrays)} arrays in 10 forms agree with numpy {np.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
