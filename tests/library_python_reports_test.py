# SPDX-License-Identifier: Apache-2.0
"""tessera.verify, inspect and sensitivity: what the commands print with --json; arrays, progress, the GIL. Skipped
where the module was not built. Argument: the folder with the program."""

import json
import pathlib
import subprocess
import tempfile
import threading
import unittest

from python_package import BIN, DIGITS, np, tessera

MODEL, CALIB = DIGITS / "vit.onnx", DIGITS / "calib.npz"


class ReportsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.engine = cls.folder / "digits.tess"
        tessera.build(MODEL, cls.engine, precision="fp8", calib=CALIB, batch=[1, 4])
        with np.load(CALIB) as arrays:
            cls.image = arrays["image"]

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def printed(self, *words, code=0):
        done = subprocess.run([BIN / "tessera", *map(str, words), "--json"], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def test_inspect(self):
        self.assertEqual(tessera.inspect(self.engine), self.printed("inspect", self.engine))
        scales = tessera.inspect(str(self.engine), scales=True)
        self.assertEqual(scales, self.printed("inspect", self.engine, "--scales"))
        self.assertTrue(any("numbers" in c for c in scales["constants"]))
        with self.assertRaises(tessera.BadInputError):
            tessera.inspect(MODEL)

    def test_an_engine_for_another_machine_is_inspected(self):
        other = self.folder / "sm90.tess"
        tessera.build(MODEL, other, precision="fp16", target="sm90")
        self.assertTrue(any(p["arch"] == "sm90" for p in tessera.inspect(other)["plans"]))

    def test_verify(self):
        got = tessera.verify(self.engine, kinds=["normal", "large"], samples=3, seed=7, model=MODEL, plan="batch4")
        want = self.printed("verify", self.engine, "--kinds", "normal,large", "--samples", 3, "--seed", 7, "--model",
                            MODEL, "--plan", "batch4")  # fmt: skip
        self.assertEqual(got, want)
        self.assertTrue(got["ok"])
        self.assertEqual(tessera.verify(self.engine), self.printed("verify", self.engine))

    def test_verify_of_arrays(self):
        seen = []
        got = tessera.verify(self.engine, inputs={"image": self.image[:6]}, model=MODEL, layers=False,
                             progress=lambda *p: seen.append(p))  # fmt: skip
        np.savez(self.folder / "arrays.npz", image=self.image[:6])
        want = self.printed("verify", self.engine, "--inputs", self.folder / "arrays.npz", "--model", MODEL,
                            "--outputs-only")  # fmt: skip
        self.assertEqual(got, want)
        self.assertIn("verifying", [what for what, _, _ in seen])

    def test_an_engine_that_strays(self):
        got = tessera.verify(self.engine, min_cosine=0.9999999)
        self.assertFalse(got["ok"])
        self.assertIn("cosine", got["sentence"])
        self.assertEqual(got, self.printed("verify", self.engine, "--min-cosine", "0.9999999", code=1))

    def test_sensitivity(self):
        got = tessera.sensitivity(MODEL, precision="nvfp4", calib=CALIB, calib_samples=8)
        want = self.printed("sensitivity", MODEL, "--precision", "nvfp4", "--calib", CALIB, "--samples", 8)
        self.assertEqual(got, want)
        arrays = tessera.sensitivity(MODEL, precision="nvfp4", calib={"image": self.image[:8]})
        self.assertEqual(arrays["layers"], want["layers"])
        with self.assertRaisesRegex(tessera.UsageError, "--io"):
            tessera.sensitivity(MODEL, precision="nvfp4", calib=CALIB, io="logits=u9")
        with self.assertRaisesRegex(tessera.UsageError, "nobody"):
            tessera.sensitivity(MODEL, precision="nvfp4", calib=CALIB, family="nobody")

    def test_what_is_wrong(self):
        with self.assertRaises(tessera.BadInputError):
            tessera.verify("no.tess")
        with self.assertRaisesRegex(tessera.UsageError, "kinds"):
            tessera.verify(self.engine, kinds="loud")
        with self.assertRaisesRegex(tessera.UsageError, "an array for each input"):
            tessera.verify(self.engine, inputs={})
        with self.assertRaisesRegex(tessera.UsageError, "it has no scales"):
            tessera.sensitivity(MODEL, precision="fp16", calib=CALIB)
        with self.assertRaisesRegex(tessera.UsageError, "progress is 3"):
            tessera.verify(self.engine, progress=3)

    def test_what_progress_raises_ends_the_work(self):
        def stop(what, done, total):
            raise KeyError(what)

        with self.assertRaises(KeyError):
            tessera.verify(self.engine, progress=stop)
        with self.assertRaises(KeyError):
            tessera.sensitivity(MODEL, precision="nvfp4", calib=CALIB, calib_samples=8, progress=stop)

    def test_the_gil_is_released(self):
        for work in (
            lambda: tessera.verify(self.engine, kinds="normal"),
            lambda: tessera.sensitivity(MODEL, precision="nvfp4", calib=CALIB, calib_samples=8),
        ):
            count, stop = [0], threading.Event()

            def counting(count=count, stop=stop):
                while not stop.is_set():
                    count[0] += 1

            thread = threading.Thread(target=counting)
            thread.start()
            before = count[0]
            work()
            during = count[0] - before
            stop.set()
            thread.join()
            self.assertGreater(during, 10_000)


if __name__ == "__main__":
    unittest.main()
