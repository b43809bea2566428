"""The header line, the host column and the empty states, as text to be read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.collect.nvml import notes
from gputop.collect.nvml.cadence import CallCosts
from gputop.collect.nvml.gate import LIBRARY_NOT_FOUND, DriverGate
from gputop.history import History
from gputop.model import Cgroup, Host, Network, Note
from gputop.ui.commands.command import names
from gputop.ui.commands.table import COMMANDS
from gputop.ui.panes.empty import no_gpu_process, note_line, without_gpus, wrap
from gputop.ui.panes.header import RecordingStatus, Status, header
from gputop.ui.panes.host import host
from gputop.ui.table import tree
from gputop.ui.theme import ASCII, PLAIN, Look
from tests.scripted_jobs import process
from tests.servers import GIB, HOST, frame, gpu, idle, server

READABLE = Look(PLAIN)
NAMES = names(COMMANDS)
FOREIGN = Note(subject="processes", key="foreign-pids", text="3 of 3 GPU processes are outside this container.")


@pytest.fixture
def no_library(tmp_path: Path) -> Note:
    """What the driver's lane says where the kernel sees a GPU and the library is not there."""
    slot = tmp_path / "bus/pci/devices/0000:1b:00.0"
    slot.mkdir(parents=True)
    for name, value in {"vendor": "0x10de", "device": "0x2330", "class": "0x030200"}.items():
        (slot / name).write_text(value)
    gate = DriverGate(CallCosts())
    return notes.closed(LIBRARY_NOT_FOUND, worked=False, gate=gate, sys_root=str(tmp_path), proc_root=str(tmp_path))


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def text(*strips: object) -> str:
    return "\n".join(strip.text.rstrip() for strip in strips) + "\n"  # type: ignore[attr-defined]


def test_header_at_every_width(golden: Callable[[str, str], None]) -> None:
    now, _ = server(8)
    lines = [header(now, width, READABLE, Status()) for width in (20, 40, 60, 80, 100, 120, 160, 200)]
    assert [line.cell_length for line in lines] == [20, 40, 60, 80, 100, 120, 160, 200]
    golden("header.txt", text(*lines))


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (Status(), "live 1.0s  12:01:00 "),
        (Status(label="demo showcase", interval_s=10), "demo showcase 10.0s  12:01:00 "),
        (Status(interval_s=0.25), "live 0.25s  12:01:00 "),
        (Status(frozen=True), " frozen   live 1.0s  12:01:00 "),
        (Status(taped=RecordingStatus(742.0, 3 * 1024**2, paused=False)), "● rec 12m 3.0M  live 1.0s  12:01:00 "),
        (Status(taped=RecordingStatus(742.0, 3 * 1024**2, paused=True)), "● rec paused  live 1.0s  12:01:00 "),
        (Status(label="run.jsonl.gz", replay=True), " REPLAY   2027-01-15  12:01:00 "),
        (Status(label="stream", ended=True), " ended   stream 1.0s  12:01:00 "),
        (Status(readonly=True), "read-only  live 1.0s  12:01:00 "),
        (Status(slow_link_s=3), "slow link: redraw every 3 s  live 1.0s  12:01:00 "),
    ],
)
def test_header_says_how_fresh_it_is(status: Status, said: str) -> None:
    assert header(server(8)[0], 160, READABLE, status).text.endswith(said)


@pytest.mark.parametrize(("late_s", "interval_s", "said"), [(1.6, 1.0, True), (0.9, 1.0, False), (1.6, 10.0, False)])
def test_header_says_that_it_was_collected_late(late_s: float, interval_s: float, said: bool) -> None:
    text = header(replace(server(8)[0], late_s=late_s), 160, READABLE, Status(interval_s=interval_s)).text
    assert ("sampled 2 s late" in text) == said


def test_header_says_that_sampling_slowed_itself() -> None:
    slow = Note(subject="monitor", key="slow", text="sampling every 8 s: driver calls take 200 ms")
    line = header(frame((gpu(0),), notes=(slow,)), 120, READABLE, Status())
    assert "sampling every 8 s  live 1.0s" in line.text


def test_header_of_a_host_of_which_nothing_is_known() -> None:
    line = header(replace(frame(), host=Host(), hostname="数据" * 40), 120, READABLE, Status())
    assert line.cell_length == 120
    assert "cpu ·" in line.text
    assert "mem ·" in line.text
    assert "数据数据数据数据数据数…" in line.text


def test_healthy_header_has_no_warning_colour() -> None:
    warn = {Look().style(token, on="raised") for token in ("warn", "crit")}
    assert not warn & {segment.style for segment in header(server(8)[0], 200, Look(), Status())}


@pytest.mark.parametrize(("width", "height"), [(53, 14), (66, 30), (90, 49)])
def test_host_column(golden: Callable[[str, str], None], width: int, height: int) -> None:
    now, past = server(8)
    strips = host(now, past, width, height, READABLE)
    assert len(strips) == height
    assert {strip.cell_length for strip in strips} == {width}
    golden(f"host-{width}x{height}.txt", text(*strips))


def test_host_column_of_a_container_says_its_limits() -> None:
    limits = Cgroup(
        path="/a", cpu_quota=4.0, throttled_percent=12.0, memory_limit_bytes=32 * GIB, memory_used_bytes=20 * GIB
    )
    inside = replace(
        HOST, cgroup=limits, cpus_allowed=4.0, swap_total_bytes=8 * GIB, swap_used_bytes=GIB, swap_in_per_s=0.0,
        swap_out_per_s=12.0, steal_percent=7.0, process_count=412, uptime_s=7900.0,
    )  # fmt: skip
    said = text(*host(frame(host=inside), History(), 90, 40, READABLE))
    for part in ("4 of 128 cores", "mem 20.0G/32.0G", "cpu 4 cores  throttled !12%", "1.0G/8.0G  in 0/s  out 12/s",
                 "steal !7%", "processes 412  up 2h 11m"):  # fmt: skip
        assert part in said


def test_host_column_of_nothing_known() -> None:
    said = text(*host(frame(host=Host()), History(), 60, 20, Look(PLAIN, ASCII)))
    assert said.isascii()
    assert "None" not in said
    assert "nan" not in said
    assert host(frame(), History(), 3, 20, READABLE) == []
    assert host(frame(), History(), 60, 0, READABLE) == []


@pytest.mark.parametrize("width", [40, 80, 120])
def test_without_a_driver(golden: Callable[[str, str], None], no_library: Note, width: int) -> None:
    strips = without_gpus(frame(notes=(no_library, FOREIGN)), width, READABLE)
    assert {strip.cell_length for strip in strips} == {width}
    golden(f"empty-{width}.txt", text(*strips))


def test_only_what_can_be_copied_is_green(no_library: Note) -> None:
    command = Look().style("command")
    strips = without_gpus(frame(notes=(no_library,)), 120, Look())
    green = [segment.text.strip() for strip in strips for segment in strip if segment.style == command]
    looking = ["gputop demo", "gputop replay FILE", "ssh node gputop record - | gputop replay -"]
    assert green == ["modprobe nvidia", "dmesg | grep NVRM", "--gpus all", *looking]


def test_n05_no_gpus() -> None:
    said = text(*without_gpus(frame(), 80, READABLE))
    assert "No GPU: " in said
    assert "gputop demo" in said


@pytest.mark.parametrize("key", ["waiting", "mismatch", "lost-access"])
def test_n03_n04_n10_a_driver_in_trouble_does_not_offer_the_demo(key: str) -> None:
    trouble = Note(subject="driver", key=key, text="waiting for driver 12 s", help=("restart the container",))
    said = text(*without_gpus(frame(notes=(trouble,)), 80, READABLE))
    assert "waiting for driver 12 s" in said
    assert "    restart the container" in said
    assert "demo" not in said


def test_n03_who_keeps_the_old_driver_loaded_is_counted_and_listed() -> None:
    trouble = Note(
        subject="driver", key="mismatch", text="NVML: driver/library version mismatch (kernel 1, library 2)."
    )
    user = replace(process(7), libraries=("torch", "cuda"))
    shown = replace(frame(notes=(trouble,)), processes=(user, process(8)))
    assert "At least 1 process uses it now; see below." in text(*without_gpus(shown, 80, READABLE))
    assert [row.label for row in tree.build(shown, tree.TableView())] == ["7"]
    assert "listed below" not in text(*without_gpus(frame(notes=(trouble,)), 80, READABLE))


def test_no_gpu_process() -> None:
    assert "No process on any GPU. 2 GPUs idle, drawing 142 W." in text(
        *no_gpu_process(frame((idle(0), idle(1))), 80, READABLE, NAMES)
    )
    assert "1 GPU idle." in text(*no_gpu_process(frame((idle(0, power_watts=None),)), 80, READABLE, NAMES))
    assert "idle" not in text(*no_gpu_process(frame(), 80, READABLE, NAMES))
    records = "R record, to capture the next job"
    assert records in text(*no_gpu_process(frame((idle(0),)), 80, READABLE, NAMES, 17, records=True))
    assert records in text(*no_gpu_process(frame((idle(0),)), 80, READABLE, NAMES, records=True))
    assert records not in text(*no_gpu_process(frame((idle(0),)), 80, READABLE, NAMES, 17))
    assert records not in text(*no_gpu_process(frame(), 80, READABLE, NAMES, records=True)), "where no job comes"


def test_a_gpu_that_is_lost_hung_or_not_known_is_not_called_idle() -> None:
    odd = (
        idle(0, busy_percent=None, power_watts=410.0),
        idle(1, condition="lost"),
        gpu(2, condition="hung"),
        idle(3, age_s=9.0),
    )
    said = text(*no_gpu_process(frame((*odd, idle(4))), 120, READABLE, NAMES))
    assert "No process on any GPU. 1 GPU idle, drawing 71 W; 2 unknown, 1 lost, 1 hung." in said
    said = text(*no_gpu_process(frame(odd), 120, READABLE, NAMES))
    assert "No process on any GPU. 4 GPUs: 2 unknown, 1 lost, 1 hung." in said
    split = idle(0, busy_percent=None, mig_mode=True)
    assert "1 GPU: 1 in MIG mode." in text(*no_gpu_process(frame((split,)), 120, READABLE, NAMES))
    narrow = text(*no_gpu_process(frame((*odd, idle(4))), 60, READABLE, NAMES))
    assert "1 hung." in narrow, "no count is cut off"


def test_a_port_whose_rates_are_unknown_is_not_called_idle() -> None:
    ports = tuple(Network(name=f"mlx5_{number}", kind="infiniband") for number in range(3))
    rest = tuple(replace(port, receive_bytes_per_s=0.0, send_bytes_per_s=0.0) for port in ports)
    assert "idle" not in text(*host(frame(host=replace(HOST, networks=ports)), History(), 90, 40, READABLE))
    assert "3 idle" in text(*host(frame(host=replace(HOST, networks=rest)), History(), 90, 40, READABLE))


def test_a_note_is_one_line(no_library: Note) -> None:
    cards = (gpu(0),)
    hidden = Note(subject="processes", key="hidden-pids", text="hidepid hides others")
    slow = Note(subject="monitor", key="slow", text="sampling 8 s")
    assert note_line(frame(cards), 80, READABLE, NAMES) is None
    assert note_line(frame(cards, notes=(slow,)), 80, READABLE, NAMES) is None, "the header says it"
    assert note_line(frame(notes=(no_library,)), 80, READABLE, NAMES) is None, "the empty state says it"
    one = note_line(frame(cards, notes=(FOREIGN,)), 80, READABLE, NAMES)
    assert one
    assert one.text.rstrip() == " 3 of 3 GPU processes are outside this container."
    two = note_line(frame(cards, notes=(FOREIGN, hidden)), 50, READABLE, NAMES)
    assert two
    assert two.text.rstrip() == " 3 of 3 GPU processes are outside t…  F1: 2 notes"


@pytest.mark.parametrize(
    ("words", "width", "lines"),
    [
        ("a bb ccc", 4, ["a bb", "ccc"]), ("", 5, [""]), ("abcdef", 3, ["ab…"]),
        ("x `a b c` y", 7, ["x `a b c`", "y"]), ("x `a b c`. y", 4, ["x `a`", "`b` `c`.", "y"]),
        ("数据 集", 5, ["数据", "集"]), ("a", 0, ["a"]),
    ],
)  # fmt: skip
def test_wrap(words: str, width: int, lines: list[str]) -> None:
    assert wrap(words, width) == lines
