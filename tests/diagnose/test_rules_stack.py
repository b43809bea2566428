"""Builds of PyTorch and the GPUs they run on: the rule fires, just does not, and abstains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.model import Frame, Missing
from tests.rule_cases import Machine, after, found, silent

NOVEMBER_2026 = 1_795_185_127.0


def built(version: str | None, cuda: str | None = None, **dials: Any) -> Callable[[float], Frame]:
    """A job with this build of PyTorch, on an H100 or another card, in November 2026."""
    capability = dials.pop("capability", (9, 0))
    machine = Machine(
        gpu={"compute_capability": capability}, trainer={"torch_version": version, "torch_cuda": cuda} | dials
    )
    return lambda t: replace(machine.frame(t), wall_s=NOVEMBER_2026 + t)


@pytest.mark.parametrize(
    ("frame", "severity"),
    [
        (built("1.13.1+cu117", "11.7"), "warn"),
        (built("2.0.1+cu118", "11.8"), "info"),  # it runs, and is years old
        (built("2.9.0+cu126", "12.6"), None),
        (built("2.4.1+cu121", "12.1"), "info"),
        (built("2.5.1+cu121", "12.1"), "info"),
        (built("2.6.0+cu124", "12.4"), None),
        (built("2.7.0+cu126", "12.6", capability=(12, 0)), "warn"),
        (built("2.7.0+cu128", "12.8", capability=(12, 0)), None),
        (built("2.7.1+cu128", "12.8", capability=(7, 0)), "warn"),
        (built("2.8.0+cu129", "12.9", capability=(7, 0)), None),  # three releases have kernels for it again
        (built("2.10.0+cu128", "12.8", capability=(7, 0)), None),
        (built("2.10.0+cu128", "12.8", capability=(6, 1)), "warn"),
        (built("2.10.0+cu130", "13.0", capability=(7, 0)), "warn"),
        (built("2.11.0+cu128", "12.8", capability=(7, 0)), "warn"),
        (built("2.9.0+cu126", "12.6", capability=(7, 0)), None),
        (built("2.9.0", "12.8", capability=(7, 0)), None),  # no wheel: built by somebody for this card
        (built("2.9.0+cu130", "13.0", capability=(7, 5)), None),
        (built("1.7.1+cu110", "11.0", capability=(8, 6)), "info"),
        (built("1.7.1+cu110", "11.0", capability=(7, 5)), None),  # old, but nothing was done for this card since
        (built("2.9.0a0+gitabc", "12.8"), None),
    ],
)
def test_stack_vs_gpu(frame: Callable[[float], Frame], severity: str | None) -> None:
    finding = found(after(frame, 90), "stack-vs-gpu")
    assert (finding and finding.severity) == severity


def test_stack_vs_gpu_says_what_does_not_fit_and_leads_only_if_it_must() -> None:
    said = after(built("1.13.1+cu117", "11.7"), 90)
    told = found(said, "stack-vs-gpu")
    assert told is not None
    assert told.primary
    assert told.evidence[0].text == (
        "PyTorch 1.13.1+cu117 built with CUDA 11.7; H100 has compute capability 9.0, supported from CUDA 11.8 on"
    )
    old = found(after(built("2.4.1+cu121", "12.1"), 90), "stack-vs-gpu")
    assert old is not None
    assert not old.primary


@pytest.mark.parametrize(("driver", "pip"), [("13.0", True), ("12.9", False), (None, False)])
def test_stack_vs_gpu_advises_what_the_driver_can_run(driver: str | None, pip: bool) -> None:
    """What pip installs by itself is built for CUDA 13."""
    old = built("2.4.1+cu121", "12.1")

    def frame(t: float) -> Frame:
        now = old(t)
        return replace(now, host=replace(now.host, cuda_version=driver))

    told = found(after(frame, 90), "stack-vs-gpu")
    assert told is not None
    assert ("pip install" in (told.steps[0].command or "")) is pip
    assert "pytorch.org/get-started" in told.steps[-1].text


def test_stack_vs_gpu_says_with_what_the_wheels_of_a_release_begin() -> None:
    told = found(after(built("2.10.0+cu128", "12.8", capability=(6, 1)), 90), "stack-vs-gpu")
    assert told is not None
    assert told.evidence[0].text == (
        "PyTorch 2.10.0+cu128 built with CUDA 12.8; H100 has compute capability 6.1, wheels for CUDA 12.8 start at 7.0"
    )


def test_stack_vs_gpu_abstains_on_what_is_hidden_and_says_nothing_of_other_frameworks() -> None:
    hidden = (Missing(metric="libraries", reason="denied"),)
    assert silent(after(built(None, missing=hidden), 5), "stack-vs-gpu") is not None
    assert silent(after(built(None), 5), "stack-vs-gpu") is None
