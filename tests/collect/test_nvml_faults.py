"""The lane when the driver breaks: absent, lost, hung, slow, back again. On the real clock, in a real process."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gputop.collect.nvml import notes
from gputop.collect.nvml.cadence import CallCosts
from gputop.collect.nvml.gate import DriverGate
from tests.fakenvml import Fake
from tests.nvml_child import Child, Seen

INIT = "nvmlInit*"
BRISK = {"interval_s": 0.1, "gpm": "off"}


def pci(root: Path, bus: int, *, status: str = "active", control: str = "on") -> None:
    """One NVIDIA GPU as the kernel shows it."""
    slot = root / "bus/pci/devices" / f"0000:{bus:02x}:00.0"
    (slot / "power").mkdir(parents=True)
    files = {"vendor": "0x10de", "device": "0x2330", "class": "0x030200", "numa_node": "1", "local_cpulist": "48-95"}
    for name, text in {**files, "power/runtime_status": status, "power/control": control}.items():
        (slot / name).write_text(f"{text}\n")


def everything(seen: Seen) -> bool:
    return len(seen.gpus) == 8 and all(gpu["pcie_tx_bytes_per_s"] for gpu in seen.gpus)


def test_n01_no_library(tmp_path: Path, fake: Fake) -> None:
    pci(tmp_path / "sys", 0x1B)
    path = {"LD_LIBRARY_PATH": str(tmp_path)}
    with Child(fake, env=path, sys_root=str(tmp_path / "sys"), **BRISK) as child:
        child.start()
        seen = child.until(lambda seen: "no-library" in seen.notes)
        assert not seen.gpus
        note = seen.notes["no-library"]
        assert note["text"] == "No NVIDIA GPU found: libnvidia-ml.so.1 is not on this machine."
        assert note["help"][0] == (
            "lspci shows an NVIDIA GPU (10de:2330)      "
            "the driver is not loaded: `modprobe nvidia`; `dmesg | grep NVRM`"
        )
        assert "gputop demo" in note["help"][-1]


def test_n02_driver_not_loaded_then_loaded(fake: Fake) -> None:
    fake.fail(INIT, 9)
    with Child(fake, gpm="off") as child:
        assert "modprobe nvidia" in " ".join(child.sweep().notes["not-loaded"]["help"])
        child.sweep(8)
        assert fake.counts()["nvmlInitWithFlags"] == 1
        fake.release("fail", INIT)
        seen = child.sweep(2)
        assert len(seen.gpus) == 8
        assert not seen.notes


@pytest.mark.parametrize("source", ["proc/driver/nvidia/version", "sys/module/nvidia/version"])
def test_n03_library_and_driver_differ(tmp_path: Path, fake: Fake, source: str) -> None:
    (tmp_path / source).parent.mkdir(parents=True)
    line = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  Wed Jan 15 12:00:00 UTC 2025\n"
    (tmp_path / source).write_text(line if "proc" in source else "570.86.10\n")
    fake.fail(INIT, 18)
    with Child(fake, sys_root=str(tmp_path / "sys"), proc_root=str(tmp_path / "proc")) as child:
        note = child.sweep().notes["mismatch"]
    assert note["text"] == "NVML: driver/library version mismatch (kernel 570.86.10, library 580.65.06)."
    assert "until a reboot" in note["help"][0]
    assert "modules are reloaded" in note["help"][1]


@pytest.mark.parametrize(
    ("kernel", "text", "help"),
    [
        (
            "5.15.167.4-microsoft-standard-WSL2",
            "WSL blocks access to the GPU (NVML error 17): its driver comes from Windows.",
            "Update the NVIDIA driver on Windows",
        ),
        ("6.8.0-45-generic", "The operating system blocks access to the GPU (NVML error 17).", "ls -l /dev/nvidia*"),
    ],
)
def test_the_operating_system_blocks_the_gpu(tmp_path: Path, fake: Fake, kernel: str, text: str, help: str) -> None:
    release = tmp_path / "sys/kernel/osrelease"
    release.parent.mkdir(parents=True)
    release.write_text(f"{kernel}\n")
    fake.fail(INIT, 17)
    with Child(fake, proc_root=str(tmp_path)) as child:
        note = child.sweep().notes["blocked"]
    assert note["text"] == text
    assert help in note["help"][0]


@pytest.mark.parametrize(
    ("folder", "code", "help"),
    [
        ("/usr/lib/x86_64-linux-gnu", 9, "Remove the NVIDIA driver installed inside WSL: its library in "
         "/usr/lib/x86_64-linux-gnu hides that in /usr/lib/wsl/lib."),
        ("/usr/lib/wsl/lib", 9, "Update the NVIDIA driver on Windows"),  # nothing to be loaded by modprobe
        ("/usr/lib/wsl/lib", 17, "Update the NVIDIA driver on Windows"),
        (None, 17, "Update the NVIDIA driver on Windows"),
    ],
)  # fmt: skip
def test_what_hides_the_library_of_wsl_is_said_only_where_it_does(
    tmp_path: Path, fake: Fake, folder: str | None, code: int, help: str
) -> None:
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/osrelease").write_text("5.15.167.4-microsoft-standard-WSL2\n")
    if folder:
        (tmp_path / "self").mkdir()
        mapped = f"7f0-7f1 r-xp 0 8:1 9                          {folder}/libnvidia-ml.so.1\n"
        (tmp_path / "self/maps").write_text(f"7e0-7e1 r-xp 0 8:1 8 /lib/libc.so.6\n{mapped}")
    fake.fail(INIT, code)
    with Child(fake, proc_root=str(tmp_path)) as child:
        note = child.sweep().notes["blocked"]
    assert note["text"] == f"WSL blocks access to the GPU (NVML error {code}): its driver comes from Windows."
    assert note["help"][0].startswith(help)
    assert len(note["help"]) == (2 if help.startswith("Remove") else 1)


def test_the_driver_supports_no_gpu_here(tmp_path: Path, fake: Fake) -> None:
    fake.fail(INIT, 28)
    with Child(fake, sys_root=str(tmp_path)) as child:
        note = child.sweep().notes["no-supported-gpu"]
        assert note["text"] == "The NVIDIA driver found no supported GPU (NVML error 28)."
        assert "gputop demo" in note["help"][-1]
        pci(tmp_path, 0x1B)
        note = child.sweep(10).notes["no-supported-gpu"]
        assert note["text"] == "The NVIDIA driver supports none of the GPUs here (NVML error 28): 10de:2330."
        assert "dmesg | grep NVRM" in note["help"][0]
        assert not any("modprobe" in line for line in note["help"])  # it is loaded
        fake.release("fail", INIT)
        seen = child.sweep(11)
        assert (len(seen.gpus), seen.notes) == (8, {})


def test_the_driver_fails_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "in_container", lambda _: False)
    place = {"gate": DriverGate(CallCosts()), "sys_root": str(tmp_path), "proc_root": str(tmp_path)}
    note = notes.closed(999, worked=False, **place)
    assert (note.key, note.text) == (
        "unknown-error",
        "The NVIDIA driver does not answer (internal driver error 999).",
    )
    assert "dmesg" in note.help[0]
    assert notes.closed(999, worked=True, **place).text.startswith("The NVIDIA driver no longer answers")
    assert notes.closed(20, worked=False, **place).text == "The NVIDIA driver does not answer (NVML error 20)."


def test_a_count_that_says_there_is_no_gpu_loses_none(fake: Fake) -> None:
    with Child(fake, gpm="off") as child:
        child.sweep(2)
        fake.fail("nvmlDeviceGetCount*", 28)
        assert set(child.sweep(12).conditions.values()) == {"ok"}


def test_a_gpu_that_refuses_until_it_is_reset_says_so(fake: Fake) -> None:
    fake.update({"gpus": 2, "gpu.0.recovery_action": None})
    with Child(fake, gpm="off") as child:
        before = child.sweep(3)
        assert (before.gpu(0)["recovery_action"], before.reasons(0)["recovery_action"]) == (None, "unsupported")
        fake.fail("nvmlDeviceGet*", 16, gpu=0)
        seen = child.sweep(5)
        assert (seen.gpu(0)["recovery_action"], seen.gpu(0)["temperature_celsius"]) == ("reset", None)
        assert seen.gpu(1)["recovery_action"] == "none"
        fake.release("fail", "nvmlDeviceGet*", gpu=0)
        seen = child.sweep(31)
        assert (seen.gpu(0)["recovery_action"], seen.gpu(0)["temperature_celsius"]) == (None, 61)


def test_n04_access_is_lost_in_a_container(fake: Fake) -> None:
    with Child(fake, env={"container": "docker"}, **BRISK) as child:
        child.start()
        before = child.until(everything)
        fake.fail("*", 999)
        seen = child.until(lambda seen: "lost-access" in seen.notes and seen.gpu(7)["age_s"] > 1.5)
        assert "restart the container" in seen.notes["lost-access"]["text"]
        assert seen.gpu(7)["vram_used_bytes"] == before.gpu(7)["vram_used_bytes"]
        assert set(seen.conditions.values()) == {"ok"}


def test_n04_unknown_error_comes_back(fake: Fake) -> None:
    with Child(fake, **BRISK) as child:
        child.start()
        child.until(everything)
        fake.fail("*", 999)

        def told(seen: Seen) -> bool:
            return bool({"lost-access", "unknown-error"} & set(seen.notes))

        child.until(told)
        fake.wait_for("nvmlInitWithFlags", 2)
        fake.release("fail", "*")
        # the lane may fix the time of its next try only after its clock was moved on, and never in mid-look
        while fake.counts()["nvmlInitWithFlags"] < 3:
            child.call("advance", 10)
            with suppress(TimeoutError):
                fake.wait_for("nvmlInitWithFlags", 3, seconds=1)
        child.until(lambda seen: not told(seen) and everything(seen) and seen.gpu(0)["age_s"] == 0)
    assert fake.counts()["nvmlInitWithFlags"] == 3


def test_n05_no_gpus(fake: Fake) -> None:
    fake.set("gpus", 0)
    with Child(fake) as child:
        seen = child.sweep(2)
        assert not seen.gpus
        assert seen.notes["no-gpus"]["text"].startswith("0 GPUs")
        fake.set("gpus", 2)
        assert len(child.sweep(10).gpus) == 2


def test_no_permission(fake: Fake) -> None:
    fake.fail(INIT, 4)
    with Child(fake) as child:
        assert "no-permission" in child.sweep().notes


def test_gpus_that_are_denied_are_counted(fake: Fake) -> None:
    for gpu in (0, 2):
        fake.fail("nvmlDeviceGetHandleByIndex*", 4, gpu=gpu)
    with Child(fake, gpm="off") as child:
        seen = child.sweep(12)
        assert seen.indexes == ["1", "3", "4", "5", "6", "7"]
        assert seen.notes["no-permission"]["text"].startswith("2 GPUs")
    assert fake.counts(0)["nvmlDeviceGetHandleByIndex_v2"] == 1


def test_n06_lost_at_the_start(fake: Fake) -> None:
    fake.fail("*", 15, gpu=0)
    with Child(fake, gpm="off") as child:
        seen = child.sweep(3)
        assert seen.conditions == {"0": "lost"} | {str(index): "ok" for index in range(1, 8)}
        assert seen.gpu(3)["uuid"].startswith("GPU-3c9d5e1e")
        fake.release("fail", "*", gpu=0)
        seen = child.sweep()
        assert seen.gpu(0)["uuid"].startswith("GPU-3c9d5e1b")
        assert seen.gpu(0)["busy_percent"] == 58


def test_n07_lost_while_running(fake: Fake) -> None:
    fake.add_process(gpu=2, pid=101)
    with Child(fake, gpm="off") as child:
        before = child.sweep(3)
        assert 101 in before.shares
        fake.fail("*", 15, gpu=2)
        child.sweep()
        seen = child.sweep(5)
        lost = seen.gpu(2)
        assert (lost["condition"], lost["uuid"], lost["index"]) == ("lost", before.gpu(2)["uuid"], "2")
        assert 4.5 < lost["condition_s"] < 6.5
        assert 4.5 < lost["age_s"] < 7.5
        assert lost["vram_used_bytes"] == before.gpu(2)["vram_used_bytes"]
        assert not seen.shares
        assert [gpu["age_s"] for gpu in seen.gpus if gpu is not lost] == [0.0] * 7


def test_n08_all_lost_then_healthy(fake: Fake) -> None:
    with Child(fake, gpm="off") as child:
        child.sweep(3)
        fake.fail("nvmlDevice*", 15)
        assert set(child.sweep(4).conditions.values()) == {"lost"}
        fake.release("fail", "nvmlDevice*")
        seen = child.sweep(2)
        assert set(seen.conditions.values()) == {"ok"}
        assert seen.gpu(5)["busy_percent"] == 63


def test_n08_all_lost_opens_the_driver_anew_once(fake: Fake) -> None:
    with Child(fake, **BRISK) as child:
        child.start()
        child.until(everything)
        fake.fail("nvmlDevice*", 15)
        fake.wait_for("nvmlInitWithFlags", 2)
        child.until(lambda seen: set(seen.conditions.values()) == {"lost"} and seen.gpu(0)["condition_s"] > 1)
        assert (fake.counts()["nvmlInitWithFlags"], fake.counts()["nvmlShutdown"]) == (2, 1)
        fake.release("fail", "nvmlDevice*")
        child.until(lambda seen: set(seen.conditions.values()) == {"ok"})
        assert fake.counts()["nvmlInitWithFlags"] == 2


def test_n24_count_changes(fake: Fake) -> None:
    with Child(fake, gpm="off") as child:
        uuids = {gpu["index"]: gpu["uuid"] for gpu in child.sweep(2).gpus}
        fake.set("order", "0 1 3 4 5 6 7")
        seen = child.sweep(10)
        assert seen.indexes == [str(index) for index in range(7)]
        assert seen.gpu(2)["uuid"] == uuids["3"]
        assert seen.gpu(2)["busy_percent"] == 61
        assert seen.conditions == dict.fromkeys(seen.indexes, "ok")
        fake.clear("order")
        assert {gpu["index"]: gpu["uuid"] for gpu in child.sweep(10).gpus} == uuids


def test_n24_order_changes_and_the_count_does_not(fake: Fake) -> None:
    fake.set("order", "0 1 2")
    with Child(fake, gpm="off") as child:
        uuids = {gpu["index"]: gpu["uuid"] for gpu in child.sweep(2).gpus}
        fake.fail("*", 15, gpu=0)
        child.sweep(2)
        fake.set("order", "1 2 3")  # the lost one is taken out, another put in
        seen = child.sweep(10)
        assert [gpu["uuid"] for gpu in seen.gpus[:2]] == [uuids["1"], uuids["2"]]
        assert [gpu["busy_percent"] for gpu in seen.gpus] == [59, 60, 61]
        assert seen.conditions == dict.fromkeys("012", "ok")
        assert not seen.notes


def test_n25_two_gpus_with_one_uuid(fake: Fake) -> None:
    fake.update({"gpu.1.uuid": "GPU-same", "gpu.2.uuid": "GPU-same"})
    with Child(fake, gpm="off") as child:
        seen = child.sweep(2)
    assert [gpu["uuid"] for gpu in seen.gpus[1:3]] == ["GPU-same", "GPU-same#2"]
    assert [gpu["busy_percent"] for gpu in seen.gpus[1:3]] == [59, 60]
    assert "twins" in seen.notes


def test_n32_asleep_is_not_woken(fake: Fake, tmp_path: Path) -> None:
    pci(tmp_path, 0x1B, status="suspended", control="auto")
    fake.set("gpus", 1)
    with Child(fake, sys_root=str(tmp_path), gpm="off") as child:
        seen = child.sweep(5)
        assert seen.conditions == {"0": "asleep"}
        assert seen.gpu(0)["name"] == "NVIDIA 10de:2330"
        assert sum(fake.counts().values()) == 0
        (tmp_path / "bus/pci/devices/0000:1b:00.0/power/runtime_status").write_text("active\n")
        seen = child.sweep()
        assert (seen.conditions, seen.gpu(0)["busy_percent"]) == ({"0": "ok"}, 58)
        assert (seen.gpu(0)["numa_node"], seen.gpu(0)["local_cpus"]) == (1, "48-95")
        (tmp_path / "bus/pci/devices/0000:1b:00.0/power/runtime_status").write_text("suspended\n")
        fake.wait_for("nvmlEventSetWait_v2")  # who listens for its errors has begun meanwhile
        before = fake.counts(0)
        assert child.sweep(5).conditions == {"0": "asleep"}
        assert fake.counts(0) - before == {}


def test_n35_another_pynvml(fake: Fake, tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("def nvmlInit(): pass\n")
    path = os.pathsep.join((str(tmp_path), str(Path(__file__).parents[2])))
    with Child(fake, env={"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}) as child:
        seen = child.sweep(3)
    assert "not NVIDIA's" in seen.notes["shadowed-pynvml"]["text"]
    assert "nvidia-ml-py" in seen.notes["shadowed-pynvml"]["help"][0]


def test_off_asks_nothing(fake: Fake) -> None:
    with Child(fake, enabled=False) as child:
        seen = child.start()
    assert "off" in seen.notes
    assert not seen.gpus
    assert sum(fake.counts().values()) == 0


def test_n33_release_closes_the_driver_and_resume_opens_it(fake: Fake) -> None:
    with Child(fake, **BRISK) as child:
        child.start()
        child.until(everything)
        child.call("release")
        seen = child.until(lambda _: fake.counts()["nvmlShutdown"] == 1)
        assert "released" in seen.notes
        before = sum(fake.counts().values())
        time.sleep(0.3)
        assert sum(fake.counts().values()) == before
        child.call("resume")
        assert not child.until(lambda seen: everything(seen) and seen.gpu(0)["age_s"] == 0).notes
