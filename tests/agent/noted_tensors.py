"""python -m tests.agent.noted_tensors plain|sharded: what `gputop.note` reads of tensors, and how often."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from tests.process_watch import ROOT


def marks() -> Any:
    """The module that keeps notes, without the agent that `import gputop.agent` starts."""
    package = ModuleType("agent_noting")
    package.__path__ = [str(ROOT / "gputop/agent")]
    sys.modules["agent_noting"] = package
    return import_module("agent_noting.marks")


def values(kept: Any) -> dict[str, float]:
    """The newest number of each name."""
    return {name: value for name, _, _, value in kept.noted()["notes"]}


class Device:
    """A tensor on a device: each read is counted, as it would wait for the device."""

    type = "cuda"


class OnDevice(torch.Tensor):
    """A tensor whose reads are counted."""

    reads = 0
    device = Device()  # type: ignore[assignment]

    def detach(self) -> OnDevice:  # type: ignore[override]
        return self

    def item(self) -> float:  # type: ignore[override]
        OnDevice.reads += 1
        return float(OnDevice.reads)


class Sharded(torch.Tensor):
    """One that all ranks must read together."""

    def item(self) -> float:  # type: ignore[override]
        raise AssertionError("this would be a collective")


def plain(kept: Any) -> None:
    """Read at once on the CPU, and once a second on a device."""
    kept.note({"loss": torch.tensor(0.25, requires_grad=True) * 2, "many": torch.ones(3), "one": torch.ones(1)})
    assert values(kept) == {"loss": 0.5, "one": 1.0}
    now_s = 100.0
    kept.time = type("Clock", (), {"monotonic": staticmethod(lambda: now_s), "time": staticmethod(lambda: now_s)})
    ones = torch.ones(1)
    torch.Tensor = OnDevice  # type: ignore[misc]  # the kind that the agent takes for a plain tensor
    tensor = ones.as_subclass(OnDevice)
    for _ in range(10):
        kept.note({"loss": tensor})
    assert (OnDevice.reads, values(kept)["loss"]) == (1, 1.0)
    now_s += 1.0
    kept.note({"loss": tensor})
    assert OnDevice.reads == 2
    kept._captures = lambda _: True  # to read one would end the capture of a CUDA graph
    now_s += 1.0
    kept.note({"loss": tensor})
    assert OnDevice.reads == 2


def sharded(kept: Any) -> None:
    """One of another kind is never read."""
    kept.note({"loss": torch.ones(1).as_subclass(Sharded)})
    assert values(kept) == {}


if __name__ == "__main__":
    {"plain": plain, "sharded": sharded}[sys.argv[1]](marks())
    print("as it should be")
