"""Tables and lists in Markdown that can be read as they are."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

_WIDTH = 100


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose columns stand under each other in a terminal too."""
    body = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*body, strict=True)]
    body.insert(1, ["-" * width for width in widths])
    widths[-1] = 0  # the last one may be as long as it likes
    return "\n".join(f"| {' | '.join(map(str.ljust, row, widths))} |" for row in body)


def listing(rows: Iterable[tuple[str, str]]) -> str:
    """A Markdown list of names and what they are, for texts that are too long for a table."""
    return "\n".join(
        textwrap.fill(f"* {name}: {text}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
        for name, text in rows
    )
