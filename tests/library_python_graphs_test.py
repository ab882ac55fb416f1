# SPDX-License-Identifier: Apache-2.0
"""The Python package on engines of several graphs and plans: which one is meant, other plans in a session, what
engine.run keeps, what is converted, what a pickle has. Skipped where the module was not built. Argument: the folder
with the program."""

import pathlib
import pickle
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

from python_package import DIGITS, needs, np, tessera
from tessera import _samples, _tessera

checkpoint_layouts = needs("checkpoint_layouts")
llama_models = needs("llama_models")


class GraphsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.path = cls.folder / "digits.tess"
        tessera.build(DIGITS / "vit.onnx", cls.path, precision="fp16", batch=[1, 8])
        cls.engine = tessera.load(cls.path)
        llama_models.Llama(seed=5, layers=1).write_checkpoint(
            cls.folder / "llama", checkpoint_layouts.write_safetensors
        )
        both = cls.folder / "both.tess"
        tessera.build(cls.folder / "llama", both, family="llama", precision="fp16", batch=2, size="cache=8",
                      graph=["prefill:tokens=3", "decode:tokens=1"])  # fmt: skip
        cls.both = tessera.load(both)
        with np.load(DIGITS / "test.npz") as arrays:
            cls.images = arrays["image"][:16].astype(np.float32)
        cls.want = cls.engine.run({"image": cls.images})["logits"]

    def test_which_plan_is_meant(self):
        e = self.both
        self.assertEqual([(p.name, p.graph) for p in e.plans],
                         [("prefill.batch2", "prefill"), ("decode.batch2", "decode")])  # fmt: skip
        for words, tokens in (
            ({}, 3),
            ({"graph": "prefill"}, 3),
            ({"graph": "decode"}, 1),
            ({"plan": "decode.batch2"}, 1),
            ({"plan": "decode.batch2", "graph": "decode"}, 1),
        ):
            self.assertEqual(e.inputs(**words)[0].shape, [2, tokens])
            self.assertEqual(e.outputs(**words)[0].shape[:2], [2, tokens])
            self.assertEqual(e.context(**words).inputs[0].shape, [2, tokens])
        for p in e.plans:
            self.assertEqual(e.memory(p.name, graph=p.graph).arena_bytes, p.arena_bytes)
            self.assertEqual(e.memory(graph=p.graph).arena_bytes, p.arena_bytes)
        for call in (e.inputs, e.outputs, e.context, e.table):
            for words, said in (
                ({"graph": "no"}, "no graph 'no' with a plan; it has prefill, decode"),
                ({"plan": "batch3", "graph": "decode"}, "no plan 'batch3' of graph 'decode'; it has decode.batch2"),
                ({"plan": "decode.batch2", "graph": "prefill"}, "no plan 'decode.batch2' of graph 'prefill'"),
                ({"plan": "batch3"}, "no plan 'batch3'; it has prefill.batch2, decode.batch2"),
            ):
                with self.subTest(words), self.assertRaisesRegex(tessera.BadInputError, said):
                    call(**words)
            with self.assertRaisesRegex(tessera.UsageError, "graph is 3: text"):
                call(graph=3)
        for words in ({"graph": "no"}, {"plan": "decode.batch2", "graph": "prefill"}):
            with self.assertRaises(tessera.BadInputError):
                e.memory(**words)

    def test_one_name_in_two_graphs(self):
        """As the C ABI allows it: the graph decides, and the first is taken without one."""

        class Plan:
            on_cuda = False

            def __init__(self, name, graph):
                self.name, self.graph = name, graph

        class Handle:
            plans = [Plan("a", "x"), Plan("b", "x"), Plan("a", "y"), Plan("b", "y")]

            def ports(self, plan, outputs):
                return plan

            def context(self, *arguments):
                return arguments[:2]

        e = tessera.Engine(Handle(), "made here", None)
        e._manifest = {"plans": [{"name": p.name, "graph": p.graph, "steps": []} for p in Handle.plans]}
        e._manifest["plans"][3]["steps"] = [{"layer": "l", "asked": "fp8"}, {"layer": "m", "asked": ""}]
        for words, at in (({"plan": "b"}, 1), ({"plan": "b", "graph": "y"}, 3), ({"graph": "y"}, 2), ({}, 0)):
            self.assertEqual((e.inputs(**words), e.outputs(**words)), (at, at))
            plan = Handle.plans[at]
            self.assertEqual(e.context(**words), (plan.name, plan.graph))
            self.assertEqual(len(e.table(**words)), 1 if at == 3 else 0)
        self.assertIn("<summary>y: b</summary>", e._repr_html_())

    def test_tables_of_all_plans(self):
        html = self.both._repr_html_()
        self.assertEqual(html.count("<table>"), 2)
        self.assertIn("<summary>prefill.batch2</summary>", html)
        self.assertIn("<summary>decode.batch2</summary>", html)
        self.assertEqual(html.count("<details open>"), 1)
        rows = sum(len(self.both.table(graph=g)) for g in ("prefill", "decode"))
        self.assertGreater(rows, 4)
        self.assertEqual(html.count("<tr>"), rows + 2)

    def test_a_session_takes_other_plans(self):
        session = self.engine.session(batch=1)
        before = session.inputs
        self.assertEqual(session(self.images[:1]).shape, (1, 10))
        self.assertIsNone(session.use({"main": "batch8"}))
        self.assertEqual([p.shape for p in session.inputs], [[8, 1, 8, 8]])
        self.assertEqual([p.shape for p in session.outputs], [[8, 10]])
        self.assertEqual(before[0].shape, [1, 1, 8, 8], "ports that were handed out are somebody else's")
        self.assertEqual(session(self.images[:8]).tobytes(), self.want[:8].tobytes())
        with self.assertRaises(tessera.BadInputError):
            session(self.images[:1])
        for wrong, kind, said in (
            (["main"], tessera.UsageError, "plans is a list: a dict is wanted, such as"),
            ({"main": 8}, tessera.UsageError, "a plan is 8: text is wanted"),
            ({8: "batch8"}, tessera.UsageError, "a graph is 8: text is wanted"),
            ({"main": "batch9"}, tessera.BadInputError, "batch9"),
            ({"other": "batch8"}, tessera.BadInputError, "other"),
        ):
            with self.subTest(wrong), self.assertRaisesRegex(kind, said):
                session.use(wrong)
        self.assertEqual(session(self.images[:8]).tobytes(), self.want[:8].tobytes())
        session.use({"main": "batch1"})
        self.assertEqual(session(self.images[:1]).shape, (1, 10))

    def test_plans_change_while_others_call(self):
        session, wrong, done = self.engine.session(batch=1), [], []

        def call():
            while not done:
                for n in (1, 8):
                    try:
                        y = session(self.images[:n])
                        if not np.allclose(y, self.want[:n], atol=1e-2):
                            wrong.append(n)
                    except (tessera.BusyError, tessera.BadInputError):
                        pass
                    time.sleep(0.0002)

        threads = [threading.Thread(target=call) for _ in range(3)]
        for t in threads:
            t.start()
        changed = 0
        try:
            end = time.monotonic() + 20
            while changed <= 100 and time.monotonic() < end:
                try:
                    session.use({"main": f"batch{8 if changed % 2 else 1}"})
                    changed += 1
                except tessera.BusyError:
                    time.sleep(0.0001)
        finally:
            done.append(True)
            for t in threads:
                t.join()
        self.assertEqual(wrong, [])
        self.assertGreater(changed, 20)

    def test_run_keeps_only_so_many(self):
        engine, meet = tessera.load(self.path), threading.Barrier(12)
        run = _samples.Runner.run

        def together(self, inputs):
            meet.wait(60)
            return run(self, inputs)

        def idle():
            return sum(map(len, engine._idle.values()))

        with unittest.mock.patch.object(_samples.Runner, "run", together):
            work = [threading.Thread(target=engine.run, args=({"image": self.images},)) for _ in range(12)]
            for t in work:
                t.start()
            for t in work:
                t.join()
        self.assertEqual(idle(), 8)
        for threads in range(1, 20):
            got = engine.run({"image": self.images}, threads=threads)["logits"]
            self.assertEqual(got.tobytes(), self.want.tobytes())
            self.assertLessEqual(idle(), 8)
        self.assertEqual(len(engine._idle[(None, True, 0, 19)]), 1, "the last one is kept")

    def test_run_takes_threads_and_a_device(self):
        made, engine = [], tessera.load(self.path)
        context = _tessera.Engine.context

        class Handle:
            def context(self, *arguments):
                made.append(arguments)
                return context(handle, *arguments)

        handle = engine._handle
        engine._handle = Handle()
        for words, want in (
            ({}, (0, 0)),
            ({"threads": 2}, (0, 2)),
            ({"device": "cpu"}, (0, 0)),
            ({"threads": 1}, (0, 1)),
        ):
            self.assertEqual(engine.run({"image": self.images}, **words)["logits"].tobytes(), self.want.tobytes())
            self.assertIn((None, None, *want, True, None), made)
        self.assertEqual(len(made), 3, "one of them was there already")
        for words, said in (
            ({"device": "cuda:0"}, "the engine runs on the CPU"),
            ({"device": 1}, "the engine runs on the CPU"),
            ({"threads": -1}, "threads is -1"),
            ({"threads": "2"}, "threads is '2'"),
        ):
            with self.subTest(words), self.assertRaisesRegex(tessera.UsageError, said):
                engine.run({"image": self.images}, **words)

    def test_floats_that_are_no_integers_of_a_type(self):
        class Port:
            def __init__(self, element):
                self.name, self.element, self.shape, self.dtype = "ids", element, [1], (0, 64, 1)

        last = np.nextafter(np.float64(2**63), 0)
        for element, dtype in (("i64", "i8"), ("i32", "i4"), ("i8", "i1"), ("u8", "u1")):
            bounds = np.iinfo(dtype)
            for kind in ("f2", "f4", "f8", "g"):
                over = np.array([bounds.max + 1 if kind != "f2" or bounds.max < 60000 else np.inf], kind)
                with (
                    self.subTest(f"{kind} to {element}"),
                    self.assertRaisesRegex(tessera.BadInputError, "no number of"),
                ):
                    _samples.converted(over, Port(element), np.dtype(dtype))
            for wrong in (np.nan, np.inf, -np.inf, 0.5, bounds.min - 1024.0 * (bounds.bits // 8) ** 2 * 64):
                with self.assertRaises(tessera.BadInputError):
                    _samples.converted(np.array([wrong]), Port(element), np.dtype(dtype))
        for right in (float(-(2**63)), last, 0.0, -3.0):
            self.assertEqual(_samples.converted(np.array([right]), Port("i64"), np.dtype("i8"))[0], int(right))
        for wrong in (np.array([2**63], "u8"), np.array([-1])):
            with self.assertRaises(tessera.BadInputError):
                _samples.converted(wrong, Port("u8"), np.dtype("u1"))
        with self.assertRaises(tessera.BadInputError):
            _samples.converted(np.array([2**63], "u8"), Port("i64"), np.dtype("i8"))

    def test_a_pickle_checks_the_constants_again(self):
        for check in (True, False):
            sent = pickle.dumps(tessera.load(self.path, check_constants=check))
            with unittest.mock.patch.object(tessera, "load", wraps=tessera.load) as load:
                again = pickle.loads(sent)
            load.assert_called_once_with(str(self.path), check_constants=check)
            self.assertEqual(pickle.dumps(again), sent, "and so on")

    def test_types_are_remembered(self):
        """Several in turn cost one look each, and none is kept for ever."""
        looks = []

        class Meta(type):
            @property
            def __dlpack_c_exchange_api__(cls):
                looks.append(cls.__name__)
                raise AttributeError

        context = self.engine.context("batch8")
        few = [self.images[:8].view(Meta(f"Few{i}", (np.ndarray,), {})) for i in range(3)]
        for _ in range(20):
            for x in few:
                self.assertEqual(np.asarray(context(x)).tobytes(), self.want[:8].tobytes())
        self.assertLess(len(looks), 10, "a call looks anew")
        many = [self.images[:8].view(Meta(f"Many{i}", (np.ndarray,), {})) for i in range(40)]
        counts = [sys.getrefcount(type(x)) for x in many]
        for _ in range(5):
            for x in many:
                context(x)
        for x in few:
            context(x)
        grown = [sys.getrefcount(type(x)) - n for x, n in zip(many, counts)]
        self.assertLessEqual(max(grown), 1, grown)
        self.assertLess(sum(grown), 20, "each is held")


if __name__ == "__main__":
    unittest.main()
