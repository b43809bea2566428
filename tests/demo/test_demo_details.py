"""The details of simulated processes: the same numbers as in the frame, plausible, and hidden from who may not see."""

from __future__ import annotations

from itertools import islice
from threading import Event

import pytest

from gputop.demo import SCENARIOS, Demo
from gputop.demo.scenarios.parts import ONSET_S
from gputop.model import PARTS, Detail, Frame, Identity, Missing, Process, Role
from gputop.source import OTHERS_ENVIRONMENT, DetailWish

NAMES = sorted(SCENARIOS)


def opened(name: str) -> tuple[Demo, Frame]:
    """A demo at its first frame."""
    demo = Demo(SCENARIOS[name], pace=False, anchor_s=1_795_185_127.0)
    return demo, next(iter(demo.frames(Event())))


def details(demo: Demo, process: Process, wish: DetailWish | None = None) -> Detail:
    detail = demo.inspect(process.identity, wish or DetailWish(others_environment=True))
    assert isinstance(detail, Detail)
    return detail


def seen_by(demo: Demo, process: Process) -> bool:
    viewer = demo.scenario.server.viewer
    return viewer is None or viewer == process.uid


@pytest.mark.parametrize("name", NAMES)
def test_threads_do_together_what_the_process_does(name: str) -> None:
    demo, frame = opened(name)
    for process in frame.processes:
        detail = details(demo, process)
        threads = detail.threads or ()
        assert len(threads) == detail.threads_count == (process.threads or 1)
        assert len({thread.tid for thread in threads}) == len(threads)
        assert threads[0].tid == process.pid
        assert threads[0].state == process.state
        assert sum(thread.cpu_percent or 0.0 for thread in threads) == pytest.approx(process.cpu_percent)
        assert {thread.name for thread in threads} >= {named for named, count in process.thread_names if count}


@pytest.mark.parametrize("name", NAMES)
def test_times_and_bytes_only_grow_and_by_what_the_frame_says_is_used(name: str) -> None:
    demo = Demo(SCENARIOS[name], pace=False, at_s=ONSET_S - 3)
    before: dict[tuple[Identity, int], float] = {}
    read: dict[Identity, int] = {}
    for second, frame in enumerate(islice(demo.frames(Event()), 7)):
        for process in frame.processes:
            detail = details(demo, process, DetailWish(parts=("threads", "io"), others_environment=True))
            threads = detail.threads or ()
            assert sum(one.cpu_time_s or 0.0 for one in threads) == pytest.approx(process.cpu_time_s or 0.0)
            for one in threads:
                last_s = before.get((process.identity, one.tid))
                now_s = before[process.identity, one.tid] = one.cpu_time_s or 0.0
                if last_s is None:
                    continue
                assert now_s >= last_s
                # in the second in which its work changes it did what it did before, and who only starts did nothing
                if process.job and second != 3 and (process.age_s or 0.0) > 1:
                    assert now_s - last_s == pytest.approx((one.cpu_percent or 0.0) / 100, abs=1e-6)
            if detail.io:
                assert (detail.io.read_chars_bytes or 0) >= read.get(process.identity, 0)
                read[process.identity] = detail.io.read_chars_bytes or 0


@pytest.mark.parametrize("name", NAMES)
def test_there_are_as_many_files_as_the_table_counts(name: str) -> None:
    demo, frame = opened(name)
    for process in frame.processes:
        if seen_by(demo, process):
            detail = details(demo, process)
            fds = [file.fd for file in detail.files or ()]
            assert len(fds) == detail.files_count == process.open_files
            assert fds == sorted(set(fds))
            used = {limit.name: limit.used for limit in detail.limits or ()}
            assert used["open files"] == process.open_files


@pytest.mark.parametrize("name", NAMES)
def test_who_may_see_sees_every_part_and_who_may_not_is_told(name: str) -> None:
    demo, frame = opened(name)
    for process in frame.processes:
        detail = details(demo, process)
        unknown = {part for part in PARTS if getattr(detail, part) is None}
        if seen_by(demo, process):
            assert (unknown, detail.missing) == (set(), ())
        else:
            assert unknown == {"files", "io", "environment"}
            assert unknown <= {one.metric for one in detail.missing if one.unlock == "sudo gputop"}
            assert not any(thread.blocked_on for thread in detail.threads or ())


@pytest.mark.parametrize("name", NAMES)
def test_loaders_read_a_file_of_the_jobs_data_at_the_pace_of_the_frame(name: str) -> None:
    demo, frame = opened(name)
    data = {job.key: job.data for job in demo.scenario.server.jobs}
    for process in frame.processes:
        if process.role is Role.TRAINER and seen_by(demo, process):
            loaders = {one.identity: one for one in frame.processes if one.parent_pid == process.pid}
            children = details(demo, process).children or ()
            assert [child.identity for child in children] == sorted(loaders)
            for child in children:
                assert child.file is not None
                assert child.file == details(demo, loaders[child.identity]).file_now
                assert child.file.path.startswith(f"{data[process.job or '']}/")
                assert child.file.moved_bytes_per_s == loaders[child.identity].read_chars_per_s
                assert 0 <= (child.file.position_bytes or 0) < (child.file.size_bytes or 0)


def test_a_rank_has_the_environment_its_launcher_gave_it_and_no_secret() -> None:
    demo, frame = opened("showcase")
    rank = next(one for one in frame.processes if one.role is Role.TRAINER and one.rank == 1 and seen_by(demo, one))
    variables = {one.name: one for one in details(demo, rank).environment or ()}
    assert (variables["RANK"].value, variables["WORLD_SIZE"].value) == ("1", str(rank.world_size))
    assert [name for name, one in variables.items() if one.secret] == ["HF_TOKEN", "WANDB_API_KEY"]
    assert {variables[name].value for name in ("HF_TOKEN", "WANDB_API_KEY")} == {"***"}
    wish = DetailWish(revealed=frozenset({"HF_TOKEN"}), others_environment=True)
    shown = {one.name: one for one in details(demo, rank, wish).environment or ()}
    assert shown["HF_TOKEN"].revealed
    assert "simulated" in shown["HF_TOKEN"].value
    assert shown["WANDB_API_KEY"] == variables["WANDB_API_KEY"]


def test_root_of_a_demo_needs_the_key_for_the_environment_of_others() -> None:
    demo, frame = next(pair for pair in map(opened, NAMES) if pair[0].scenario.server.viewer is None)
    rank = next(one for one in frame.processes if one.role is Role.TRAINER)
    detail = details(demo, rank, DetailWish())
    assert detail.environment is None
    assert detail.missing == (OTHERS_ENVIRONMENT,)


def test_only_the_parts_that_are_wanted_are_there() -> None:
    demo, frame = opened("showcase")
    rank = next(one for one in frame.processes if one.role is Role.TRAINER and seen_by(demo, one))
    detail = details(demo, rank, DetailWish(parts=("threads", "limits")))
    assert {part for part in PARTS if getattr(detail, part) is not None} == {"threads", "limits"}


def test_before_the_first_frame_and_after_its_end_there_is_nothing() -> None:
    demo = Demo(SCENARIOS["showcase"], pace=False)
    assert demo.inspect(Identity(1, 1)) == Missing(metric="details", reason="stale")
    next(iter(demo.frames(Event())))
    assert demo.inspect(Identity(1, 1)) == Missing(metric="details", reason="lost")
