# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

_Said = tuple[int, str, list[tuple[str, str, str, list[tuple[str, str]]]]]

class BuildAsked:
    def __init__(self) -> None: ...
    precision: str | None
    attention: str | None
    recipe: str | None
    target: str | None
    calib: str | None
    calib_method: str | None
    preprocess: str | None
    family: str | None
    schedule: str | None
    accumulate: str | None
    sparsity: str | None
    sparsity_by: str | None
    refine: str | None
    tuning: str | None
    golden: str | None
    golden_inputs: str | None
    allow: list[str]
    shapes: list[str]
    states: list[str]
    io: list[str]
    sizes: list[str]
    graphs: list[str]
    batches: list[int]
    calib_samples: int
    golden_samples: int
    random: int | None
    seed: int | None
    min_cosine: float | None
    verify: bool
    tune: bool
    chains: bool
    keep_norms: bool

def build(
    model: str,
    output: str,
    asked: BuildAsked,
    arrays: list[tuple[str, Any]],
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
    asked: BuildAsked,
    arrays: list[tuple[str, Any]],
    progress: Callable[[str, int, int], None] | None,
    log: Callable[[int, str], None] | None,
) -> tuple[_Said, str]: ...
