"""What is printed: tables, CSV and JSON, read back as others read them."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from gputop.demo import SCENARIOS, Demo
from gputop.diagnose import Abstained, Evidence, Finding, Step, Subject
from gputop.export import codec
from gputop.export.formats import FORMATS
from gputop.export.log import COLUMNS, row
from gputop.export.text import TextColumn, cells, cut, layout
from gputop.model import Frame, Gpu, GpuShare, Host, Job, Missing, Process
from gputop.monitor import Update
from tests.hostile import STRINGS

ANCHOR_S = 1_795_185_127.0
SECRET = "hf_abcdefghijklmnopqrstuvwx"


@pytest.fixture(autouse=True)
def _fixed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("COLUMNS", "120")
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def frame(name: str = "showcase") -> Frame:
    demo = Demo(SCENARIOS[name], pace=False, anchor_s=ANCHOR_S)
    return demo.frame(demo.at_s)


def written(format: str, *frames: Frame, ascii: bool = False, **more: object) -> str:
    out = io.StringIO()
    write = FORMATS[format](out, ascii=ascii)
    for one in frames:
        write(Update(frame=one, **more))  # type: ignore[arg-type]
    return out.getvalue()


def bare(*gpus: Gpu, processes: tuple[Process, ...] = ()) -> Frame:
    return Frame(wall_s=0, mono_s=0, hostname="n", host=Host(cpus_total=4), gpus=gpus, processes=processes)


def secretive() -> Frame:
    command = ("python", "train.py", "--token", SECRET, f"--hub-token={SECRET}", "https://bob:hunter2@host/x")
    share = GpuShare(uuid="GPU-0", vram_bytes=1)
    return bare(
        Gpu(uuid="GPU-0", index="0", name="H100"),
        processes=(Process(pid=1, started_ticks=1, user="bob", command=command, gpus=(share,)),),
    )


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("name", ["showcase", "16gpu", "idle"])
def test_table_looks_as_agreed(
    golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, name: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = written("text", frame(name))
    assert max(map(cells, text.splitlines())) <= width
    golden(f"once-{name}-{width}.txt", text)


def test_table_in_ascii(golden: Callable[[str, str], None]) -> None:
    text = written("text", frame("16gpu"), ascii=True)
    assert text.isascii()
    golden("once-16gpu-120-ascii.txt", text)


def test_table_of_a_machine_without_anything() -> None:
    text = written("text", bare())
    assert "no GPU" in text
    assert "cpu ·% of 4" in text


def test_table_shows_a_card_that_is_gone_and_a_process_without_a_job() -> None:
    share = GpuShare(uuid="GPU-1", vram_bytes=2**30)
    foreign = Process(pid=918273, started_ticks=0, unseen="foreign", verified=False, gpus=(share,))
    lost = Gpu(uuid="GPU-0", index="0", name="H100", condition="lost", condition_s=372)
    text = written("text", bare(lost, processes=(foreign,)))
    assert "lost 6m 12s" in text
    line = next(line for line in text.splitlines() if "918273" in line)
    assert line.split()[:5] == ["918273", "·", "?", "·", "1.0G"]
    assert "·  host PID 918273 (other namespac" in line


def test_csv_has_the_eight_fields_of_nvidia_smi() -> None:
    lines = written("csv", frame(), frame()).splitlines()
    assert lines[0] == (
        "index,name,utilization.gpu,utilization.memory,memory.used,memory.total,temperature.gpu,power.draw"
    )
    assert len(lines) == 1 + 2 * 8
    assert lines[1].startswith("0,NVIDIA H100 80GB HBM3,")
    numbers = [float(value) for value in lines[1].split(",")[2:]]
    gpu = frame().gpus[0]
    assert numbers[0] == round(gpu.busy_percent or 0)
    assert numbers[2:4] == [round((gpu.vram_used_bytes or 0) / 2**20), 81559]
    assert numbers[5] == pytest.approx(gpu.power_watts, abs=0.01)


def test_csv_says_unknown_as_nvidia_smi_does_and_leaves_out_mig_instances() -> None:
    card = Gpu(uuid="a", index="0", name="A100, 40GB")
    text = written("csv", bare(card, replace(card, uuid="b", index="0:1", parent_uuid="a")))
    assert text.splitlines()[1:] == ['0,"A100, 40GB",[N/A],[N/A],[N/A],[N/A],[N/A],[N/A]']


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(1)", 'a"b,c', *STRINGS])
def test_f10_csv_is_read_back_whole_and_is_never_a_formula(text: str) -> None:
    name = codec.clean(text)
    rows = list(csv.reader(io.StringIO(written("csv", bare(Gpu(uuid="u", index="0", name=name))))))
    assert len(rows) == 2
    assert len(rows[1]) == 8
    assert rows[1][1] in (name, f"'{name}")
    assert not rows[1][1].startswith(("=", "+", "-", "@"))


_FINDINGS = [
    {
        "rule": "io-bound",
        "severity": "warn",
        "healthy": False,
        "primary": False,
        "causes": [],
        "confidence": 1.0,
        "grade": "correlation",
        "subject": {
            "kind": "job",
            "gpus": ["0", "GPU-gone"],
            "pids": [41207, 41208, 41209, 41210],
            "job": "41207.4476200",
            "host": "dgx-07",
        },
        "headline": "waits",
        "evidence": [{"text": "busy", "value": 58.0, "unit": "%", "limit": 80.0, "sense": None}],
        "steps": [
            {"text": "stage", "command": "rsync", "action": None, "needs_root": True, "destroys": False},
        ],
        "verify": None,
        "since_s": 0.0,
        "lost_share": 0.42,
        "state": None,
    }
]
_ABSTAINED = [
    {
        "rule": "power",
        "subject": {"kind": "gpu", "gpus": ["3"], "pids": [], "job": None, "host": "dgx-07"},
        "missing": [{"metric": "power_watts", "reason": "denied"}],
        "unlock": None,
    }
]


def test_json_is_one_object_with_the_frame_and_the_verdicts() -> None:
    seen = frame()
    job = seen.jobs[0]
    found = Finding(
        rule="io-bound",
        severity="warn",
        subject=Subject(kind="job", gpus=(seen.gpus[0].uuid, "GPU-gone"), processes=job.ranks, job=job.key),
        headline="waits",
        evidence=(Evidence(text="busy", value=58.0, unit="%", limit=80.0),),
        steps=(Step(text="stage", command="rsync", needs_root=True),),
        lost_share=0.42,
    )
    silent = Abstained(
        rule="power",
        subject=Subject(kind="gpu", gpus=(seen.gpus[3].uuid,)),
        missing=(Missing(metric="power_watts", reason="denied"),),
    )
    text = written("json", seen, findings=(found,), abstained=(silent,))
    assert text.isascii()
    data = json.loads(text)
    assert list(data) == ["version", "frame", "findings", "abstained", "jobs", "host_state"]
    assert codec.decode(Frame, data["frame"]) == seen
    assert data["findings"] == _FINDINGS
    assert data["abstained"] == _ABSTAINED


def test_jsonl_is_a_header_and_a_line_for_each_frame() -> None:
    lines = [json.loads(line) for line in written("jsonl", frame(), frame("idle")).splitlines()]
    assert [line["type"] for line in lines] == ["header", "frame", "frame"]
    assert (lines[0]["version"], lines[0]["host"]) == (1, "dgx-07")
    assert codec.decode(Frame, lines[2]["frame"]) == frame("idle")


def test_jobs_of_one_name_are_told_apart_in_a_log() -> None:
    seen = frame()
    held = (GpuShare(uuid=seen.gpus[0].uuid),)
    processes = tuple(Process(pid=pid, started_ticks=1, name="python", job=f"j{pid}", gpus=held) for pid in (4, 5, 6))
    jobs = tuple(
        Job(key=f"j{one.pid}", name="bert" if one.pid == 6 else "llama", ranks=(one.identity,)) for one in processes
    )
    cell = COLUMNS["jobs"](row(replace(seen, processes=processes, jobs=jobs), seen.gpus[0]))
    assert cell == "llama pid 4 llama pid 5 bert"


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_no_format_tells_a_secret(format: str) -> None:
    text = written(format, secretive())
    assert SECRET not in text
    assert "hunter2" not in text
    assert format == "csv" or "train.py" in text


@pytest.mark.parametrize(
    ("text", "width", "shown"), [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("数据集", 4, "数…"), ("ab", 0, "")]
)
def test_text_is_cut_by_cells(text: str, width: int, shown: str) -> None:
    assert cut(text, width) == shown
    assert cells(shown) <= max(width, 0)


def test_columns_yield_the_least_wanted_first_and_empty_ones_are_not_shown() -> None:
    columns = (
        TextColumn("A"),
        TextColumn("B", keep=2),
        TextColumn("C", keep=1),
        TextColumn("D"),
        TextColumn("E", right=False),
    )
    rows = [["1", "22", "333", "", "command"], ["10", "2", "3", "", "c"]]
    assert layout(columns, rows, 80) == [" A   B    C  E", " 1  22  333  command", "10   2    3  c"]
    assert layout(columns, rows, 15) == [" A   B  E", " 1  22  command", "10   2  c"]
    assert layout(columns, rows, 11) == [" A  E", " 1  command", "10  c"]
    assert layout(columns, rows, 8) == [" A  E", " 1  com…", "10  c"]
