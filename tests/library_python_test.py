# SPDX-License-Identifier: Apache-2.0
"""The Python package on numpy arrays: answers are those of the command line, threads, errors, the GIL. Skipped where
the module was not built (no nanobind, no Python.h). Argument: the folder with the program."""

import contextlib
import io
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from python_package import BIN, DIGITS, FOLDER, np, tessera
from tessera._samples import converted


def program(*words, cwd):
    done = subprocess.run([BIN / "tessera", *map(str, words)], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr


class PythonTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        program("build", DIGITS / "vit.onnx", "-o", "digits.tess", "--precision", "fp8", "--calib",
                DIGITS / "calib.npz", "--batch", "1,8", "--quiet", cwd=cls.folder)  # fmt: skip
        with np.load(DIGITS / "test.npz") as arrays:
            cls.images = arrays["image"][:29].astype(np.float32)
        np.savez(cls.folder / "in.npz", image=cls.images)
        program("run", "digits.tess", "--inputs", "in.npz", "--outputs", "out.npz", cwd=cls.folder)
        with np.load(cls.folder / "out.npz") as arrays:
            cls.output = arrays.files[0]
            cls.want = arrays[cls.output]
        cls.path = cls.folder / "digits.tess"
        cls.engine = tessera.load(cls.path)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_any_number_of_samples(self):
        got = self.engine.run({"image": self.images})
        self.assertEqual(list(got), [self.output])
        self.assertEqual(got[self.output].tobytes(), self.want.tobytes())
        wide = self.engine.run({"image": self.images.astype(np.float64)[:, :, :, ::-1][:, :, :, ::-1]})
        self.assertEqual(wide[self.output].tobytes(), self.want.tobytes())

    def test_from_bytes(self):
        engine = tessera.load(self.path.read_bytes())
        self.assertEqual(engine.run({"image": self.images})[self.output].tobytes(), self.want.tobytes())

    def test_context(self):
        context = self.engine.context("batch8", threads=1)
        x = self.images[:8]
        y = context(x)
        self.assertIsInstance(y, np.ndarray)
        self.assertEqual(y.tobytes(), self.want[:8].tobytes())
        out = np.full_like(y, np.nan)
        self.assertIs(context(x, out=out), out)
        self.assertEqual(out.tobytes(), y.tobytes())
        self.assertIs(context(x, out=[out]), out)
        self.assertEqual([(p.name, p.shape) for p in context.inputs], [("image", [8, 1, 8, 8])])

    def test_what_does_not_fit(self):
        context = self.engine.context("batch8")
        x = self.images[:8]
        y = np.empty((8, 10), np.float32)
        for wrong, said in (
            ((x.astype(np.float64),), "f32"),
            ((x[:7],), r"\[7,1,8,8\]"),
            ((x[:, :, ::-1],), "dense rows"),
            ((x[0],), "3 dimensions"),
        ):
            with self.assertRaisesRegex(tessera.BadInputError, said):
                context(*wrong)
        with self.assertRaisesRegex(TypeError, "2 inputs were given where there are 1"):
            context(x, x)
        with self.assertRaisesRegex(TypeError, "no array"):
            context("image")
        y.flags.writeable = False
        with self.assertRaisesRegex(TypeError, "can be written"):
            context(x, out=y)
        with self.assertRaisesRegex(TypeError, "more tensors"):
            context(x, out=[np.empty((8, 10), np.float32)] * 2)
        for inputs, said in (({}, "no array for image"), ({"image": x, "mask": x}, "no input is called mask")):
            with self.assertRaisesRegex(tessera.BadInputError, said):
                self.engine.run(inputs)
        with self.assertRaisesRegex(tessera.BadInputError, "samples"):
            self.engine.run({"image": x[:0]})
        with self.assertRaises(ValueError):
            self.engine.context("batch77")
        with self.assertRaises(tessera.UsageError):
            self.engine.context("batch8", device="tpu")
        with self.assertRaisesRegex(tessera.Error, "no.tess"):
            tessera.load(self.folder / "no.tess")
        with self.assertRaises(tessera.BadInputError) as raised:
            tessera.load(self.path.read_bytes()[:999])
        self.assertEqual(raised.exception.code, 3)

    def test_numbers_that_would_change(self):
        """What engine.run converts stays what it was: no imaginary part, text or date is dropped or guessed at."""
        for wrong in (self.images.astype(complex), self.images.astype("U8"), self.images.astype("M8[s]"), None):
            with self.assertRaisesRegex(tessera.BadInputError, "real numbers are wanted"):
                self.engine.run({"image": wrong})
        for wrong in ("image", [self.images], self.images):
            with self.assertRaisesRegex(tessera.UsageError, "a dict of arrays"):
                self.engine.run(wrong)
        with self.assertRaisesRegex(tessera.BadInputError, "no array for image"):
            self.engine.run({1: self.images, "mask": self.images})
        bools = self.images > 0.5
        self.assertEqual(self.engine.run({"image": bools})[self.output].tobytes(),
                         self.engine.run({"image": bools.astype(np.float32)})[self.output].tobytes())  # fmt: skip

        class Ids:
            name, element, dtype = "ids", "i32", (0, 32, 1)

        for wrong in (np.array([1.5]), np.array([2**31]), np.array([-(2**40)]), np.array([np.nan])):
            with self.assertRaisesRegex(tessera.BadInputError, "no number of its type, i32"):
                converted(wrong, Ids, np.dtype("i4"))
        right = converted(np.array([3.0, -4.0, 2**31 - 1]), Ids, np.dtype("i4"))
        self.assertEqual((right.dtype, right.tolist()), (np.int32, [3, -4, 2**31 - 1]))

    def test_images_as_bytes(self):
        """The port is u8, channels last; floats are refused: they would be normalised twice."""
        numbers = ("--io", "image=u8,mean=0.25,std=0.5")
        for name, flags in (("bytes", numbers), ("floats", ())):
            program("build", DIGITS / "vit.onnx", "-o", f"{name}.tess", "--precision", "fp16", "--batch", "1,8",
                    "--quiet", *flags, cwd=self.folder)  # fmt: skip
        pixels = np.random.default_rng(4).integers(0, 256, (11, 8, 8, 1), dtype=np.uint8)
        x = ((pixels / 255.0 - 0.25) / 0.5).astype(np.float32).reshape(11, 1, 8, 8)
        engine, floats = (tessera.load(self.folder / f"{name}.tess") for name in ("bytes", "floats"))
        want = floats.run({"image": x})[self.output]
        np.testing.assert_array_equal(engine.run({"image": pixels})[self.output], want)
        context = engine.context("batch8")
        port = context.inputs[0]
        self.assertEqual((port.element, port.shape, port.dtype), ("u8", [8, 8, 8, 1], (1, 8, 1)))
        np.testing.assert_array_equal(context(pixels[:8]), want[:8])
        for wrong in (x.reshape(11, 8, 8, 1), pixels.astype(np.float32), pixels > 9):
            with self.assertRaisesRegex(tessera.BadInputError, r"it takes images as bytes, uint8 \[8, 8, 8, 1\]"):
                engine.run({"image": wrong})
        with self.assertRaisesRegex(tessera.BadInputError, r"holds f32 .*; u8 .* is wanted"):
            context(pixels[:8].astype(np.float32))

    def test_devices(self):
        """An engine for the CPU does not pass for one on a GPU."""
        for wrong in ("cuda", "cuda:0", "cuda:", "cpu:1", "tpu", 1, -1, 2**40, None, 0.5):
            for make in (self.engine.context, self.engine.session, self.engine.state):
                with self.assertRaisesRegex(tessera.UsageError, "the engine runs on the CPU: cpu is wanted"):
                    make(device=wrong)
        for right in ("cpu", 0):
            self.engine.context("batch8", device=right)

    def test_plans_of_sessions_and_graphs(self):
        self.assertEqual(self.engine.session(plans={"main": "batch8"})(self.images[:8]).shape, (8, 10))
        with self.assertRaisesRegex(tessera.BadInputError, "nope"):
            self.engine.session(plans={"main": "nope"})
        self.assertEqual(self.engine.context(graph="main").inputs[0].shape, [1, 1, 8, 8])
        with self.assertRaisesRegex(tessera.BadInputError, "no graph 'nope'"):
            self.engine.context(graph="nope")
        with self.assertRaisesRegex(tessera.UsageError, "threads"):
            self.engine.session(threads=99999)

    def test_outputs_have_memory_of_their_own(self):
        memory = np.zeros(8 * 64 + 80, np.float32)
        memory[:512] = self.images[:8].ravel()
        x, context = memory[:512].reshape(8, 1, 8, 8), self.engine.context("batch8")
        with self.assertRaisesRegex(tessera.BadInputError, "overlaps input 'image'"):
            context(x, out=memory[511:591].reshape(8, 10))
        y = context(x, out=memory[512:].reshape(8, 10))
        self.assertEqual(y.tobytes(), self.want[:8].tobytes())

    def test_errors_travel(self):
        """Between processes, as a pool sends them."""
        for kind in (tessera.BusyError, tessera.RefusedError, tessera.Error):
            there = pickle.loads(pickle.dumps(kind(6, "a sentence")))
            self.assertEqual((type(there), there.code, str(there)), (kind, 6, "a sentence"))

    def test_paths(self):
        with self.assertRaisesRegex(tessera.UsageError, "zero byte"):
            tessera.load(f"{self.path}\0.old")
        with self.assertRaisesRegex(tessera.BadInputError, "bytes of an engine: is not an engine file"):
            tessera.load(b"abc" * 99)

    def test_threads(self):
        wrong, busy, right = [], [], []

        def work(thread, context):
            for i in range(60):
                first = (7 * i + thread) % (len(self.images) - 8)
                try:
                    y = context(self.images[first : first + 8])
                except tessera.BusyError:
                    busy.append(first)
                    continue
                (right if np.allclose(y, self.want[first : first + 8], atol=1e-3) else wrong).append(first)

        shared = self.engine.context("batch8")
        threads = [threading.Thread(target=work, args=(t, shared)) for t in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])
        self.assertTrue(right)
        right.clear()
        busy.clear()
        threads = [threading.Thread(target=work, args=(t, self.engine.context("batch8", threads=1))) for t in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual((wrong, busy, len(right)), ([], [], 480))

    def test_run_in_threads(self):
        results = [None] * 6

        def work(i):
            results[i] = self.engine.run({"image": self.images[i:]})[self.output]

        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for i, got in enumerate(results):
            self.assertEqual(got.shape, (29 - i, 10))
            np.testing.assert_allclose(got, self.want[i:], atol=1e-3)

    def test_the_gil_is_released(self):
        """Another thread goes on during a long run: held, it would count nothing between begin and end."""
        many = np.repeat(self.images, 200, axis=0)
        count, stop = [0], threading.Event()

        def counting():
            while not stop.is_set():
                count[0] += 1

        thread = threading.Thread(target=counting)
        context = self.engine._handle.context(None, None, 0, 1, True, None)
        out = np.empty((len(many), 10), np.float32)
        context.run_samples([self.images], [out[: len(self.images)]])  # bound, and its golden values checked
        thread.start()
        before = count[0]
        context.run_samples([many], [out])
        during = count[0] - before
        stop.set()
        thread.join()
        self.assertGreater(during, 10_000)

    def test_ctrl_c_ends_a_run(self):
        """Of many samples, of a plan that takes them one by one and of one that takes them at once."""
        program("build", DIGITS / "vit.onnx", "-o", "large.tess", "--precision", "fp32", "--batch", "16384", "--quiet",
                "--no-verify", cwd=self.folder)  # fmt: skip
        source = (
            "import sys, time, numpy as np, tessera\n"
            "engine = tessera.load(sys.argv[1])\n"
            "x = np.zeros((int(sys.argv[2]), 1, 8, 8), np.float32)\n"
            "engine.run({'image': x[:1]}, verify=False)\n"
            "print('running', flush=True)\n"
            "start = time.monotonic()\n"
            "try:\n"
            "    while True: engine.run({'image': x}, verify=False)\n"
            "except KeyboardInterrupt:\n"
            "    print(time.monotonic() - start)\n"
            "engine.run({'image': x[:1]}, verify=False)\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(FOLDER)}
        for name, samples in (("digits.tess", 2_000_000), ("large.tess", 16384)):
            command = [sys.executable, "-c", source, self.folder / name, str(samples)]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            with subprocess.Popen(command, env=environment, **pipes) as child:
                self.assertEqual(child.stdout.readline(), "running\n")
                time.sleep(1)
                child.send_signal(signal.SIGINT)
                said, errors = child.communicate(timeout=120)
                self.assertEqual(child.returncode, 0, errors)
                self.assertLess(float(said), 5, "the run went on to its end")

    def test_ctrl_c_ends_a_session(self):
        """Between its steps, so that the result is never written, also where another thread's calls are turned away
        meanwhile; and another thread's cancel()."""
        program("build", DIGITS / "vit.onnx", "-o", "session.tess", "--precision", "fp32", "--batch", "4096",
                "--quiet", "--no-verify", cwd=self.folder)  # fmt: skip
        source = (
            "import logging, sys, threading, numpy as np, tessera\n"
            "logging.getLogger('tessera').setLevel(logging.ERROR)\n"  # it has no golden values, and says so
            "session = tessera.load(sys.argv[1]).session(verify=False, threads=1)\n"
            "x, y = np.zeros((4096, 1, 8, 8), np.float32), np.empty((4096, 10), np.float32)\n"
            "session(x)\n"
            "stop = threading.Event()\n"
            "def disturb():\n"
            "    while not stop.is_set():\n"
            "        try: session(x[:1])\n"
            "        except (tessera.BusyError, tessera.BadInputError): pass\n"
            "thread = threading.Thread(target=disturb)\n"
            "thread.start()\n"
            "for _ in range(3):\n"
            "    print('running', flush=True)\n"
            "    try:\n"
            "        while True:\n"
            "            y[:] = np.nan\n"
            "            try: session(x, out=y)\n"
            "            except tessera.BusyError: pass\n"
            "    except KeyboardInterrupt:\n"
            "        print('ended' if np.isnan(y).any() else 'late', flush=True)\n"
            "stop.set()\n"
            "thread.join()\n"
            "stop.clear()\n"
            "def cancel():\n"
            "    while not stop.wait(0.01): session.cancel()\n"
            "thread = threading.Thread(target=cancel)\n"
            "thread.start()\n"
            "try:\n"
            "    session(x)\n"
            "except tessera.CancelledError:\n"
            "    print('cancelled')\n"
            "stop.set()\n"
            "thread.join()\n"
            "session(x)\n"
        )
        command = [sys.executable, "-c", source, self.folder / "session.tess"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environment = {**os.environ, "PYTHONPATH": str(FOLDER)}
        with subprocess.Popen(command, env=environment, **pipes) as child:
            ends = []
            for _ in range(3):
                self.assertEqual(child.stdout.readline(), "running\n")
                time.sleep(0.5)
                child.send_signal(signal.SIGINT)
                ends.append(child.stdout.readline().strip())
            said, errors = child.communicate(timeout=120)
        self.assertEqual((child.returncode, errors, said), (0, "", "cancelled\n"))
        self.assertIn("ended", ends)  # one may come between the last step and the end

    def test_state_and_lifetime(self):
        context = tessera.load(self.path).context("batch1")  # the engine itself is gone
        np.testing.assert_allclose(context(self.images[:1]), self.want[:1], atol=1e-3)
        state = self.engine.state()
        state.clear()
        self.assertEqual(self.engine.context("batch1", state=state)(self.images[:1]).shape, (1, 10))

    def test_session(self):
        session = self.engine.session(batch=8)
        self.assertEqual([p.name for p in session.inputs], ["image"])
        self.assertEqual(session(self.images[:8]).tobytes(), self.want[:8].tobytes())

    def test_what_it_shows(self):
        self.assertEqual([p.name for p in self.engine.plans], ["batch1", "batch8"])
        self.assertIn("batch1, batch8", repr(self.engine))
        rows = self.engine.table("batch8")
        self.assertTrue(any("e4m3" in stored for _, _, stored, _ in rows), rows)
        html = self.engine._repr_html_()
        self.assertEqual(html.count("<tr>"), sum(len(self.engine.table(p.name)) + 1 for p in self.engine.plans))
        self.assertIn("<th>asked</th><th>stored</th><th>computed</th>", html)
        memory = self.engine.memory("batch8")
        self.assertGreater(memory.weights_bytes, 0)
        self.assertEqual(memory.arena_bytes, self.engine.plans[1].arena_bytes)

    def test_import_brings_nothing_along(self):
        code = (
            f"import sys; sys.path.insert(0, {str(BIN.parent / 'python')!r}); before = set(sys.modules);"
            "import tessera;"
            "slow = {'numpy', 'torch', 'logging', 'json', 'html', 're', 'typing', 'tessera._tessera_build'};"
            "print(sorted(slow & (set(sys.modules) - before)))"
        )
        self.assertEqual(subprocess.check_output([sys.executable, "-c", code], text=True).strip(), "[]")

    def test_the_example_runs(self):
        example = DIGITS.parent.parent / "examples" / "python" / "digits.py"
        said = subprocess.check_output([sys.executable, example, self.path, DIGITS / "test.npz"], text=True,
                                       env={**os.environ, "PYTHONPATH": str(FOLDER)})  # fmt: skip
        self.assertRegex(said, r"^360 images, 9\d\.\d % right\n")

    def test_prints_nothing(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            self.engine.run({"image": self.images[:1]})
        self.assertEqual(said.getvalue(), "")


if __name__ == "__main__":
    unittest.main()
