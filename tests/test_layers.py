"""Who may import whom (the table is the law), and no file grows past one idea."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import gputop
from gputop import toml

ROOT = Path(gputop.__file__).parent
PURE = {"model", "units", "safe", "optional_sums", "invocation"}
READING = PURE | {"source", "history"}
MAY_IMPORT: dict[str, set[str]] = {
    "frozen_dataclass": set(),
    "model": set(),
    "units": set(),
    "optional_sums": set(),
    "fit": set(),
    "numpy_blas": set(),
    "pytorch": set(),
    "num_workers": set(),
    "severity": set(),
    "phrases": {"units"},
    "glossary": {"glossary_columns"},
    "glossary_columns": set(),
    "toml": set(),
    "suggest": set(),
    "thresholds": {"toml", "suggest"},
    "config": {"units", "toml", "suggest", "columns"},
    "invocation": set(),
    "safe": {"invocation"},
    "agent": set(),
    "inject": set(),
    "process_totals": {"model", "optional_sums"},
    "labels": {"model", "units"},
    "step_report": {"model", "units", "labels"},
    "finding_text": PURE | {"labels", "phrases", "diagnose"},
    "columns": {"units", "labels", "severity", "process_totals"},
    "report": {"safe", "units"},
    "profile": {"units", "phrases", "safe", "report", "severity", "num_workers"},
    "trace": {"units", "phrases", "safe", "report", "profile", "pytorch", "severity", "num_workers"},
    "paste": {"units", "phrases", "safe", "report", "trace", "pytorch", "severity", "num_workers", "thresholds"}
    | {"collectives"},
    "source": {"model"},
    "history": {"model", "optional_sums"},
    "last_job": {"model"},
    "agent_client": PURE,
    "collect": PURE | {"source", "agent_client", "pytorch"},
    "collectives": PURE | {"agent_client", "report", "profile", "monitor"},
    "actions": PURE | {"agent_client", "labels", "report", "profile", "trace", "collectives"},
    "demo": {"source", "model", "units", "suggest"},
    "diagnose": PURE
    | {"labels", "phrases", "numpy_blas", "pytorch", "severity", "history", "profile", "trace", "num_workers"}
    | {"step_report"},
    "monitor": {"source", "model", "history", "last_job", "diagnose", "thresholds"},
    "proven": PURE | {"labels", "report", "diagnose", "monitor"},
    "alerts": PURE | {"phrases", "suggest", "source", "finding_text", "diagnose", "monitor"},
    "export": PURE
    | {
        "process_totals",
        "labels",
        "fit",
        "finding_text",
        "report",
        "diagnose",
        "monitor",
        "step_report",
        "thresholds",
        "proven",
        "columns",
    },
    "prometheus": PURE | {"labels", "finding_text", "process_totals", "severity", "diagnose", "monitor"},
    "doctor": PURE | {"labels", "numpy_blas", "pytorch", "collect", "num_workers"},
    "record": {"source", "model", "safe", "monitor", "export.codec", "export.format"},
    "hosts": READING
    | {"severity", "labels", "finding_text", "diagnose", "thresholds", "monitor", "record", "export.text"}
    | {"collect.jobs", "collect.proc.cgroup", "collect.nvml.clocks", "collect.rates"},
    "fleet": {"model", "units", "safe", "labels", "finding_text", "source", "prometheus", "hosts.overview"},
    "lab": {"model", "units", "phrases", "safe", "report", "config", "num_workers", "pytorch", "paste"},
    "mcp": {"model", "units", "safe", "source", "labels", "finding_text", "severity", "suggest", "thresholds"}
    | {"diagnose", "monitor", "export", "docs", "collectives"},
    "docs": {"model", "units", "config", "glossary", "doctor", "lab", "trace", "diagnose", "thresholds"}
    | {"columns", "hosts.columns", "ui.table.filter", "ui.commands", "prometheus"},
    "ui": READING
    | {
        "columns",
        "fit",
        "last_job",
        "process_totals",
        "labels",
        "phrases",
        "finding_text",
        "report",
        "profile",
        "trace",
        "config",
        "severity",
        "glossary",
        "step_report",
        "toml",
        "thresholds",
        "suggest",
        "diagnose",
        "monitor",
        "proven",
        "alerts",
        "export",
        "record",
        "docs",
        "actions",
        "hosts",
        "fleet",
        "lab",
        "collectives",
    },
    "cli": {"*"},
    "__main__": {"entry"},
    "entry": {"cli"},
    "__init__": set(),
}
ALONE_IN_A_CHILD = {"lab.child_request"}
EVERYWHERE = {"frozen_dataclass"}  # how a value is declared, in our own process
ALONE = {"agent", "inject"}  # they run in a job
OUTSIDE_ONLY_IN: dict[str, tuple[str, ...]] = {
    "textual": ("ui",),
    "rich": ("ui",),
    "pynvml": ("collect.nvml",),
    "psutil": ("collect.details",),
    "prometheus_client": ("prometheus",),
    "mcp": ("mcp.server",),
    "mcp_types": ("mcp.server",),
    "jsonschema": ("mcp.server",),
    # the script that `gputop scaffold` prints, and what runs in the user's Python: we import neither
    "torch": ("lab.train", "lab.child_request", "lab.child_lab"),
}
IO_MODULES = {
    "asyncio", "datetime", "fcntl", "glob", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets",
    "select", "shutil", "signal", "socket", "subprocess", "sys", "tempfile", "threading", "time", "urllib",
}  # fmt: skip
FILES = sorted(ROOT.rglob("*.py"))
TESTS = sorted(Path(__file__).parent.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of it."""
    return tuple(ast.walk(parsed(path)))


def dotted(path: Path) -> str:
    """`gputop/collect/nvml.py` is `collect.nvml`; a package is its own name."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


@cache
def imports(path: Path) -> frozenset[str]:
    """Every module a file imports, at any depth, late ones included; names from a package as package.name."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level and path.is_relative_to(ROOT / "agent"):  # in a job it has another name
                found |= {f"gputop.agent.{node.module or name.name}" for name in node.names}
                continue
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return frozenset(found)


def within(module: str, layers: set[str] | tuple[str, ...]) -> bool:
    return any(module == layer or module.startswith(f"{layer}.") for layer in layers)


def may_import(here: str, name: str) -> bool:
    """Whether the tables let this module of ours import that module."""
    layer = here.split(".")[0]
    allowed = MAY_IMPORT[layer] if layer in ALONE else MAY_IMPORT[layer] | EVERYWHERE
    top, _, inner = name.partition(".")
    if top == "gputop" and inner and inner != "__version__":
        return "*" in allowed or within(inner, allowed | {layer})
    return top not in OUTSIDE_ONLY_IN or within(here, OUTSIDE_ONLY_IN[top])


def test_imports_follow_the_layers() -> None:
    pairs = [(dotted(path), name) for path in FILES for name in sorted(imports(path))]
    assert [f"{here} must not import {name}" for here, name in pairs if not may_import(here, name)] == []


def test_a_widget_knows_no_feature() -> None:
    """It is used by all of them; a command is what the key bar names."""
    known = {"ui.widgets", "ui.theme", "ui.commands.command"}
    for path in FILES:
        if within(dotted(path), {"ui.widgets"}):
            inner = {name.removeprefix("gputop.") for name in imports(path) if name.startswith("gputop.ui.")}
            assert [name for name in sorted(inner) if not within(name, known)] == [], path


def test_diagnose_has_no_io() -> None:
    """It is arithmetic on frames: the same frames make the same findings, on any machine and at any time."""
    for path in FILES:
        if within(dotted(path), {"diagnose"}):
            assert {name.partition(".")[0] for name in imports(path)} & IO_MODULES == set(), path
            calls = (node.func for node in nodes(path) if isinstance(node, ast.Call))
            assert {getattr(call, "id", "") for call in calls} & {"open", "print", "input"} == set(), path


def test_frozen_values_are_declared_in_one_way() -> None:
    """A dataclass that freezes itself is compiled at each start, and slow to make."""
    for path in FILES:
        calls = (node for node in nodes(path) if isinstance(node, ast.Call))
        frozen = [call for call in calls if getattr(call.func, "id", "") == "dataclass" and _says(call, "frozen")]
        assert frozen == [], f"{path}: @frozen_dataclass of gputop.frozen_dataclass"


def _says(call: ast.Call, name: str) -> bool:
    return any(keyword.arg == name for keyword in call.keywords)


def test_no_import_that_the_table_cannot_see() -> None:
    for path in FILES:
        if dotted(path) in ALONE_IN_A_CHILD:  # it imports what the user names
            continue
        for node in nodes(path):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            assert name not in ("import_module", "__import__"), f"{path} imports behind the table's back"


def test_no_module_imports_in_a_circle() -> None:
    modules = {dotted(path): path for path in FILES}
    graph: dict[str, set[str]] = {}
    for here, path in modules.items():
        inner = {name.removeprefix("gputop.") for name in imports(path) if name.startswith("gputop.")}
        graph[here] = {name if name in modules else name.rpartition(".")[0] for name in inner} & set(modules) - {here}
    while leaves := [name for name, needs in graph.items() if not needs]:
        for name in leaves:
            del graph[name]
        for needs in graph.values():
            needs.difference_update(leaves)
    assert not graph, f"these import each other: {sorted(graph)}"


def test_a_file_is_one_idea() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in [*FILES, *TESTS]}
    assert {str(path): count for path, count in lines.items() if count > 600} == {}


def test_modules_say_what_they_are() -> None:
    assert [str(path) for path in [*FILES, *TESTS] if path.read_text() and not ast.get_docstring(parsed(path))] == []


def test_names_say_what_things_are() -> None:
    """A manager or a helper is a thing whose idea nobody has found yet."""
    named = [(path, path.stem) for path in [*FILES, *TESTS]]
    named += [(path, node.name) for path, _ in named for node in nodes(path) if isinstance(node, ast.ClassDef)]
    empty = re.compile(r"(?:manager|helpers?|handlers?|util|utils|misc|common|base)$", re.IGNORECASE)
    assert [f"{path}: {name}" for path, name in named if empty.search(name)] == []


def test_every_dependency_is_used() -> None:
    declared = toml.parse((ROOT.parent / "pyproject.toml").read_bytes())["project"]["dependencies"]
    names = {re.match(r"[A-Za-z0-9-]+", line)[0] for line in declared} - {"py-spy"}  # which is run as a program
    used = {name.partition(".")[0] for path in FILES for name in imports(path)}
    assert {"pynvml" if name == "nvidia-ml-py" else name for name in names} <= used


def test_functions_and_classes_are_short() -> None:
    for path in [*FILES, *TESTS]:
        for node in nodes(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or 0) - node.lineno + 1
                most = 60 if path in TESTS else 40  # a scene on a terminal is told in one go
                assert lines <= most, f"{path}: {node.name} has {lines} lines"
            if isinstance(node, ast.ClassDef):
                public = [f for f in node.body if isinstance(f, ast.FunctionDef) and not f.name.startswith("_")]
                textual = any("textual" in name for name in imports(path))
                assert len(public) <= 12 or textual or path in TESTS, f"{path}: {node.name}"


def test_no_test_brings_torch_into_the_process_of_all() -> None:
    """It would be a training from then on, as long as it is busy, and what other tests start would be of its job."""
    tests = [path for path in TESTS if path.name.startswith("test_") or path.name == "conftest.py"]
    assert [str(path) for path in tests if any(name.partition(".")[0] == "torch" for name in imports(path))] == []


def test_no_thread_that_delays_the_exit() -> None:
    for path in FILES:
        text = path.read_text()
        for word in ("to_thread", "ThreadPoolExecutor", "ProcessPoolExecutor", "thread=True"):
            assert word not in text, f"{path} uses {word}: leaving would wait for it"


def test_rules_stand_in_one_order_whoever_is_imported_first() -> None:
    """They are listed, told and completed in it; a rule of one group may import what stands in another."""
    ask = "from gputop.diagnose.rules import RULES; print(*RULES)"
    firsts = ("", "import gputop.diagnose.program_kind", "import gputop.diagnose.rules.feed.main_thread_loading")
    said = {subprocess.check_output([sys.executable, "-c", f"{first}\n{ask}"], text=True) for first in firsts}
    assert len(said) == 1
