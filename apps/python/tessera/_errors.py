# SPDX-License-Identifier: Apache-2.0
"""A status of the library as an exception."""

from __future__ import annotations

from . import _tessera


class Error(RuntimeError):
    """What went wrong, in one sentence. `code` is that of tessera.h."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type[Error], tuple[int, str]]:
        return type(self), (self.code, str(self))  # else a pool of processes could not hand it on


class VerifyError(Error):
    """A plan does not reproduce its golden values on this machine."""


class UsageError(Error, ValueError):
    """An argument is wrong."""


class BadInputError(Error, ValueError):
    """A file or an array cannot be used."""


class RefusedError(Error):
    """A layer cannot run in the precision asked for."""


class MachineError(Error):
    """No memory, no device, a CUDA or I/O failure."""


class BusyError(Error):
    """The context, session or state is in use in another thread."""


class CancelledError(Error):
    """The caller asked to stop."""


_CLASSES = (Error, VerifyError, UsageError, BadInputError, RefusedError, MachineError, BusyError, CancelledError)


def _raise(code: int, message: str) -> None:
    raise (_CLASSES[code] if code < len(_CLASSES) else Error)(code, message)


_tessera.set_raiser(_raise)
