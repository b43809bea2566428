"""Profiles as trees of stacks: what py-spy really writes, ranking, comparing, a flame graph that nothing can break."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.actions.pyspy.record import without_secrets
from gputop.profile import Profile, diff, flame, parse, report, training_parts
from gputop.profile import ranks as shares
from gputop.safe.files import Refused
from gputop.safe.text import clean
from tests.hostile import STRINGS

RAW = """\
main (train.py:10);step (train.py:20);forward (model.py:5) 30
main (train.py:10);step (train.py:20);_engine_run_backward (graph.py:8) 20
main (train.py:10);__next__ (torch/utils/data/dataloader.py:701);get (queue.py:180) 45
main (train.py:10) 5
"""


def test_functions_are_ranked_by_their_own_samples() -> None:
    top = parse(RAW).top()
    assert [(each.name.split()[0], each.self_count, each.total_count) for each in top[:3]] == [
        ("get", 45, 45),
        ("forward", 30, 30),
        ("_engine_run_backward", 20, 20),
    ]
    assert next(each for each in top if each.name.startswith("main")).total_count == 100


def test_recursion_counts_once_a_stack() -> None:
    profile = parse("a;b;a;b;a 7\n")
    assert {(each.name, each.self_count, each.total_count) for each in profile.top()} == {("a", 7, 7), ("b", 0, 7)}


def test_collapsed_stacks_are_read_back_as_they_were_written() -> None:
    profile = parse(RAW)
    assert parse(profile.collapsed()).stacks == profile.stacks
    assert sorted(profile.collapsed().splitlines()) == sorted(RAW.splitlines())


def test_the_same_samples_say_the_same_in_speedscope() -> None:
    stacks = parse(RAW).stacks
    frames = sorted({name for stack in stacks for name in stack})
    samples = [[frames.index(name) for name in stack] for stack, count in stacks.items() for _ in range(int(count))]
    thread = {"type": "sampled", "name": "t", "unit": "seconds", "samples": samples, "weights": [0.01] * len(samples)}
    shared = {"frames": [{"name": name} for name in frames]}
    assert parse(json.dumps({"shared": shared, "profiles": [thread]})).stacks == stacks


def py_spy_file() -> str:
    """What py-spy writes of a trainer (7757) and a loader (7760), a hostile thread among them."""
    torch, site = "/opt/conda/lib/python3.11/site-packages/torch", "/home/alice/train.py"
    frames = [
        {"name": 'process 7757:"python train.py --token hunter2"', "file": "", "line": 0},
        {"name": "thread (7757): MainThread", "file": "", "line": 0},
        {"name": "train", "file": site, "line": 30},
        {
            "name": "_MultiIter._next_data",
            "file": f"{torch}/utils/data/dataloader.py",
            "line": 1448,
        },
        {"name": "Module._call_impl", "file": f"{torch}/nn/modules/module.py", "line": 1775},
        {"name": "Model.forward", "file": "/home/alice/model.py", "line": 12},
        {"name": "relu", "file": f"{torch}/nn/functional.py", "line": 99},
        {"name": "augment", "file": "/home/alice/data.py", "line": 7},
        {"name": "augment", "file": "/home/alice/data.py", "line": 9},
        {"name": "_worker_loop", "file": f"{torch}/utils/data/_utils/worker.py", "line": 257},
        {"name": "Queue.get", "file": "/opt/conda/lib/python3.11/multiprocessing/queues.py", "line": 113},
    ]
    threads = {
        'Process 7757 Thread 7757 "MainThread"': [[0, 1, 2, 3]] * 6 + [[0, 1, 2, 4, 5, 6]] * 4,
        'Process 7757 Thread 7759 "watch\x1b[2Jer"': [[0, 6]] * 10,
        'Process 7760 Thread 7760 "MainThread"': [[0, 9, 7]] * 3 + [[0, 9, 8]] * 5 + [[0, 9, 10]] * 2,
    }
    profiles = [
        {"type": "sampled", "name": name, "unit": "seconds", "samples": some, "weights": [0.01] * len(some)}
        for name, some in threads.items()
    ]
    return json.dumps({"shared": {"frames": frames}, "profiles": profiles})


def test_a_profile_of_a_job_tells_trainer_and_loaders_apart() -> None:
    profile = parse(py_spy_file())
    assert profile.total == 30
    assert [(thread.pid, thread.tid, thread.main) for thread in profile.threads.values()] == [
        (7757, "7757", True),
        (7757, "7759", False),
        (7760, "7760", True),
    ]
    page = report.page(profile, "x")
    assert page.words == (
        "Main thread: top function _MultiIter._next_data (dataloader.py), 60 % of its samples.",
        "Workers: top function augment (data.py), 80 % of their samples; waiting for work 20 % of the time.",
        "Main thread, your code: top function train (train.py), 60 % of its samples.",
        "Step phases: data 60 %, forward 40 %.",
    )
    assert page.points[0].steps[1].startswith("Speed up what the workers")
    own = next(table for table in page.tables if table.title.startswith("Your own code"))
    assert own.rows == (("train (train.py:30)", "60.0 %"), ("Model.forward (model.py:12)", "40.0 %"))
    said = parse(profile.collapsed())  # who is whose thread survives being written as text
    assert said.threads == profile.threads
    assert report.page(said, "x").words[0] == page.words[0]
    profile.pid = 7760
    loader = report.page(profile, "x")
    assert loader.words[0] == "This process is a DataLoader worker."
    assert loader.words[1] == "Top function augment (data.py), 80 % of its samples; waiting for work 20 % of the time."
    assert loader.points == ()


@pytest.mark.parametrize("pid", [7757, 7758])
def test_multiprocessing_s_own_processes_are_no_part_of_a_profile(pid: int) -> None:
    """As mp.spawn has them: a tracker, and a fork server, whose forks have its command line and work."""
    data = json.loads(py_spy_file())
    before = parse(json.dumps(data))
    first = len(data["shared"]["frames"])
    line = 'process {}:"python -B -c from multiprocessing.{} import main;main({})"'
    data["shared"]["frames"] += [
        {"name": line.format(7758, "resource_tracker", 5), "file": "", "line": 0},
        {"name": line.format(7761, "forkserver", "9, 12, ['__main__']"), "file": "", "line": 0},
        {"name": line.format(7762, "forkserver", "9, 12, ['__main__']"), "file": "", "line": 0},
        {"name": "main", "file": "/usr/lib/python3.11/multiprocessing/resource_tracker.py", "line": 239},
        {"name": "main", "file": "/usr/lib/python3.11/multiprocessing/forkserver.py", "line": 258},
        {"name": "_serve_one", "file": "/usr/lib/python3.11/multiprocessing/forkserver.py", "line": 313},
    ]
    for pid_of, stack in ((7758, [0, 3]), (7761, [1, 4]), (7762, [2, 4, 5])):
        places = [[first + place for place in stack]] * 10
        name = f'Process {pid_of} Thread {pid_of} "MainThread"'
        data["profiles"].append({**data["profiles"][0], "name": name, "samples": places, "weights": [0.01] * 10})
    profile = parse(json.dumps(data))
    assert {thread.pid for thread in profile.threads.values()} == {7757, 7760, 7762}
    assert profile.total == before.total + 10
    data["profiles"] = [one for one in data["profiles"] if str(pid) in one["name"]]
    assert {thread.pid for thread in parse(json.dumps(data)).threads.values()} == {pid}  # who asks for one gets it


def test_what_py_spy_names_processes_by_is_kept_without_secrets() -> None:
    assert "hunter2" not in without_secrets(py_spy_file().encode())
    assert parse(without_secrets(py_spy_file().encode())).stacks == parse(py_spy_file()).stacks
    with pytest.raises(Refused):
        without_secrets(b"{}")


@pytest.mark.parametrize(
    ("stack", "part"),
    [
        ("main (train.py:3);__next__ (torch/utils/data/dataloader.py:701);get (queue.py:180)", "waits-for-data"),
        (
            "f (t.py:3);_SingleProcessDataLoaderIter._next_data (dataloader.py:7);_Map.fetch (fetch.py:50)",
            "loads-in-main",
        ),
        ("f (t.py:3);Tensor.backward (_tensor.py:5);_engine_run_backward (graph.py:8)", "backward"),
        ("f (t.py:3);profile_hook_step.<locals>.wrapper (optimizer.py:4);SGD.step (sgd.py:9)", "optimizer"),
        ("f (t.py:3);Module._call_impl (module.py:5);DataParallel.replicate (data_parallel.py:5)", "data-parallel"),
        ("f (t.py:3);all_reduce (distributed_c10d.py:2501)", "collectives"),
        ("f (t.py:3);barrier (torch/distributed/distributed_c10d.py:9)", "collectives"),
        ("f (t.py:3);wait_tensor (torch/distributed/_functional_collectives.py:9)", "collectives"),
        ("f (t.py:3);FSDPParam.wait_for_unshard (_fsdp_param_group.py:9)", "collectives"),
        ("f (t.py:3);Module.forward (m.py:5);_sync_buffers (torch/nn/parallel/distributed.py:9)", "collectives"),
        ("f (t.py:3);_engine_run_backward (graph.py:8);c10d::Reducer::finalize_backward (libtorch.so)", "collectives"),
        ("f (t.py:3);Engine.step (engine.py:4);all_reduce (deepspeed/comm/comm.py:500)", "collectives"),
        ("f (t.py:3);save_image (torchvision/utils.py:9);Image.save (Image.py:5)", "logs"),
        ("f (t.py:3);Logger.info (__init__.py:5);StreamHandler.emit (__init__.py:9)", "logs"),
        ("f (t.py:3);save (serialization.py:5);_save (serialization.py:9)", "saves"),
        ("f (t.py:3);Module._wrapped_call_impl (module.py:5);Net.forward (net.py:8)", "forward"),
    ],
)
def test_parts_of_a_step_are_told_by_names(stack: str, part: str) -> None:
    found = training_parts.shares(parse(f"{stack} 3\nf (t.py:4) 1\n"))
    assert {each.name: share for each, share in found.items() if share} == {part: 0.75}


def test_a_wait_for_a_collective_is_told_by_its_line_for_it_has_no_frame() -> None:
    """`work.wait()` of torch.distributed is C++; the waits of Python itself go on in frames of their own."""
    profile = parse("f (t.py:3);train (t.py:41) 6\nf (t.py:3);train (t.py:42);wait (threading.py:9) 4\n")
    profile.files = dict.fromkeys(("train (t.py:41)", "train (t.py:42)"), "/home/alice/t.py")
    profile.lines = {"train (t.py:41)": "handle.wait()", "train (t.py:42)": "event.wait()"}
    assert training_parts.phases(profile) == {"comms": 0.6}


def test_ranks_side_by_side_name_the_one_that_the_others_wait_for() -> None:
    def recorded(waits: int, place: str) -> Profile:
        return parse(f"f (t.py:3);{place} {waits}\nf (t.py:4) {100 - waits}\n")

    def said(*waits: int, place: str = "barrier (distributed_c10d.py:9)") -> str:
        ranks = [(f"rank {rank}", rank, recorded(each, place)) for rank, each in enumerate(waits)]
        return shares.page(ranks).words[0]

    assert said(90, 3, 88) == ("rank 1 spends 3 % of the time in collectives, the others up to 90 %: they wait for it.")
    assert said(40, 45) == "All ranks spend 40 % to 45 % of the time in collectives: no straggler."
    assert said(1, 2) == "No rank waits in collectives for 10 % of the time."
    backward = "_engine_run_backward (graph.py:9)"  # in which DDP waits for the other ranks
    assert said(92, 3, place=backward) == (
        "rank 1 spends 3 % of the time in backward, the others up to 92 %:"
        " they may wait for it in an all-reduce there, which --native shows."
    )
    assert said(60, 62, place=backward) == ("collectives ·: the ranks may wait inside backward: --native shows it.")


def test_collectives_that_backward_may_hide_are_unknown_not_zero() -> None:
    def cells(*stacks: str) -> tuple[str, ...]:
        (table,) = shares.page([("rank 0", 7, parse("\n".join(stacks)))]).tables
        return tuple(table.rows[0][table.head.index(title)] for title in ("backward", "collectives"))

    backward, other = "f (t.py:3);_engine_run_backward (graph.py:9)", "f (t.py:4)"
    assert cells(f"{backward} 70", f"{other} 30") == ("70.0 %", "·")
    assert cells(f"{backward} 2", f"{other} 98") == ("2.0 %", "0.0 %")
    assert cells(f"{backward} 60", "f (t.py:5);barrier (distributed_c10d.py:9) 40") == ("60.0 %", "40.0 %")


def test_a_line_that_reads_back_is_told_by_its_text_for_what_it_calls_has_no_frame() -> None:
    profile = parse("f (t.py:3);train (t.py:41) 6\nf (t.py:3);train (t.py:42) 4\n")
    profile.files = dict.fromkeys(("train (t.py:41)", "train (t.py:42)"), "/home/alice/t.py")
    profile.lines = {"train (t.py:41)": "total += loss.item()", "train (t.py:42)": "model(batch)"}
    page = report.page(profile, "x")
    assert page.points[0].text == "reading results back or printing them, 60 % of samples"
    assert page.tables[1].rows[0] == ("train (t.py:41): total += loss.item()", "60.0 %")


def test_an_evented_profile_is_the_time_between_its_events() -> None:
    events = [("O", 0, 0), ("O", 1, 2), ("C", 1, 5), ("C", 0, 6)]
    thread = {
        "type": "evented",
        "name": "t",
        "unit": "milliseconds",
        "events": [{"type": kind, "frame": frame, "at": at} for kind, frame, at in events],
    }
    profile = parse(json.dumps({"shared": {"frames": [{"name": "a"}, {"name": "b"}]}, "profiles": [thread]}))
    assert profile.stacks == {("a",): 3.0, ("a", "b"): 3.0}


def test_what_py_spy_writes_of_a_real_process_is_read(tmp_path: Path) -> None:
    script = tmp_path / "loop.py"
    script.write_text(
        "import time\ndef hot():\n    return sum(i * i for i in range(20000))\n"
        "print('ready', flush=True)\nend = time.time() + 60\nwhile time.time() < end: hot()\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as target:
        try:
            assert target.stdout
            target.stdout.readline()
            for kind, name in (("speedscope", "s.json"), ("raw", "s.txt")):
                spy = [str(Path(sys.executable).parent / "py-spy"), "record", "--nonblocking", "--format", kind]
                options = ["-d", "1", "-r", "50", "-o", str(tmp_path / name), "-p", str(target.pid)]
                done = subprocess.run(spy + options, capture_output=True, text=True, timeout=60)
                if done.returncode:
                    pytest.skip(f"py-spy cannot read a process here: {done.stderr.splitlines()[:1]}")
                profile = parse((tmp_path / name).read_text())
                assert any("hot (loop.py" in each.name for each in profile.top()), profile.top()[:3]
                assert ET.fromstring(flame(profile)).tag.endswith("svg")
        finally:
            target.kill()


def test_what_changed_is_told_in_shares() -> None:
    after = parse(RAW.replace(" 45", " 5"))
    name, before, now = diff(parse(RAW), after)[0]
    assert name.startswith(("get", "__next__"))
    assert (before, round(now, 3)) == (0.45, round(5 / 60, 3))
    assert diff(after, after) == []
    assert report.compared(after, after, ("a", "b")).words == ("No function changed its share.",)


def test_waiting_for_the_loader_is_said_first() -> None:
    page = report.page(parse(RAW), "x")
    assert page.points[0].severity == "warn"
    assert page.points[0].text.startswith("dataloader-bound, 45 %")
    assert report.page(parse(RAW.replace(" 45", " 4")), "x").points == ()


def test_a_flame_graph_is_as_wide_as_its_samples() -> None:
    root = ET.fromstring(flame(parse(RAW), "run <1> & more"))
    space = "{http://www.w3.org/2000/svg}"
    boxes = {group.findtext(f"{space}title"): group.find(f"{space}rect") for group in root.iter(f"{space}g")}
    widths = {(title or "").split()[0]: float(box.get("width", "0")) for title, box in boxes.items() if box is not None}
    assert widths["main"] == pytest.approx(1200, abs=1)
    assert widths["get"] == pytest.approx(540, abs=1)
    assert root.findtext(f"{space}text") == "run <1> & more"


def test_a_stack_that_begins_with_a_brace_is_no_json() -> None:
    assert parse("{x};y 3\n{z} 4\n").stacks == {("{x}", "y"): 3, ("{z}",): 4}


@pytest.mark.parametrize("deep", [1, 499, 5000])
def test_a_deep_stack_is_cut_not_fatal(deep: int) -> None:
    profile = parse(f"{';'.join(f'f{number}' for number in range(deep))} 3\n")
    assert bool(profile.notes) == (deep > 500)
    ET.fromstring(flame(profile))


@given(st.lists(st.tuples(st.text(), st.integers(1, 10**6)), min_size=1, max_size=20))
def test_hostile_names_stay_one_clean_line_of_a_graph(rows: list[tuple[str, int]]) -> None:
    lines = [*(f"{name} {count}" for name, count in rows), *(f"main;{name} 9" for name in STRINGS)]
    profile = parse("\n".join(line.replace("\n", " ") for line in lines))
    assert all(clean(name) == name for stack in profile.stacks for name in stack)
    root = ET.fromstring(flame(profile, "\x00\x1b]0;x\x07"))
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {"svg", "rect", "text", "g", "title"}
    assert parse(profile.collapsed()).total == profile.total


@pytest.mark.parametrize(
    "text",
    ["", "hello", "a b\nc d", "{", '{"shared": 1}', '{"shared": {"frames": []}, "profiles": []}', '{"profiles": [{}]}'],
)
def test_what_is_no_profile_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        parse(text)


def test_made_up_counts_are_left_out() -> None:
    assert Profile([(("a",), float("nan")), (("a",), -1), (("a",), 1e300), (("b",), 2)]).stacks == {("b",): 2}


@pytest.mark.parametrize(
    "line",
    [
        "2026/01/02 10:00:0{}.000, 0, 45, 80, 1234",
        "2026/01/02 10:00:0{}.000, NVIDIA H200, 45 %, 8{} %, 1234 MiB",
        "{}, NVIDIA A100-SXM4-80GB, 45, [N/A], 1234, 12",
    ],
)
def test_a_csv_without_its_head_is_no_profile(line: str) -> None:
    """Each line of it ends in a number, as one of collapsed stacks does."""
    with pytest.raises(Refused, match="a CSV without a header"):
        parse("\n".join(line.format(second, second) for second in range(9)))
    stacks = "main (a.py:1);at::add(int, 3, 4) 7\nat::add(int, float, 4) 5\n"
    assert parse(stacks).total == 12
