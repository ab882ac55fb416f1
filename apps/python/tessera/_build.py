# SPDX-License-Identifier: Apache-2.0
"""`tessera build` as a function."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Callable, Mapping, Sequence

from ._arguments import _count, _name, _names, _path, _some_path, _words
from ._errors import BadInputError, UsageError, _raise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Progress = Callable[[str, int, int], None]
    Samples = str | os.PathLike[str] | Mapping[str, Any] | None


def build(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    precision: str | None = None,
    attention: str | None = None,
    recipe: str | os.PathLike[str] | None = None,
    target: str | None = None,
    batch: int | Sequence[int] = (),
    calib: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    calib_method: str | None = None,
    calib_samples: int = 0,
    allow: str | Sequence[str] = (),
    verify: bool = True,
    progress: bool | Progress = False,
) -> None:
    """Builds an ONNX file into an engine file; the options of `tessera build` by the same names. `calib`: a path, or
    arrays by the names of the inputs. `progress`: True for a bar of tqdm's where it is installed, or a function of
    (what, done, total); what it raises ends the build. A layer that cannot run as asked: RefusedError."""
    from . import _tessera_build

    path, arrays = _arrays("calib", calib)
    with _Watching(progress) as watching:
        code, said, layers = _tessera_build.build(
            _path("model", model),
            _path("output", output),
            _words("precision", precision),
            _words("attention", attention),
            _some_path("recipe", recipe),
            _words("target", target),
            _batches(batch),
            path,
            arrays,
            _words("calib_method", calib_method),
            _count("calib_samples", calib_samples, 63),
            _names("allow", allow),
            bool(verify),
            watching.function,
            _log,
        )
    if code != 0:
        _raise(code, said, layers)


def _batches(batch: Any) -> list[int]:
    given = list(batch) if hasattr(batch, "__iter__") else [batch]
    if not all(hasattr(b, "__index__") for b in given):
        raise UsageError(2, f"batch is {batch!r}: a size or a sequence of sizes is wanted, such as [1, 8]")
    return [_count("batch", operator.index(b), 63) for b in given]


def _arrays(what: str, given: Samples) -> tuple[str | None, list[tuple[str, Any]]]:
    """A path, or arrays by the names of the inputs."""
    if given is None:
        return None, []
    if not isinstance(given, Mapping):
        return _path(what, given, "a path, or a dict of arrays by the inputs' names,"), []
    if not given:
        raise UsageError(2, f"{what} is an empty dict: give an array for each input, or leave {what} out")
    import numpy

    return None, [(_name(f"a name in {what}", name), _in_rows(numpy, what, name, a)) for name, a in given.items()]


def _in_rows(numpy: Any, what: str, name: str, array: Any) -> Any:
    """Torch tensors stay what they are; all else becomes dense rows of numpy's."""
    if hasattr(type(array), "__dlpack_c_exchange_api__"):
        return array.detach().cpu().contiguous()
    try:
        rows = numpy.asarray(array, order="C")
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInputError(3, f"{what}: '{name}' is no array: {error}") from error
    if rows.dtype.kind in "OUSmM":
        raise BadInputError(3, f"{what}: '{name}' holds {rows.dtype}; numbers are wanted")
    return rows


def _log(level: int, line: str) -> None:
    if level == 1:
        warnings.warn(line, stacklevel=3)


class _Watching:
    """Who is told of progress while something goes on: a function, bars, nobody."""

    def __init__(self, progress: bool | Progress) -> None:
        if not (progress is None or callable(progress) or isinstance(progress, bool)):
            raise UsageError(2, f"progress is {progress!r}: a function of (what, done, total), True or False is wanted")
        self._bars = _Bars() if progress is True else None
        self.function: Progress | None = self._bars or (progress if callable(progress) else None)

    def __enter__(self) -> _Watching:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.close()


class _Bars:
    """A bar of tqdm's for what is going on; none where there is no tqdm."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._what = ""
        import importlib

        self._tqdm: Any = None
        try:
            self._tqdm = importlib.import_module("tqdm.auto").tqdm
        except ImportError:
            pass

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._tqdm is None:
            return
        if what != self._what or done == 0:
            self.close()
            self._what, self._bar = what, self._tqdm(total=total, desc=what)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
