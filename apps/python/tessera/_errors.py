# SPDX-License-Identifier: Apache-2.0
"""A status of the library as an exception."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence

from . import _tessera

TYPE_CHECKING = False  # typing takes longer to import than all of this; type checkers know the name
if TYPE_CHECKING:
    from typing import Any, NamedTuple

    class Refusal(NamedTuple):
        kernel: str
        reason: str

    class RefusedLayer(NamedTuple):
        layer: str
        op: str
        asked: str
        refusals: tuple[Refusal, ...]

    # (layer, op, asked, [(kernel, reason)])
    Layers = Sequence[tuple[str, str, str, Sequence[tuple[str, str]]]]
else:
    Refusal = namedtuple("Refusal", "kernel reason")
    Refusal.__doc__ = "Who would not run a layer, and why. No kernel: the reason is of the layer itself."
    RefusedLayer = namedtuple("RefusedLayer", "layer op asked refusals")
    RefusedLayer.__doc__ = "A layer that cannot run as asked. No refusals: no kernel of its op is for the target."


class Error(RuntimeError):
    """What went wrong, in one sentence. `code` is that of tessera.h."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type[Error], tuple[Any, ...]]:
        return type(self), (self.code, str(self))  # else a pool of processes could not hand it on


class VerifyError(Error):
    """A plan does not reproduce its golden values on this machine."""


class UsageError(Error, ValueError):
    """An argument is wrong."""


class BadInputError(Error, ValueError):
    """A file or an array cannot be used."""


class RefusedError(Error):
    """Layers cannot run in the precision asked for: `layers` are those, empty where it is about no single one."""

    def __init__(self, code: int, message: str, layers: Sequence[RefusedLayer] = ()) -> None:
        super().__init__(code, message)
        self.layers = tuple(layers)

    def __reduce__(self) -> tuple[type[Error], tuple[Any, ...]]:
        return type(self), (self.code, str(self), self.layers)


class MachineError(Error):
    """No memory, no device, a CUDA or I/O failure."""


class BusyError(Error):
    """The context, session or state is in use in another thread."""


class CancelledError(Error):
    """The caller asked to stop."""


_CLASSES = (Error, VerifyError, UsageError, BadInputError, RefusedError, MachineError, BusyError, CancelledError)


def _raise(code: int, message: str, layers: Layers = ()) -> None:
    if code == _CLASSES.index(RefusedError):
        found = [RefusedLayer(layer, op, asked, tuple(Refusal(*r) for r in by)) for layer, op, asked, by in layers]
        raise RefusedError(code, message, found)
    raise (_CLASSES[code] if code < len(_CLASSES) else Error)(code, message)


_tessera.set_raiser(_raise)
