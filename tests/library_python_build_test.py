# SPDX-License-Identifier: Apache-2.0
"""tessera.build: paths and arrays, progress, what is raised from it, refusals, the GIL. Skipped where the module was
not built. Argument: the folder with the program."""

import pathlib
import pickle
import tempfile
import threading
import unittest

from python_package import DIGITS, np, tessera

MODEL = DIGITS / "vit.onnx"


class BuildTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.path = pathlib.Path(self.scratch.name) / "digits.tess"
        with np.load(DIGITS / "calib.npz") as arrays:
            self.calib = dict(arrays)
        with np.load(DIGITS / "test.npz") as arrays:
            self.images, self.labels = arrays["image"], arrays["label"]

    def accuracy(self):
        logits = tessera.load(self.path).run({"image": self.images})["logits"]
        return np.mean(logits.argmax(1) == self.labels)

    def test_from_arrays(self):
        seen = []
        tessera.build(MODEL, self.path, precision="fp8", calib={"image": self.calib["image"]}, batch=[1, 8],
                      progress=lambda what, done, total: seen.append((what, done, total)))  # fmt: skip
        engine = tessera.load(self.path)
        self.assertEqual([p.batch for p in engine.plans], [1, 8])
        self.assertTrue(any("e4m3" in stored for _, _, stored, _ in engine.table()))
        self.assertGreater(self.accuracy(), 0.9)
        self.assertIn("calibrating", [what for what, _, _ in seen])
        self.assertTrue(all(0 <= done <= total for _, done, total in seen), seen)

    def test_from_a_path(self):
        tessera.build(str(MODEL), str(self.path), precision="fp8", calib=DIGITS / "calib.npz", batch=4)
        self.assertGreater(self.accuracy(), 0.9)

    def test_refusals(self):
        with self.assertRaisesRegex(tessera.RefusedError, "layers cannot run as asked on sm90"):
            tessera.build(MODEL, self.path, precision="mxfp8", target="sm90")
        with self.assertRaises(tessera.RefusedError) as raised:
            tessera.build(MODEL, self.path, precision="mxfp8", target="sm90")
        error = raised.exception
        self.assertGreater(len(error.layers), 1)
        for layer in error.layers:
            self.assertEqual(layer.asked, "mxfp8" if layer.op == "matmul" else "", layer)
            self.assertIn(layer.layer, str(error))
            self.assertTrue(layer.refusals, layer)
            for kernel, reason in layer.refusals:
                self.assertTrue(kernel.startswith(f"{layer.op}/"), kernel)
                self.assertIn(f"{kernel}: {reason}", str(error))
        self.assertTrue(any(layer.op == "matmul" for layer in error.layers))
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(again), again.code, again.layers), (str(error), error.code, error.layers))
        with self.assertRaises(tessera.RefusedError) as raised:
            tessera.build(MODEL, self.path, precision="bf16", attention="fp16")
        self.assertEqual(raised.exception.layers, (), "that is about no layer")
        with self.assertRaises(tessera.BadInputError):
            tessera.build("no.onnx", self.path)
        with self.assertRaisesRegex(ValueError, "fp9"):
            tessera.build(MODEL, self.path, precision="fp9")
        self.assertFalse(self.path.exists())

    def test_arguments(self):
        for wrong, said in (
            ({"batch": "8"}, "a sequence of sizes"),
            ({"batch": 1.5}, "a sequence of sizes"),
            ({"batch": [1, None]}, "a sequence of sizes"),
            ({"calib": {}}, "an array for each input"),
            ({"progress": 3}, "progress is 3"),
            ({"allow": "no.layer=fp16"}, "no.layer: no linear layer"),
        ):
            with self.assertRaisesRegex(tessera.UsageError, said):
                tessera.build(MODEL, self.path, precision="fp16", **wrong)
        self.assertFalse(self.path.exists())
        tessera.build(MODEL, self.path, precision="fp16", batch=np.int64(2))
        self.assertEqual([p.batch for p in tessera.load(self.path).plans], [2])

    def test_what_progress_raises_ends_the_build(self):
        def stop(what, done, total):
            raise KeyError(what)

        with self.assertRaises(KeyError):
            tessera.build(MODEL, self.path, precision="fp8", calib=DIGITS / "calib.npz", progress=stop)
        self.assertFalse(self.path.exists())

    def test_the_gil_is_released(self):
        count, stop = [0], threading.Event()

        def counting():
            while not stop.is_set():
                count[0] += 1

        thread = threading.Thread(target=counting)
        thread.start()
        before = count[0]
        tessera.build(MODEL, self.path, precision="fp16")
        during = count[0] - before
        stop.set()
        thread.join()
        self.assertGreater(during, 10_000)


if __name__ == "__main__":
    unittest.main()
