# SPDX-License-Identifier: Apache-2.0
"""The Python package on torch tensors: no copy in or out, results of torch's allocator, out=. On a GPU also torch's
stream and capture. Skipped without torch, or where the module was not built. Argument: the folder with the program."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

from python_package import BIN, DIGITS, needs, np, tessera

torch = needs("torch")
ON_GPU = torch.cuda.is_available()


def build(folder, name, *words):
    command = [BIN / "tessera", "build", DIGITS / "vit.onnx", "-o", name, "--batch", "8", "--quiet", *words]
    subprocess.run([str(w) for w in command], check=True, cwd=folder)
    return tessera.load(folder / name)


class TorchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.engine = build(cls.folder, "cpu.tess", "--precision", "fp16")
        with np.load(DIGITS / "test.npz") as arrays:
            cls.images = torch.from_numpy(arrays["image"][:24].astype(np.float32).copy())
        cls.want = torch.from_numpy(cls.engine.run({"image": cls.images.numpy()})["logits"])

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_in_and_out(self):
        context = self.engine.context("batch8")
        for first in (0, 8, 16):
            y = context(self.images[first : first + 8])
            self.assertIsInstance(y, torch.Tensor)
            self.assertEqual((y.dtype, tuple(y.shape), y.device.type), (torch.float32, (8, 10), "cpu"))
            self.assertTrue(torch.equal(y, self.want[first : first + 8]))

    def test_out_is_written_in_place(self):
        context = self.engine.context("batch8")
        y = torch.full((8, 10), float("nan"))
        address = y.data_ptr()
        self.assertIs(context(self.images[:8], out=y), y)
        self.assertEqual(y.data_ptr(), address)
        self.assertTrue(torch.equal(y, self.want[:8]))

    def test_no_copy_is_made(self):
        """A change of the input's memory shows in the next answer, and a view into a larger tensor is read where it
        lies."""
        context = self.engine.context("batch8")
        large = torch.full((30, 1, 8, 8), float("nan"))
        large[5:13] = self.images[8:16]
        self.assertTrue(torch.equal(context(large[5:13]), self.want[8:16]))
        large[5:13] = self.images[16:24]
        self.assertTrue(torch.equal(context(large[5:13]), self.want[16:24]))
        everything = torch.full((20, 10), float("nan"))
        context(self.images[:8], out=everything[4:12])
        self.assertTrue(torch.equal(everything[4:12], self.want[:8]))
        self.assertTrue(everything[:4].isnan().all() and everything[12:].isnan().all())

    def test_results_outlive_the_context(self):
        results = [self.engine.context("batch8")(self.images[i : i + 8]) for i in range(16)]
        for i, y in enumerate(results):
            torch.testing.assert_close(y, self.want[i : i + 8], atol=1e-2, rtol=0)

    def test_what_does_not_fit(self):
        context = self.engine.context("batch8")
        x = self.images[:8]
        for wrong, said in (
            (x.double(), "f32"),
            (x.half(), "16 bits"),
            (x[:7], r"\[7,1,8,8\]"),
            (x.transpose(2, 3), "dense rows"),
            (x.to("meta"), "."),
        ):
            with self.assertRaisesRegex((tessera.Error, RuntimeError, BufferError, TypeError), said):
                context(wrong)
        self.assertTrue(torch.equal(context(x), self.want[:8]))

    def test_a_view_that_stands_for_other_numbers(self):
        """Its memory holds their negatives: taken as they lie, they would be wrong answers."""
        context = self.engine.context("batch8")
        negated = torch.view_as_complex(torch.stack([self.images[:8], -self.images[:8]], -1)).conj().imag
        self.assertTrue(negated.is_neg())
        for x, words in ((negated, {}), (torch._neg_view(self.images[:8]), {}),
                         (self.images[:8], {"out": torch._neg_view(torch.empty(8, 10))})):  # fmt: skip
            with self.assertRaisesRegex(ValueError, "resolve_neg"):
                context(x, **words)
        self.assertTrue(torch.equal(context(negated.resolve_neg().contiguous()), self.want[:8]))

    def test_whatever_torch_has_is_samples(self):
        images = self.images.clone().requires_grad_()
        for x in (images, torch.nn.Parameter(self.images), self.images.double(), self.images.flip(0).flip(0)):
            self.assertTrue(torch.equal(torch.from_numpy(self.engine.run({"image": x})["logits"]), self.want))
        halved = self.images.bfloat16()
        np.testing.assert_array_equal(*(self.engine.run({"image": x})["logits"] for x in (halved, halved.float())))
        with self.assertRaisesRegex(tessera.BadInputError, "'image' is no array"):
            self.engine.run({"image": self.images.to("meta")})

    def test_many_calls_leave_nothing_behind(self):
        context = self.engine.context("batch8")
        x, y = self.images[:8], torch.empty(8, 10)
        references = sys.getrefcount(x), sys.getrefcount(y)
        for _ in range(2000):
            context(x, out=y)
            context(x)
        self.assertEqual((sys.getrefcount(x), sys.getrefcount(y)), references)

    @unittest.skipUnless(ON_GPU, "no GPU")
    def test_stream_allocator_and_capture(self):
        engine = build(self.folder, "gpu.tess", "--precision", "fp16", "--target", "sm90")
        context = engine.context("batch8", device="cuda:0")
        x = self.images[:8].cuda()
        want = context(x)
        torch.testing.assert_close(want.cpu(), self.want[:8], atol=1e-2, rtol=0)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            late = torch.full_like(x, float("nan"))
            torch.cuda._sleep(10_000_000)
            late.copy_(x)
            y = context(late)  # in the order of torch's stream: it must not see the NaN
        stream.synchronize()
        self.assertTrue(torch.equal(y, want))
        with self.assertRaisesRegex(ValueError, "not torch's current stream"):
            context(x, stream=stream)  # its result would be torch's to give away in the order of another stream
        kept = torch.empty_like(y)
        self.assertIs(context(x, out=kept, stream=stream), kept)
        stream.synchronize()
        self.assertTrue(torch.equal(kept, want))
        self.assertTrue(torch.equal(context(x, stream=torch.cuda.current_stream()), want))
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        context(x, out=y)
        self.assertEqual(torch.cuda.memory_stats()["allocation.all.allocated"], before)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            context(x, out=y)
        x.copy_(self.images[8:16])
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(y.cpu(), self.want[8:16], atol=1e-2, rtol=0)


if __name__ == "__main__":
    unittest.main()
