"""Trainers of somebody else: what everybody may see is judged by, what is hidden is an abstention with its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose import Finding
from gputop.diagnose.engine import Verdict
from gputop.model import Disk, Frame, Missing, Mount
from tests.diagnose.test_rules_feed import asleep, changed, saturated
from tests.diagnose.test_rules_ranks import IDLE_PORT, LOW, link
from tests.diagnose.test_rules_storage import FUSE, NFS, QUIET, calm, machine
from tests.diagnose.test_rules_usage import pair
from tests.rank_teams import team
from tests.rule_cases import Machine, after, found, refused, silent

IO = ("read_bytes_per_s", "read_chars_per_s", "read_calls_per_s", "write_bytes_per_s", "write_chars_per_s")
RESTS = replace(QUIET, read_bytes_per_s=1e6, busy_percent=1.0)


def told(finding: Finding | None) -> bool:
    """Whether it is on the screen: what is less sure is not."""
    return finding is not None and finding.confidence >= 0.5


@pytest.mark.parametrize(
    ("read", "received", "fires"), [(19e6, 1e6, True), (21e6, 1e6, False), (None, 1e6, False), (19e6, None, False)]
)
def test_what_the_whole_machine_does_not_read_nobody_on_it_reads(
    read: float | None, received: float | None, fires: bool
) -> None:
    host = {"read_bytes_per_s": read, "receive_bytes_per_s": received}
    said = asleep(trainer=refused(*IO), loader=refused(*IO), host=host).verdict(90)
    assert told(found(said, "head-of-line")) == fires


@pytest.mark.parametrize(
    ("read", "mounts", "fires"),
    [(1e6, (NFS,), True), (21e6, (NFS,), False), (1e6, (FUSE,), False), (None, (), False)],
)
def test_what_no_disk_and_no_server_gave_came_from_memory(
    read: float | None, mounts: tuple[Mount, ...], fires: bool
) -> None:
    host = {"read_bytes_per_s": read, "receive_bytes_per_s": 1e6, "mounts": mounts}
    said = asleep(loader={"read_chars_per_s": 20e6}, host=host).verdict(90)
    assert (found(said, "head-of-line") is not None) == fires


def reader(disk: Disk, mount: Mount = NFS, **loader: Any) -> Verdict:
    """Loaders that wait, beside a disk and a file server; nobody sees who reads."""
    host = {**calm(65.0, disk), "read_bytes_per_s": 118e6, "receive_bytes_per_s": 118e6, "mounts": (mount,)}
    return machine(host=host, loader=refused(*IO) | loader, trainer=refused(*IO)).verdict(150)


def test_who_is_blocked_while_every_disk_rests_waits_for_the_slow_file_server() -> None:
    said = reader(RESTS)
    finding = found(said, "network-fs-bound")
    assert finding is not None
    assert finding.headline == "I/O-bound, /data (nfs4)"
    assert finding.confidence == pytest.approx(0.6)
    assert found(said, "io-bound") is None


@pytest.mark.parametrize(
    ("disk", "mount"),
    [
        (replace(RESTS, busy_percent=60.0), NFS),
        (replace(RESTS, read_bytes_per_s=100e6), NFS),
        (replace(RESTS, busy_percent=None), NFS),
        (RESTS, replace(NFS, read_rtt_s=0.003)),  # the server is quick
        (RESTS, FUSE),
    ],
)
def test_storage_that_may_be_either_is_not_named(disk: Disk, mount: Mount) -> None:
    said = reader(disk, mount)
    assert found(said, "io-bound") is None
    assert found(said, "network-fs-bound") is None
    assert silent(said, "io-bound") is not None
    finding = found(said, "starved-cause-unknown")
    assert finding is not None
    assert "check skipped: io-bound, bytes read by system calls not readable" in [
        item.text for item in finding.evidence
    ]


def test_a_disk_at_its_limit_is_named_all_the_same() -> None:
    assert found(reader(replace(RESTS, busy_percent=99.0)), "io-bound") is not None


def test_nobody_says_that_no_cause_shows_where_one_is_hidden() -> None:
    trainer = {"cpu_percent": 60.0, "main_thread_percent": 60.0, **refused(*IO)}
    hidden = Machine(gpu={"busy_percent": 60.0}, trainer=trainer).verdict(150)
    finding = found(hidden, "starved-cause-unknown")
    assert finding is not None
    assert finding.headline == "GPU starved, cause may be hidden from this user"
    assert finding.evidence[1].text == "check skipped: sync-log-stall, bytes read by system calls not readable"
    assert finding.steps[0].text.startswith("Run gputop as its user or as root")
    shown = {name: value for name, value in trainer.items() if name not in (*IO, "missing")}
    finding = found(Machine(gpu={"busy_percent": 60.0}, trainer=shown).verdict(150), "starved-cause-unknown")
    assert finding is not None
    assert not [item for item in finding.evidence if item.text.startswith("check skipped")]
    assert finding.headline == "GPU starved, cause unknown"


@pytest.mark.parametrize(
    ("libraries", "cpu", "sure", "pools"),
    [((), 185.0, 0.72, True), (("torch", "mkl"), 185.0, 0.9, True), ((), 98.0, 0.9, False)],
)
def test_threads_of_a_hidden_library_make_a_full_cpu_less_sure(
    libraries: tuple[str, ...], cpu: float, sure: float, pools: bool
) -> None:
    dials = {"libraries": libraries}
    one = changed(saturated(), {"loader": dials | {"cpu_percent": cpu}, "trainer": dials})
    one.loaders = 8 if cpu > 100 else 16
    finding = found(one.verdict(), "starved-cpu-saturated")
    assert finding is not None
    assert finding.confidence == pytest.approx(sure)
    assert ("OPENBLAS_NUM_THREADS=1" in (finding.steps[0].command or "")) == pools


def test_an_idle_port_beside_tcp_is_not_judged_where_the_number_of_ranks_is_hidden() -> None:
    host = {"networks": (link(0.3, 0.3), IDLE_PORT)}
    assert silent(after(team(lambda _: LOW, ranks=2, world=None, host=host), 40), "network-bound") is not None
    assert silent(after(team(lambda _: LOW, ranks=2, world=None), 40), "network-bound") is None


@pytest.mark.parametrize(("held", "denied", "abstains"), [(1, True, True), (2, True, False), (1, False, False)])
def test_which_gpus_a_job_was_given_is_hidden_where_some_have_no_tenant(
    held: int, denied: bool, abstains: bool
) -> None:
    hidden = (Missing(metric="visible_gpus", reason="denied", unlock="sudo gputop"),) if denied else ()
    both = pair(busy=50.0, missing=hidden)

    def frame(t: float) -> Frame:
        one = both(t)
        trainer = replace(one.processes[0], gpus=one.processes[0].gpus[:held])
        return replace(one, processes=(trainer,))

    one = silent(after(frame, 30, 1), "gpu-unused-in-job")
    assert (one is not None) == abstains
    assert one is None or one.unlock == "sudo gputop"
