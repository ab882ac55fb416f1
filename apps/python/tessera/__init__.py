# SPDX-License-Identifier: Apache-2.0
"""Runs Tessera's engines: `tessera.load(path)`, then `engine.run({name: array})` or `engine.context(plan)(tensor)`.

Arrays are numpy's, torch tensors, or whatever speaks DLPack; none is imported before it is needed. docs/library.md is
the guide."""

from __future__ import annotations

import os as _os
from collections.abc import Mapping as _Mapping

from . import _log as _log
from . import _tessera
from ._arguments import _cases, _count, _device, _path, _state, _words
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
    handle = _tessera.open_path(path, bool(check_constants))
    return Engine(handle, path, _os.path.abspath(path), bool(check_constants))


def _load_again(path: str, check_constants: bool) -> Engine:
    return load(path, check_constants=check_constants)


_MOST_IDLE = 8  # contexts that run() keeps for the next calls, of one engine


class Engine:
    """An engine file. Any thread may use it; contexts and sessions of it share its weights."""

    def __init__(self, handle: _tessera.Engine, source: str, path: str | None, checked: bool = False) -> None:
        self._handle, self._source, self._path, self._checked = handle, source, path, checked
        self._plans: list[Plan] = handle.plans
        # What run() has by its arguments and nobody uses at the moment (list.pop is atomic).
        self._idle: dict[tuple[str | None, bool, int, int], list[_Runner]] = {}
        self._manifest: dict[str, Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process loads the file again. Contexts and sessions stay where they are."""
        if self._path is None:
            raise TypeError("an engine from bytes cannot be pickled: send the bytes, or load it from a file")
        return _load_again, (self._path, self._checked)

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

    def _plan(self, plan: str | None, graph: str | None) -> int:
        """Where it stands in `plans`. Several graphs may have a plan of one name: the first, unless one is named."""
        _words("plan", plan), _words("graph", graph)
        for i, p in enumerate(self._plans):
            if plan in (None, p.name) and graph in (None, p.graph):
                return i
        graphs = list(dict.fromkeys(p.graph for p in self._plans))
        if graph is not None and graph not in graphs:
            raise BadInputError(3, f"the engine has no graph {graph!r} with a plan; it has {', '.join(graphs)}")
        names = ", ".join(p.name for p in self._plans if graph in (None, p.graph))
        of = "" if graph is None else f" of graph {graph!r}"
        raise BadInputError(3, f"the engine has no plan {plan!r}{of}; it has {names}")

    def inputs(self, plan: str | None = None, *, graph: str | None = None) -> list[Port]:
        """Of a plan; of the first (of `graph`) where none is named."""
        return self._handle.ports(self._plan(plan, graph), False)

    def outputs(self, plan: str | None = None, *, graph: str | None = None) -> list[Port]:
        """Of a plan; of the first (of `graph`) where none is named."""
        return self._handle.ports(self._plan(plan, graph), True)

    def memory(self, plan: str | None = None, *, graph: str | None = None) -> Memory:
        """Bytes that a context of a plan takes; without a name one of any number of samples (of `graph`)."""
        return self._handle.memory(_words("plan", plan), _words("graph", graph))

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
        found = self._plans[self._plan(plan, graph)]
        place = _device(device, self._on_cuda())
        count, own = _count("threads", threads), _state(state)
        return self._handle.context(found.name, found.graph, place, count, bool(verify), own)

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
        """The engine's schedule over one state as one call. `plans`: the plan of a graph, by its name, such as
        {"main": "batch8"}; session.use(plans) takes others later."""
        cases = _cases(plans)
        place, count = _device(device, self._on_cuda()), _count("threads", threads)
        return self._handle.session(_state(state), place, count, _count("batch", batch, 63), bool(verify), cases)

    def run(
        self,
        inputs: dict[str, Any],
        *,
        graph: str | None = None,
        verify: bool = True,
        device: str | int = 0,
        threads: int = 0,
    ) -> dict[str, Any]:
        """Arrays by the names of the inputs, any number of samples, from any thread. They are converted to the types of
        the inputs, where that leaves integers what they are; results are numpy arrays by the names of the outputs. Of
        an engine with lengths arrays have any of them: the smallest plans that hold them run. `device` and `threads`
        are those of a context. A context is made for each call that runs at the same time as others; some are kept."""
        if not isinstance(inputs, _Mapping):
            raise UsageError(2, f"inputs is a {type(inputs).__name__}: a dict of arrays by the inputs' names is wanted")
        place = 0 if type(device) is int and device == 0 else _device(device, self._on_cuda())
        kind = (_words("graph", graph), bool(verify), place, _count("threads", threads))
        try:
            runner = self._idle[kind].pop()
        except (KeyError, IndexError):
            from ._samples import Runner

            runner = Runner(self._handle.context(None, kind[0], place, kind[3], kind[1], None))
        try:
            return runner.run(inputs)
        finally:
            self._keep(kind, runner)

    def _keep(self, kind: tuple[str | None, bool, int, int], runner: _Runner) -> None:
        """For the next call with these arguments. Too many: those of other arguments go first."""
        mine = self._idle.setdefault(kind, [])
        mine.append(runner)
        if len(self._idle) == 1 and len(mine) <= _MOST_IDLE:
            return
        others = [idle for idle in list(self._idle.values()) if idle is not mine]
        for idle in [*others, mine]:
            while idle and sum(map(len, [*others, mine])) > _MOST_IDLE:
                try:
                    idle.pop(0)
                except IndexError:  # another thread took the last one
                    break

    def table(self, plan: str | None = None, *, graph: str | None = None) -> list[tuple[str, str, str, str]]:
        """(layer, asked, stored, computed) of each step of a plan that has a precision."""
        from ._table import rows_of

        found = self._plans[self._plan(plan, graph)]
        return rows_of(self.manifest, found.name, found.graph)

    def __repr__(self) -> str:
        return f"<tessera.Engine {self._source}: plans {', '.join(p.name for p in self._plans)}>"

    def _repr_html_(self) -> str:
        from ._table import html_of

        names = [p.name for p in self._plans]
        titles = [p.name if names.count(p.name) == 1 else f"{p.graph}: {p.name}" for p in self._plans]
        tables = [(title, self.table(p.name, graph=p.graph)) for title, p in zip(titles, self._plans)]
        return html_of(repr(self), tables)
