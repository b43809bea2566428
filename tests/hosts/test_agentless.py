"""A host without gputop: what its nvidia-smi and /proc say, and what then is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.hosts.agentless import START, script
from gputop.hosts.agentless_frame import FrameBuilder
from gputop.model import Frame

TITLES = (
    "index, uuid, name, pci.bus_id, driver_version, utilization.gpu [%], memory.total [MiB], memory.used [MiB], "
    "temperature.gpu, power.draw [W], enforced.power.limit [W], clocks.current.sm [MHz], pstate, persistence_mode, "
    "mig.mode.current, compute_cap, ecc.errors.uncorrected.volatile.total, clocks_throttle_reasons.active"
)
BUSY = (
    "0, GPU-aaaa, NVIDIA H100 80GB HBM3, 00000000:1B:00.0, 570.148.08, 97 %, 81559 MiB, 20500 MiB, 64, 652.10 W, "
    "700.00 W, 1980 MHz, P0, Enabled, Disabled, 9.0, 0, 0x0000000000000004"
)
IDLE = (
    "1, GPU-bbbb, NVIDIA H100 80GB HBM3, 00000000:43:00.0, 570.148.08, [N/A], 81559 MiB, 512 MiB, 31, [N/A], "
    "700.00 W, 345 MHz, P8, Disabled, [N/A], 9.0, [N/A], [N/A]"
)
NVIDIA_SMI = f"""#!/bin/sh
case "$*" in
*query-compute-apps*) printf '%s, GPU-aaaa, 20480\\n4194000, GPU-bbbb, 512\\n' "$TRAINER";;
*ecc.errors*) [ -n "$OLD_DRIVER" ] && {{ echo 'Field "memory.reserved" is not a valid field to query.'; exit 2; }}
  echo '{TITLES}'
  echo '{BUSY}'
  echo '{IDLE}';;
*) echo 'index, uuid, name, driver_version, utilization.gpu [%], memory.total [MiB], memory.used [MiB]'
  echo '0, GPU-aaaa, Tesla P100, 390.1, 12 %, 16280 MiB, 100 MiB';;
esac
"""


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A PATH with that nvidia-smi, and a process that it lists, with a child."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(NVIDIA_SMI)
    tool.chmod(0o755)
    code = "import os,sys,time; os.fork(); print(flush=True); time.sleep(600)"
    trainer = subprocess.Popen(
        [sys.executable, "-c", code, "train.py", "--name", "a b"], stdout=subprocess.PIPE, start_new_session=True
    )
    assert trainer.stdout is not None
    trainer.stdout.readline()
    trainer.stdout.readline()
    yield {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TRAINER": str(trainer.pid)}
    os.killpg(trainer.pid, 9)
    trainer.wait()
    trainer.stdout.close()


def samples(environ: dict[str, str], count: int = 1, shell: str = "sh") -> list[bytes]:
    """What the script writes, sample by sample."""
    text = script(0).replace("sleep 2", "sleep 0.3")
    with subprocess.Popen([shell, "-c", text], env=environ, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        found, lines = [], list[bytes]()
        while len(found) < count:
            line = process.stdout.readline()
            assert line, "the script has ended"
            if line == b"@@end\n":
                found.append(b"".join(lines).rstrip(b"\n"))
                lines.clear()
            else:
                lines.append(line)
        process.kill()
    return found


def frames(environ: dict[str, str], count: int = 1, shell: str = "sh") -> list[Frame]:
    builder = FrameBuilder("n1")
    return [builder.frame(text, 1000.0 + n, 10.0 + n) for n, text in enumerate(samples(environ, count, shell))]


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_gpus_are_what_nvidia_smi_says(environ: dict[str, str], shell: str) -> None:
    (frame,) = frames(environ, shell=shell)
    one, other = frame.gpus
    assert (one.index, one.name, one.busy_percent) == ("0", "NVIDIA H100 80GB HBM3", 97.0)
    assert (one.vram_total_bytes, one.vram_used_bytes) == (81559 << 20, 20500 << 20)
    assert (one.power_watts, one.power_limit_watts, one.sm_clock_mhz) == (652.1, 700.0, 1980.0)
    assert (one.performance_state, one.compute_capability) == (0, (9, 0))
    assert one.throttle_reasons == {"power cap"}
    assert (one.persistence_mode, one.mig_mode, one.ecc_uncorrected) == (True, False, 0)
    assert (other.busy_percent, other.power_watts, other.throttle_reasons, other.mig_mode) == (None, None, None, None)
    assert frame.host.driver_version == "570.148.08"


def test_an_old_driver_answers_the_shorter_question(environ: dict[str, str]) -> None:
    (frame,) = frames({**environ, "OLD_DRIVER": "1"})
    assert [(gpu.name, gpu.busy_percent) for gpu in frame.gpus] == [("Tesla P100", 12.0)]


def test_processes_on_gpus_come_with_their_relatives(environ: dict[str, str]) -> None:
    (frame,) = frames(environ)
    trainer = next(process for process in frame.processes if process.pid == int(environ["TRAINER"]))
    assert trainer.command[-3:] == ("train.py", "--name", "a b")
    assert trainer.gpus[0].vram_bytes == 20480 << 20
    assert trainer.user == "root"
    assert (trainer.rss_bytes or 0) > 1 << 20
    assert any(process.parent_pid == trainer.pid for process in frame.processes)
    assert any(process.pid == os.getpid() for process in frame.processes), "its ancestors, which may be a launcher"
    hidden = next(process for process in frame.processes if process.pid == 4194000)
    assert hidden.unseen == "foreign", "/proc shows the processes of all users here"


def test_the_machine_is_what_proc_says_and_rates_need_two_samples(environ: dict[str, str]) -> None:
    first, second = frames(environ, 2)
    assert first.host.cpus_total == os.cpu_count()
    assert first.host.cpu_percent is None
    assert 0 <= (second.host.cpu_percent or 0) <= 100
    assert (first.host.memory_total_bytes or 0) > 1 << 29
    assert first.hostname == os.uname().nodename
    trainer = next(process for process in second.processes if process.pid == int(environ["TRAINER"]))
    assert trainer.cpu_percent is not None


def test_what_is_missing_is_noted_with_the_line_that_installs_it(environ: dict[str, str]) -> None:
    (frame,) = frames(environ)
    note = frame.note("agentless")
    assert note is not None
    assert note.help == ("to see them: `ssh n1 python3 -m pip install --user gputop-tui`",)


def test_without_a_driver_the_host_is_shown_and_a_note_says_so(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").unlink()
    (frame,) = frames({**environ, "PATH": "/usr/bin:/bin"})
    assert frame.gpus == ()
    note = frame.note("nvidia-smi")
    assert note is not None
    assert note.text == "nvidia-smi: not found"
    assert frame.host.cpus_total


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"@@gputop n1",
        b"@@gputop n1\n\n@@gpus\n\n@@apps\n\n@@processes\n",
        b"\x00" * 4096,
        b"@@gputop x\n1e400 y\nz\n@@gpus\nuuid\n@@apps\n1,2\n@@processes\n",
    ],
)
def test_what_is_no_sample_is_refused(text: bytes) -> None:
    try:
        frame = FrameBuilder("n1").frame(text, 1.0, 1.0)
    except ValueError:
        return
    assert frame.gpus == ()


def test_hostile_names_and_numbers_are_harmless() -> None:
    text = b"""@@gputop \x1b[2Jevil
1.5 2
0.1 nan inf 1/2 3
cpu 1 2 3 4 5 6 7 8
MemTotal: 99999999999999999999 kB
@@gpus
index, uuid, name, utilization.gpu [%], memory.used [MiB], pstate
\x1b]0;x\x07, GPU-\x9b31m, [red]H100[/red], 1e308, -5, Pfoo
@@apps
1, GPU-\x9b31m, 9e99
99999999999999999999999, GPU-x, 1
@@processes
@@process 1 (ev)il\x1b[31m) S 0 1 1 0 -1 4194560 1 1 1 1 10 10 0 0 20 0 1 0 5 1 1 1
Command: \x1b[2Jx\x1f[@click=app.quit]\x1f
User: \xff\xfe
@@process nonsense
"""
    frame = FrameBuilder("n1").frame(text, 1.0, 1.0)
    said = [frame.hostname, *(f"{gpu.index}{gpu.uuid}{gpu.name}" for gpu in frame.gpus)]
    said += [f"{process.name}{process.command}{process.user}" for process in frame.processes]
    assert all(each.isprintable() for each in said), said


def test_the_script_says_where_each_sample_begins(environ: dict[str, str]) -> None:
    assert all(text.startswith(START) for text in samples(environ, 2))
