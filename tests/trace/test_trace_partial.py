"""Traces that are cut, damaged, repaired, or not of torch: it is said first, and nothing is concluded of a part."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputop.report import text
from gputop.trace import signatures  # noqa: F401
from gputop.trace.read import read
from gputop.trace.report import page
from gputop.trace.verdict import TraceView
from tests.traces import ADD, GEMM, NCCL, Made, busy, starved


def explain(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gputop", "explain", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def words(path: str) -> tuple[str, ...]:
    return page(TraceView(read(path))).words


def as_kineto(made: Made) -> None:
    """What ran on the GPU after all of the CPU, as Kineto writes it."""
    made.events.sort(key=lambda event: event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"))


@pytest.mark.parametrize("part", [0.3, 0.7, 0.95])
def test_a_cut_file_says_nothing_of_the_gpu(tmp_path: Path, part: float) -> None:
    """Kernels are written last: of those that were read the GPU would be busy for a fifth of the time."""
    made = busy()
    as_kineto(made)
    path = tmp_path / "cut.json"
    whole = Path(made.write(path)).read_text()
    assert "GPU busy 100 % of the time." in words(str(path))
    path.write_text(whole[: int(len(whole) * part)])
    done = explain(str(path))
    assert (done.returncode, done.stderr) == (1, "")
    assert "Findings\n  The file is truncated: read up to there.\n" in done.stdout
    for absent in ("GPU busy", "WARN", "CRIT", "No known bottleneck", "GPU time", "Steps"):
        assert absent not in done.stdout
    told = json.loads(explain("--json", str(path)).stdout)["files"][0]
    assert (told["whole"], told["findings"], told["gpu_time"], told["steps"]) == (False, [], None, [])


@pytest.mark.parametrize(
    ("write", "repaired", "what"),
    [
        (
            lambda text: text.replace('"name": "aten::add"', '"name": "C:\\Users\\x\\py.exe"', 1),
            3,
            "s that are not JSON were repaired: paths of Windows",
        ),
        (
            lambda text: text.replace('"External id": 1,', '"External id": 1, "lr": nan, "loss": -inf,', 1),
            2,
            "s that are not JSON were repaired: nan, inf",
        ),
        (
            lambda text: text.replace('"External id": 1,', '"External id": 1, "x": [inf, Infinity, NaN],', 1),
            1,
            " that is not JSON was repaired: nan, inf",
        ),
    ],
)
def test_what_is_no_json_is_repaired_and_costs_nothing(tmp_path: Path, write: Any, repaired: int, what: str) -> None:
    made = starved()
    made.host("aten::add", 5, 10, x=1)
    made.events[-1]["args"] = {"External id": 1, "y": 2}
    text = made.text()
    broken = write(text)
    assert broken != text
    (tmp_path / "x.json").write_text(broken)
    trace = read(str(tmp_path / "x.json"))
    assert (trace.events, trace.whole) == (len(made.events), True)
    assert trace.problems == [f"{repaired} value{what}"]
    assert words(str(tmp_path / "x.json"))[0] == f"{repaired} value{what}."
    assert explain(str(tmp_path / "x.json")).returncode == 1


CONTROLS, QUOTES = "tabs and line ends in names", "quotes in names"


@pytest.mark.parametrize("place", [0, 80, -1])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("my\tregion", [CONTROLS]),
        ("my\nregion", [CONTROLS]),
        ("\x1b[31mred", [CONTROLS]),
        ('say "hi" now', [QUOTES]),
        ('x["a"]', [QUOTES]),
        ('f("a", "b")', [QUOTES]),
        ('a", b', [QUOTES]),
        ('ends with "', [QUOTES]),
        ('"quoted"', [QUOTES]),
        ('{"epoch", "1"}', [QUOTES]),
        ('a "tab"\there', [CONTROLS, QUOTES]),
    ],
)
def test_raw_tabs_and_quotes_in_a_name_are_repaired(
    tmp_path: Path, name: str, kinds: list[str], indent: int | None, place: int
) -> None:
    made = busy()
    made.note("NAME", 5, 10)
    made.events.insert(place % len(made.events), made.events.pop())
    text = json.dumps({**made.head, "traceEvents": made.events}, indent=indent)
    path = tmp_path / "x.json"
    path.write_text(text.replace("NAME", name))
    trace = read(str(path))
    assert (trace.events, trace.whole) == (len(made.events), True)
    values = "1 value that is not JSON was" if len(kinds) == 1 else "2 values that are not JSON were"
    assert trace.problems == [f"{values} repaired: {', '.join(kinds)}"]
    assert re.sub(r"[^\w]", "", name.removeprefix("\x1b")) in {re.sub(r"[^\w]", "", x) for x in trace.host.names.texts}
    said = words(str(path))
    assert said[:2] == (f"{trace.problems[0]}.", "GPU busy 100 % of the time.")
    if place == -1 and indent is None:
        assert explain(str(path)).returncode == 1


def test_many_raw_names_cost_little(tmp_path: Path) -> None:
    """Each of thousands of names, in stretches of any length; events without one among them."""
    made = Made()
    for number in range(6000):
        made.host("NAME" if number % 3 else "aten::add", number * 10, 9)
    path = tmp_path / "x.json"
    path.write_text(made.text().replace("NAME", 'a["b"]\t'))
    trace = read(str(path))
    assert (trace.events, trace.whole) == (6000, True)
    assert trace.problems == [f"8000 values that are not JSON were repaired: {CONTROLS}, {QUOTES}"]


@pytest.mark.parametrize("hole", ["", "\0" * 60])
@pytest.mark.parametrize("indent", [None, 2])
def test_what_goes_on_in_the_next_event_is_no_name(tmp_path: Path, hole: str, indent: int | None) -> None:
    """The rest of one event and the beginning of the next are missing: nothing is put together of the two."""
    made = busy()
    text = json.dumps({**made.head, "traceEvents": made.events}, indent=indent)
    at = text.index("cudaLaunchKernel", len(text) // 2) + 5
    path = tmp_path / "x.json"
    path.write_text(text[:at] + hole + text[text.index('pid"', at) :])
    trace = read(str(path))
    assert not trace.whole
    assert trace.problems == ["1 damaged place was skipped"]


def test_a_last_event_that_is_damaged_is_no_cut(tmp_path: Path) -> None:
    made = busy()
    made.host("NAME", 5, 10)
    path = tmp_path / "x.json"
    path.write_text(made.text().replace('"name": "NAME"', '"name": NAME'))
    assert read(str(path)).problems == ["1 damaged place was skipped"]


def test_times_that_are_text_are_numbers_all_the_same(tmp_path: Path) -> None:
    made = busy()
    plain = TraceView(read(made.write(tmp_path / "x.json")))
    for event in made.events:
        event["ts"], event["dur"] = f"{event['ts']:.3f}", f"{event['dur']:.3f}"
    trace = read(made.write(tmp_path / "text.json"))
    assert trace.problems == [f"{len(made.events)} times written as text, read as a number"]
    assert TraceView(trace).found.busy.total == pytest.approx(plain.found.busy.total)


@pytest.mark.parametrize("start", [1e18 / 2, 9e17])
def test_a_step_whose_length_vanishes_far_from_the_first_event_is_left_out(tmp_path: Path, start: float) -> None:
    made = Made()
    made.host("aten::add", 0, 1)
    made.step(1, start, 1.0)
    done = explain(made.write(tmp_path / "x.json"))
    assert (done.returncode, done.stderr) == (1, "")
    assert "1 step without a duration left out." in done.stdout


def test_pairs_of_begin_and_end_are_not_read_and_said_to_be_so(tmp_path: Path) -> None:
    events = [
        {"ph": kind, "cat": "app", "name": f"f{number}", "pid": 1, "tid": 1, "ts": number + (kind == "E") / 2}
        for number in range(50)
        for kind in ("B", "E")
    ]
    (tmp_path / "x.json").write_text(json.dumps({"traceEvents": events}))
    done = explain(str(tmp_path / "x.json"))
    assert done.returncode == 1
    assert "begin/end event pairs (B, E), which gputop does not read" in re.sub(r"\s+", " ", done.stdout)
    assert "No GPU was traced" not in done.stdout
    assert "No known bottleneck" not in done.stdout


@pytest.mark.parametrize("kind", ["mtia_ccp_events", "hpu_op", "privateuse1_runtime"])
def test_an_accelerator_that_is_not_read_is_named(tmp_path: Path, kind: str) -> None:
    made = Made()
    made.step(1, 0, 1000)
    for number in range(50):
        made.host("matmul", number * 20, 18, kind)
        made.host("aten::mm", number * 20, 5)
    done = explain(made.write(tmp_path / "x.json"))
    said = re.sub(r"\s+", " ", done.stdout)
    assert done.returncode == 1
    assert f"Activity of this accelerator is not read ({kind}): only the CPU is covered." in said
    assert "No GPU was traced" not in said
    assert "No known bottleneck" not in said


def test_spans_that_are_ordered_by_their_end_are_sorted(tmp_path: Path) -> None:
    """Kineto of 2021, whose memory events have no totals either."""
    made, bare = Made(), Made()
    for one in (made, bare):
        for number in range(40):
            one.step(number, number * 100, 99)
            one.host("aten::linear", number * 100 + 10, 50)
            one.host("aten::addmm", number * 100 + 20, 30)
    sorted_ = read(made.write(tmp_path / "sorted.json"))
    bare.events.sort(key=lambda event: event["ts"] + event["dur"])
    args = {"Device Type": 0, "Device Id": -1, "Addr": 1, "Bytes": 256}
    memory = {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5, "args": args}
    cuda = {**memory, "args": {**args, "Device Type": 1}}
    bare.events += [memory, cuda]
    old = read(bare.write(tmp_path / "old.json"))
    assert old.problems == []
    assert old.notes == ["memory events of an old Kineto have no totals: memory is not shown"]
    own = {
        name: old.host.self_us[number] for number, name in enumerate(old.host.names.texts) if name.startswith("aten")
    }
    assert own == {"aten::linear": pytest.approx(40 * 20), "aten::addmm": pytest.approx(40 * 30)}
    first, second = TraceView(old).found.window, TraceView(sorted_).found.window
    assert (len(first.steps), first.span_us) == (len(second.steps), second.span_us)


def test_more_kernels_than_fit_are_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputop.trace.gpu.MOST", 10)
    made = busy(kernel=ADD)
    said = words(made.write(tmp_path / "x.json"))
    assert said[0].startswith("Too many kernels")
    assert not any("GPU busy" in text for text in said)


def test_a_rank_whose_file_was_cut_is_neither_late_nor_compared(tmp_path: Path) -> None:
    paths = []
    for rank in range(2):
        made = busy(distributedInfo={"rank": rank, "world_size": 2})
        for number in range(4):
            made.kernel(NCCL, number * 100_000 + 60_000, 30_000, stream=9)
        as_kineto(made)
        paths.append(made.write(tmp_path / f"rank{rank}.json"))
    whole = Path(paths[1]).read_text()
    Path(paths[1]).write_text(whole[: int(len(whole) * 0.8)])
    done = explain(*paths)
    assert done.returncode == 1
    assert "straggler" not in done.stdout
    assert done.stdout.split("\n")[3].strip() == "Partly read, excluded from the comparison: rank1.json."
    cut = next(line for line in done.stdout.splitlines() if line.startswith("  rank 1"))
    assert cut.count("·") == 3, "neither busy, nor in collectives, nor waiting: it is not known"
    changed = explain("--diff", *paths)
    assert changed.returncode == 1
    assert "The traces are not compared" in re.sub(r"\s+", " ", changed.stdout)
    assert "Step time" not in changed.stdout
    assert json.loads(explain("--diff", "--json", *paths).stdout)["files"][0]["whole"] is False


@pytest.mark.parametrize("args", [5, "text", [1], {"External id": {}}])
def test_odd_events_of_a_file_that_is_sorted_are_left_out(tmp_path: Path, args: Any) -> None:
    made = Made()
    for number in range(40, 0, -1):
        made.host("aten::add", number * 100, 10)
    made.events[20]["args"] = args
    trace = read(made.write(tmp_path / "x.json"))
    assert sum(trace.host.count) >= 39


def of_gpu(made: Made) -> list[dict[str, Any]]:
    return [event for event in made.events if event["cat"] == "kernel"]


def said(path: Path) -> tuple[int, str]:
    """The exit code of gputop explain, and its page as one line."""
    view = TraceView(read(str(path)))
    return int(bool(view.trace.problems)), re.sub(r"\s+", " ", text(page(view)))


NOTHING = ("GPU busy", "WARN", "CRIT", "No known bottleneck", "GPU time", "healthy, GPU busy")


@pytest.mark.parametrize("times", [1, 3])
def test_damage_in_the_middle_is_no_idle_time(tmp_path: Path, times: int) -> None:
    """A disk that lost blocks in the middle of the kernels: what was there may have kept the GPU busy."""
    made = busy()
    as_kineto(made)
    text = made.text()
    middle = text.index('"kernel"', int(len(text) * 0.6))
    for number in range(times):
        at = middle + number * 3000
        text = text[:at] + "\0" * 2000 + text[at + 2000 :]
    (tmp_path / "x.json").write_text(text)
    code, told = said(tmp_path / "x.json")
    assert code == 1
    places = "1 damaged place was" if times == 1 else f"{times} damaged places were"
    assert f"Findings {places[0].upper()}{places[1:]} skipped." in told
    assert not any(absent in told for absent in NOTHING)
    assert json.loads(explain("--json", str(tmp_path / "x.json")).stdout)["files"][0]["gpu_time"] is None


@pytest.mark.parametrize(
    ("key", "value"), [("dur", None), ("dur", -5), ("dur", float("nan")), ("ts", "x"), ("name", 5)]
)
def test_kernels_without_sense_are_no_idle_time(tmp_path: Path, key: str, value: Any) -> None:
    made = busy()
    for event in of_gpu(made)[10:50]:
        event[key] = value
    code, told = said(Path(made.write(tmp_path / "x.json")))
    assert code == 1
    assert "Findings 40 events left out as invalid." in told
    assert not any(absent in told for absent in NOTHING)


def test_a_few_odd_spans_of_the_cpu_cost_themselves_only(tmp_path: Path) -> None:
    made = busy()
    for number in range(300):
        made.host("aten::add", number * 1000, 10)
    made.events[-1]["dur"] = -1
    code, told = said(Path(made.write(tmp_path / "x.json")))
    assert code == 1
    assert "Findings 1 event left out as invalid." in told
    assert "GPU busy 100 % of the time." in told


def test_nothing_is_concluded_where_many_spans_of_the_cpu_are_odd(tmp_path: Path) -> None:
    """Waiting for data is what has no duration here: the loop would not seem to wait."""
    made = starved(steps=3, kernels=10, every_us=1000)
    for step in range(3):
        made.note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", step * 10_000, 8_000)
        made.events[-1]["dur"] = None
    code, told = said(Path(made.write(tmp_path / "x.json")))
    assert code == 1
    assert not any(absent in told for absent in NOTHING)


@pytest.mark.parametrize(
    ("wrong", "count"),
    [
        (lambda text: text.replace("},\n  {", "}\n  {", 3), 3),  # as a program that appends may leave it
        (lambda text: text.replace("},\n  {", "},,\n  {", 2), 2),
        (lambda text: text.replace('[\n  {\n    "ph"', '[,\n  {\n    "ph"', 1), 1),
        (lambda text: text.replace('}\n],\n  "traceName"', '},\n],\n  "traceName"', 1), 1),
        (lambda text: text.replace('],\n  "traceName"', ']\n  "traceName"', 1), 1),
        (lambda text: text.replace('"made.json"', '"made.json",', 1), 1),
        (lambda text: text, 0),
    ],
)
def test_commas_that_are_repaired_are_said(wrong: Callable[[str], str], count: int, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    whole = Path(busy().write(path)).read_text()
    right = words(str(path))
    path.write_text(wrong(whole))
    assert (wrong(whole) == whole) == (count == 0)
    values = "values that are not JSON were" if count != 1 else "value that is not JSON was"
    assert words(str(path)) == (*((f"{count} {values} repaired: commas.",) if count else ()), *right)


def recorded(number: int, at: float, *, span: bool) -> Made:
    """A recording of two steps; Kineto writes a span around all of one."""
    made = Made()
    if span:
        made.host("PyTorch Profiler (0)", at - 50, 200_200, "Trace")
    for place in range(2):
        made.step(number + place, at + place * 100_000, 100_000)
        made.kernel(GEMM, at + place * 100_000 + 10, 99_000, launch=at + place * 100_000 + 1)
    return made


@pytest.mark.parametrize(("number", "span"), [(3, False), (5, True)])
def test_two_recordings_in_one_file_are_not_one(number: int, span: bool, tmp_path: Path) -> None:
    """Ten seconds lie between them, in which nothing was recorded."""
    made = recorded(3, 0, span=span)
    alone = made.write(tmp_path / "alone.json")
    made.events += recorded(number, 10_000_000, span=span).events
    code, told = said(Path(made.write(tmp_path / "x.json")))
    assert code == 1
    assert "The file contains several recordings: the time between them would look like idle time." in told
    assert "explain each one separately" in told
    assert not any(absent in told for absent in NOTHING)
    assert "recording" not in said(Path(alone))[1]


def test_kernels_of_onnx_runtime_are_not_those_of_torch(tmp_path: Path) -> None:
    """Its category of kernels is called as in old Kineto; nothing else of it is known."""
    made = Made()
    for name, cat, dur in (("session_initialization", "Session", 900), ("Conv_1_kernel_time", "Node", 400)):
        made.host(name, 0, dur, cat)
    made.host("void cudnn::winograd", 100, 200, "Kernel", stream="7")
    code, told = said(Path(made.write(tmp_path / "x.json")))
    assert code == 1
    assert "Not a torch.profiler trace: written by ONNX Runtime." in told
    assert "Kernels may be missing" not in told
    assert not any(absent in told for absent in NOTHING)


def split(event: dict[str, Any], *, how: str = "BE", bare: bool = False) -> list[dict[str, Any]]:
    """A span as two events; the end of a `bare` one says only whose it is."""
    begin = {key: value for key, value in event.items() if key != "dur"} | {"ph": how[0]}
    end = {"ph": how[1], "pid": event["pid"], "tid": event["tid"], "ts": event["ts"] + event["dur"]}
    if how == "be":
        begin["id"] = end["id"] = f"{event['cat']}{event['ts']}"
        end["cat"] = event["cat"]
    return [begin, end if bare else {**end, "name": event["name"], "cat": event["cat"]}]


def in_halves(made: Made, kinds: set[str], **how: Any) -> Made:
    """Spans of some categories as two events each, in the order in which they happen."""
    halves = [split(event, **how) if event["cat"] in kinds else [event] for event in made.events]
    made.events = sorted((half for one in halves for half in one), key=lambda event: event["ts"])
    return made


@pytest.mark.parametrize("how", ["BE", "be"])
@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("kinds", [{"kernel"}, {"cuda_runtime"}, {"user_annotation"}, {"cpu_op"}])
def test_spans_of_two_events_are_put_together(tmp_path: Path, how: str, bare: bool, kinds: set[str]) -> None:
    """Half of the kernels, the launches or the steps as B and E: nobody may say that the GPU idles without them."""

    def made() -> Made:
        one = starved(steps=3, kernels=20)
        for number in range(60):
            one.host("aten::linear", number * 100 + 10, 50)
            one.host("aten::addmm", number * 100 + 20, 30)
        one.events.sort(key=lambda event: (event["ts"], -event["dur"]))
        return one

    count = sum(event["cat"] in kinds for event in made().events)
    whole = page(TraceView(read(made().write(tmp_path / "whole.json"))))
    halves = page(TraceView(read(in_halves(made(), kinds, how=how, bare=bare).write(tmp_path / "x.json"))))
    assert halves.words == (f"{count} spans written as begin/end events (B, E), combined.", *whole.words)
    assert halves.points == whole.points
    if (how, kinds) != ("be", {"cpu_op"}):  # those may overlap others, so nothing is within them
        assert halves.tables == whole.tables


def test_the_first_half_of_a_kernel_without_its_other_half(tmp_path: Path) -> None:
    made = in_halves(busy(), {"kernel"})
    made.events.remove(next(event for event in made.events if event["ph"] == "E"))
    code, told = said(Path(made.write(tmp_path / "x.json")))
    assert code == 1
    assert "1 begin or end event left out: the matching event is missing." in told
    assert not any(absent in told for absent in NOTHING)


def test_kernels_in_a_form_that_is_not_known(tmp_path: Path) -> None:
    made = busy()
    for event in of_gpu(made)[10:50]:
        event["ph"] = "S"
    code, told = said(Path(made.write(tmp_path / "x.json")))
    assert code == 1
    assert not any(absent in told for absent in NOTHING)


def plain(**named: Any) -> Made:
    """Two steps of operators, and fifty events of something else."""
    made = Made()
    made.step(1, 0, 1000)
    made.step(2, 1000, 1000)
    for number in range(100):
        made.host("aten::mm", number * 20, 5)
    for number in range(50):
        event = {"ph": "X", "name": "MatMulV2", "pid": 9, "tid": 3, "ts": number * 20, "dur": 18, "args": {}, **named}
        made.events.append(event)
    return made


def label(text: str, kind: str = "process_name") -> dict[str, Any]:
    return {"ph": "M", "pid": 9, "tid": 0, "ts": 0, "name": kind, "args": {kind.partition("_")[2]: text}}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Ascend Hardware", None),
        ("NPU 0", None),
        ("/device:TPU:0", None),
        ("Gaudi", "hw"),
        ("XPU 0", None),
        ("GPU 3", None),
        ("mylib device:FOO", "device_op"),
    ],
)
def test_an_accelerator_is_known_by_the_name_of_its_process(
    tmp_path: Path, name: str, kind: str | None, first: bool
) -> None:
    for what in ("process_name", "process_labels"):
        made = plain(**({"cat": kind} if kind else {}))
        made.events.insert(0 if first else len(made.events), label(name, what))
        code, told = said(Path(made.write(tmp_path / "x.json")))
        assert code == 1
        assert f"Activity of this accelerator is not read ({name}): only the CPU is covered." in told
        assert "No GPU was traced" not in told
        assert "No known bottleneck" not in told


@pytest.mark.parametrize(
    "kind", ["gaudi_node", "npu_kernel", "xpu_op", "tpu", "ascend_hw", "PrivateUse1", "mlu_kernel", "mtia_workloadd"]
)
def test_an_accelerator_is_known_by_its_category(tmp_path: Path, kind: str) -> None:
    code, told = said(Path(plain(cat=kind).write(tmp_path / "x.json")))
    assert code == 1
    assert f"Activity of this accelerator is not read ({kind}): only the CPU is covered." in told
    assert "No GPU was traced" not in told
    beside = plain(cat=kind)
    beside.events += busy().events
    code, told = said(Path(beside.write(tmp_path / "y.json")))
    assert code == 1
    assert f"({kind}): only the CPU and the GPUs are covered." in told
    assert "GPU busy" in told


@pytest.mark.parametrize("named", [{"cat": "vendor_thing"}, {}, {"cat": "input_pipeline"}])
def test_events_of_unknown_categories_may_be_of_an_accelerator(tmp_path: Path, named: dict[str, str]) -> None:
    code, told = said(Path(plain(**named).write(tmp_path / "x.json")))
    assert code == 1
    kind = named.get("cat", "none")
    assert f"Events of unknown categories are not read ({kind}): accelerator activity is unknown." in told
    assert "accelerator not read" in told
    assert "no GPU traced" not in told
    assert "No GPU was traced" not in told
    assert "No known bottleneck" not in told


@pytest.mark.parametrize("kind", ["Trace", "overhead", "fwdbwd", "gpu_user_annotation"])
def test_what_kineto_writes_of_the_cpu_is_no_accelerator(tmp_path: Path, kind: str) -> None:
    made = plain(cat=kind)
    made.events.append(label("GPU 0", "process_labels"))
    code, told = said(Path(made.write(tmp_path / "x.json")))
    assert code == 0
    assert "No GPU was traced" in told


def test_launches_without_kernels_do_not_say_that_there_is_no_gpu(tmp_path: Path) -> None:
    made = busy()
    made.events = [event for event in made.events if event["cat"] != "kernel"]
    code, told = said(Path(made.write(tmp_path / "x.json")))
    assert code == 1
    assert "80 launches and no kernels in the trace: GPU activity is missing." in told
    assert "No known bottleneck" not in told


@pytest.mark.parametrize("bare", [False, True])
def test_what_follows_the_end_is_not_read_and_said_so(tmp_path: Path, bare: bool) -> None:
    """Two files appended to each other: of the second nothing is known."""
    text = json.dumps(busy().events) if bare else busy().text()
    (tmp_path / "x.json").write_text(f"{text}\n\n")
    assert said(tmp_path / "x.json")[0] == 0
    (tmp_path / "x.json").write_text(text + text)
    code, told = said(tmp_path / "x.json")
    assert code == 1
    assert "Findings Data follows the end of the trace: the rest is not read." in told
    assert not any(absent in told for absent in NOTHING)
