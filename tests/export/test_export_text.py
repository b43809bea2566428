"""The table that is printed: what it says where no process is listed."""

from __future__ import annotations

from dataclasses import replace

from gputop.export.text import render
from gputop.model import GpuShare, Process
from tests.servers import GIB, frame, gpu, idle


def test_memory_in_use_without_a_process_is_said() -> None:
    leaked = replace(idle(1), vram_used_bytes=42 * GIB)
    assert "no process is listed on a GPU, but GPU 1 has 42.0G in use" in render(frame((leaked,)), 120)
    assert "no process uses a GPU" in render(frame((replace(idle(1), vram_used_bytes=300 << 20),)), 120)


def test_who_has_ended_is_listed_with_what_is_held() -> None:
    held = Process(pid=999, started_ticks=0, unseen="exited", gpus=(GpuShare(uuid="GPU-0000", vram_bytes=30 * GIB),))
    text = render(replace(frame((gpu(0),)), processes=(held,)), 120)
    line = next(line for line in text.splitlines() if line.startswith("999"))
    assert "30.0G" in line
    assert line.endswith("exited (driver still lists)")
