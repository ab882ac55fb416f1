# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

_Said = tuple[int, str, list[tuple[str, str, str, list[tuple[str, str]]]]]

def build(
    model: str,
    output: str,
    precision: str | None,
    attention: str | None,
    recipe: str | None,
    target: str | None,
    batches: list[int],
    calib: str | None,
    arrays: list[tuple[str, Any]],
    calib_method: str | None,
    calib_samples: int,
    allow: list[str],
    verify: bool,
    progress: Callable[[str, int, int], None] | None,
    log: Callable[[int, str], None] | None,
) -> _Said: ...
def verify(
    engine: str,
    inputs: str | None,
    arrays: list[tuple[str, Any]],
    kinds: str | None,
    model: str | None,
    family: str | None,
    plan: str | None,
    min_cosine: float,
    samples: int,
    seed: int,
    layers: bool,
    progress: Callable[[str, int, int], None] | None,
    log: Callable[[int, str], None] | None,
) -> tuple[_Said, str]: ...
def sensitivity(
    model: str,
    precision: str | None,
    attention: str | None,
    calib: str | None,
    arrays: list[tuple[str, Any]],
    calib_method: str | None,
    calib_samples: int,
    preprocess: str | None,
    progress: Callable[[str, int, int], None] | None,
    log: Callable[[int, str], None] | None,
) -> tuple[_Said, str]: ...
