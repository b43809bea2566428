"""A flame graph of a profile as SVG: one file without scripts or external references."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from gputop.profile.stacks import Profile, StackNode

WIDTH = 1200
ROW = 17
_LETTER = 6.6  # width of a character at 11 px
_SMALLEST = 0.3  # px; narrower boxes are invisible
_COLOURS = ("#e4a95b", "#e8b872", "#dd9a4f", "#e6c07f", "#d88f52", "#edc98a")


def flame(profile: Profile, title: str = "") -> str:
    """The SVG: width is samples, the root is on top, hovering shows the full name."""
    root = profile.tree()
    boxes = list(_boxes(root, 0.0, WIDTH / root.count if root.count else 0.0, 0))
    height = ROW * (2 + max((depth for _, _, _, depth in boxes), default=0)) + 24
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="4" y="15" font-weight="bold">{_plain(title or "profile")}</text>',
    ]
    for node, left, width, depth in boxes:
        share = 100 * node.count / root.count
        label = f"{node.name}: {node.count:g} of {root.count:g} samples, {share:.1f} %"
        top = 22 + depth * ROW
        lines.append(
            f'<g><title>{_plain(label)}</title><rect x="{left:.1f}" y="{top}" width="{max(width - 0.4, 0.2):.1f}" '
            f'height="{ROW - 1}" rx="1" fill={quoteattr(_colour(node.name))}/>'
            f"{_label(node.name, left, width, top)}</g>"
        )
    return "\n".join([*lines, "</svg>\n"])


def _boxes(root: StackNode, left: float, scale: float, depth: int) -> Iterator[tuple[StackNode, float, float, int]]:
    """Every visible node with its left edge, width and depth."""
    waiting = [(root, left, depth)]
    while waiting:  # a stack may be deeper than Python's recursion limit
        node, left, depth = waiting.pop()
        width = node.count * scale
        if width < _SMALLEST:
            continue
        yield node, left, width, depth
        for name in sorted(node.children):
            child = node.children[name]
            waiting.append((child, left, depth + 1))
            left += child.count * scale


def _label(name: str, left: float, width: float, top: int) -> str:
    letters = int((width - 6) / _LETTER)
    if letters < 3:
        return ""
    text = name if len(name) <= letters else name[: letters - 1] + "…"
    return f'<text x="{left + 3:.1f}" y="{top + 12}">{_plain(text)}</text>'


def _plain(text: str) -> str:
    """Text for XML 1.0; frames are sanitized already, a title may not be."""
    return escape("".join(ch if ch.isprintable() else "\ufffd" for ch in text))


def _colour(name: str) -> str:
    return _COLOURS[sum(map(ord, name)) % len(_COLOURS)]
