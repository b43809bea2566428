"""The measurement of a DataLoader: what is asked for, the knee, what is advised, and what a table says."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gputop import lab
from gputop.lab import child, results
from gputop.lab.factory import factory, interpreter
from gputop.lab.loader import LoaderPlan, knee, line, per_rank, percentile, sweep, wait_share
from gputop.lab.loader_report import page
from gputop.model import Identity
from gputop.report import text
from tests.pty_programs import wait_until

READY = {
    "python": "3.12.4", "torch": "2.9.0", "cuda": False, "has_in_order": True, "step": False, "made_s": 0.1,
    "iterable": False, "length": 500, "batch_size": 64, "shuffle": True, "own_sampler": False, "own_batches": False,
    "own_collate": False, "drop_last": False, "workers": 0,
}  # fmt: skip
GUIDE = {0: 0.0452, 2: 0.0187, 4: 0.0093, 8: 0.0051, 12: 0.0050}  # mission row 39


def rows(times: Mapping[int, float]) -> list[dict[str, Any]]:
    return [{"num_workers": count, "mean_s": took_s} for count, took_s in times.items()]


class Machine:
    """A child that answers from a table: seconds a batch by workers, and by option its factors, one each time."""

    def __init__(
        self, times: Mapping[int, float], factors: Mapping[str, list[float]] | None = None, **ready: object
    ) -> None:
        self.uneven = False  # batches vary, and the slow sample shows
        self.times, self.factors, self.ready = times, dict(factors or {}), {**READY, **ready}
        self.titles: list[str] = []
        self.waits: dict[int, float] = {}  # for a batch, where a step computes meanwhile

    def __call__(self, title: str, request: Mapping[str, Any]) -> dict[str, Any]:
        self.titles.append(title)
        if request["mode"] == "samples":
            return {
                "samples": [[[index, 0.3 if index == 37 else 0.002] for index in one] for one in request["indices"]]
            }
        took_s = self.times[request["workers"]]
        for option, value in {**request["options"], "copy": request.get("copy")}.items():
            left = self.factors.get(f"{option}={value}")
            took_s /= left.pop(0) if left else 1.0
        times = [took_s] * request["batches"]
        if self.uneven:
            times = [took_s * (0.96 + 0.04 * (at % 3)) for at in range(len(times))]
            times[4] += 0.3
        if request.get("step"):
            times = [self.waits.get(request["workers"], 0.0005)] * len(times)
        again_s = 0.05 if request["options"].get("persistent_workers") else 0.4
        return {
            "ready": self.ready,
            "times": times,
            "steps": [0.02] * request["batches"] if request.get("step") else [],
            "first_s": took_s + 0.1,
            "again_s": again_s if request.get("epochs") else None,
            "epochs": 1,
            "read_bytes": 0,
            "slow": [{"number": 4, "s": 0.5, "indices": [36, 37, 38]}] if request["workers"] == 0 else [],
        }


def measured(machine: Machine, **plan: Any) -> dict[str, Any]:
    chosen = LoaderPlan(**{"cpus": 16, **plan})
    result: dict[str, Any] = {"factory": "train.py:make", "cpus": chosen.cpus, "jobs": chosen.jobs, "at_s": 1.0}
    sweep(machine, chosen, result)
    return result


@pytest.mark.parametrize(
    ("times", "step_s", "wanted"),
    [
        (GUIDE, None, 8),
        (GUIDE, 0.020, 2),  # a step of 20 ms hides a batch of 18.7 ms
        (GUIDE, 0.010, 4),
        ({0: 0.04, 1: 0.04, 2: 0.02, 4: 0.01}, None, 4),  # one worker loads as fast as none, which is no knee
        ({0: 0.001, 2: 0.002, 4: 0.002}, None, 0),
        ({0: 0.001, 2: 0.002, 4: 0.002}, 0.02, 2),  # a step waits for the loader, if there are no workers
        ({4: 0.01, 8: 0.0097}, None, 4),
        ({3: 0.01}, None, 3),
    ],
)
def test_the_knee_is_the_first_setting_after_which_the_gain_is_under_5_percent(
    times: Mapping[int, float], step_s: float | None, wanted: int
) -> None:
    assert knee(rows(times), step_s) == wanted


def test_what_a_step_waits_is_the_formula_of_the_guide() -> None:
    overlapped, alone = rows({2: 0.045, 0: 0.045})
    assert wait_share(overlapped, 0.020) == pytest.approx(1 - 20 / 45)
    assert wait_share(alone, 0.020) == pytest.approx(45 / 65)
    assert wait_share(overlapped, 0.050) == 0


@pytest.mark.parametrize(("cpus", "counts"), [(64, [0, 2, 4, 8, 12]), (6, [0, 2, 4, 6]), (2, [0, 2]), (1, [0, 1])])
def test_workers_are_as_many_as_there_are_cpus_for(cpus: int, counts: list[int]) -> None:
    assert LoaderPlan(cpus=cpus).counts == counts


def test_the_number_that_the_loader_is_made_with_is_measured_too() -> None:
    machine = Machine({**GUIDE, 3: 0.0125}, workers=3)
    assert [row["num_workers"] for row in measured(machine)["workers"]] == [0, 2, 3, 4, 8, 12]
    assert [row["num_workers"] for row in measured(Machine(GUIDE, workers=3), workers=(4, 0))["workers"]] == [0, 4]


def test_a_setting_that_is_faster_once_is_chance_and_twice_is_advised() -> None:
    once = measured(Machine(GUIDE, {"prefetch_factor=4": [1.5, 1.0]}))
    twice = measured(Machine(GUIDE, {"prefetch_factor=4": [1.5, 1.4]}))
    assert "prefetch_factor" not in line(once, 8)
    assert "prefetch_factor=4" in line(twice, 8)
    assert "40 % faster" in text(page(twice))
    assert line(once, 8) == "DataLoader(dataset, batch_size=64, shuffle=True, num_workers=8, persistent_workers=True)"


@pytest.mark.parametrize(("wait_s", "wanted"), [(0.0005, False), (0.004, True)])
def test_batches_that_come_faster_are_of_use_only_where_the_step_waits_for_them(wait_s: float, wanted: bool) -> None:
    machine = Machine({0: 0.0452, 2: 0.0187}, {"prefetch_factor=4": [1.5, 1.5]}, step=True)
    machine.waits = {2: wait_s}
    result = measured(machine, workers=(2,))
    assert ("prefetch_factor=4" in line(result, 2)) is wanted
    said = " ".join(text(page(result)).split())
    assert "prefetch_factor=4 is 50 % faster, each time it was measured" in said
    assert ("so faster batches gain nothing: prefetch_factor keeps its default, 2" in said) is not wanted


def test_pin_memory_is_measured_only_where_cuda_is_and_advised_unless_it_is_slower() -> None:
    machine = Machine(GUIDE)
    measured(machine)
    assert not any("pin" in title for title in machine.titles)
    assert "pin_memory=True" in line(measured(Machine(GUIDE, cuda=True)), 8)
    slower = measured(Machine(GUIDE, {"pin_memory=True": [0.5]}, cuda=True))
    assert "pin_memory" not in line(slower, 8)


def test_with_a_step_workers_are_added_until_the_training_gains_nothing() -> None:
    machine = Machine(GUIDE, step=True)
    machine.waits = {2: 0.004, 4: 0.0015, 8: 0.0012}  # 2 are enough as computed, if no batch comes late
    result = measured(machine, workers=(0, 2, 4, 8))
    assert (result["step_s"], result["recommended"]) == (0.02, 4)
    assert result["with_step"]["waits"] == pytest.approx(1.5 / 21.5)
    said = " ".join(text(page(result)).split())
    assert "num_workers=4; training then waits for data 7 % of the time" in said
    assert "num_workers=4 is enough: 8 would train less than 5 % faster" in said


def test_one_setting_has_one_wait_for_data() -> None:
    """Measured where loader and step ran together, computed for fewer workers, and none for more."""
    machine = Machine({0: 0.0528, 2: 0.0198, 4: 0.0063, 8: 0.0042}, step=True, cuda=True)
    machine.waits = {2: 0.004, 4: 0.0006}
    result = measured(machine, workers=(0, 2, 4, 8))
    said = text(page(result))
    waits = {
        cells[0]: cells[-2]
        for line in said.splitlines()
        if len(cells := line.replace(" %", "%").replace(" ms", "ms").split()) == 10
    }
    assert {count: waits[count] for count in "0248"} == {"0": "73%", "2": "17%", "4": "3%", "8": "·"}
    assert "DATA WAIT is the share of the training time spent waiting for a batch: measured for num_workers=2, 4" in (
        " ".join(said.split())
    )


def test_a_step_timed_on_a_cpu_is_no_advice_for_a_gpu() -> None:
    said = " ".join(text(page(measured(Machine(GUIDE, step=True)))).split())
    assert "Your loader: num_workers=0, training waits for data 69 % of the time (step timed on the CPU)." in said
    assert "the step was timed on the CPU, as no GPU is visible: repeat where the GPU is before trusting" in said
    assert "- INFO try num_workers=2;" in said
    on_gpu = text(page(measured(Machine(GUIDE, step=True, cuda=True))))
    assert "! WARN  use num_workers=2;" in on_gpu
    assert "the CPU" not in on_gpu


def test_the_present_loader_comes_first() -> None:
    def first(**ready: Any) -> list[str]:
        lines = text(page(measured(Machine({**GUIDE, 3: 0.0125}, **ready), workers=(0, 2, 4, 8)))).splitlines()
        return lines[lines.index("Findings") + 1 :]

    assert first()[:2] == [
        "  Your loader: num_workers=0, 22.1 batches/s.",
        "  - INFO  use num_workers=8; it loads 8.9× as fast",
    ]
    assert first(workers=8)[1] == "  - INFO  keep num_workers=8"
    assert first(workers=3)[0] == "  Your loader: num_workers=3, which was not measured."


def test_ranks_that_share_the_cpus_get_as_many_as_fit() -> None:
    result = measured(Machine(GUIDE), jobs=4)
    assert per_rank(LoaderPlan(cpus=16, jobs=4), 8) == 3
    assert "num_workers=3," in text(page(result))
    assert per_rank(LoaderPlan(cpus=16), 8) == 8


def test_slow_samples_are_named_where_they_are_slow_again() -> None:
    result = measured(Machine(GUIDE))
    assert [one["index"] for one in result["slow_samples"]] == [37]
    said = " ".join(text(page(result)).split())
    assert "dataset[37] takes 300 ms; the median sample takes 2.0 ms" in said
    assert "Shrink, re-encode or cache the slow samples, first dataset[37]" in said
    assert "other workers hide it: with num_workers=8 no timed batch took over 5.1 ms" in said
    result["workers"][3]["slowest_s"] = 0.31
    said = text(page(result))
    assert "no timed batch" not in said
    assert "slow samples delay batches" in said


def test_what_was_measured_is_kept_when_the_rest_fails() -> None:
    machine, result = Machine({0: 0.0452, 2: 0.0187}), {"factory": "train.py:make", "cpus": 16, "jobs": 1}
    with pytest.raises(KeyError):
        sweep(machine, LoaderPlan(cpus=16), result)
    assert [row["num_workers"] for row in result["workers"]] == [0, 2]
    said = text(page({**result, "ended": "num_workers=4: hung"}))
    assert "not complete: num_workers=4: hung" in said
    assert "Create the loader" not in said


def test_a_report(golden: Callable[[str, str], None]) -> None:
    copies = {"copy=True": [0.9, 0.9], "pin_memory=True": [1.08]}
    machine = Machine({0: 0.0528, 2: 0.0121, 4: 0.0063, 8: 0.0042, 12: 0.0041}, copies, workers=0, step=True, cuda=True)
    machine.uneven = True
    golden("loader.txt", text(page(measured(machine))))


def test_percentiles_are_those_of_numpy() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert percentile([1.0, 2.0, 3.0, 4.0, 5.0], 0.9) == pytest.approx(4.6)
    assert percentile([7.0], 0.9) == 7.0


@pytest.mark.parametrize(
    ("spelled", "says"),
    [
        ("train.py", "names no function"),
        ("train:", "names no function"),
        ("no-such.py:make", "there is no file no-such.py"),
        ("a-b:make", "is no module"),
        (":make", "names no function"),
    ],
)
def test_a_factory_that_is_spelled_wrong_is_one_line(spelled: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        factory(spelled)


def test_the_python_is_the_chosen_one_or_ours_if_it_has_torch(tmp_path: Path) -> None:
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "python3").symlink_to(sys.executable)
    assert interpreter(str(tmp_path / "venv"), {}) == str(venv / "python3")  # the link is what makes it one
    assert interpreter(None, {}) == sys.executable
    with pytest.raises(ValueError, match="there is no such program"):
        interpreter("/nowhere/python3", {})


def test_a_program_that_is_no_python_is_one_line(tmp_path: Path) -> None:
    for program, code in (("ls", 2), ("echo", 0)):
        why = rf"is not a Python interpreter \(exit code {code} for .*: name the interpreter of the training"
        with pytest.raises(ValueError, match=why):
            interpreter(program, {"PATH": "/bin:/usr/bin"})
    broken = tmp_path / "python3"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    with pytest.raises(ValueError, match="cannot be started"):
        interpreter(str(broken), {})
    broken.write_text(f'#!/bin/sh\necho activated\nexec {sys.executable} "$@"\n')
    assert interpreter(str(broken), {}) == str(broken)


def test_without_torch_here_it_is_the_first_python3_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputop.lab.factory.find_spec", lambda name: None)
    for name, code in (("a", 1), ("b", 0), ("c", 0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "python3").write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / name / "python3").chmod(0o755)
    path = os.pathsep.join(str(tmp_path / name) for name in "abc")
    assert interpreter(None, {"PATH": path}) == str(tmp_path / "b" / "python3")
    with pytest.raises(ValueError, match="no python3 on PATH has torch"):
        interpreter(None, {"PATH": str(tmp_path / "a")})


@pytest.mark.parametrize("path", sorted(Path(lab.__file__).parent.glob("child_*.py")), ids=lambda path: path.name)
def test_what_runs_in_the_users_python_is_python_3_8_and_needs_no_gputop(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    names = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    beside = {each.stem for each in path.parent.glob("child_*.py")}
    assert {name.split(".")[0] for name in names} <= {*sys.stdlib_module_names, "torch", *beside}


def test_names_beside_a_child_are_not_found_in_place_of_the_users(tmp_path: Path) -> None:
    """The lab has a train.py, and a user has one, too."""
    (tmp_path / "train.py").write_text("import results\ndef make():\n    return results.MADE\n")
    (tmp_path / "results.py").write_text("import sys\nMADE = sys.modules\n")
    script = tmp_path / "child.py"
    folder = str(Path(lab.__file__).parent)
    script.write_text(
        f"import sys\nsys.path.insert(0, {folder!r})\nfrom child_request import make\n"
        "request = dict(file=None, module='train', function='make', args=[])\n"
        "print(make(request)['train'].__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == f"{tmp_path}/train.py\n"


SAYS = r"""
import json, os, signal, sys, time
fd = int(sys.argv[1])
def say(**line):
    os.write(fd, json.dumps(line).encode() + b"\n")
"""


def ask(script: str, timeout_s: float = 30.0) -> dict[str, Any]:
    return child.ask([sys.executable, "-c", SAYS + script], {}, timeout_s, lambda line: None)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("sys.exit(3)", "exited with code 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL: out of memory"),
        ("os.write(fd, b'hello\\n'); time.sleep(60)", "no JSON object"),
        ("say(kind='error', text='DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that '"
         "'dataloader\\'s workers are out of shared memory.')", "/dev/shm has"),
        ("say(kind='error', text='DataLoader worker (pid 7) is killed by signal: Killed. ')", "signal Killed: out of"),
        ("say(kind='error', cause='memory', text='OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
         "GPU 0 has a total capacity of 79.2 GiB')", "^CUDA out of memory: an allocation of 2.00 GiB failed$"),
        ("say(kind='error', cause='memory', where='/lib/torch/autograd/graph.py:979 in _engine_run_backward', text='"
         "RuntimeError: DefaultCPUAllocator: not enough memory: you tried to allocate 614400000 bytes.')",
         "^out of memory: an allocation of 614 MB failed$"),
        ("say(kind='error', text='ValueError: \\x1b[31mred', where='a.py:3 in f')", "ValueError: .*a.py:3 in f"),
    ],
)  # fmt: skip
def test_each_way_to_fail_is_one_line(script: str, says: str) -> None:
    with pytest.raises(child.NotMeasured, match=says) as trouble:
        ask(script)
    assert "\n" not in str(trouble.value)
    assert "\x1b" not in str(trouble.value)


def test_a_line_may_say_that_the_next_one_takes_longer() -> None:
    said = ask("say(kind='ready', patience_s=60); time.sleep(6); say(kind='done', it='came')", 4.0)
    assert said["it"] == "came"
    with pytest.raises(child.NotMeasured, match="hung: no answer for 4 s"):
        ask("say(kind='ready', patience_s='long'); time.sleep(60)", 4.0)


def test_one_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    fork = f"""
pid = os.fork()
if pid:
    open({str(told)!r}, "w").write(str(pid))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(600)
"""
    with pytest.raises(child.NotMeasured, match="hung: no answer for 4 s"):
        ask(fork, 4.0)
    wait_until(lambda: not Path(f"/proc/{told.read_text()}").exists(), 10, "its child is gone")


def test_the_newest_result_is_printed_again_and_nobody_else_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert results.last("loader") is None
    assert not list(tmp_path.iterdir())  # to look makes no folder: --readonly --last writes nothing
    first = Path(results.keep("loader", {"at_s": 1e9, "cpus": 1}))
    results.keep("loader", {"at_s": 1e9, "cpus": 2})
    results.keep("other", {"at_s": 2e9, "cpus": 3})
    assert results.last("loader") == {"at_s": 1e9, "cpus": 2}
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    results.keep("loader", {"at_s": 2.0, "factory": "train.py:make"})
    results.keep("loader", {"at_s": 2.0, "factory": "train.py:other"})
    assert results.last("loader", "train.py:make") == {"at_s": 2.0, "factory": "train.py:make"}
    assert results.last("loader", "train.py:mak") is None
    for number in range(results.KEPT + 5):
        results.keep("loader", {"at_s": 1e9 + 10 + number})
    kept = sorted(tmp_path.glob("gputop/lab/loader-*"))
    assert len(kept) == results.KEPT
    assert first not in kept
    kept[-1].write_text(json.dumps([1])[:-1])
    assert results.last("loader") == {"at_s": 1e9 + 10 + results.KEPT + 3}


def test_the_newest_whole_result_of_a_process_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    whose, command = Identity(41, 7), "gputop loader --from 41"
    assert results.of(whose, command, 2e9) is None
    results.keep("loader", {"at_s": 1e9, "of": [41, 7], "says": "num_workers=2"})
    results.keep("loader", {"at_s": 1e9 + 1, "of": [41, 7], "says": "num_workers=4\x1b[2J"})
    results.keep("loader", {"at_s": 1e9 + 2, "of": [41, 7], "says": ""})  # it was interrupted
    results.keep("loader", {"at_s": 1e9 + 3, "of": [41, 8], "says": "of a later process with its pid"})
    results.keep("lab", {"at_s": 1e9 + 3, "of": [41, 7], "says": "of another experiment"})
    found = results.of(whose, command, 1e9 + 61)
    assert found is not None
    assert "num_workers=4" in found.text
    assert "\x1b" not in found.text
    assert found.age_s == 60


def test_the_workers_of_a_training_that_runs_are_measured_too() -> None:
    assert LoaderPlan(cpus=8, own=5).counts == [0, 2, 4, 5, 8]
    assert LoaderPlan(cpus=8, own=5, workers=(1, 2)).counts == [1, 2]
