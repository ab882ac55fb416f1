# SPDX-License-Identifier: Apache-2.0
"""Notes and warnings of the library in Python's logging: they are heard, by the right thread, without locks, and not
at the price of a call. Skipped where the module was not built. Argument: the folder with the program."""

import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

from python_package import DIGITS, FOLDER, np, tessera

NO_VALUES = "the engine holds no golden values"


class Calls(logging.Handler):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def emit(self, record):
        self.function(record)


class LogTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        folder = pathlib.Path(cls.scratch.name)
        cls.plain, cls.checked = folder / "plain.tess", folder / "checked.tess"
        tessera.build(DIGITS / "vit.onnx", cls.plain, precision="fp16", batch=8, verify=False)
        tessera.build(DIGITS / "vit.onnx", cls.checked, precision="fp16", batch=8)

    def handle(self, function, level=logging.WARNING):
        logger, handler = logging.getLogger("tessera"), Calls(function)
        logger.addHandler(handler)
        logger.setLevel(level)
        logger.propagate = False
        self.addCleanup(setattr, logger, "propagate", True)
        self.addCleanup(logger.setLevel, logging.NOTSET)
        self.addCleanup(logger.removeHandler, handler)

    def program(self, source, *words, code=0):
        done = subprocess.run([sys.executable, "-c", source, *map(str, words)], capture_output=True, text=True,
                              timeout=120, env={**os.environ, "PYTHONPATH": str(FOLDER)})  # fmt: skip
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_a_warning_is_seen(self):
        with self.assertLogs("tessera", "INFO") as seen:
            tessera.load(self.plain)
        self.assertEqual([(r.levelname, r.name) for r in seen.records], [("WARNING", "tessera")])
        self.assertIn(NO_VALUES, seen.output[0])
        with self.assertLogs("tessera", "INFO") as seen:
            tessera.load(self.checked).context("batch8")
        self.assertEqual(["INFO"], [r.levelname for r in seen.records])
        self.assertIn("plan batch8 reproduces its golden values here", seen.output[0])

    def test_without_a_handler_warnings_are_on_stderr(self):
        source = "import sys, tessera; tessera.load(sys.argv[1]).context()"
        self.assertIn(NO_VALUES, self.program(source, self.plain).stderr)
        self.assertEqual(self.program(source, self.checked).stderr, "")

    def test_logging_is_not_imported_for_nothing(self):
        self.program(
            "import sys, tessera; tessera.load(sys.argv[1]); assert 'logging' not in sys.modules", self.checked
        )

    def test_the_thread_of_the_call_hands_it_on(self):
        heard, threads = [], []
        self.handle(lambda record: heard.append((threading.get_ident(), record.getMessage())))

        def load():
            threads.append(threading.get_ident())
            for _ in range(20):
                tessera.load(self.plain)

        work = [threading.Thread(target=load) for _ in range(4)]
        for t in work:
            t.start()
        for t in work:
            t.join()
        self.assertEqual(len(heard), 80)
        self.assertLessEqual({t for t, _ in heard}, set(threads))

    def test_a_handler_may_call_the_library(self):
        """No lock is held meanwhile: not the library's, which would wait for this line for ever."""
        heard = []

        def again(record):
            heard.append(record)
            if len(heard) < 3:
                tessera.load(self.plain)

        self.handle(again)
        worker = threading.Thread(target=tessera.load, args=(self.plain,), daemon=True)
        worker.start()
        worker.join(60)
        self.assertFalse(worker.is_alive(), "it waits for itself")
        self.assertEqual(len(heard), 3)

    def test_what_a_handler_raises_ends_no_call(self):
        source = (
            "import logging, sys, tessera\n"
            "class Bad(logging.Handler):\n"
            "    def emit(self, record): raise {}('from the handler')\n"
            "logging.getLogger('tessera').addHandler(Bad())\n"
            "try:\n"
            "    engine = tessera.load(sys.argv[1])\n"
            "    for i in range(10**6): pass\n"
            "    print(engine.plans[0].name)\n"
            "except KeyboardInterrupt: print('interrupted')\n"
        )
        done = self.program(source.format("ValueError"), self.plain)
        self.assertEqual(done.stdout, "batch8\n")
        self.assertIn("ValueError: from the handler", done.stderr)
        self.assertEqual(self.program(source.format("KeyboardInterrupt"), self.plain).stdout, "interrupted\n")

    def test_errors_stay_what_they_are(self):
        """A line and an error of one call: the error is what is raised."""
        heard = []
        self.handle(lambda record: heard.append(record))
        context = tessera.load(self.plain).context("batch8")
        heard.clear()
        with self.assertRaises(tessera.BadInputError):
            context(np.zeros((7, 1, 8, 8), np.float32))
        self.assertEqual(heard, [])

    def test_python_ends_while_lines_come(self):
        source = (
            "import logging, sys, threading, time, tessera\n"
            "logging.getLogger('tessera').addHandler(logging.NullHandler())\n"
            "def always():\n"
            "    while True: tessera.load(sys.argv[1])\n"
            "for _ in range(3): threading.Thread(target=always, daemon=True).start()\n"
            "time.sleep(0.2)\n"
        )
        for _ in range(5):
            done = self.program(source, self.plain)
            self.assertEqual((done.stdout, done.stderr), ("", ""))

    def test_a_child_hears_its_own(self):
        source = (
            "import logging, multiprocessing, sys, threading, tessera\n"
            "logging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
            "def always():\n"
            "    for _ in range(200): tessera.load(sys.argv[1])\n"
            "def child():\n"
            "    tessera.load(sys.argv[1]); print('loaded', flush=True)\n"
            "worker = threading.Thread(target=always); worker.start()\n"
            "for _ in range(20):\n"
            "    p = multiprocessing.get_context('fork').Process(target=child); p.start(); p.join(30)\n"
            "    assert p.exitcode == 0, p.exitcode\n"
            "worker.join()\n"
        )
        said = self.program(source, self.plain).stdout
        self.assertEqual(said.count("loaded"), 20)
        self.assertGreaterEqual(said.count(NO_VALUES), 220)


if __name__ == "__main__":
    unittest.main()
