"""The guide for contributors is true: its examples run in the files they name, and all that it names is there."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop import docs, toml
from gputop.cli.options import CliCommand
from gputop.collect.nvml.probe import PROBES, Probe
from gputop.collect.nvml.reader import NvmlReader  # declares every probe: an example adds one
from gputop.collect.proc.proc_files import ProcFile
from gputop.columns import Column
from gputop.demo import Demo, Scenario
from gputop.diagnose.rule import Rule
from gputop.diagnose.rules import RULES
from gputop.process_totals import one
from gputop.ui.commands.command import Command
from gputop.ui.commands.table import COMMANDS
from tests.rule_cases import EACH_S, LIMITS, ONSET_S, Machine, found, judged
from tests.scripted_jobs import frame, process

ROOT = Path(__file__).parents[2]
GUIDE = docs.read("contributing")
EXAMPLES = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", GUIDE, re.DOTALL))
COLUMN, RULE = "gputop/columns.py", "gputop/diagnose/rules/device/throttling.py"
SCENARIO = "gputop/demo/scenarios/device.py"
MADE: dict[str, type] = {
    COLUMN: Column,
    "gputop/collect/proc/proc_files.py": ProcFile,
    "gputop/collect/nvml/settings.py": Probe,
    RULE: Rule,
    "gputop/ui/commands/panes.py": Command,
    "gputop/cli/manual.py": CliCommand,
    SCENARIO: Scenario,
}


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """What an example declares is gone after the test."""
    assert NvmlReader
    probes, rules = [*PROBES], set(RULES)
    yield
    PROBES[:] = probes
    for added in RULES.keys() - rules:
        del RULES[added]


def made(place: str) -> object:
    """What the example of this file declares, run as if it stood there; a last line may be a value."""
    names = dict(vars(importlib.import_module(place.removesuffix(".py").replace("/", "."))))
    known = {*map(id, (*names.values(), *PROBES, *RULES.values()))}
    tree = ast.parse(EXAMPLES[place])
    if isinstance(last := tree.body[-1], ast.Expr):
        assigned = ast.Assign(targets=[ast.Name("last", ast.Store())], value=last.value)
        tree.body[-1] = ast.fix_missing_locations(ast.copy_location(assigned, last))
    exec(compile(tree, place, "exec"), names)
    new = [each for each in (*names.values(), *PROBES, *RULES.values()) if id(each) not in known]
    (declared,) = (each for each in new if isinstance(each, MADE[place]))
    return declared


def test_every_example_says_where_it_belongs() -> None:
    assert GUIDE.count("```python") == len(EXAMPLES)
    assert set(EXAMPLES) == set(MADE)


@pytest.mark.parametrize("place", MADE)
def test_an_example_declares_what_its_section_is_about(place: str) -> None:
    assert made(place)


def test_the_example_of_a_column_shows_a_value() -> None:
    column, seen = made(COLUMN), process(1, main_thread_percent=93.0)
    assert isinstance(column, Column)
    assert column.text(one(seen, frame(loose=(seen,)))) == "93"


def test_the_example_of_a_rule_finds_what_that_of_a_scenario_plants(monkeypatch: pytest.MonkeyPatch) -> None:
    rule, scenario = made(RULE), made(SCENARIO)
    assert isinstance(rule, Rule)
    assert isinstance(scenario, Scenario)
    (numbers,) = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    ((name, limits),) = toml.parse(numbers.encode()).items()
    assert rule.id == scenario.name == name
    monkeypatch.setitem(LIMITS, name, limits)
    for celsius, hot in ((limits["celsius"] + 1, True), (limits["celsius"] - 1, False)):
        said = Machine(gpu={"memory_temperature_celsius": float(celsius)}).verdict()
        assert bool(found(said, name)) == hot, celsius
    demo = Demo(scenario, pace=False, anchor_s=1_795_185_127.0, at_s=0.0)
    *_, (_, said) = judged(demo.frame(float(t)) for t in range(0, int(ONSET_S) + 180, EACH_S))
    assert found(said, name)


def test_every_file_and_folder_that_the_guide_names_is_there() -> None:
    named = set(re.findall(r"`((?:[\w.-]+/)+(?:\w+\.\w+)?|\w+\.(?:py|md))`", GUIDE))
    assert len(named) > 80
    paths = (*ROOT.iterdir(), *(ROOT / "gputop").rglob("*"), *(ROOT / "tests").rglob("*"))
    known = "\n".join(f"/{path.relative_to(ROOT)}{'/' if path.is_dir() else ''}" for path in paths)
    assert [name for name in sorted(named) if not re.search(rf"(?m)/{re.escape(name)}$", known)] == []


def test_every_table_that_the_guide_names_is_there() -> None:
    named = set(re.findall(r"`([A-Z][A-Z_]{3,})`", GUIDE))
    assert len(named) > 20
    code = "\n".join(path.read_text() for top in ("gputop", "tests") for path in (ROOT / top).rglob("*.py"))
    assert [name for name in sorted(named) if not re.search(rf"(?m)^(?:\w+, )?{name}\b.*=", code)] == []


def test_the_key_of_the_example_is_free() -> None:
    command = made("gputop/ui/commands/panes.py")
    assert isinstance(command, Command)
    assert not {(key, place) for row in COMMANDS for key in row.keys for place in row.on} & {
        (key, place) for key in command.keys for place in command.on
    }
