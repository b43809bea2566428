"""What a rule declares that it needs is what it needs: where nobody tells it, nothing is found, and it says so."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest

import gputop.diagnose
from gputop import model
from gputop.demo import SCENARIOS, Demo
from gputop.diagnose.rules import RULES
from gputop.diagnose.view import ORIGIN
from gputop.docs.rules import rule_page
from gputop.model import Frame
from tests.missing_signals import declared, without
from tests.rule_cases import EACH_S, ONSET_S, Machine, judged, refused, silent
from tests.score.truths import BESIDE, EXPECTED

UNITS = ("sm_active_percent", "tensor_percent", "dram_percent", "fp32_percent")
STAND_INS = {"busy_percent": ("graphics_active_percent", "sm_active_percent")}  # taken with what they stand in for
SIGNS = ("io_pressure", "io_wait_percent", "read_bytes_per_s", "disks")  # all but one of what speaks for storage


class Stage(NamedTuple):
    """A scenario, for how long it is played, and what nobody tells in it besides."""

    name: str
    until_s: float = ONSET_S + 180
    also: tuple[str, ...] = ()


STAGES = {truth.primary: Stage(name, ONSET_S + truth.by_s) for name, truth in {**BESIDE, **EXPECTED}.items()}
STAGES["gpu-bound-healthy"] = Stage("healthy")

# where a signal is wanted that the rule does not come to in its own scenario
PARTLY = {
    ("gpu-bound-healthy", "sm_clock_mhz"): Stage("healthy", also=UNITS),
    ("busy-not-effective", "memory_busy_percent"): Stage("busy-not-effective", also=UNITS),
    ("busy-not-effective", "facts"): Stage("collective-wait"),
    ("busy-not-effective", "sm_clock_mhz"): Stage("busy-not-effective", also=UNITS),
    ("busy-not-effective", "world_size"): Stage("busy-not-effective", also=("thread_names",)),
    ("mem-bw-bound", "power_watts"): Stage("mem-bw-bound", also=UNITS),
    ("sync-log-stall", "read_chars_per_s"): Stage("loader-in-main"),
    ("neighbour", "read_bytes_per_s"): Stage("io-bound"),
    ("threads-host", "cpus_total"): Stage("threads-host", also=("affinity",)),
    ("workers-oversized", "cpus_total"): Stage("workers-oversized", also=("affinity",)),
    ("io-bound", "io_wait_percent"): Stage("io-bound", also=SIGNS),
    ("io-bound", "read_bytes_per_s"): Stage("io-bound", also=SIGNS),
    ("io-bound", "read_chars_per_s"): Stage("network-fs-bound", also=("disks",)),
    ("network-fs-bound", "read_chars_per_s"): Stage("network-fs-bound", also=("disks",)),
    ("io-bound", "io_pressure"): Stage("io-bound", also=SIGNS),
    ("io-small-files", "read_chars_per_s"): Stage("io-small-files", also=("disks",)),
    ("io-small-files", "read_calls_per_s"): Stage("io-small-files", also=("disks",)),
    ("checkpoint-stall", "write_chars_per_s"): Stage("worker-respawn", 420),
    ("shm-nearly-full", "shm_used_bytes"): Stage("cpu-quota"),
    ("no-cuda-context", "busy_percent"): Stage("no-cuda-context", 490, also=("vram_used_bytes",)),
    ("hw-errors", "ecc_uncorrected"): Stage("healthy", also=("recovery_action",)),
}
NEEDS = [(rule.id, need) for rule in RULES.values() for need in rule.needs]
# in test_rules_cpus_unknown, and below: no demo launches small kernels without loaders
BY_HAND = {
    ("cpu-quota", "cpus_total"), ("starved-cpu-saturated", "cpus_total"), ("overhead-bound", "read_chars_per_s"),
}  # fmt: skip
WANTS = [(rule.id, want) for rule in RULES.values() for want in rule.partly if (rule.id, want) not in BY_HAND]


class Said(NamedTuple):
    """What a rule said of a scenario, all its looks together."""

    found: bool
    lacked: frozenset[str]


@lru_cache(maxsize=2)  # cases of one rule follow one another
def played(name: str, until_s: float) -> tuple[Frame, ...]:
    demo = Demo(SCENARIOS[name], pace=False, anchor_s=1_795_185_127.0, at_s=0.0)
    length_s = int(min(demo.scenario.length_s, until_s))
    return tuple(demo.frame(float(t)) for t in range(0, length_s, EACH_S))


def said_of(rule: str, stage: Stage, *taken: str) -> Said:
    found, lacked = False, set()
    for _, said in judged(without(frame, *taken, *stage.also) for frame in played(stage.name, stage.until_s)):
        found |= any(rule in (finding.rule, *finding.causes) for finding in said.findings)
        mine = [one for one in said.abstained if one.rule == rule]
        lacked |= {missing.metric for one in mine for missing in one.missing}
    return Said(found, frozenset(lacked))


@pytest.mark.parametrize("rule", RULES, scope="module")
def test_with_all_signals_it_finds_something(rule: str) -> None:
    said = said_of(rule, STAGES[rule])
    assert said.found
    assert not said.lacked & declared(RULES[rule])


@pytest.mark.parametrize(("rule", "need"), NEEDS, scope="module")
def test_without_a_signal_that_it_needs_it_finds_nothing_and_says_why(rule: str, need: str) -> None:
    taken = need.split(" or ")
    said = said_of(rule, STAGES[rule], *taken, *STAND_INS.get(need, ()))
    assert not said.found
    assert said.lacked & set(taken)


@pytest.mark.parametrize(("rule", "need"), [(rule, need) for rule, need in NEEDS if " or " in need])
def test_of_signals_of_which_either_will_do_one_is_enough(rule: str, need: str) -> None:
    first, *others = need.split(" or ")
    assert said_of(rule, STAGES[rule], *others).found or said_of(rule, STAGES[rule], first).found


@pytest.mark.parametrize(("rule", "want"), WANTS)
def test_without_a_signal_that_a_part_of_it_takes_it_says_so(rule: str, want: str) -> None:
    stage = PARTLY.get((rule, want), STAGES[rule])
    assert want in said_of(rule, stage, want, *STAND_INS.get(want, ())).lacked


def test_who_has_no_loaders_and_hides_what_it_reads_may_load_or_launch() -> None:
    gpu = {"busy_percent": 50.0, "power_watts": 150.0, "sm_active_percent": 14.0, "tensor_percent": 5.0}
    assert "overhead-bound" not in {one.rule for one in Machine(gpu=gpu).verdict().abstained}
    one = silent(Machine(gpu=gpu, trainer=refused("read_chars_per_s")).verdict(), "overhead-bound")
    assert one is not None
    assert [missing.metric for missing in one.missing] == ["read_chars_per_s"]


@pytest.mark.parametrize("rule", [rule for rule, need in NEEDS if need == "busy_percent" and rule != "gpu-shared"])
def test_without_utilization_it_finds_the_same_by_what_stands_in(rule: str) -> None:
    """gpu-shared is about single processes, of which nothing stands in."""
    assert said_of(rule, STAGES[rule], "busy_percent").found


def test_no_other_stage_is_set_than_for_what_is_declared() -> None:
    assert set(PARTLY) <= set(WANTS)
    assert set(STAGES) == set(RULES)


def test_what_is_declared_is_in_a_frame() -> None:
    kinds = [kind for name in model.__all__ if hasattr(kind := getattr(model, name), "__dataclass_fields__")]
    known = {field.name for kind in kinds for field in fields(kind)}
    assert not {name for rule in RULES.values() for name in declared(rule)} - known


def test_what_a_judge_says_is_missing_is_declared() -> None:
    """In its module, or by a rule of its group where that module has no rule."""
    root = Path(gputop.diagnose.__file__).parent
    for path in root.rglob("*.py"):
        module = ".".join(("gputop.diagnose", *path.relative_to(root).with_suffix("").parts))
        group = [rule for rule in RULES.values() if rule.group == module.split(".")[2]]
        if group:
            here = [rule for rule in group if rule.judge.__module__ == module]
            names = set(asked(ast.parse(path.read_text())))
            assert names <= {name for rule in here or group for name in declared(rule)}, path.name


def asked(tree: ast.AST) -> Iterator[str]:
    """The metrics that `knows` is asked for, and those that are said to be missing."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if called == "knows":
            yield from (ORIGIN.get(name, name) for name in literals(call.args[1:]))
        elif called == "Missing":
            yield from literals(word.value for word in call.keywords if word.arg == "metric")


def literals(nodes: Iterable[ast.expr]) -> Iterator[str]:
    for node in nodes:
        assert isinstance(node, ast.Constant), "a name that stands there can be looked up"
        yield str(node.value)


@pytest.mark.parametrize("rule", RULES)
def test_the_manual_names_what_it_needs(rule: str) -> None:
    (line,) = [line for line in rule_page(rule).splitlines() if line.startswith("Needs")]
    assert {name for place, name in enumerate(line.split("`")) if place % 2} == declared(RULES[rule])
    assert line.endswith("the check is skipped.") == bool(declared(RULES[rule]))
