# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

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
) -> tuple[int, str]: ...
