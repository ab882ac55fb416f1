#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Images as bytes: tessera build --io image=u8, from bytes, floats and folders of images to results.

python3 tests/bytes_test.py FOLDER_OF_PROGRAMS"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    print("no numpy: skipped")
    sys.exit(77)

PROGRAM = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "build/release/bin").resolve() / "tessera"
ROOT = pathlib.Path(__file__).resolve().parent.parent
IMAGES = ROOT / "tests" / "data" / "images"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NUMBERS = "mean=0.485:0.456:0.406,std=0.229:0.224:0.225"
IO = ("--io", f"image=u8,{NUMBERS}")


def tessera(*words, code=0):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=Bytes.folder)
    assert done.returncode == code, f"exit {done.returncode}, want {code}: {words}\n{done.stdout}{done.stderr}"
    return done


def failure(*words, code):
    lines = tessera(*words, code=code).stderr.splitlines()
    assert lines and lines[0].startswith("tessera: "), lines
    assert all(line.startswith("  ") for line in lines[1:]), lines
    return " ".join(line.strip() for line in lines)


def numbers(pixels, mean=MEAN, std=STD):
    """What prepare_image makes: in f64, rounded once."""
    return ((pixels / 255.0 - np.array(mean)) / np.array(std)).astype("f4")


def outputs(engine, inputs, output="logits"):
    tessera("run", engine, "-i", inputs, "-o", "out.npz", "--quiet")
    with np.load(Bytes.folder / "out.npz") as arrays:
        return arrays[output]


class Bytes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        Bytes.folder = pathlib.Path(scratch.name)
        tessera("zoo", "vit-tiny-test", "-o", "tiny.onnx", "--seed", 5)
        cls.pixels = np.random.default_rng(8).integers(0, 256, (8, 32, 32, 3), dtype=np.uint8)
        cls.x = np.ascontiguousarray(numbers(cls.pixels).transpose(0, 3, 1, 2))
        np.savez(cls.folder / "bytes.npz", image=cls.pixels)
        np.savez(cls.folder / "floats.npz", image=cls.x)

    def test_the_bits_of_a_model_that_takes_floats(self):
        """A byte's number is looked up, so what follows is the same to the bit, in every type that layers run in."""
        for precision in ("fp32", "fp16", "bf16"):
            tessera("build", "tiny.onnx", "-o", "f.tess", "--precision", precision, "--batch", "1,4", "--quiet")
            tessera("build", "tiny.onnx", "-o", "u.tess", "--precision", precision, "--batch", "1,4", "--quiet", *IO)
            want, got = outputs("f.tess", "floats.npz"), outputs("u.tess", "bytes.npz")
            np.testing.assert_array_equal(got, want)
            # Another image, or another normalisation, is not the same.
            self.assertGreater(np.abs(got[0] - got[1]).max(), 1e-3)
            done = tessera("build", "tiny.onnx", "-o", "v.tess", "--precision", precision, "--io", "image=u8")
            said = "input image: image bytes: (byte / 255 - mean) / std with mean 0 and std 1"
            self.assertIn(said, " ".join(done.stdout.split()))  # nobody takes the default unawares
            self.assertGreater(np.abs(outputs("v.tess", "bytes.npz") - want).max(), 1e-3)
            tessera("verify", "u.tess", "--model", "tiny.onnx")
        said = tessera("inspect", "u.tess").stdout
        self.assertIn("image [batch,32,32,3] u8", said)
        self.assertIn("(byte / 255 - mean) / std with mean 0.485:0.456:0.406", " ".join(said.split()))
        steps = {e: json.loads(tessera("inspect", f"{e}.tess", "--json").stdout)["plans"][0]["steps"] for e in "fu"}
        self.assertEqual(len(steps["u"]), len(steps["f"]) + 1)  # the look-up; patches are copied as before

    def test_in_low_precision(self):
        """Scales are of the same numbers, whether samples come as bytes or as floats."""
        build = ("build", "tiny.onnx", "--precision", "fp8", "--quiet")
        tessera(*build, "-o", "f.tess", "--calib", "floats.npz", "--io", "logits=fp16")
        want = outputs("f.tess", "floats.npz").astype("f8")
        both = []
        for calib in ("bytes.npz", "floats.npz"):
            tessera(*build, "-o", "u.tess", "--calib", calib, "--io", "*=fp16", *IO)
            got = outputs("u.tess", "bytes.npz")
            self.assertEqual(got.dtype, "f2")
            both.append(got.tobytes())
            # Patches are rounded to f16 before they are to e4m3: 1 code in 2^8 may be the next, 2^-3 of itself away.
            self.assertLess(np.linalg.norm(got - want), 2**-7 * np.linalg.norm(want))
            tessera("verify", "u.tess", "--model", "tiny.onnx", "--inputs", "bytes.npz")
        self.assertEqual(*both)
        tessera("calibrate", "tiny.onnx", "--calib", "bytes.npz", "-o", "u.json", *IO)
        tessera(*build, "-o", "u.tess", "--calib", "u.json", *IO)
        tessera("bench", "u.tess", "--repeats", 2)
        tessera("sensitivity", "tiny.onnx", "--precision", "fp8", "--calib", "bytes.npz", *IO)
        tessera("check", "tiny.onnx", *IO)

    def test_samples_that_show_nothing(self):
        for name, pixels, said in (
            ("zero", np.zeros_like(self.pixels), "is zero in every sample"),
            ("grey", np.full_like(self.pixels, 128), "is one number throughout in 8 of 8 samples"),
            ("same", np.repeat(self.pixels[:1], 8, 0), "is the same in all 8 samples"),
            ("good", self.pixels, ""),
        ):
            np.savez(self.folder / f"{name}.npz", image=pixels)
            told = " ".join(
                tessera("calibrate", "tiny.onnx", "--calib", f"{name}.npz", "-o", "n.json", *IO).stderr.split()
            )
            self.assertIn(said, told)
            self.assertEqual("input 'image'" in told, said != "", told)

    def test_floats_are_taken_back_or_refused(self):
        """Floats that the same mean and std made become the bytes again; others would be normalised twice, or not."""
        tessera("build", "tiny.onnx", "-o", "u.tess", "--precision", "fp32", "--quiet", *IO)
        want = outputs("u.tess", "bytes.npz")
        arrays = {
            "first": self.x,
            "last": numbers(self.pixels),
            "half": self.x.astype("f2"),
            "double": self.x.astype("f8"),
            "one": self.x[0],
        }
        for name, x in arrays.items():
            np.savez(self.folder / "some.npz", image=x)
            np.testing.assert_array_equal(outputs("u.tess", "some.npz"), want[:1] if name == "one" else want)
        bad = {
            "pixels": self.pixels.astype("f4"),
            "to one": (self.pixels / 255).astype("f4"),
            "other": numbers(self.pixels, (0.5,), (0.5,)),
            "nearly": self.x + np.float32(1e-3),
            "nan": np.where(self.x > 2, np.nan, self.x),
        }
        for name, x in bad.items():
            np.savez(self.folder / "some.npz", image=x)
            said = failure("run", "u.tess", "-i", "some.npz", code=3)
            self.assertIn("which no byte becomes: give bytes (uint8), or floats that are", said, name)
            self.assertIn(NUMBERS, said)
        np.savez(self.folder / "some.npz", image=np.ascontiguousarray(self.pixels.transpose(0, 3, 1, 2)))
        self.assertIn("has shape [8,3,32,32]; wanted 'image' [batch,32,32,3]",
                      failure("run", "u.tess", "-i", "some.npz", code=3))  # fmt: skip
        np.savez(self.folder / "some.npz", image=self.pixels.astype("i8") + 1)
        self.assertIn("holds 256 ", failure("run", "u.tess", "-i", "some.npz", code=3))

    def test_a_model_in_memory(self):
        np.save(self.folder / "bytes.npy", self.pixels)
        results = []
        for inputs, io in (("floats.npz", ()), ("bytes.npz", IO), ("bytes.npy", IO), ("floats.npz", IO)):
            tessera("run", "tiny.onnx", "--precision", "fp32", "-i", inputs, "-o", "out.npz", "--quiet", *io)
            results.append(np.load(self.folder / "out.npz")["logits"])
        for other in results[1:]:
            np.testing.assert_array_equal(other, results[0])

    def test_axes_that_the_model_leaves_open(self):
        try:
            import onnx
        except ImportError:
            self.skipTest("no onnx to make models with")
        helper, kind = onnx.helper, onnx.TensorProto.FLOAT
        weight = np.random.default_rng(4).standard_normal((5, 3, 3, 3)).astype("f4")
        for name, shape, perm in (("first", ["n", 3, "h", "w"], None), ("last", ["n", "h", "w", 3], [0, 3, 1, 2])):
            nodes = [] if perm is None else [helper.make_node("Transpose", ["image"], ["x"], perm=perm)]
            nodes += [
                helper.make_node("Conv", ["image" if perm is None else "x", "w"], ["c"], pads=[1, 1, 1, 1]),
                helper.make_node("ReduceMean", ["c"], ["y"], axes=[2, 3], keepdims=0),
            ]
            graph = helper.make_graph(
                nodes,
                name,
                [helper.make_tensor_value_info("image", kind, shape)],
                [helper.make_tensor_value_info("y", kind, ["n", 5])],
                [onnx.numpy_helper.from_array(weight, "w")],
            )
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
            onnx.save(model, self.folder / "open.onnx")
            for io, mean, std in ((NUMBERS, MEAN, STD), ("std=0.5,mean=0.5", (0.5,), (0.5,))):
                x = numbers(self.pixels[:3, :20], mean, std)
                np.savez(self.folder / "some.npz", image=self.pixels[:3, :20])
                np.savez(self.folder / "other.npz", image=x if perm else np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
                both = []
                for inputs, flags in (("some.npz", ("--io", f"image=u8,{io}")), ("other.npz", ())):
                    tessera("run", "open.onnx", "--precision", "fp32", "-i", inputs, "-o", "out.npz", *flags)
                    both.append(np.load(self.folder / "out.npz")["y"])
                np.testing.assert_array_equal(*both)
                padded = np.pad(x.astype("f8"), ((0, 0), (1, 1), (1, 1), (0, 0)))
                windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
                want = np.einsum("nhwcij,ocij->no", windows, weight) / (20 * 32)
                np.testing.assert_allclose(both[0], want, rtol=0, atol=1e-5)
        said = failure("run", "open.onnx", "-i", "floats.npz", "--io", "image=u8", "--shape", "image=8,32,32,3", code=3)
        self.assertIn("which no byte becomes", said)

    def test_folders_of_images(self):
        pictures = self.folder / "pictures"
        pictures.mkdir(exist_ok=True)
        for name in ("rgb.png", "grey.jpg", "alpha.png"):
            shutil.copy(IMAGES / name, pictures)
        calib = ("--calib", "pictures", "--preprocess")
        done = subprocess.run(
            [PROGRAM, "calibrate", "tiny.onnx", *calib, "size=32", "-o", "probe.json"],
            capture_output=True, text=True, cwd=self.folder,
        )  # fmt: skip
        if "this build reads none" in done.stderr:
            self.skipTest("built without libjpeg or libpng")
        tessera("calibrate", "tiny.onnx", *calib, f"size=32,{NUMBERS}", "-o", "f.json")
        tessera("calibrate", "tiny.onnx", *calib, "size=32", "-o", "u.json", *IO)
        f, u = (json.loads((self.folder / f"{e}.json").read_text()) for e in "fu")
        self.assertEqual(u["preprocess"], f["preprocess"])
        for name, value in f["values"].items():
            if name != "image":
                self.assertEqual(u["values"][name], value)
        build = ("build", "tiny.onnx", "-o", "u.tess", "--precision", "fp8", "--quiet")
        tessera(*build, *IO, *calib, "size=32")
        self.assertIn("std=0.229:0.224:0.225", tessera("inspect", "u.tess").stdout)
        # What the engine does must not be done before it as well.
        for words in (NUMBERS, "mean=0.5", "layout=nchw"):
            said = failure(*build, *IO, *calib, f"size=32,{words}", code=2)
            self.assertIn(f"'image' takes bytes, and the engine normalises them by {NUMBERS},layout=nchw", said)

    def test_for_hopper(self):
        """Built, not run: one kernel more than the model with floats has, and the copy of the caller's bytes."""
        for precision, io in (("fp16", ("--io", "logits=fp16")), ("fp8", ())):
            steps = {}
            for name, more in (("f", ()), ("u", IO)):
                tessera("build", "tiny.onnx", "-o", f"{name}.tess", "--target", "sm90", "--precision", precision,
                        "--batch", "1,8", "--quiet", *io, *more)  # fmt: skip
                plan = json.loads(tessera("inspect", f"{name}.tess", "--json").stdout)["plans"][0]
                steps[name] = [s["variant"] for s in plan["steps"]]
            self.assertEqual(steps["u"].count("gather/cuda"), steps["f"].count("gather/cuda") + 1)
            self.assertLessEqual(len(steps["u"]), len(steps["f"]) + 2)

    def test_refusals(self):
        build = ("build", "tiny.onnx", "-o", "no.tess", "--quiet")
        for io, said in (
            ("image=u8,mean=1:2", "which has 3 channels, and mean has 2 numbers"),
            ("image=u8,std=0", "above zero"),
            ("image=u8,std=nan", "above zero"),
            ("image=u8,mean=123.7", "a mean of 123.7 of 255 is 0.485"),
            ("image=u8,layout=nhwc", "so it has 32 channels there; an image has 1, 3 or 4 channels"),
            ("logits=u8", "'logits' is an output; bytes are of image inputs"),
            ("image=u16", "wanted NAME=TYPE"),
        ):
            self.assertIn(said, failure(*build, "--io", io, code=2))
        self.assertFalse((self.folder / "no.tess").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
