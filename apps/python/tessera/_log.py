# SPDX-License-Identifier: Apache-2.0
"""Notes and warnings of the library in Python's logging: the logger "tessera"."""

from __future__ import annotations

import sys

from . import _tessera

_WARNING = 1  # TESS_LOG_WARNING


def _deliver(level: int, line: str) -> None:
    """Called by the thread whose call has given rise to the line, after it."""
    if sys.is_finalizing():
        return
    import logging

    logging.getLogger("tessera").log(logging.WARNING if level == _WARNING else logging.INFO, "%s", line)


_tessera.set_listener(_deliver)
