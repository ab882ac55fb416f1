# SPDX-License-Identifier: Apache-2.0
"""The Python package of this build, as its tests import it; they are skipped where it was not built. Argument of the
tests: the folder with the program."""

import importlib
import pathlib
import sys

BIN = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "build/release/bin").resolve()
FOLDER = BIN.parent / "python"  # what another Python needs in its PYTHONPATH
DIGITS = pathlib.Path(__file__).resolve().parent.parent / "assets" / "digits"


def needs(name):
    """A module, or the end of a test that is skipped without it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"{error}: skipped")
        sys.exit(77)


sys.path.insert(0, str(FOLDER))
np = needs("numpy")
tessera = needs("tessera")
