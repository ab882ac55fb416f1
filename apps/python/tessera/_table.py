# SPDX-License-Identifier: Apache-2.0
"""Asked, stored and computed, per layer: what a notebook shows of an engine."""

from __future__ import annotations

import html
from collections.abc import Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def rows_of(manifest: dict[str, Any], plan: str, graph: str = "main") -> list[tuple[str, str, str, str]]:
    for p in manifest["plans"]:
        if p["name"] == plan and p.get("graph", "main") == graph:
            steps = [s for s in p["steps"] if s.get("asked")]
            return [(s["layer"], s["asked"], s.get("stored", ""), s.get("computed", "")) for s in steps]
    raise KeyError(plan)


def html_of(title: str, tables: Sequence[tuple[str, list[tuple[str, str, str, str]]]]) -> str:
    """A table per plan, of which the first is open."""

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    head = row(("layer", "asked", "stored", "computed"), "th")
    text = f"<p>{html.escape(title)}</p>"
    for i, (name, rows) in enumerate(tables):
        body = "".join(row(cells, "td") for cells in rows)
        table = f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
        text += f"<details{' open' if i == 0 else ''}><summary>{html.escape(name)}</summary>{table}</details>"
    return text
