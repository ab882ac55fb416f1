#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calibration as users meet it: tessera calibrate, build --calib with arrays, images and ranges. Argument: the
folder with the program."""

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
PHOTOS = ROOT.parent / "shared" / "data" / "images"  # two photographs, where they are
FP8 = ("--precision", "fp8", "--no-verify", "--json")


def tessera(*words, code=0):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=Calibrate.folder)
    assert done.returncode == code, (
        f"tessera {' '.join(map(str, words))}: exit {done.returncode}, want {code}\n{done.stdout}{done.stderr}"
    )
    return done


def failure(*words, code):
    """The sentence on stderr, without its line breaks; nothing else may be printed."""
    done = tessera(*words, code=code)
    assert done.stdout == "", done.stdout
    lines = done.stderr.splitlines()
    assert lines[0].startswith("tessera: ") and all(line.startswith("  ") for line in lines[1:]), done.stderr
    return " ".join(line.strip() for line in lines)


def has_images():
    """Whether the program was built with both libraries."""
    done = subprocess.run(
        [PROGRAM, "calibrate", "tiny.onnx", "--calib", "probe", "--preprocess", "size=32", "-o", "probe.json"],
        capture_output=True,
        text=True,
        cwd=Calibrate.folder,
    )
    return "this build reads none" not in done.stderr


class Calibrate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        Calibrate.folder = pathlib.Path(scratch.name)
        tessera("zoo", "vit-tiny-test", "-o", "tiny.onnx", "--seed", 5)
        tessera("zoo", "vit-tiny-test", "-o", "other.onnx", "--seed", 6)
        cls.images = np.random.default_rng(8).standard_normal((11, 3, 32, 32)).astype("f4")
        np.savez(cls.folder / "in.npz", image=cls.images)
        for name in ("probe", "pictures"):
            (cls.folder / name / "deep").mkdir(parents=True)
        for name in ("rgb.png", "grey.jpg"):
            shutil.copy(IMAGES / name, cls.folder / "probe")
            shutil.copy(IMAGES / name, cls.folder / "pictures")
        shutil.copy(IMAGES / "alpha.png", cls.folder / "pictures" / "deep" / "ALPHA.PNG")
        tessera("calibrate", "tiny.onnx", "--calib", "in.npz", "-o", "ranges.json")
        cls.ranges = json.loads((cls.folder / "ranges.json").read_text())

    def test_the_file_says_what_was_seen(self):
        ranges = self.ranges
        self.assertEqual(ranges["how"], "amax over 11 samples of in.npz")
        self.assertEqual((ranges["method"], ranges["samples"], ranges["warnings"]), ("amax", 11, []))
        self.assertEqual(np.float32(ranges["values"]["image"]["amax"]), np.abs(self.images).max())
        magnitudes = np.sort(np.abs(self.images).ravel())
        for percent, clip in ranges["values"]["image"]["percentiles"].items():
            want = magnitudes[int(np.ceil(float(percent) / 100 * magnitudes.size)) - 1]
            self.assertLessEqual(abs(clip - want), want / 128, percent)  # within a bin
        for name, value in ranges["values"].items():
            self.assertEqual(set(value), {"amax", "percentiles", "mse"}, name)
            self.assertLessEqual(max(value["percentiles"].values()), value["amax"], name)
            self.assertLessEqual(max(value["mse"].values()), value["amax"] * (1 + 1e-6), name)
        self.assertTrue(all(len(line) < 400 for line in (self.folder / "ranges.json").read_text().splitlines()))

    def test_threads_do_not_matter(self):
        for threads in (1, 3):
            tessera("calibrate", "tiny.onnx", "--calib", "in.npz", "-o", f"t{threads}.json", "--threads", threads)
            self.assertEqual(
                (self.folder / f"t{threads}.json").read_bytes(), (self.folder / "ranges.json").read_bytes()
            )

    def test_ranges_and_samples_give_the_same_engine_but_for_the_sentence(self):
        said = {}
        np.savez(self.folder / "more.npz", image=self.images[:1], labels=np.zeros(1))
        more = json.loads(tessera("calibrate", "tiny.onnx", "--calib", "more.npz", "-o", "more.json", "--json").stdout)
        self.assertEqual(more["how"], "amax over 1 sample of more.npz")
        self.assertTrue(any("array 'labels' is read by no input" in w for w in more["warnings"]), more)
        for name, words in {
            "npz": ("in.npz",),
            "json": ("ranges.json",),
            "mse": ("ranges.json", "--calib-method", "mse"),
        }.items():
            said[name] = json.loads(tessera("build", "tiny.onnx", "-o", f"{name}.tess", *FP8, "--calib", *words).stdout)
        self.assertEqual(said["npz"]["calibration"], "amax over 11 samples of in.npz")
        self.assertEqual(said["json"]["calibration"], "amax over 11 samples of in.npz (ranges.json)")
        self.assertEqual(said["mse"]["calibration"], "mse over 11 samples of in.npz (ranges.json)")
        outputs = {}
        for name in said:
            tessera("run", f"{name}.tess", "-i", "in.npz", "-o", f"{name}.npz", "--no-verify")
            outputs[name] = np.load(self.folder / f"{name}.npz")["logits"]
        np.testing.assert_array_equal(outputs["npz"], outputs["json"])
        self.assertTrue(np.any(outputs["npz"] != outputs["mse"]))

    def test_an_edited_file_is_used_and_said_to_be(self):
        value = next(name for name in self.ranges["values"] if name != "image")
        edited = json.loads(json.dumps(self.ranges))
        for name in edited["values"]:
            edited["values"][name]["clip"] = 0.01
        (self.folder / "edited.json").write_text(json.dumps(edited, indent=1))
        said = json.loads(tessera("build", "tiny.onnx", "-o", "edited.tess", *FP8, "--calib", "edited.json").stdout)
        self.assertIn("edited by hand", said["calibration"])
        self.assertIn(f"{len(edited['values'])} clips set by hand", said["calibration"])
        tessera("run", "edited.tess", "-i", "in.npz", "-o", "edited.npz", "--no-verify")
        tessera("build", "tiny.onnx", "-o", "plain.tess", *FP8, "--calib", "ranges.json")
        tessera("run", "plain.tess", "-i", "in.npz", "-o", "plain.npz", "--no-verify")
        self.assertTrue(
            np.any(np.load(self.folder / "edited.npz")["logits"] != np.load(self.folder / "plain.npz")["logits"])
        )
        for entry, sentence in (
            ({"amax": -1}, f"value '{value}': amax is -1; a magnitude is not negative"),
            ({"clip": 2}, f"value '{value}' has no \"amax\""),
            ({"amax": "much"}, "wanted a finite number from 0 on"),
        ):
            edited["values"][value] = entry
            (self.folder / "wrong.json").write_text(json.dumps(edited))
            self.assertIn(
                sentence,
                failure("build", "tiny.onnx", "-o", "x.tess", "--precision", "fp8", "--calib", "wrong.json", code=3),
            )
        del edited["values"][value]
        (self.folder / "wrong.json").write_text(json.dumps(edited))
        self.assertIn(
            f"wrong.json: has no range for '{value}'",
            failure("build", "tiny.onnx", "-o", "x.tess", "--precision", "fp8", "--calib", "wrong.json", code=3),
        )
        self.assertFalse((self.folder / "x.tess").exists())

    def test_ranges_of_another_model_are_refused(self):
        said = failure("build", "other.onnx", "-o", "x.tess", "--precision", "fp8", "--calib", "ranges.json", code=3)
        self.assertIn("ranges.json: is of a model with other weights", said)

    def test_slips_get_a_sentence(self):
        for words, sentence in (
            (("--calib", "in.npz", "--method", "median"), "--method: 'median' is no way to choose ranges"),
            (("--calib", "in.npz", "--method", "percentile=101"), "wanted a percentile from 50 to below 100"),
            (("--calib", "in.npz", "--preprocess", "size=32"), "--preprocess is about a folder of images"),
            (("--calib", "ranges.json", "--samples", "3"), "ranges.json holds ranges and no samples"),
            (("--calib", "pictures", "--preprocess", "size=32,mean=1:2"), "'mean=1:2': wanted mean=0.5 or mean=R:G:B"),
            (("--calib", "pictures"), "--preprocess must say how they become inputs"),
            (("--calib", "in.npz", "-o", "in.npz"), "holds no ranges and would be overwritten"),
            (("--calib", "in.npz", "-o", "nowhere/x.json"), "there is no folder nowhere"),
        ):
            self.assertIn(sentence, failure("calibrate", "tiny.onnx", *words, code=2))
        self.assertIn(
            "input 'image', which is",
            failure("calibrate", "tiny.onnx", "--calib", "pictures", "--preprocess", "size=16", code=3),
        )
        (self.folder / "empty").mkdir(exist_ok=True)
        self.assertIn(
            "holds no .jpg, .jpeg or .png",
            failure("calibrate", "tiny.onnx", "--calib", "empty", "--preprocess", "size=32", code=3),
        )

    def test_useless_samples_are_said_to_be(self):
        def warnings(array, *words):
            np.savez(self.folder / "odd.npz", image=array)
            return " ".join(
                json.loads(
                    tessera("calibrate", "tiny.onnx", "--calib", "odd.npz", "-o", "odd.json", "--json", *words).stdout
                )["warnings"]
            )

        self.assertIn("is zero in every sample", warnings(np.zeros((4, 3, 32, 32), "f4")))
        self.assertIn("a single sample", warnings(self.images[:1]))
        self.assertIn(
            "whole numbers from 0 to 255, as pixels do", warnings(np.arange(4 * 3072).reshape(4, 3, 32, 32) % 256)
        )
        self.assertIn(
            "one number throughout in 2 of 4",
            warnings(np.concatenate([self.images[:2], np.ones((2, 3, 32, 32), "f4")])),
        )
        self.assertEqual("", warnings(self.images))
        done = tessera(
            "build",
            "tiny.onnx",
            "-o",
            "odd.tess",
            "--precision",
            "fp8",
            "--no-verify",
            "--calib",
            "odd.npz",
            "--calib-samples",
            1,
        )
        self.assertIn("a single sample", " ".join(done.stderr.split()))
        self.assertIn("a single sample", " ".join(tessera("inspect", "odd.tess").stdout.split()))

    def test_images(self):
        if not has_images():
            self.skipTest("built without libjpeg or libpng")
        words = ("--preprocess", "size=32,mean=0.5,std=0.5")
        tessera("calibrate", "tiny.onnx", "--calib", "pictures", *words, "-o", "pictures.json")
        ranges = json.loads((self.folder / "pictures.json").read_text())
        self.assertEqual(ranges["how"], "amax over 3 images of pictures")
        self.assertEqual(
            ranges["preprocess"], "size=32x32,mean=0.5:0.5:0.5,std=0.5:0.5:0.5,layout=nchw,fit=crop,filter=bilinear"
        )
        self.assertLessEqual(ranges["values"]["image"]["amax"], 1)
        self.assertGreater(ranges["values"]["image"]["amax"], 0.5)
        for calib in (("pictures", *words), ("pictures.json",)):
            tessera("build", "tiny.onnx", "-o", "pictures.tess", *FP8, "--calib", *calib)
            self.assertIn("size=32x32, mean=0.5:0.5:0.5, std=", tessera("inspect", "pictures.tess").stdout)
        few = json.loads(
            tessera(
                "calibrate", "tiny.onnx", "--calib", "pictures", *words, "-o", "few.json", "--samples", 2, "--json"
            ).stdout
        )
        self.assertEqual(few["how"], "amax over 2 of 3 images of pictures")
        for name, why in (("huge.png", "60000 x 60000"), ("cmyk.jpg", "CMYK")):
            bad = self.folder / name.split(".")[0]
            bad.mkdir()
            shutil.copy(IMAGES / name, bad)
            said = failure("calibrate", "tiny.onnx", "--calib", bad.name, *words, "-o", "bad.json", code=3)
            self.assertIn(name, said)
            self.assertIn(why, said)
        self.assertFalse((self.folder / "bad.json").exists())

    def test_photographs(self):
        if not has_images() or not PHOTOS.is_dir():
            self.skipTest("no photographs here, or built without libjpeg")
        tessera(
            "calibrate",
            "tiny.onnx",
            "--calib",
            PHOTOS,
            "--preprocess",
            "size=32,resize=40,mean=0.5,std=0.5",
            "-o",
            "photos.json",
        )
        self.assertEqual(json.loads((self.folder / "photos.json").read_text())["samples"], 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
