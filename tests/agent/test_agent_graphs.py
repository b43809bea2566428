"""Who is asked before a profiler starts in a job: builds on which that has ended jobs with CUDA graphs, or was never
tried."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gputop.agent import job, profilers


@pytest.mark.parametrize(
    ("torch", "cuda", "asked"),
    [
        ("2.11.0+cu130", "13.0", False),  # traced on an H200, four times, with graphs and without
        ("2.3.1+cu121", "12.1", False),
        ("2.2.2+cu121", "12.1", True),
        ("2.5.0+cu118", "11.8", True),
        ("2.11.0+rocm7.0", None, True),
        ("nightly", "13.0", True),
    ],
)
def test_only_builds_that_may_harm_are_asked_about(
    monkeypatch: pytest.MonkeyPatch, torch: str, cuda: str | None, asked: bool
) -> None:
    module = SimpleNamespace(
        __version__=torch, version=SimpleNamespace(cuda=cuda), cuda=SimpleNamespace(is_initialized=lambda: True)
    )
    monkeypatch.setattr(profilers, "whole", lambda name: module)
    assert job._may_break_graphs() is asked
    module.cuda.is_initialized = lambda: False
    assert job._may_break_graphs() is False
