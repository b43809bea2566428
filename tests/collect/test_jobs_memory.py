"""Jobs that are remembered are those that would be told anew, whatever changes meanwhile."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gputop.collect.jobs import groups
from gputop.collect.jobs.groups import Jobs, jobs
from gputop.model import GpuShare, Process

INIT = Process(pid=1, started_ticks=1, name="init", command=("init",))


def process(pid: int, parent: int, name: str, *command: str, **rest: object) -> Process:
    return Process(pid=pid, started_ticks=pid, parent_pid=parent, name=name, command=command, **rest)  # type: ignore[arg-type]


SHELL = process(10, 1, "bash", "bash")
TRAINER = process(20, 10, "python", "python", "train.py", gpus=(GpuShare(uuid="G0", busy_percent=50.0),))
LOADERS = tuple(process(30 + n, 20, "pt_data_worker", "python", "train.py") for n in range(3))
SLEEPERS = tuple(process(50 + n, 1, "sleep", "sleep", "60") for n in range(5))
CAST = (INIT, SHELL, TRAINER, *LOADERS, *SLEEPERS)


def test_what_changes_every_second_is_not_told_anew(monkeypatch) -> None:
    told = []
    monkeypatch.setattr(groups, "jobs", lambda *args: told.append(args) or jobs(*args))
    remembers = Jobs()
    for second in range(5):
        busy = replace(TRAINER, cpu_percent=90.0 + second, gpus=(GpuShare(uuid="G0", busy_percent=float(second)),))
        newcomer = process(100 + second, 1, "cron", "cron")
        now = (INIT, SHELL, busy, *LOADERS, *SLEEPERS[second:], newcomer)
        placed, found = remembers.of(now, ("G0",))
        assert (placed, found) == jobs(now, ("G0",))
        assert placed[2].job
    assert len(told) == 1


def test_an_unchanged_process_stays_the_same_object() -> None:
    remembers = Jobs()
    first, _ = remembers.of(CAST, ("G0",))
    second, _ = remembers.of((*CAST[:2], replace(TRAINER, cpu_percent=5.0), *CAST[3:]), ("G0",))
    assert [one is other for one, other in zip(first, second, strict=True)].count(False) == 1


def test_a_step_of_one_that_was_no_trainer_is_told_at_once() -> None:
    remembers, steps = Jobs(), frozenset({SLEEPERS[0].identity})
    assert remembers.of(CAST, ("G0",)) == jobs(CAST, ("G0",))
    assert remembers.of(CAST, ("G0",), steps) == jobs(CAST, ("G0",), steps) != jobs(CAST, ("G0",))


CHANGES = st.one_of(
    st.tuples(st.just("gone"), st.integers(1, len(CAST) - 1)),
    st.tuples(st.just("back"), st.integers(1, len(CAST) - 1)),
    st.tuples(st.just("exec"), st.integers(1, len(CAST) - 1)),
    st.tuples(st.just("orphan"), st.integers(1, len(CAST) - 1)),
    st.tuples(st.just("gpu"), st.integers(1, len(CAST) - 1)),
    st.tuples(st.just("reused"), st.integers(1, len(CAST) - 1)),
    st.tuples(st.just("torch"), st.integers(1, len(CAST) - 1)),
    st.tuples(st.just("loader"), st.integers(1, len(CAST) - 1)),
)


@settings(max_examples=200)
@given(st.lists(CHANGES, max_size=12))
@example([("gone", 1), ("exec", 1)])  # an ancestor that is seen only later
def test_it_never_differs_from_telling_anew(changes: list[tuple[str, int]]) -> None:
    remembers, now = Jobs(), dict(enumerate(CAST))
    for what, place in [("", 0), *changes]:
        one = now.get(place, CAST[place])
        if what == "gone":
            now.pop(place, None)
        elif what == "back":
            now[place] = CAST[place]
        elif what == "exec":
            now[place] = replace(one, name="python", command=("torchrun", "train.py"))
        elif what == "orphan":
            now[place] = replace(one, parent_pid=1)
        elif what == "gpu":
            now[place] = replace(one, gpus=(GpuShare(uuid="G1"),))
        elif what == "reused":
            now[place] = replace(one, started_ticks=one.started_ticks + 1000)
        elif what == "torch":
            now[place] = replace(one, name="python", command=("python", "a.py"), libraries=("torch",), cpu_percent=99.0)
        elif what == "loader":
            now[place] = replace(one, name="pt_data_worker", parent_pid=50)
        processes = tuple(now.values())
        assert remembers.of(processes, ("G0", "G1")) == jobs(processes, ("G0", "G1"))
