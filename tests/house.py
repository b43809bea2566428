"""python -m tests.house: how the code is cut, in numbers. A picture, not a target.

For each package its modules and lines; of all together the median and the longest module, those with one importer, and
those under 60 lines, which need a reason.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import gputop

ROOT = Path(gputop.__file__).parent
SHORT = 60


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Every module below a package, by its dotted name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def importers(known: Mapping[str, Path]) -> Counter[str]:
    """How many modules import each module, at any depth."""
    counts: Counter[str] = Counter()
    for path in known.values():
        names = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and not node.level:
                names |= {f"{node.module}.{name.name}" for name in node.names}
            elif isinstance(node, ast.Import):
                names |= {name.name for name in node.names}
        counts.update({name if name in known else name.rpartition(".")[0] for name in names} & known.keys())
    return counts


def main() -> None:
    """Print them."""
    known = modules()
    lines = {name: len(path.read_text().splitlines()) for name, path in known.items()}
    packages: dict[str, list[int]] = {}
    for name, count in lines.items():
        inside = known[name].relative_to(ROOT).parts
        packages.setdefault(inside[0] if len(inside) > 1 else "", []).append(count)
    print(f"{'package':12} modules   lines")
    for package, counts in sorted(packages.items()):
        print(f"{package or '(root)':12} {len(counts):7} {sum(counts):7}")
    print(f"{'all':12} {len(lines):7} {sum(lines.values()):7}")
    code = {name: count for name, count in lines.items() if known[name].stem != "__init__"}
    longest = max(code, key=code.__getitem__)
    once = sum(count == 1 for name, count in importers(known).items() if name in code)
    print(f"median {median(code.values()):.0f} lines, longest {code[longest]} ({longest})")
    print(f"{once} modules have one importer, {sum(count < SHORT for count in code.values())} have under {SHORT} lines")


if __name__ == "__main__":
    main()
