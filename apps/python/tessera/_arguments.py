# SPDX-License-Identifier: Apache-2.0
"""Arguments as the library takes them. What is wrong with one is said by its name, before anything is done."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping

from ._errors import UsageError
from ._tessera import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _words(what: str, given: Any) -> str | None:
    """Text, or None."""
    return None if given is None else _name(what, given)


def _name(what: str, given: Any) -> str:
    if not isinstance(given, str):
        raise UsageError(2, f"{what} is {given!r}: text is wanted")
    if "\0" in given:
        raise UsageError(2, f"{what} {given!r} has a zero byte in it")
    return given


def _path(what: str, given: Any, wanted: str = "a path") -> str:
    if not isinstance(given, str | os.PathLike):
        raise UsageError(2, f"{what} is a {type(given).__name__}: {wanted} is wanted")
    return _name("the path", os.fsdecode(given))


def _some_path(what: str, given: Any) -> str | None:
    return None if given is None else _path(what, given)


def _names(what: str, given: Any) -> list[str]:
    """One text, or several."""
    if isinstance(given, str):
        return [_name(what, given)]
    if not hasattr(given, "__iter__"):
        raise UsageError(2, f"{what} is {given!r}: text, or a sequence of texts, is wanted")
    return [_name(f"one of {what}", g) for g in given]


def _cases(plans: Any) -> list[tuple[str, str]]:
    """(graph, plan) of a session."""
    if not isinstance(plans, Mapping | None):
        raise UsageError(2, f"plans is a {type(plans).__name__}: a dict is wanted, such as {{'main': 'batch8'}}")
    return [(_name("a graph", graph), _name("a plan", plan)) for graph, plan in (plans or {}).items()]


def _count(what: str, given: Any, bits: int = 31) -> int:
    """A number that C has room for; which ones are accepted is the library's to say."""
    if isinstance(given, bool) or not hasattr(given, "__index__") or abs(operator.index(given)) >= 2**bits:
        raise UsageError(2, f"{what} is {given!r}: a whole number is wanted")
    return operator.index(given)


def _number(what: str, given: Any) -> float:
    try:
        return float(given)
    except (TypeError, ValueError):
        raise UsageError(2, f"{what} is {given!r}: a number is wanted") from None


def _state(given: Any) -> State | None:
    if not isinstance(given, State | None):
        raise UsageError(2, f"state is a {type(given).__name__}: what engine.state() returns is wanted")
    return given


def _device(device: Any, on_cuda: bool) -> int:
    """ "cpu" and "cuda" are 0, "cuda:1" is 1. Where an engine runs was chosen when it was built."""
    here = "a CUDA device: cuda, cuda:N or N" if on_cuda else "the CPU: cpu"
    kind, colon, number = ("cuda" if on_cuda or device else "cpu", ":", str(device)) if isinstance(device, int) else (
        str(device).partition(":"))  # fmt: skip
    if not colon:
        number = "0"
    wrong = not (number.isascii() and number.isdigit()) or len(number) > 9 or (not on_cuda and int(number) != 0)
    if kind != ("cuda" if on_cuda else "cpu") or wrong:
        raise UsageError(2, f"device {device!r}: the engine runs on {here} is wanted")
    return int(number) if on_cuda else 0
