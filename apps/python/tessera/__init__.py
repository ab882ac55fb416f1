# SPDX-License-Identifier: Apache-2.0
"""Runs Tessera's engines: `tessera.load(path)`, then `engine.run({name: array})` or `engine.context(plan)(tensor)`.

Arrays are numpy's, torch tensors, or whatever speaks DLPack; none is imported before it is needed. docs/library.md is
the guide."""

from __future__ import annotations

import os as _os
from collections.abc import Mapping as _Mapping

from . import _tessera
from ._arguments import _count, _device, _name, _path, _state, _words
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

    from ._samples import Runner as _Runner

__all__ = [
    "BadInputError", "BusyError", "CancelledError", "Context", "Engine", "Error", "MachineError", "Memory", "Plan",
    "Port", "Refusal", "RefusedError", "RefusedLayer", "Session", "State", "UsageError", "VerifyError", "__version__",
    "abi_version", "build", "inspect", "load", "sensitivity", "verify",
]  # fmt: skip

__version__: str = _tessera.version()
abi_version: int = _tessera.abi_version()


def load(source: str | _os.PathLike[str] | bytes, *, check_constants: bool = False) -> Engine:
    """Maps an engine file, or copies its bytes. `check_constants`: read every weight now and compare its checksum."""
    if isinstance(source, bytes | bytearray | memoryview):
        held = bytes(source)
        return Engine(_tessera.open_bytes(held, bool(check_constants)), f"{len(held)} bytes", None)
    path = _path("source", source, "a path, or the bytes of an engine,")
    return Engine(_tessera.open_path(path, bool(check_constants)), path, _os.path.abspath(path))


class Engine:
    """An engine file. Any thread may use it; contexts and sessions of it share its weights."""

    def __init__(self, handle: _tessera.Engine, source: str, path: str | None) -> None:
        self._handle, self._source, self._path = handle, source, path
        self._plans: list[Plan] = handle.plans
        # What run() has for a graph that nobody uses at the moment (list.pop is atomic).
        self._idle: dict[tuple[str | None, bool], list[_Runner]] = {}
        self._manifest: dict[str, Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process loads the file again. Contexts and sessions stay where they are."""
        if self._path is None:
            raise TypeError("an engine from bytes cannot be pickled: send the bytes, or load it from a file")
        return load, (self._path,)

    @property
    def plans(self) -> list[Plan]:
        """Those that can be run: a graph with every choice made, for one batch size."""
        return list(self._plans)

    @property
    def manifest(self) -> dict[str, Any]:
        """What `tessera inspect --json` has: per plan and layer what was asked, stored and computed."""
        if self._manifest is None:
            import json

            self._manifest = json.loads(self._handle.manifest())
        return self._manifest

    def _plan(self, plan: str | None) -> int:
        names = [p.name for p in self._plans]
        if plan is None:
            return 0
        if plan not in names:
            raise BadInputError(3, f"the engine has no plan {plan!r}; it has {', '.join(names)}")
        return names.index(plan)

    def inputs(self, plan: str | None = None) -> list[Port]:
        """Of a plan; of the first where none is named."""
        return self._handle.ports(self._plan(plan), False)

    def outputs(self, plan: str | None = None) -> list[Port]:
        """Of a plan; of the first where none is named."""
        return self._handle.ports(self._plan(plan), True)

    def memory(self, plan: str | None = None) -> Memory:
        """Bytes that a context of a plan takes; without a name one of any number of samples."""
        return self._handle.memory(_words("plan", plan))

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
        _words("plan", plan), _words("graph", graph)
        if plan is None:
            plan = next((p.name for p in self._plans if graph in (None, p.graph)), None)
            if plan is None:
                graphs = ", ".join(dict.fromkeys(p.graph for p in self._plans))
                raise BadInputError(3, f"the engine has no graph {graph!r} with a plan; it has {graphs}")
        place = _device(device, self._on_cuda())
        return self._handle.context(plan, graph, place, _count("threads", threads), bool(verify), _state(state))

    def _on_cuda(self) -> bool:
        return any(p.on_cuda for p in self._plans)

    def state(self, device: str | int = 0) -> State:
        """What a session keeps between runs, all zeros: contexts and sessions may share it."""
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
        if not isinstance(plans, _Mapping | None):
            raise UsageError(2, f"plans is a {type(plans).__name__}: a dict is wanted, such as {{'main': 'batch8'}}")
        cases = [(_name("a graph", graph), _name("a plan", plan)) for graph, plan in (plans or {}).items()]
        place, count = _device(device, self._on_cuda()), _count("threads", threads)
        return self._handle.session(_state(state), place, count, _count("batch", batch, 63), bool(verify), cases)

    def run(self, inputs: dict[str, Any], *, graph: str | None = None, verify: bool = True) -> dict[str, Any]:
        """Arrays by the names of the inputs, any number of samples, from any thread. They are converted to the types of
        the inputs, where that leaves integers what they are; results are numpy arrays by the names of the outputs. Of
        an engine with lengths arrays have any of them: the smallest plans that hold them run."""
        if not isinstance(inputs, _Mapping):
            raise UsageError(2, f"inputs is a {type(inputs).__name__}: a dict of arrays by the inputs' names is wanted")
        idle = self._idle.setdefault((graph, verify), [])
        try:
            runner = idle.pop()
        except IndexError:
            from ._samples import Runner

            runner = Runner(self._handle.context(None, _words("graph", graph), 0, 0, bool(verify), None))
        try:
            return runner.run(inputs)
        finally:
            idle.append(runner)

    def table(self, plan: str | None = None) -> list[tuple[str, str, str, str]]:
        """(layer, asked, stored, computed) of each step of a plan that has a precision."""
        from ._table import rows_of

        return rows_of(self.manifest, self._plans[self._plan(plan)].name)

    def __repr__(self) -> str:
        return f"<tessera.Engine {self._source}: plans {', '.join(p.name for p in self._plans)}>"

    def _repr_html_(self) -> str:
        from ._table import html_of

        return html_of(repr(self), self.table())
