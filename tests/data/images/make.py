# SPDX-License-Identifier: Apache-2.0
"""Makes the images of this folder and expected.npz: what Pillow reads from them, and what its resize makes of rgb.png.

    python tests/data/images/make.py        (needs Pillow and numpy; the files it wrote are kept)
"""

import io
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent


def photo(height, width):
    """Smooth colours with some noise and a sharp edge."""
    random = np.random.default_rng(3)
    y, x = np.mgrid[:height, :width]
    planes = [127 + 90 * np.sin(x / 5 + c) * np.cos(y / 7 - c) for c in range(3)]
    picture = np.stack(planes, -1) + random.normal(0, 12, (height, width, 3))
    picture[height // 3 :, width // 2 :] *= 0.4
    return np.clip(picture, 0, 255).astype("u1")


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def huge_png(side):
    """A header that claims side x side pixels, over a few bytes."""
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def main():
    rgb = photo(37, 53)
    image = Image.fromarray(rgb)
    grey = image.convert("L")
    alpha = Image.fromarray(np.dstack([rgb, np.arange(37 * 53, dtype="u4").reshape(37, 53).astype("u1")]))
    deep = rgb[..., 0].astype("u2") * 257 + 100
    image.save(HERE / "rgb.png", optimize=True)
    grey.save(HERE / "grey.png")
    alpha.save(HERE / "alpha.png")
    image.quantize(16).save(HERE / "palette.png")
    image.convert("1").save(HERE / "one_bit.png")
    Image.fromarray(deep).save(HERE / "sixteen_bit.png")
    image.save(HERE / "rgb.jpg", quality=90, subsampling=0)
    image.save(HERE / "progressive.jpg", quality=90, subsampling=0, progressive=True)
    grey.save(HERE / "grey.jpg", quality=90)
    image.convert("CMYK").save(HERE / "cmyk.jpg", quality=70)
    (HERE / "huge.png").write_bytes(huge_png(60000))
    expected = {}
    for name in ("rgb.png", "grey.png", "alpha.png", "palette.png", "one_bit.png", "rgb.jpg", "progressive.jpg", "grey.jpg"):
        expected[name] = np.asarray(Image.open(HERE / name).convert("RGB"))
    # Pillow clips 16 bits where we round them.
    expected["sixteen_bit.png"] = np.repeat(np.round(deep / 257).astype("u1")[..., None], 3, -1)
    for filter, name in ((Image.BILINEAR, "bilinear"), (Image.BICUBIC, "bicubic")):
        for height, width in ((16, 16), (8, 20), (37, 20), (64, 53), (101, 97), (1, 1), (200, 5)):
            expected[f"{name}_{height}x{width}"] = np.asarray(image.resize((width, height), filter))
    out = io.BytesIO()
    np.savez_compressed(out, **expected)
    (HERE / "expected.npz").write_bytes(out.getvalue())


main()
