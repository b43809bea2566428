"""python -m tests.house: how the code is cut, in numbers. A picture, not a target.

For each package its modules and lines; of all together the median and the longest module, those with one importer, and
those under 60 lines, which need a reason; of three trips through the code the files that one opens on the way.
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
# the modules that one reads, in this order, to follow a thing from where it begins to where it is seen
TRIPS: dict[str, tuple[int, str]] = {
    "p to a py-spy result": (
        12,  # 10 is wanted; the dialog is a Form now, on a list of Textual's
        "ui.commands.profiling ui.profiling.dialog ui.dialogs.form ui.profiling.tools ui.profiling.background_jobs "
        "actions.handles actions.pyspy.record actions.action ui.result.screen ui.result.builders "
        "ui.result.profile_tabs ui.result.flame",
    ),
    "a finding to its line": (
        14,
        "diagnose.rules.memory.zombies diagnose.rule diagnose.view diagnose.finding diagnose.engine "
        "diagnose.steadying diagnose.merge monitor ui.main.panes ui.advice.finding_list ui.panes.parts "
        "ui.advice.pane ui.advice.compact finding_text",
    ),
    "a GPU metric to its cell": (
        14,
        "model.gpu collect.nvml.device collect.nvml.thermal collect.nvml.probe collect.nvml.reader "
        "collect.nvml.lane collect.live source monitor ui.session ui.main.panes ui.panes.parts ui.gpus.pane "
        "ui.gpus.fields",
    ),
}


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Every module below a package, by its dotted name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: Mapping[str, Path]) -> set[str]:
    """The modules of ours that a file imports, at any depth."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and not node.level:
            names |= {f"{node.module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
    return {name if name in known else name.rpartition(".")[0] for name in names} & known.keys()


def lost_on(trip: str, known: Mapping[str, Path]) -> list[str]:
    """The modules of a trip to which none that was read before leads, by an import in either direction."""
    names = [f"gputop.{name}" for name in TRIPS[trip][1].split()]
    edges = {name: _with_reexports(imported(known[name], known), known) for name in names}
    return [
        name
        for place, name in enumerate(names)
        if place and not any(name in edges[before] or before in edges[name] for before in names[:place])
    ]


def _with_reexports(names: set[str], known: Mapping[str, Path]) -> set[str]:
    """These modules, and of the packages among them what they hand on."""
    packages = (known[name] for name in names if known[name].stem == "__init__")
    return names.union(*(imported(path, known) for path in packages))


def importers(known: Mapping[str, Path]) -> Counter[str]:
    """How many modules import each module, at any depth."""
    counts: Counter[str] = Counter()
    for path in known.values():
        counts.update(imported(path, known))
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
    for trip, (most, names) in TRIPS.items():
        print(f"{trip}: {len(names.split())} files (at most {most})")


if __name__ == "__main__":
    main()
