# SPDX-License-Identifier: Apache-2.0
"""`tessera verify`, `inspect` and `sensitivity` as functions: what the commands print with --json."""

from __future__ import annotations

import os
from collections.abc import Sequence

from . import _tessera
from ._arguments import _count, _name, _names, _number, _path, _some_path, _words
from ._build import _arrays, _asked, _log, _model_words, _Watching
from ._errors import _raise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._build import Progress, Samples

_VERIFY_FAILED = 1


def inspect(engine: str | os.PathLike[str], *, scales: bool = False) -> dict[str, Any]:
    """`tessera inspect --json` of an engine file, which need not run here: per plan and layer what was asked, stored
    and computed. `scales`: constants that are scales have their numbers."""
    return _parsed(_tessera.inspect(_path("engine", engine), bool(scales)))


def verify(
    engine: str | os.PathLike[str],
    *,
    inputs: Samples = None,
    kinds: str | Sequence[str] | None = None,
    model: str | os.PathLike[str] | None = None,
    family: str | None = None,
    plan: str | None = None,
    min_cosine: float = 0.0,
    samples: int = 0,
    seed: int = 0,
    layers: bool = True,
    progress: bool | Progress = False,
) -> dict[str, Any]:
    """`tessera verify --json` of an engine file; the options of the command by the same names. `inputs`: a path, or
    arrays by the names of the inputs. An engine that strays gives a report whose "ok" is False and whose "sentence"
    says where; what cannot be compared raises."""
    from . import _tessera_build

    path, arrays = _arrays("inputs", inputs)
    with _Watching(progress) as watching:
        (code, said, refused), text = _tessera_build.verify(
            _path("engine", engine),
            path,
            arrays,
            None if kinds is None else ",".join(_names("kinds", kinds)),
            _some_path("model", model),
            _words("family", family),
            _words("plan", plan),
            _number("min_cosine", min_cosine),
            _count("samples", samples, 63),
            _count("seed", seed, 63),
            bool(layers),
            watching.function,
            _log,
        )
    if code != 0 and (code != _VERIFY_FAILED or not text):
        _raise(code, said, refused)
    return _parsed(text)


def sensitivity(
    model: str | os.PathLike[str],
    *,
    precision: str,
    calib: Samples,
    attention: str | None = None,
    calib_method: str | None = None,
    calib_samples: int = 0,
    preprocess: str | None = None,
    shape: str | Sequence[str] = (),
    state: str | Sequence[str] = (),
    io: str | Sequence[str] = (),
    family: str | None = None,
    size: str | Sequence[str] = (),
    random: int | None = None,
    progress: bool | Progress = False,
) -> dict[str, Any]:
    """`tessera sensitivity --json` of an ONNX file, or with `family` of a checkpoint's folder: its layers, the one
    whose low precision costs most first. `calib`: a path, or arrays by the names of the inputs. How the model is read
    (`shape`, `state`, `io`, `family`, `size`, `random`): as `build` has it."""
    from . import _tessera_build

    path, arrays = _arrays("calib", calib)
    given = _model_words(shape, state, io, family, size, random) | {
        "precision": _name("precision", precision),
        "attention": _words("attention", attention),
        "calib": path,
        "calib_method": _words("calib_method", calib_method),
        "calib_samples": _count("calib_samples", calib_samples, 63),
        "preprocess": _words("preprocess", preprocess),
    }
    asked = _asked(given)
    with _Watching(progress) as watching:
        (code, said, refused), text = _tessera_build.sensitivity(
            _path("model", model),
            asked,
            arrays,
            watching.function,
            _log,
        )
    if code != 0:
        _raise(code, said, refused)
    return _parsed(text)


def _parsed(text: str) -> dict[str, Any]:
    import json

    report: dict[str, Any] = json.loads(text)
    return report
