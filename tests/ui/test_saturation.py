"""What the machine, or a process, is short of stands out: in amber or red, and with a sign where there is no colour."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.strip import Strip

from gputop import severity
from gputop.history import History
from gputop.model import Host, Pressure
from gputop.ui.panes.header import Status, header
from gputop.ui.panes.host import host
from gputop.ui.table import rows, tree
from gputop.ui.table.rows import places
from gputop.ui.table.tree import TableView
from gputop.ui.theme import ASCII, PLAIN, Look, Token
from gputop.ui.widgets import drawing
from tests.scripted_jobs import frame, training
from tests.servers import HOST
from tests.servers import frame as server

LOOK = Look()


def colours(strips: list[Strip], token: Token, on: str = "background") -> list[str]:
    """What stands in this colour."""
    wanted = {LOOK.style(token, on=on, bold=True).color}  # type: ignore[arg-type]
    return [part.text.strip() for strip in strips for part in strip if part.style and part.style.color in wanted]


@pytest.mark.parametrize(
    ("value", "levels", "reached"),
    [
        (89.9, severity.CPU, ""),
        (90.0, severity.CPU, "warn"),
        (100.0, severity.CPU, "warn"),
        (93.0, severity.WAIT, "crit"),
        (30.0, severity.WAIT, "warn"),
        (96.0, severity.MEMORY, "warn"),
        (98.0, severity.MEMORY, "crit"),
        (None, severity.CPU, ""),
    ],
)
def test_levels(value: float | None, levels: severity.Levels, reached: str) -> None:
    assert severity.level(value, levels) == reached


def full(**change: object) -> Host:
    return replace(HOST, cpu_percent=100.0, **change)


def test_a_full_machine_is_amber_in_the_header() -> None:
    line = header(server(host=full()), 120, LOOK, Status())
    assert colours([line], "warn", "raised") == ["!100%"]
    assert "cpu !100%" in header(server(host=full()), 120, Look(PLAIN, ASCII), Status()).text
    assert colours([header(server(), 120, LOOK, Status())], "warn", "raised") == []


def test_memory_that_is_nearly_gone_is_red() -> None:
    used = full(memory_total_bytes=100 * 2**30, memory_used_bytes=98 * 2**30)
    assert "▲98" in " ".join(colours([header(server(host=used), 120, LOOK, Status())], "crit", "raised"))


def test_the_host_column_says_the_same() -> None:
    waits = full(iowait_percent=30.0, cpu_pressure=Pressure(some_percent=93.0))
    shown = server(host=waits)
    said = colours(host(shown, History(), 90, 49, LOOK), "warn")
    assert {"!100%", "!30%", "!93"} <= {*said}
    assert any(text.startswith("▇▇▇") for text in said), "the bar, too"
    calm = server(host=replace(HOST, iowait_percent=1.0))
    assert colours(host(calm, History(), 90, 49, LOOK), "warn") == []


@pytest.mark.parametrize(
    ("wait", "token", "said"), [(93.0, "crit", "▲93"), (45.0, "warn", "!45"), (12.0, "text", "12")]
)
def test_a_process_that_waits_for_a_cpu_stands_out_in_the_table(wait: float, token: Token, said: str) -> None:
    job = training("llama-7b", 41000, ranks=1, loaders=2)
    shown = frame(job, gpus=1)
    hungry = tuple(
        replace(process, run_wait_percent=wait, io_wait_percent=0.0, blocked_percent=0.0) for process in shown.processes
    )
    table = tree.build(replace(shown, processes=hungry), TableView())
    where = places(120)
    for row in table:
        strip = rows.line(row, rows.texts(row, where), where, LOOK)
        assert strip.cell_length == 120
        assert f" {said} " in strip.text
        if token != "text":
            assert colours([strip], token) == [said]


def test_a_sign_takes_the_place_of_a_blank_and_never_shifts_what_follows() -> None:
    (run,) = drawing.alarmed("  95%", 95.0, severity.CPU, LOOK)
    assert run.text == " !95%"
    (run,) = drawing.alarmed("95%", 95.0, severity.CPU, LOOK)
    assert run.text == "!95%"
    (run,) = drawing.alarmed("55%", 55.0, severity.CPU, LOOK, "bright")
    assert (run.text, run.token, run.bold) == ("55%", "bright", False)
