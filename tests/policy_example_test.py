# SPDX-License-Identifier: Apache-2.0
"""examples/python/policy.py: a small policy of random weights gives the actions that `tessera policy run` does, for
full and for smaller observations. Skipped without torch, or where the module was not built. Argument: the folder with
the program."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "build/release/bin").resolve()
EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples" / "python"
sys.path[:0] = [str(BIN.parent / "python"), str(EXAMPLES)]
try:
    import numpy as np
    import torch

    import policy as example
except ImportError as error:
    print(f"{error}: skipped")
    sys.exit(77)

SMALL = {
    **{"v_width": 32, "v_layers": 1, "v_heads": 2, "v_mlp": 40, "width": 32, "mlp": 48, "e_width": 32, "e_mlp": 48},
    **{"layers": 2, "heads": 4, "kv_heads": 1, "head_dim": 16, "vocab": 64, "horizon": 4, "max_token_len": 8},
    **{"num_steps": 2},
}


class PolicyExample(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        (cls.folder / "small.json").write_text(json.dumps(SMALL))
        cls.tessera("policy", "build", "--random", 2, "--config", "small.json", "--precision", "fp32", "--views", 2,
                    "-o", "small.tess", "--quiet", "--no-verify")  # fmt: skip

    @classmethod
    def tessera(cls, *words):
        subprocess.run([str(w) for w in (BIN / "tessera", *words)], check=True, cwd=cls.folder, capture_output=True)

    def observation(self, views, words, seed):
        rng = np.random.default_rng(seed)
        return {
            "images": rng.integers(0, 256, (1, views, 224, 224, 3), np.uint8),
            "tokens": rng.integers(0, 64, (1, words)),
            "noise": rng.standard_normal((1, 4, 32)).astype(np.float32),
        }

    def wanted(self, seen):
        valid = {
            "image_valid": np.ones(seen["images"].shape[:2], bool),
            "token_valid": np.ones_like(seen["tokens"], bool),
        }
        np.savez(self.folder / "in.npz", **seen, **valid)
        self.tessera("policy", "run", "--model", "small.tess", "--inputs", "in.npz", "--outputs", "out.npz")
        with np.load(self.folder / "out.npz") as out:
            return out["actions"]

    def test_actions_are_those_of_the_program(self):
        """One policy for all of them: nothing of an observation is left for the next one."""
        policy = example.Policy(self.folder / "small.tess")
        before = None
        for views, words, seed in ((2, 8, 1), (1, 3, 2), (2, 5, 3)):
            seen = self.observation(views, words, seed)
            got = policy.act(*(torch.from_numpy(seen[name]) for name in ("images", "tokens", "noise"))).numpy()
            np.testing.assert_array_equal(got, self.wanted(seen))
            self.assertFalse(before is not None and np.array_equal(got, before))
            before = got.copy()

    def test_its_command(self):
        seen = self.observation(2, 8, 4)
        np.savez(self.folder / "seen.npz", **seen)
        words = [sys.executable, EXAMPLES / "policy.py", "small.tess", "seen.npz"]
        done = subprocess.run([str(w) for w in words], cwd=self.folder, capture_output=True, text=True,
                              env={"PYTHONPATH": str(BIN.parent / "python")})  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        first = float(self.wanted(seen).ravel()[0])
        self.assertAlmostEqual(float(done.stdout.split("[[[")[1].split(",")[0]), first, places=3)


if __name__ == "__main__":
    unittest.main()
