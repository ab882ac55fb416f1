# SPDX-License-Identifier: Apache-2.0
"""The Python package as somebody uses it who has read its first page: arrays of every kind, arguments that are wrong,
what is printed, pickling. Skipped where the module was not built. Argument: the folder with the program."""

import copy
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest

from python_package import DIGITS, FOLDER, np, tessera
from tessera import _tessera

MODEL = DIGITS / "vit.onnx"
TYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")


def answer(engine, images):
    return engine.run({"image": images})["logits"]


class UseTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.path = cls.folder / "digits.tess"
        tessera.build(MODEL, cls.path, precision="fp16", batch=[1, 8])
        cls.engine = tessera.load(cls.path)
        with np.load(DIGITS / "test.npz") as arrays:
            cls.images = arrays["image"][:16].astype(np.float32)
        cls.want = answer(cls.engine, cls.images)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_arrays_of_every_kind_are_samples(self):
        large = np.zeros((32, 1, 8, 8), np.float32)
        large[::2] = self.images
        for what, images in (
            ("list", self.images.tolist()),
            ("tuple of arrays", tuple(self.images)),
            ("strided", large[::2]),
            ("backwards", self.images[::-1][::-1]),
            ("columns first", np.asfortranarray(self.images)),
            ("the other byte order", self.images.astype(">f4")),
            ("masked", np.ma.masked_array(self.images)),
            ("read only", np.frombuffer(self.images.tobytes(), np.float32).reshape(self.images.shape)),
            ("float64", self.images.astype(np.float64)),
            ("memoryview", memoryview(self.images)),
        ):
            with self.subTest(what):
                self.assertEqual(answer(self.engine, images).tobytes(), self.want.tobytes())
        bytes_ = (self.images * 16).round().astype(np.uint8)
        self.assertEqual(answer(self.engine, bytes_).tobytes(),
                         answer(self.engine, bytes_.astype(np.float32)).tobytes())  # fmt: skip

    def test_what_is_no_array_is_said_by_name(self):
        for wrong in ([[1, 2], [3]], "text", object(), None, [None]):
            with self.subTest(repr(wrong)), self.assertRaisesRegex(tessera.BadInputError, "input 'image'"):
                answer(self.engine, wrong)
        for wrong, said in (
            (3.0, "0 dimensions"),
            (self.images[0], "3 dimensions"),
            (self.images[:, :, 1:], "samples"),
        ):
            with self.subTest(repr(said)), self.assertRaisesRegex(tessera.BadInputError, f"'image'.*{said}"):
                answer(self.engine, wrong)

    def test_numpy_is_read_where_it_lies(self):
        """Its arrays without the buffer protocol, which serves for everything else; both see the same."""
        for name in TYPES:
            array = np.zeros((2, 3), name)
            self.assertTrue(_tessera.reads_numpy(array), name)
            self.assertTrue(_tessera.reads_numpy(array.T[::-1]), name)
        for other in (np.zeros(2, ">f4"), np.zeros(2, bool), np.zeros(2, complex), np.zeros(2, "M8[s]"),
                      np.zeros(2, [("a", "f4")]), np.zeros(2, object), np.zeros(2).view(np.recarray), memoryview(b"ab"),
                      [1.0]):  # fmt: skip
            self.assertFalse(_tessera.reads_numpy(other), repr(other))
        context = self.engine.context("batch8")
        x, y = self.images[:8], np.empty((8, 10), np.float32)
        for same in (x, memoryview(x), x.view(np.recarray), x.reshape(8, 1, 1, 8, 8)[:, 0]):
            self.assertEqual(context(same).tobytes(), self.want[:8].tobytes())
        unaligned = np.frombuffer(b"x" + x.tobytes(), "u1")[1:].view("f4").reshape(x.shape)
        named = x.view([("a", "f4")])
        for wrong in (x.astype(">f4"), x > 0, x.astype(complex), named, x[0], x[None], x.astype("f2"), x.astype("i4"),
                      x.transpose(0, 1, 3, 2), x[:, :, ::-1], unaligned):  # fmt: skip
            with self.assertRaises((tessera.BadInputError, TypeError)):
                context(wrong)
        pairs = np.zeros((8, 20), np.float32)
        for wrong in (pairs[:, ::2], pairs[:, :10], np.asfortranarray(y), y.astype("f8"), y[:7], x, [1.0], "y",
                      memoryview(bytes(320))):  # fmt: skip
            with self.assertRaises((tessera.BadInputError, TypeError)):
                context(x, out=wrong)
        self.assertFalse(pairs.any(), "something was written")
        self.assertIs(context(x, out=y), y)
        self.assertEqual(y.tobytes(), self.want[:8].tobytes())

    def test_references_come_back(self):
        context = self.engine.context("batch8")
        x, y = self.images[:8].copy(), np.empty((8, 10), np.float32)
        before = [sys.getrefcount(o) for o in (x, y, None, context)]
        for _ in range(1000):
            context(x, out=y)
            context(x)
            with self.assertRaises(tessera.BadInputError):
                context(y, out=y)
        after = [sys.getrefcount(o) for o in (x, y, None, context)]
        self.assertEqual(after[:2] + after[3:], before[:2] + before[3:])
        self.assertLess(abs(after[2] - before[2]), 100)

    def test_calls_that_are_wrong(self):
        context, x = self.engine.context("batch8"), self.images[:8]
        for arguments, words, said in (
            ((), {}, "0 inputs were given where there are 1"),
            ((x,), {"image": x}, "the keywords out and stream"),
            ((), {"image": x}, "the keywords out and stream"),
            ((None,), {}, "no array of numbers"),
            (([1.0],), {}, "no array of numbers"),
            ((x,), {"out": []}, "fewer tensors"),
        ):
            with self.assertRaisesRegex(TypeError, said):
                context(*arguments, **words)
        with self.assertRaisesRegex(TypeError, "made by no engine"):
            tessera.Context.__new__(tessera.Context)(x)
        with self.assertRaises(TypeError):
            tessera.Context()
        self.assertEqual(context(x).tobytes(), self.want[:8].tobytes())

    def test_arguments_of_engines(self):
        e = self.engine
        for call, said in (
            (lambda: e.context(8), "plan is 8: text is wanted"),
            (lambda: e.context(b"batch8"), "plan is b'batch8': text"),
            (lambda: e.context("batch8", threads="2"), "threads is '2': a whole number"),
            (lambda: e.context("batch8", threads=1.5), "threads is 1.5: a whole number"),
            (lambda: e.context("batch8", threads=2**40), "a whole number"),
            (lambda: e.context("batch8", threads=-1), "threads is -1"),
            (lambda: e.context("batch8", state=5), "state is a int: what engine.state"),
            (lambda: e.context("batch\0"), "zero byte"),
            (lambda: e.session(plans=["main"]), "plans is a list: a dict"),
            (lambda: e.session(plans={"main": 3}), "a plan is 3: text"),
            (lambda: e.session(batch="8"), "batch is '8'"),
            (lambda: e.run({"image": self.images}, graph=3), "graph is 3"),
            (lambda: tessera.load(None), "source is a NoneType: a path"),
            (lambda: tessera.load(3), "source is a int: a path"),
            (lambda: tessera.inspect(3), "engine is a int: a path"),
            (lambda: tessera.verify(self.path, kinds=3), "kinds is 3"),
            (lambda: tessera.verify(self.path, min_cosine="a"), "min_cosine is 'a': a number"),
            (lambda: tessera.sensitivity(MODEL, precision=4, calib=None), "precision is 4: text"),
        ):
            with self.assertRaisesRegex(tessera.UsageError, said):
                call()
        self.assertEqual(answer(e, self.images).tobytes(), self.want.tobytes())

    def test_arguments_of_builds(self):
        out = self.folder / "never.tess"
        image = self.images
        for words, kind, said in (
            ({"precision": 8}, tessera.UsageError, "precision is 8: text"),
            ({"calib": image}, tessera.UsageError, "calib is a ndarray: a path, or a dict of arrays"),
            ({"calib": {3: image}}, tessera.UsageError, "a name in calib is 3"),
            ({"calib": {"image": None}}, tessera.BadInputError, "'image' holds object; numbers"),
            ({"calib": {"image": [[1], [2, 3]]}}, tessera.BadInputError, "'image' is no array"),
            ({"calib": {"image": np.array(["a"])}}, tessera.BadInputError, "numbers are wanted"),
            ({"calib": {"img": image}}, tessera.BadInputError, "^calib_arrays: no array 'image'"),
            ({"calib": {"image": image[:, 0]}}, tessera.BadInputError, "^calib_arrays: array 'image' has shape"),
            ({"batch": 2**70}, tessera.UsageError, "batch is"),
            ({"calib": {"image": image[:0]}}, tessera.BadInputError, "image"),
            ({"calib_samples": "3"}, tessera.UsageError, "calib_samples is '3'"),
            ({"allow": [3]}, tessera.UsageError, "one of allow is 3"),
            ({"allow": 3}, tessera.UsageError, "allow is 3"),
        ):
            with self.subTest(words), self.assertRaisesRegex(kind, said):
                tessera.build(MODEL, out, **{"precision": "fp8", **words})
        with self.assertRaisesRegex(tessera.UsageError, "model is a bytes: a path"):
            tessera.build(b"abc", out)
        self.assertFalse(out.exists())
        tessera.build(MODEL, out, precision="fp8", calib={"image": image[:, :, ::-1, ::-1].tolist()})
        self.assertTrue(out.exists())
        out.unlink()

    def test_what_is_printed(self):
        said = r"\[<tessera.Plan batch1: graph main, batch 1, for cpu, \d+ bytes.*>, <tessera.Plan batch8: "
        self.assertRegex(repr(self.engine.plans), said)
        self.assertEqual(repr(self.engine.inputs("batch8")), "[<tessera.Port image f32 [8,1,8,8]>]")
        context = self.engine.context("batch8")
        self.assertEqual(repr(context), "<tessera.Context: image f32 [8,1,8,8] -> logits f32 [8,10]>")
        session = self.engine.session(batch=1)
        self.assertEqual(repr(session), "<tessera.Session: image f32 [1,1,8,8] -> logits f32 [1,10]>")
        self.assertRegex(repr(self.engine.memory()), r"<tessera.Memory: weights \d+, arena \d+, state 0 bytes>")
        self.assertIn("out=None", tessera.Context.__doc__)

    def test_an_engine_is_pickled_as_its_path(self):
        here = os.getcwd()
        relative = tessera.load(os.path.relpath(self.path))
        os.chdir("/")
        try:
            again = pickle.loads(pickle.dumps(relative))
        finally:
            os.chdir(here)
        self.assertEqual(answer(again, self.images).tobytes(), self.want.tobytes())
        self.assertEqual(answer(copy.deepcopy(self.engine), self.images).tobytes(), self.want.tobytes())
        with self.assertRaisesRegex(TypeError, "from bytes cannot be pickled"):
            pickle.dumps(tessera.load(bytearray(self.path.read_bytes())))
        for there in (self.engine.context("batch8"), self.engine.session(), self.engine.state()):
            with self.assertRaisesRegex(TypeError, "pickle"):
                pickle.dumps(there)

    def test_python_ends_while_threads_are_at_work(self):
        """Daemon threads, in runs, loads and builds: no crash, no word."""
        source = (
            "import sys, threading, time, numpy as np, tessera\n"
            "engine, what = tessera.load(sys.argv[1]), sys.argv[3]\n"
            "context, x = engine.context('batch8'), np.ones((8, 1, 8, 8), np.float32)\n"
            "many = np.ones((20000, 1, 8, 8), np.float32)\n"
            "work = {'calls': lambda: context(x), 'runs': lambda: engine.run({'image': many}),\n"
            "        'loads': lambda: tessera.load(sys.argv[1], check_constants=True),\n"
            "        'builds': lambda: tessera.build(sys.argv[2], sys.argv[1] + '.exit', precision='fp16')}[what]\n"
            "def always():\n"
            "    while True: work()\n"
            "for _ in range(1 if what in ('calls', 'builds') else 3):\n"
            "    threading.Thread(target=always, daemon=True).start()\n"
            "time.sleep(0.3)\n"
        )
        for what in ("calls", "calls", "calls", "runs", "loads", "builds"):
            command = [sys.executable, "-c", source, self.path, MODEL, what]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120,
                                  env={**os.environ, "PYTHONPATH": str(FOLDER)})  # fmt: skip
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""), what)

    def test_in_a_pool_of_processes(self):
        """Workers that were forked, with engines of the parent's and with engines that were sent to them."""
        source = (
            "import multiprocessing, sys, numpy as np, tessera\n"
            "engine = tessera.load(sys.argv[1])\n"
            "context = engine.context('batch8')\n"
            "x = np.ones((8, 1, 8, 8), np.float32)\n"
            "want = context(x).tobytes()\n"
            "engine.run({'image': x})\n"
            "def work(sent):\n"
            "    return context(x).tobytes() == want and sent.run({'image': x})['logits'].tobytes() == want\n"
            "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
            "    print(pool.map(work, [engine] * 4, chunksize=1))\n"
        )
        done = subprocess.run([sys.executable, "-c", source, self.path], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PYTHONPATH": str(FOLDER)})  # fmt: skip
        self.assertEqual((done.returncode, done.stdout), (0, "[True, True, True, True]\n"), done.stderr)
        source = "import pickle, sys; print(pickle.load(sys.stdin.buffer))"
        said = subprocess.check_output([sys.executable, "-c", source], input=pickle.dumps(self.engine),
                                       env={**os.environ, "PYTHONPATH": str(FOLDER)})  # fmt: skip
        self.assertIn(f"<tessera.Engine {self.path}: plans batch1, batch8>", said.decode())


if __name__ == "__main__":
    unittest.main()
