# SPDX-License-Identifier: Apache-2.0
"""Runs Tessera's engines: `tessera.load(path)`, then `engine.run({name: array})` or `engine.context(plan)(tensor)`.

Arrays are numpy's, torch tensors, or whatever speaks DLPack; none is imported before it is needed. docs/library.md is
the guide."""

from __future__ import annotations

import os as _os
from collections.abc import Mapping as _Mapping

from . import _tessera
from ._build import build
from ._errors import (
    BadInputError,
    BusyError,
    CancelledError,
    Error,
    MachineError,
    Refusal,
    RefusedError,
    RefusedLayer,
    UsageError,
    VerifyError,
)
from ._reports import inspect, sensitivity, verify
from ._tessera import Context, Memory, Plan, Port, Session, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "BadInputError", "BusyError", "CancelledError", "Context", "Engine", "Error", "MachineError", "Memory", "Plan",
    "Port", "Refusal", "RefusedError", "RefusedLayer", "Session", "State", "UsageError", "VerifyError", "__version__",
    "abi_version", "build", "inspect", "load", "sensitivity", "verify",
]  # fmt: skip

__version__: str = _tessera.version()
abi_version: int = _tessera.abi_version()


def load(source: str | _os.PathLike[str] | bytes, *, check_constants: bool = False) -> Engine:
    """Maps an engine file, or copies its bytes. `check_constants`: read every weight now and compare its checksum."""
    if isinstance(source, bytes):
        return Engine(_tessera.open_bytes(source, check_constants), f"{len(source)} bytes")
    path = _os.fspath(source)
    if "\0" in path:
        raise UsageError(2, f"the path {path!r} has a zero byte in it")
    return Engine(_tessera.open_path(path, check_constants), path)


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


class Engine:
    """An engine file. Any thread may use it; contexts and sessions of it share its weights."""

    def __init__(self, handle: _tessera.Engine, source: str) -> None:
        self._handle, self._source = handle, source
        self._idle: dict[
            tuple[str | None, bool], list[Context]
        ] = {}  # graph -> contexts of run() that nobody uses at the moment (list.pop is atomic)
        self._manifest: dict[str, Any] | None = None

    @property
    def plans(self) -> list[Plan]:
        return self._handle.plans

    @property
    def manifest(self) -> dict[str, Any]:
        """What `tessera inspect --json` has: per plan and layer what was asked, stored and computed."""
        if self._manifest is None:
            import json

            self._manifest = json.loads(self._handle.manifest())
        return self._manifest

    def _plan(self, plan: str | None) -> int:
        names = [p.name for p in self.plans]
        if plan is None:
            return 0
        if plan not in names:
            raise BadInputError(3, f"the engine has no plan {plan!r}; it has {', '.join(names)}")
        return names.index(plan)

    def inputs(self, plan: str | None = None) -> list[Port]:
        """Of a plan; of the first where none is named."""
        return self._handle.ports(self._plan(plan), False)

    def outputs(self, plan: str | None = None) -> list[Port]:
        return self._handle.ports(self._plan(plan), True)

    def memory(self, plan: str | None = None) -> Memory:
        return self._handle.memory(plan)

    def context(
        self,
        plan: str | None = None,
        *,
        graph: str | None = None,
        device: str | int = 0,
        threads: int = 0,
        verify: bool = True,
        state: State | None = None,
    ) -> Context:
        """A plan with its working memory: `y = context(x)`, `context(x, out=y)`, on a GPU `stream=`. Where none is
        named, it is the first one (of `graph`). One call at a time; another thread's is turned away with BusyError.
        `threads`: a pool of its own for a CPU plan; 0: the one that all share. `verify`: the plan first reproduces the
        engine's golden values here."""
        if plan is None:
            plan = next((p.name for p in self.plans if graph in (None, p.graph)), None)
            if plan is None:
                graphs = ", ".join(dict.fromkeys(p.graph for p in self.plans))
                raise BadInputError(3, f"the engine has no graph {graph!r} with a plan; it has {graphs}")
        return self._handle.context(plan, graph, _device(device, self._on_cuda()), threads, verify, state)

    def _on_cuda(self) -> bool:
        return any(p.on_cuda for p in self.plans)

    def state(self, device: str | int = 0) -> State:
        return self._handle.state(_device(device, self._on_cuda()))

    def session(
        self,
        *,
        state: State | None = None,
        device: str | int = 0,
        threads: int = 0,
        batch: int = 0,
        verify: bool = True,
        plans: dict[str, str] | None = None,
    ) -> Session:
        """The engine's schedule over one state as one call. `plans`: the plan of a graph, by its name."""
        cases = list((plans or {}).items())
        return self._handle.session(state, _device(device, self._on_cuda()), threads, batch, verify, cases)

    def run(self, inputs: dict[str, Any], *, graph: str | None = None, verify: bool = True) -> dict[str, Any]:
        """Arrays by the names of the inputs, any number of samples, from any thread. They are converted to the types of
        the inputs, where that leaves integers what they are; results are numpy arrays by the names of the outputs. Of
        an engine with lengths arrays have any of them: the smallest plans that hold them run."""
        import numpy

        if not isinstance(inputs, _Mapping):
            raise UsageError(2, f"inputs is a {type(inputs).__name__}: a dict of arrays by the inputs' names is wanted")

        idle = self._idle.setdefault((graph, verify), [])
        try:
            context = idle.pop()
        except IndexError:
            context = self._handle.context(None, graph, 0, 0, verify, None)
        try:
            unknown = sorted(map(str, set(inputs) - {p.name for p in context.inputs}))
            missing = [p.name for p in context.inputs if p.name not in inputs]
            if unknown or missing:
                names = ", ".join(p.name for p in context.inputs)
                what = f"no array for {', '.join(missing)}" if missing else f"no input is called {', '.join(unknown)}"
                raise BadInputError(3, f"{what}; the inputs are {names}")
            arrays = [_converted(numpy, inputs[p.name], p) for p in context.inputs]
            shapes = context.output_shapes(arrays)
            results = [numpy.empty(shape, _numpy_type(p)) for shape, p in zip(shapes, context.outputs)]
            context.run_samples(arrays, results)
            return {p.name: r for p, r in zip(context.outputs, results)}
        finally:
            idle.append(context)

    def table(self, plan: str | None = None) -> list[tuple[str, str, str, str]]:
        """(layer, asked, stored, computed) of each step of a plan that has a precision."""
        from ._table import rows_of

        return rows_of(self.manifest, self.plans[self._plan(plan)].name)

    def __repr__(self) -> str:
        return f"<tessera.Engine {self._source}: plans {', '.join(p.name for p in self.plans)}>"

    def _repr_html_(self) -> str:
        from ._table import html_of

        return html_of(repr(self), self.table())


def _numpy_type(port: Port) -> str:
    code, bits, _ = port.dtype
    if code > 2 or bits % 8:
        raise UsageError(2, f"numpy has no {port.element}, which '{port.name}' is: call a context with torch tensors")
    return f"{'iuf'[code]}{bits // 8}"


def _converted(numpy: Any, given: Any, port: Port) -> Any:
    """Dense rows of the port's type. Only numbers become numbers, and an integer port gets no other integers."""
    array, kind = numpy.asarray(given), _numpy_type(port)
    if array.dtype.kind not in "biuf":
        raise BadInputError(3, f"input '{port.name}' holds {array.dtype}; real numbers are wanted, as {port.element}")
    if kind[0] != "f" and array.dtype.kind != "b" and array.dtype != kind:
        bounds = numpy.iinfo(kind)
        inside = (array >= bounds.min) & (array <= bounds.max) & (array == numpy.trunc(array))
        if not inside.all():
            wrong = array[~inside].flat[0]
            raise BadInputError(3, f"input '{port.name}' holds {wrong}, which is no number of its type, {port.element}")
    return numpy.ascontiguousarray(array, kind)
