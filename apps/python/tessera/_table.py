# SPDX-License-Identifier: Apache-2.0
"""Asked, stored and computed, per layer: what a notebook shows of an engine."""

from __future__ import annotations

import html
from collections.abc import Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def rows_of(manifest: dict[str, Any], plan: str) -> list[tuple[str, str, str, str]]:
    for p in manifest["plans"]:
        if p["name"] == plan:
            steps = [s for s in p["steps"] if s.get("asked")]
            return [(s["layer"], s["asked"], s.get("stored", ""), s.get("computed", "")) for s in steps]
    raise KeyError(plan)


def html_of(title: str, rows: list[tuple[str, str, str, str]]) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    head = row(("layer", "asked", "stored", "computed"), "th")
    body = "".join(row(cells, "td") for cells in rows)
    return f"<p>{html.escape(title)}</p><table><thead>{head}</thead><tbody>{body}</tbody></table>"
