# SPDX-License-Identifier: Apache-2.0
"""`tessera build` as a function."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Callable, Mapping, Sequence

from ._arguments import _count, _name, _names, _number, _path, _some_path, _words
from ._errors import BadInputError, UsageError, _raise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from . import _tessera_build

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
    shape: str | Sequence[str] = (),
    state: str | Sequence[str] = (),
    io: str | Sequence[str] = (),
    family: str | None = None,
    size: str | Sequence[str] = (),
    random: int | None = None,
    graph: str | Sequence[str] = (),
    schedule: str | None = None,
    accumulate: str | None = None,
    sparsity: str | None = None,
    sparsity_by: str | None = None,
    refine: str | Sequence[str] | None = None,
    preprocess: str | None = None,
    tune: bool = False,
    tuning: str | os.PathLike[str] | None = None,
    chains: bool = False,
    keep_norms: bool = False,
    golden: str | None = None,
    golden_samples: int = 0,
    golden_inputs: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    min_cosine: float | None = None,
) -> None:
    """Builds an ONNX file, or with `family` a checkpoint's folder, into an engine file; the options of `tessera build`
    by the same names, and in the same words: `shape="input_ids=1:8,16:512"`, and a list where the option may stand
    several times. `calib`: a path, or arrays by the names of the inputs. `progress`: True for a bar of tqdm's where it
    is installed, or a function of (what, done, total); what it raises ends the build. A layer that cannot run as asked:
    RefusedError."""
    from . import _tessera_build

    path, arrays = _arrays("calib", calib)
    given = _model_words(shape, state, io, family, size, random) | {
        "precision": _words("precision", precision),
        "attention": _words("attention", attention),
        "recipe": _some_path("recipe", recipe),
        "target": _words("target", target),
        "batches": _batches(batch),
        "calib": path,
        "calib_method": _words("calib_method", calib_method),
        "calib_samples": _count("calib_samples", calib_samples, 63),
        "allow": _names("allow", allow),
        "verify": bool(verify),
        "graphs": _names("graph", graph),
        "schedule": _words("schedule", schedule),
        "accumulate": _words("accumulate", accumulate),
        "sparsity": _words("sparsity", sparsity),
        "sparsity_by": _words("sparsity_by", sparsity_by),
        "refine": None if refine is None else ",".join(_names("refine", refine)),
        "preprocess": _words("preprocess", preprocess),
        "tune": bool(tune),
        "tuning": _some_path("tuning", tuning),
        "chains": bool(chains),
        "keep_norms": bool(keep_norms),
        "golden": _words("golden", golden),
        "golden_samples": _count("golden_samples", golden_samples, 63),
        "golden_inputs": _some_path("golden_inputs", golden_inputs),
        "seed": None if seed is None else _count("seed", seed, 63),
        "min_cosine": None if min_cosine is None else _number("min_cosine", min_cosine),
    }
    asked = _asked(given)
    from_, to = _path("model", model), _path("output", output)
    with _Watching(progress) as watching:
        code, said, layers = _tessera_build.build(from_, to, asked, arrays, watching.function, _log)
    if code != 0:
        _raise(code, said, layers)


def _model_words(shape: Any, state: Any, io: Any, family: Any, size: Any, random: Any) -> dict[str, Any]:
    """How a model is read."""
    return {
        "shapes": _names("shape", shape),
        "states": _names("state", state),
        "io": _names("io", io),
        "family": _words("family", family),
        "sizes": _names("size", size),
        "random": None if random is None else _count("random", random, 63),
    }


def _asked(given: dict[str, Any]) -> _tessera_build.BuildAsked:
    from . import _tessera_build

    asked = _tessera_build.BuildAsked()
    for name, value in given.items():
        if value is not None:
            setattr(asked, name, value)
    return asked


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
