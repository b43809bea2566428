"""What is exported of an update: values in base units, nothing for unknown, bounded, and harmless."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.cli.export import MOST_PROCESSES, MOST_SERIES
from gputop.diagnose import Finding, Subject
from gputop.diagnose.state import JobState
from gputop.model import Disk, Frame, GpuShare, Host, Mount, Network, Note, NvLink, Process, Role, Xid
from gputop.monitor import Update
from gputop.prometheus.exposition import CachedExposition, TooLarge
from gputop.prometheus.samples import ExportLimits
from tests.advice_scenes import found, hot, update
from tests.hostile import STRINGS
from tests.scrapes import OPENMETRICS, collected, exported, parsed, values
from tests.scripted_jobs import JUPYTER, LLAMA, SD3, frame
from tests.servers import gpu

SHOWN = update(found(), hot())


def seen(**change: Any) -> Update:
    """An update of a server whose first GPU differs so."""
    shown = SHOWN.frame
    return replace(SHOWN, frame=replace(shown, gpus=(replace(shown.gpus[0], **change), *shown.gpus[1:])))


@pytest.mark.parametrize(
    ("change", "name", "labels", "expected"),
    [
        ({"busy_percent": 58.0}, "gputop_gpu_busy_ratio", {}, [0.58]),
        ({"busy_percent": 0.0}, "gputop_gpu_busy_ratio", {}, [0.0]),
        ({"busy_percent": None}, "gputop_gpu_busy_ratio", {}, []),
        ({"sm_clock_mhz": 1980.0}, "gputop_gpu_sm_clock_hertz", {}, [1.98e9]),
        ({"energy_joules": 12.5}, "gputop_gpu_energy_joules_total", {}, [12.5]),
        ({"remap_failed": True}, "gputop_gpu_remap_failed", {}, [1.0]),
        ({"remap_failed": False}, "gputop_gpu_remap_failed", {}, [0.0]),
        ({"throttle_reasons": None}, "gputop_gpu_throttle_reasons", {}, []),
        ({"throttle_reasons": frozenset()}, "gputop_gpu_throttle_reasons", {"reason": "none"}, [1.0]),
        (
            {"throttle_reasons": frozenset({"power cap", "thermal"})},
            "gputop_gpu_throttle_reasons",
            {"reason": "thermal"},
            [1.0],
        ),
        ({"condition": "ok"}, "gputop_gpu_up", {}, [1.0]),
        ({"condition": "asleep"}, "gputop_gpu_up", {}, [1.0]),
        ({"condition": "lost", "age_s": 47.0}, "gputop_gpu_up", {}, [0.0]),
        ({"condition": "hung"}, "gputop_gpu_up", {}, [0.0]),
        ({"condition": "starting"}, "gputop_gpu_up", {}, [0.0]),
        ({"condition": "hung"}, "gputop_gpu_condition", {"condition": "hung"}, [1.0]),
        ({"name": "H200"}, "gputop_gpu_info", {"name": "H200"}, [1.0]),
        ({"xids": (Xid(number=79, wall_s=5.0), Xid(number=79, wall_s=7.0))}, "gputop_gpu_xid_timestamp_seconds",
         {"xid": "79"}, [7.0]),
        ({"nvlinks": (NvLink(numbers="0-15,17", crc_errors=1), NvLink(numbers="16", crc_errors=5))},
         "gputop_gpu_nvlink_crc_errors_total", {}, [22.0]),
        ({"nvlinks": (NvLink(numbers="0-16", symbol_error_rate=0.0), NvLink(numbers="17", symbol_error_rate=0.5))},
         "gputop_gpu_nvlink_symbol_error_rate", {}, [0.5]),
    ],
)  # fmt: skip
def test_a_value_of_a_gpu(change: dict[str, Any], name: str, labels: dict[str, str], expected: list[float]) -> None:
    assert values(exported(seen(**change)), name, gpu="0", **labels) == expected


def test_f09_a_lost_gpu_keeps_its_last_values_and_their_age_grows() -> None:
    clock = [100.0]
    collector = collected()
    collector._clock = lambda: clock[0]
    collector.take(seen(condition="lost", age_s=47.0, busy_percent=58.0))
    clock[0] += 13.0
    series = parsed(CachedExposition(collector).plain())
    assert values(series, "gputop_gpu_age_seconds", gpu="0") == [60.0]
    assert values(series, "gputop_gpu_busy_ratio", gpu="0") == [0.58]
    assert values(series, "gputop_gpu_up", gpu="0") == [0.0]
    assert values(series, "gputop_gpu_up", gpu="1") == [1.0]
    assert values(series, "gputop_frame_age_seconds") == [13.0]


def test_before_the_first_update_there_is_the_version_only() -> None:
    assert [one.name for one in exported()] == ["gputop_build_info"]


def test_a_job_has_its_state_and_totals() -> None:
    shown = frame(LLAMA, SD3, JUPYTER)
    job = shown.jobs[0]
    state = JobState(key=job.key, name=job.name, state="found", why="slow")
    other = JobState(key="77.1", name="vllm", state="unknown", why="no training", gpus=(shown.gpus[3].uuid,))
    series = exported(Update(frame=shown, jobs=(state, other)))
    of_job = {"job_id": job.key, "job_name": job.name}
    assert values(series, "gputop_job_state", state="found", **of_job) == [1.0]
    assert values(series, "gputop_job_state", job_name="vllm", state="unknown") == [1.0]
    assert values(series, "gputop_jobs", state="found") == [1.0]
    assert values(series, "gputop_jobs", state="healthy") == [0.0]
    held = {share.uuid for process in shown.processes if process.job == job.key for share in process.gpus}
    assert values(series, "gputop_job_gpus", **of_job) == [float(len(held))]
    assert len(values(series, "gputop_gpu_job_info", **of_job)) == len(held)
    assert values(series, "gputop_job_processes", **of_job) == [float(len(job.members))]
    assert values(series, "gputop_job_info", launcher=job.launcher or "", **of_job) == [1.0]
    (mean,) = values(series, "gputop_job_gpu_busy_ratio", **of_job)
    assert mean == pytest.approx(sum((shown.by_uuid[uuid].busy_percent or 0) / 100 for uuid in held) / len(held))


def test_a_finding_is_named_by_what_stays_the_same() -> None:
    series = exported(SHOWN)
    ours = {"rule": "starved-cpu-idle", "severity": "warn", "kind": "job", "subject": "llama-7b", "gpus": "0-3"}
    assert values(series, "gputop_finding", primary="true", job_name="llama-7b", **ours) == [2.0]
    assert values(series, "gputop_finding_lost_ratio", **ours) == [0.42]
    assert values(series, "gputop_finding_age_seconds", **ours) == [372.0]
    assert values(series, "gputop_finding", rule="thermal", severity="crit", subject="GPU 6", kind="gpu") == [3.0]
    (headline,) = [one.labels["headline"] for one in series if one.name == "gputop_finding_headline_info" and
                   one.labels["rule"] == "thermal"]  # fmt: skip
    assert headline == "is slowed by heat"
    assert not [one for one in series if "headline" in one.labels and one.name == "gputop_finding"]


@pytest.mark.parametrize("change", [{"healthy": True}, {"confidence": 0.4}])
def test_what_the_screen_does_not_show_as_trouble_is_no_finding(change: dict[str, Any]) -> None:
    assert values(exported(update(found(**change))), "gputop_finding") == []


def test_two_findings_with_the_same_labels_are_one_series() -> None:
    def full(path: str) -> Finding:
        return Finding(rule="shm-nearly-full", severity="warn", subject=Subject(kind="host"), headline=f"{path} full")

    assert values(exported(update(full("/a"), full("/b"))), "gputop_finding") == [2.0]


def test_names_of_users_are_exported_only_if_asked() -> None:
    shown = frame(LLAMA, JUPYTER)
    names = {process.user for process in shown.processes if process.user} - {"root"}
    assert names
    silent, told = exported(Update(frame=shown)), exported(Update(frame=shown), with_users=True)
    assert not names & {value for one in silent for value in one.labels.values()}
    assert names & {value for one in told for value in one.labels.values()}


def test_no_command_line_and_no_path_of_a_process_is_exported() -> None:
    shown = frame(LLAMA, JUPYTER)
    secret = tuple(
        replace(one, command=("python", "--token=hunter2x", "train.py"), folder="hunter2x", cgroup="/hunter2x")
        for one in shown.processes
    )
    text = CachedExposition(collected(Update(frame=replace(shown, processes=secret)))).plain()
    assert b"hunter2x" not in text


def server_with(count: int, born: int = 0) -> Update:
    """A server whose one GPU is held by so many processes, with pids from `born` on."""
    card = gpu(0)
    holders = tuple(
        Process(pid=1000 + born + n, started_ticks=born, name=f"p{n}", cpu_percent=1.0, age_s=1.0, role=Role.OTHER,
                gpus=(GpuShare(uuid=card.uuid, vram_bytes=n << 20),))
        for n in range(count)
    )  # fmt: skip
    return Update(frame=Frame(wall_s=1.0, mono_s=float(born), hostname="h", host=Host(), gpus=(card,),
                              processes=holders))  # fmt: skip


def test_the_processes_that_hold_most_gpu_memory_are_exported() -> None:
    series = exported(server_with(30), processes=3)
    assert [one.labels["pid"] for one in series if one.name == "gputop_process_info"] == ["1029", "1028", "1027"]
    (dropped,) = values(series, "gputop_dropped_series", of="process")
    assert dropped == 27 * len([one for one in series if one.labels.get("pid") == "1029"])


def test_f11_processes_that_live_a_moment_leave_nothing_behind() -> None:
    """Two thousand new ones on the GPU in every sample: as many series at the end as at the start, all alive."""
    collector = collected()
    counts = set()
    for generation in range(30):
        collector.take(server_with(2000, born=10_000 * generation))
        series = parsed(CachedExposition(collector).plain())
        counts.add(len(series))
        pids = {int(one.labels["pid"]) for one in series if one.labels.get("pid")}
        assert len(pids) == MOST_PROCESSES
        assert min(pids) >= 1000 + 10_000 * generation
    assert len(counts) == 1
    assert max(counts) < MOST_SERIES


@pytest.mark.parametrize("most", [0, 10, 100, 300])
def test_there_are_never_more_series_than_the_limit_and_what_is_left_out_is_counted(most: int) -> None:
    whole, some = exported(SHOWN), exported(SHOWN, series=most)
    own = [one for one in whole if one.name.startswith(("gputop_build", "gputop_frame", "gputop_own", "gputop_dropped",
                                                        "gputop_observed", "gputop_note"))]  # fmt: skip
    assert len(some) - len(own) <= most
    dropped = sum(values(some, "gputop_dropped_series")) - sum(values(whole, "gputop_dropped_series"))
    assert dropped == len(whole) - len(some)
    assert {(one.name, tuple(one.labels.items())) for one in some} <= {
        (one.name, tuple(one.labels.items())) for one in whole
    }


def test_the_limits_of_the_command_line_are_the_defaults() -> None:
    assert (ExportLimits().series, ExportLimits().processes) == (MOST_SERIES, MOST_PROCESSES)


@pytest.mark.parametrize("accept", ["", OPENMETRICS, "text/plain; version=1.0.0; escaping=allow-utf-8"])
@pytest.mark.parametrize("text", STRINGS, ids=range(len(STRINGS)))
def test_f10_a_hostile_name_is_a_label_like_any_other(text: str, accept: str) -> None:
    """As `clean` leaves it: without what a terminal or a format interprets. Both parsers read it back."""
    card = gpu(0, name=text, index=text)
    holder = Process(pid=7, started_ticks=1, name=text, user=text, job="j", gpus=(GpuShare(uuid=card.uuid),))
    hostile = Frame(
        wall_s=1.0, mono_s=1.0, hostname=text, gpus=(card,), processes=(holder,),
        host=Host(
            kernel=text, disks=(Disk(name=text, reads_per_s=1.0),), networks=(Network(name=text, up=True),),
            mounts=(Mount(path=text, device=text, file_system=text, free_bytes=1),),
        ),
        notes=(Note(subject="driver", key=text, text=text),),
    )  # fmt: skip
    subject = Subject(kind="process", processes=(holder.identity,), name=text)
    finding = Finding(rule="thermal", severity="warn", subject=subject, headline=text, primary=True, lost_share=0.5)
    state = JobState(key="j", name=text, user=text, state="found", why=text)
    made = Update(frame=hostile, findings=(finding,), jobs=(state,))
    rendered, content_type = CachedExposition(collected(made, with_users=True)).text(accept)
    shown = rendered.decode().replace("\n", "")
    assert shown.isprintable()
    series = parsed(rendered, content_type)
    assert values(series, "gputop_gpu_up", uuid=card.uuid) == [1.0]
    assert values(series, "gputop_finding", rule="thermal") == [2.0]
    assert max(len(value) for one in series for value in one.labels.values()) <= 120
    assert len(series) == len(exported(made, with_users=True))


def test_equal_devices_are_one_series() -> None:
    """As of a recording made by anybody, and of mounts over each other: twice the same is no valid text."""
    host = Host(mounts=(Mount(path="/a", device="x", file_system="nfs", free_bytes=1),) * 2,
                disks=(Disk(name="sda", reads_per_s=1.0), Disk(name="sda", reads_per_s=2.0)))  # fmt: skip
    series = exported(Update(frame=Frame(wall_s=1.0, mono_s=1.0, hostname="h", host=host, gpus=(gpu(0), gpu(0)))))
    assert values(series, "gputop_disk_reads_per_second") == [1.0]
    assert values(series, "gputop_mount_free_bytes") == [1.0]
    assert values(series, "gputop_gpu_up") == [1.0]


def test_scrapes_within_a_second_share_one_text_and_later_ones_do_not() -> None:
    clock = [0.0]
    collector = collected(SHOWN)
    collector._clock = lambda: clock[0]
    exposition = CachedExposition(collector, clock=lambda: clock[0])
    first, _ = exposition.text("")
    clock[0] += 0.5
    assert exposition.text("")[0] is first
    clock[0] += 1.0
    assert exposition.text("")[0] is not first
    again, _ = exposition.text("")
    collector.take(SHOWN)
    collector.take(replace(SHOWN))
    assert exposition.text("")[0] is not again


def test_an_answer_is_not_longer_than_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputop.prometheus.exposition.MOST_BYTES", 1000)
    with pytest.raises(TooLarge):
        CachedExposition(collected(SHOWN)).text("")
