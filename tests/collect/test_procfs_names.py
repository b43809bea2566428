"""The names lane: what is asked once, what hangs for ever, who is nobody; environments, libraries, control groups."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.collect.jobs.groups import jobs
from gputop.collect.proc import metadata
from gputop.collect.proc.cgroup import place
from gputop.collect.proc.metadata_lane import MOST_STUCK, MetadataRequest
from gputop.model import Identity, Missing, Role
from tests import hostile
from tests.fakeproc import FakeProc, named, proc, until

__all__ = ["proc"]

IDS = "0123456789abcdef" * 4


def test_what_a_process_says_of_itself(proc: FakeProc) -> None:
    proc.add(42)
    proc.more(42)
    proc.write("42/smaps_rollup", "")
    proc.write("42/cmdline", b"python\0train.py\0--lr\0003\0")
    proc.write("42/environ", b"PATH=/bin\0RANK=3\0LOCAL_RANK=1\0WORLD_SIZE=8\0OMP_NUM_THREADS=4\0"
               b"CUDA_VISIBLE_DEVICES=1\0SLURM_JOB_ID=77\0SLURM_JOB_NAME=gpt\0HF_TOKEN=hf_secret\0")  # fmt: skip
    proc.write("42/maps", "7f0-7f1 r-xp 0 8:1 9 /env/torch/lib/libtorch_cpu.so\n7f2-7f3 r-xp 0 0 9 /lib/libcuda.so.1\n")
    proc.write("42/cgroup", f"0::/system.slice/docker-{IDS}.scope\n")
    (proc.proc / "42/cwd").symlink_to("/data/alice/llama-7b (deleted)")
    os.chown(proc.proc / "42", 1000, 1000)
    process = named(proc, 42, lambda process: process.libraries and process.user == "alice", 42)
    assert process.command == ("python", "train.py", "--lr", "3")
    assert (process.rank, process.local_rank, process.world_size, process.omp_threads) == (3, 1, 8, 4)
    assert (process.visible_gpus, process.slurm_job, process.slurm_name) == ("1", "77", "gpt")
    assert (process.libraries, process.folder, process.container) == (("torch", "cuda"), "llama-7b", IDS[:12])
    assert process.missing == ()
    assert "secret" not in repr(process)


@pytest.mark.parametrize(
    ("mapped", "framework"),
    [
        ("/env/site-packages/tensorflow/libtensorflow_cc.so.2", "tensorflow"),
        ("/env/site-packages/tensorflow/python/_pywrap_tensorflow_internal.so", "tensorflow"),
        ("/env/site-packages/jaxlib/xla_extension.so", "jax"),
        ("/env/site-packages/torch/lib/libtorch_cpu.so", "torch"),
    ],
)
def test_who_computes_with_a_framework_trains_and_its_threads_are_read(
    proc: FakeProc, mapped: str, framework: str
) -> None:
    proc.add(42)
    proc.thread(42, 42, "python", run=1)
    proc.more(42)
    proc.write("42/cmdline", b"python\0main.py\0")
    proc.write("42/maps", f"7f0-7f1 r-xp 0 8:1 9 {mapped}\n")
    process = named(proc, 42, lambda process: process.libraries and process.busy_threads is not None, 42)
    assert process.libraries == (framework,)
    (process,), (job,) = jobs([replace(process, cpu_percent=90.0)], {})
    assert (process.role, job.ranks) == (Role.TRAINER, (process.identity,))


def test_with_every_process_on_screen_sleepers_have_a_command_line_too(proc: FakeProc) -> None:
    proc.add(42, "bash")
    proc.write("42/cmdline", b"-bash\0")
    proc.write("42/environ", b"RANK=3\0")
    for _ in range(12):
        assert proc.process(42).command == ()
    process = named(proc, 42, lambda process: process.command, every=True)
    assert (process.command, process.rank) == (("-bash",), None)


def test_who_runs_another_program_is_asked_again(proc: FakeProc) -> None:
    proc.add(42, "bash")
    proc.more(42)
    proc.write("42/cmdline", b"bash\0-c\0exec python t.py\0")
    named(proc, 42, lambda process: process.command[:1] == ("bash",), 42)
    proc.add(42, "python", user=1)
    proc.write("42/cmdline", b"python\0t.py\0")
    named(proc, 42, lambda process: process.command == ("python", "t.py"), 42)


def test_who_was_asked_between_fork_and_exec_is_asked_again(proc: FakeProc) -> None:
    proc.add(42)
    proc.more(42)
    proc.write("42/cmdline", b"python\0launcher.py\0")
    named(proc, 42, lambda process: process.command == ("python", "launcher.py"), 42)
    proc.write("42/cmdline", b"python\0t.py\0")
    proc.look(42, after_s=5.0)
    named(proc, 42, lambda process: process.command == ("python", "t.py"), 42)


def test_p03_command_lines_of_any_shape() -> None:
    assert metadata.command(b"a\0b\0") == ("a", "b")
    assert metadata.command(b"") == metadata.command(b"\0\0\0") == ()
    assert metadata.command(b"   \0") == ("   ",)
    assert metadata.command(b"postgres: writer" + b"\0" * 200) == ("postgres: writer",)
    long = metadata.command(b"python\0" + b"x" * (128 * 1024))
    assert len(long[1]) == 4096
    assert long[1].endswith("…")
    assert len(metadata.command(b"x\0" * 100_000)) <= metadata.MOST_ARGUMENTS + 1


@pytest.mark.parametrize("argv", hostile.ARGVS, ids=lambda argv: repr(argv)[:40])
def test_p02_arguments_are_clean(argv: tuple[bytes, ...]) -> None:
    command = metadata.command(b"\0".join(argv) + b"\0")
    assert all(word.isprintable() for word in command)


def test_p04_a_zombie_is_not_asked(proc: FakeProc) -> None:
    proc.add(42, state="Z")
    os.mkfifo(proc.proc / "42/cmdline")
    proc.add(43)
    proc.more(43)
    proc.write("43/cmdline", b"next\0")
    named(proc, 43, lambda process: process.command == ("next",), 42, 43)


def test_p08_a_command_line_that_never_comes(proc: FakeProc) -> None:
    before = set(threading.enumerate())  # not their numbers, which the next thread may get
    for pid in (42, 43):
        proc.add(pid)
        proc.more(pid)
    os.mkfifo(proc.proc / "42/cmdline")
    proc.look(42)
    stuck = proc.names._active
    until(lambda: stuck.ask is not None)
    proc.write("43/cmdline", b"healthy\0")
    proc.look(42, 43, after_s=3.0)  # longer than a read may take: a substitute is started
    process = named(proc, 42, lambda process: process.missing, 42, 43)
    assert (process.name, process.command) == ("python", ())
    assert Missing(metric="command", reason="lost") in process.missing
    named(proc, 43, lambda process: process.command == ("healthy",), 42, 43)
    for _ in range(5):
        proc.look(42, 43, after_s=3.0)
    fresh = [thread for thread in threading.enumerate() if thread not in before and thread.name == "names"]
    assert len(fresh) == 1, "one substitute, never another"
    with open(proc.proc / "42/cmdline", "wb") as pipe:  # it answers after all
        pipe.write(b"late\0")
    process = named(proc, 42, lambda process: process.command, 42, 43)
    assert process.command == ("late",)
    assert Missing(metric="command", reason="lost") not in process.missing


def test_p08_ranks_that_hang_together_do_not_stop_the_names(proc: FakeProc) -> None:
    ranks = range(42, 46)
    for pid in ranks:
        proc.add(pid)
        proc.more(pid)
        os.mkfifo(proc.proc / f"{pid}/cmdline")
    proc.look(*ranks)
    for pid in ranks:
        until(lambda pid=pid: (ask := proc.names._active.ask) is not None and ask.subject.pid in ranks)
        proc.look(*ranks, after_s=3.0)
    proc.add(50)
    proc.more(50)
    proc.write("50/cmdline", b"healthy\0")
    assert named(proc, 50, lambda process: process.command, *ranks, 50).command == ("healthy",)
    assert [place for place, _ in proc.names.hangs()] == [f"{proc.proc}/{pid}/cmdline" for pid in ranks]
    for pid in ranks:
        with open(proc.proc / f"{pid}/cmdline", "wb") as pipe:
            pipe.write(b"late\0")
    named(proc, 45, lambda process: process.command == ("late",), *ranks)
    until(lambda: not proc.names.hangs())


def test_p08_what_was_measured_is_unknown_once_its_file_hangs(proc: FakeProc) -> None:
    proc.add(42)
    proc.more(42)
    proc.write("42/cmdline", b"train\0")
    proc.write("42/smaps_rollup", "Rss: 9 kB\nPss:    4 kB\n")
    named(proc, 42, lambda process: process.pss_bytes == 4096, 42, sight=42)
    (proc.proc / "42/smaps_rollup").unlink()
    os.mkfifo(proc.proc / "42/smaps_rollup")
    until(lambda: bool(proc.look(42, after_s=40.0, sight=42)) and bool(proc.names.hangs()))
    process = named(proc, 42, lambda process: process.pss_bytes is None, 42, sight=42)
    assert Missing(metric="pss_bytes", reason="lost") in process.missing
    assert process.command == ("train",)
    with open(proc.proc / "42/smaps_rollup", "wb") as pipe:
        pipe.write(b"Rss: 9 kB\nPss:    8 kB\n")
    named(proc, 42, lambda process: process.pss_bytes == 8192, 42, sight=42)


def test_p08_when_too_many_hang_the_names_stop_and_nothing_else(proc: FakeProc) -> None:
    pids = tuple(range(42, 43 + MOST_STUCK))
    for pid in pids:
        proc.add(pid)
        proc.more(pid)
        os.mkfifo(proc.proc / f"{pid}/cmdline")
    for _ in range(2 * MOST_STUCK):
        table = proc.look(*pids, after_s=3.0)
        until(lambda: proc.names._active.ask is not None)
    assert {process.pid: process.cpu_percent for process in table.processes} == dict.fromkeys((1, *pids), 0.0) | {
        1: table.processes[0].cpu_percent
    }
    for pid in pids:
        os.unlink(proc.proc / f"{pid}/cmdline")


def test_p13_a_user_without_a_name_is_a_number_and_is_asked_once(proc: FakeProc) -> None:
    proc.add(42)
    os.chown(proc.proc / "42", 12345, 12345)
    until(lambda: 12345 in proc.asked or not proc.look())
    for _ in range(5):
        assert proc.process(42).user == "12345"
    assert proc.asked.count(12345) == 1


def test_p13_local_users_have_a_name_at_the_first_look(tmp_path: Path) -> None:
    (tmp_path / "passwd").write_bytes(b"root:x:0:0::/:\n\x1b[2J:x:7:7::/:\nnonsense\nbob:x:0:0::/:\n::\n+::::\n")
    proc = FakeProc(tmp_path)
    proc.add(42)
    os.chown(proc.proc / "42", 7, 7)
    assert [process.user for process in proc.look().processes] == ["root", "␛[2J"]
    assert proc.asked == []


def test_p13_a_directory_that_hangs_blocks_nobody(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    let_go = threading.Event()

    def hang(uid: int) -> str | None:
        let_go.wait(60)
        return "late"

    proc.names._find_user = hang
    proc.names.start()
    proc.add(42)
    proc.more(42)
    proc.write("42/cmdline", b"python\0")
    proc.look(42)
    until(lambda: proc.names._active.ask is not None)
    proc.look(42, after_s=3.0)
    process = named(proc, 42, lambda process: process.command == ("python",), 42)
    assert process.user == "0"
    let_go.set()
    named(proc, 42, lambda process: process.user == "late", 42)
    proc.names.stop()


def test_p06_an_answer_for_another_process_with_the_same_pid_is_dropped(proc: FakeProc) -> None:
    proc.add(42, started=1)
    proc.write("42/cmdline", b"new\0")
    old = Identity(42, 500_000)
    proc.names.want([MetadataRequest(old, "python")])
    proc.names.want([MetadataRequest(Identity(1, 1), "systemd")])
    until(lambda: bool(proc.names.known(Identity(1, 1)).values))
    assert proc.names.known(old).values == {}


def test_what_ended_is_forgotten(proc: FakeProc) -> None:
    proc.add(42)
    proc.more(42)
    process = named(proc, 42, lambda process: process.cgroup or process.missing, 42)
    proc.remove(42)
    proc.look()
    assert proc.names.known(process.identity) is None


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (b"", {}),
        (b"RANK=x\0LOCAL_RANK=\0WORLD_SIZE=99999999999999\0", {}),
        (b"rank=1\0XRANK=1\0", {}),
        (b"OMP_NUM_THREADS=4\0MKL_NUM_THREADS=8\0", {"omp_threads": 4, "mkl_threads": 8}),
        (b"OMPI_COMM_WORLD_RANK=2\0OMPI_COMM_WORLD_LOCAL_RANK=0\0OMPI_COMM_WORLD_SIZE=4\0",
         {"rank": 2, "local_rank": 0, "world_size": 4}),
        (b"SLURM_PROCID=0\0SLURM_NTASKS=1\0", {}),
        (b"SLURM_PROCID=3\0SLURM_LOCALID=1\0SLURM_NTASKS=4\0", {"rank": 3, "local_rank": 1, "world_size": 4}),
        (b"SLURM_PROCID=0\0SLURM_NTASKS=2\0RANK=5\0WORLD_SIZE=8\0", {"rank": 5, "world_size": 8}),
        (b"MASTER_ADDR=10.0.0.1\0MASTER_PORT=29501\0", {"rendezvous": "10.0.0.1:29501"}),
        (b"MASTER_ADDR=localhost\0MASTER_PORT=29501\0", {"rendezvous": "127.0.0.1:29501"}),
        (b"MASTER_PORT=0\0MASTER_ADDR=a\0", {}),  # chosen later, by each job another one
        (b"MASTER_PORT=29501\0", {"rendezvous": ":29501"}),  # the program sets the address itself
        (b"MASTER_ADDR=10.0.0.1\0", {}),
        (b"CUDA_VISIBLE_DEVICES=\x1b[2J\0", {"visible_gpus": "␛[2J"}),
        (b"A=" + b"x" * 100_000 + b"\0RANK=1\0", {"rank": 1}),
    ],
)  # fmt: skip
def test_environment(environ: bytes, expected: dict) -> None:
    assert metadata.environment(environ) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0::/\n", ("/", None, None)),
        ("", ("/", None, None)),
        ("0::/../..\n", ("/../..", None, None)),
        ("0::/user.slice/user-1000.slice/s.scope\n", ("/user.slice/user-1000.slice/s.scope", None, None)),
        (f"0::/system.slice/docker-{IDS}.scope\n", (f"/system.slice/docker-{IDS}.scope", IDS[:12], None)),
        (f"12:cpu,cpuacct:/docker/{IDS}\n11:memory:/docker/{IDS}\n", (f"/docker/{IDS}", IDS[:12], None)),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{IDS}.scope\n",
         (f"/kubepods.slice/kubepods-pod1.slice/cri-containerd-{IDS}.scope", IDS[:12], None)),
        (f"0::/u.slice/libpod-{IDS}.scope/container\n", (f"/u.slice/libpod-{IDS}.scope/container", IDS[:12], None)),
        ("0::/lxc.payload.bob-dev/init.scope\n", ("/lxc.payload.bob-dev/init.scope", "bob-dev", None)),
        ("0::/machine.slice/machine-b\\x2dd.scope\n", ("/machine.slice/machine-b\\x2dd.scope", "b-d", None)),
        ("9:memory:/slurm/uid_1000/job_812/step_0/task_3\n1:name=systemd:/\n",
         ("/slurm/uid_1000/job_812/step_0/task_3", None, "812")),
        ("0::/system.slice/slurmstepd.scope/job_813/step_batch/user/task_0\n",
         ("/system.slice/slurmstepd.scope/job_813/step_batch/user/task_0", None, "813")),
        ("0::/system.slice/node7_slurmstepd.scope/job_9/step_0\n",
         ("/system.slice/node7_slurmstepd.scope/job_9/step_0", None, "9")),
        ("0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0\n",  # from Slurm 26.05 on
         ("/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0", None, "sEKNKTV3WPV500")),
        ("0::/system.slice/node7_slurmstepd.scope/s00000000000ZZ/step_batch\n",
         ("/system.slice/node7_slurmstepd.scope/s00000000000ZZ/step_batch", None, "s00000000000ZZ")),
        ("0::/system.slice/slurmstepd.scope/system\n", ("/system.slice/slurmstepd.scope/system", None, None)),
        ("0::/system.slice/slurmstepd.scope/sEKNKTV3WPVUIO/step_0\n",  # digits that base 32 does not have
         ("/system.slice/slurmstepd.scope/sEKNKTV3WPVUIO/step_0", None, None)),
        ("0::/user.slice/sEKNKTV3WPV500/a.scope\n", ("/user.slice/sEKNKTV3WPV500/a.scope", None, None)),
        ("4:memory:/a:b\n0::/\n", ("/a:b", None, None)),
        ("nonsense\n::\n", ("", None, None)),
    ],
)  # fmt: skip
def test_p12_a_place_among_the_control_groups(text: str, expected: tuple) -> None:
    found = place(text.encode())
    assert (found.path, found.container, found.slurm_job) == expected


UID = "8f0c2a4e-1b3d-4c5f-9a7b-0123456789ab"
UNDER = UID.replace("-", "_")


@pytest.mark.parametrize(
    ("text", "pod", "container"),
    [
        (f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDER}.slice/cri-containerd-{IDS}.scope\n",
         UID, IDS[:12]),
        (f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/crio-{IDS}.scope/container\n", UID, IDS[:12]),
        (f"0::/kubepods/besteffort/pod{UID}/{IDS}\n", UID, IDS[:12]),
        (f"12:cpu,cpuacct:/kubepods/pod{UID}/{IDS}\n9:memory:/kubepods/pod{UID}/{IDS}\n", UID, IDS[:12]),
        (f"0::/../../kubepods-burstable-pod{UNDER}.slice/cri-containerd-{IDS}.scope\n", UID, IDS[:12]),
        (f"0::/../../pod{UID}/{IDS}\n", UID, IDS[:12]),  # both seen from the cgroup namespace of another pod
        (f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{IDS[:32]}.slice/x.scope\n",
         IDS[:32], None),  # a static pod
        (f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDER}.slice\n", UID, None),  # kind
        (f"0::/machine.slice/libpod_pod_{IDS}.slice/libpod-{IDS}.scope\n", None, IDS[:12]),  # of podman
        ("0::/kubepods.slice/kubepods-pod1.slice\n", None, None),
        ("0::/user.slice/podcast.scope\n", None, None),
    ],
)  # fmt: skip
def test_a_pod_is_known_by_the_uid_in_its_cgroup(text: str, pod: str | None, container: str | None) -> None:
    found = place(text.encode())
    assert (found.pod, found.container) == (pod, container)


@pytest.mark.parametrize(
    ("text", "job", "step"),
    [
        ("9:memory:/slurm/uid_1000/job_812/step_0/task_3\n", "812", "0"),
        ("0::/system.slice/slurmstepd.scope/job_813/step_batch/user/task_0\n", "813", "batch"),
        ("0::/system.slice/slurmstepd.scope/job_813/step_extern/user\n", "813", "extern"),
        ("0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_17/user/task_0\n", "sEKNKTV3WPV500", "17"),
        ("9:memory:/slurm/uid_1000/job_77\n", "77", None),
        ("0::/user.slice/step_0\n", None, None),
    ],
)
def test_a_slurm_step_is_known_by_its_cgroup(text: str, job: str | None, step: str | None) -> None:
    found = place(text.encode())
    assert (found.slurm_job, found.slurm_step) == (job, step)


@pytest.mark.parametrize(
    ("of_group", "environ", "expected"),
    [
        (None, b"SLURM_JOB_ID=77\0", "77"),
        (None, b"SLURM_JOB_ID=$(reboot)\0", None),
        ("812", b"SLURM_JOB_ID=77\0", "812"),  # an environment may be of another job
        ("812", b"", "812"),
        ("sEKNKTV3WPV500", b"", "sEKNKTV3WPV500"),
        ("sEKNKTV3WPV500", b"SLURM_JOB_ID=77\0SLURM_JOB_SLUID=sEKNKTV3WPV500\0", "77"),
        ("sEKNKTV3WPV500", b"SLURM_JOB_ID=77\0", "77"),
        ("sEKNKTV3WPV500", b"SLURM_JOB_ID=77\0SLURM_JOB_SLUID=sEKNKTV3WPV501\0", "sEKNKTV3WPV500"),
        ("sEKNKTV3WPV500", b"SLURM_JOB_ID=7;7\0", "sEKNKTV3WPV500"),
    ],
)
def test_a_slurm_job_by_its_cgroup_and_by_its_number_where_the_environment_is_of_the_same(
    proc: FakeProc, of_group: str | None, environ: bytes, expected: str | None
) -> None:
    step = of_group and (of_group if of_group.startswith("s") else f"job_{of_group}")
    proc.add(42)
    proc.more(42)
    proc.write("42/cmdline", b"python\0train.py\0")
    proc.write("42/environ", b"RANK=0\0" + environ)
    proc.write("42/cgroup", f"0::/system.slice/slurmstepd.scope/{step}/step_0\n" if step else "0::/\n")
    assert named(proc, 42, lambda process: process.rank == 0, 42).slurm_job == expected
