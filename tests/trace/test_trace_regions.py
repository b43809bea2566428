"""Regions that a program or a library names (record_function): which there are, as phases, and as causes on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.trace import report
from gputop.trace.read import read
from gputop.trace.verdict import TraceView
from tests.trace.test_trace_signatures import said
from tests.traces import GEMM, REST, Made, busy, recipe

MS = 1000.0


def test_regions_of_the_program_are_shown_as_phases(tmp_path: Path) -> None:
    """The source documents' own recipe: record_function around each part of a step."""
    made = Made()
    for number in range(4):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        for start, took, name in (
            (0, 20, "data_transfer"),
            (20, 30, "forward"),
            (50, 40, "backward"),
            (90, 10, "optimizer"),
        ):
            made.note(name, at + start * MS, took * MS)
            made.kernel(GEMM, at + start * MS + 10, took * MS - 20, launch=at + start * MS + 1)
        made.note("Optimizer.step#SGD.step", at + 95 * MS, 1 * MS)
    view = TraceView(read(made.write(tmp_path / "x.json")))
    assert [(one.name, one.count, round(one.host_us / MS)) for one in view.regions] == [
        ("data_transfer", 4, 80), ("forward", 4, 120), ("backward", 4, 160), ("optimizer", 4, 40),
    ]  # fmt: skip
    assert [round(one.gpu_us / MS) for one in view.regions] == [80, 120, 160, 40]
    (table,) = [table for table in report.page(view).tables if table.title.startswith("Regions")]
    assert table.rows[2] == ("backward", "160 ms", "40.0 %", "4", "160 ms")


@pytest.mark.parametrize(
    ("name", "as_read"),
    [
        ("## sparse_data_dist ##", "sparse_data_dist"),
        ("## copy_batch_to_gpu 7 ##", "copy_batch_to_gpu"),
        ("Compiled forward", "Compiled forward"),
        ("Torch-Compiled Region: 0/0", "Torch-Compiled Region: 0/0"),
        ("FSDP::all_gather", "FSDP::all_gather"),
        ("[pl][profile]run_training_batch", "run_training_batch"),
        ("Inductor warm-up", "Inductor warm-up"),
        ("Optimizer.step#SGD.step", None),
        ("Optimizer.zero_grad#SGD.zero_grad", None),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", None),
        ("nccl:all_reduce", None),
        ("PyTorch Profiler (0)", None),
    ],
)
def test_regions_of_libraries_are_regions_too(name: str, as_read: str | None, tmp_path: Path) -> None:
    made = busy()
    for number in range(4):
        made.note(name, number * 100 * MS + 10, 20 * MS)
    view = TraceView(read(made.write(tmp_path / "x.json")))
    assert [(one.name, one.count) for one in view.regions] == ([(as_read, 4)] if as_read else [])


def test_batches_that_torchrec_counts_are_one_region(tmp_path: Path) -> None:
    made = busy()
    for number in range(4):
        made.note(f"## copy_batch_to_gpu {number} ##", number * 100 * MS + 10, 20 * MS)
    (one,) = TraceView(read(made.write(tmp_path / "x.json"))).regions
    assert (one.name, one.count, one.host_us) == ("copy_batch_to_gpu", 4, 80 * MS)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("data_transfer", True), ("## forward ##", True), ("load batch", True), ("aten::linear", False),
        ("AddmmBackward", False), ("torch::autograd::AccumulateGrad", False), ("detach_", False), ("Gather", False),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", False), ("Optimizer.step#SGD.step", False),
    ],
)  # fmt: skip
def test_old_kineto_has_regions_among_operators(name: str, is_one: bool, tmp_path: Path) -> None:
    made = busy()
    for number in range(4):
        made.host(name, number * 100 * MS + 10, 20 * MS, "Operator")
    view = TraceView(read(made.write(tmp_path / "x.json", old=True)))
    assert [one.count for one in view.regions] == [4] * is_one


@pytest.mark.parametrize("inside", ["", "aten::copy_"])
def test_the_phases_of_a_step_on_the_cpu_are_those_that_the_program_names(inside: str, tmp_path: Path) -> None:
    view = TraceView(read(recipe(("data_transfer", 97, inside), *REST).write(tmp_path / "x.json")))
    phases = {phase.name: round(phase.host_us or 0) for phase in view.phases}
    assert phases.pop("data_transfer") == 388 * MS
    assert sum(phases.values()) == 12 * MS
    assert set(phases) == {"forward and other", "backward", "optimizer"}
    (verdict,) = [one for one in view.verdicts if one.severity == "warn"]
    assert verdict.rule == "T27 cpu-region"
    assert verdict.headline == "data preparation 97 % of the time, CPU in `data_transfer` (97 ms per step)"
    assert not any("No known bottleneck" in word for word in report.page(view).words)


@pytest.mark.parametrize(
    ("name", "inside", "speaks"),
    [
        ("tokenize_on_line", "", True),
        ("encoder", "aten::mm", False),  # what computes is what a step is for
        ("forward", "", False),
        ("Torch-Compiled Region: 0/0", "", False),
        ("## Call CompiledFxGraph fabc ##", "", False),
        ("train_batch", "Optimizer.step#SGD.step", False),  # it stands around all of the others
    ],
)
def test_a_region_is_a_cause_where_no_operator_runs_in_it(name: str, inside: str, speaks: bool, tmp_path: Path) -> None:
    found = said(recipe((name, 90, inside), *REST), tmp_path)
    assert ("T27" in found) is speaks
    if speaks:
        assert found["T27"].headline.startswith("no torch operator running 90 % of the time, CPU in `tokenize_on")


def test_of_regions_within_each_other_the_innermost_is_the_phase(tmp_path: Path) -> None:
    made = recipe(("run_batch", 90, ""), *REST)
    for number in range(4):
        made.note("augment", number * 100 * MS + 20 * MS, 60 * MS)
        made.host("augment", number * 100 * MS, 100 * MS, "user_annotation", tid=777)  # of a loader thread
    view = TraceView(read(made.write(tmp_path / "x.json")))
    phases = {phase.name: round((phase.host_us or 0) / MS) for phase in view.phases}
    assert phases.items() >= {("augment", 240), ("run_batch", 120)}
    assert list(phases)[:2] == ["run_batch", "augment"]
