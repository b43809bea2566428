"""The doctor under a fake NVIDIA driver: answering, hanging, of another version, without a GPU; PyTorch against it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gputop.doctor.nvidia import NvidiaFacts
from gputop.model import Note
from tests.doctor_machine import ROOT, line, machine, told
from tests.fakenvml import Fake, library
from tests.fakenvml.build import SONAME as NAME

INIT = "nvmlInit*"
SITE = "env/lib/python3.12/site-packages"
CODE = """
import json, os, sys
from pathlib import Path
from gputop.collect.nvml import notes
from gputop.doctor import as_json, run_checks
from tests.doctor_machine import machine
notes.OWNERS |= {os.geteuid()}  # who runs the tests planted it
root, files = Path(sys.argv[1]), json.loads(sys.argv[2])
environ = {"PATH": "/x", "VIRTUAL_ENV": f"{root}/env"}
asked = machine(root, files, nvml=True, environ=environ, uid=int(sys.argv[3]))
print(json.dumps(as_json(run_checks(asked, "box"))))
"""


def seen(
    fake: Fake, root: Path, files: Mapping[str, str | None] | None = None, uid: int = 1000, **env: str
) -> dict[str, Any]:
    """What a machine with this driver is told, by check."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(root), json.dumps(files or {}), str(uid)],
        cwd=ROOT, env=fake.env(**env), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return {line["check"]: line for line in reversed(json.loads(done.stdout)["lines"])}


def module(version: str) -> dict[str, str]:
    return {"proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Wed Jan 15\n"}


def torch(version: str, cuda: str | None) -> dict[str, str]:
    written = f"'{cuda}'" if cuda else "None"
    return {
        "env/bin/python": "",
        "env/pyvenv.cfg": "version = 3.12.3\n",
        f"{SITE}/torch/version.py": f"__version__ = '{version}'\ndebug = False\ncuda: Optional[str] = {written}\n",
    }


def test_a_driver_that_answers(fake: Fake, tmp_path: Path) -> None:
    said = seen(fake, tmp_path, torch("2.8.0+cu128", "12.8"))
    assert (said["driver"]["status"], said["driver"]["value"]["gpus"]) == ("ok", 8)
    assert said["driver"]["what"].startswith("driver 580.65.06 responds: 8 x NVIDIA H100")
    assert said["match"]["what"] == "kernel module and library are both 580.65.06"
    assert said["gpus"]["what"] == "8 GPUs, all responding"
    assert said["torch"]["what"] == "PyTorch 2.8.0+cu128, CUDA 12.8"
    assert said["loader"]["value"] | {"sweep": None} == {
        "num_workers": 2, "prefetch_factor": 4, "pin_memory": True, "persistent_workers": True, "allowed_cpus": 32,
        "jobs": 8, "sweep": None,
    }  # fmt: skip
    assert fake.counts()["nvmlShutdown"] == 1


def planted(root: Path, folder: str) -> Path:
    """The fake driver's library in one of the places that the loader does not look in."""
    place = root / folder.lstrip("/")
    place.mkdir(parents=True)
    for path in (place, *place.parents):
        if path.is_relative_to(root):
            path.chmod(0o755)
    return Path(shutil.copy(library() / NAME, place))


@pytest.mark.parametrize(
    ("folder", "files", "unlock"),
    [
        ("/usr/lib/wsl/lib", {"etc/ld.so.conf.d/a.conf": ""}, "echo {} | sudo tee /etc/ld.so.conf.d/nvidia.conf && sudo"
         " ldconfig"),
        ("/run/opengl-driver/lib", {}, "export LD_LIBRARY_PATH={}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"),
        ("/usr/local/nvidia/lib64", {"etc/ld.so.conf.d/a.conf": "", ".dockerenv": ""},
         "export LD_LIBRARY_PATH={}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"),
    ],
)  # fmt: skip
def test_a_library_where_the_loader_does_not_look(
    fake: Fake, tmp_path: Path, folder: str, files: dict[str, str], unlock: str
) -> None:
    path = planted(tmp_path, folder)
    said = seen(fake, tmp_path, files, LD_LIBRARY_PATH="")["driver"]
    assert (said["status"], said["value"]["gpus"]) == ("limited", 8)
    assert said["what"].startswith("driver 580.65.06 responds: 8 x NVIDIA H100")
    assert said["what"].endswith(
        f"its libraries are in {path.parent}, outside the linker's search path: CUDA may not find them"
    )
    assert said["unlock"] == unlock.format(path.parent)
    assert said["value"]["library_folder"] == str(path.parent)


def test_a_library_that_others_could_have_put_there_is_not_loaded(fake: Fake, tmp_path: Path) -> None:
    path = planted(tmp_path, "/usr/lib64-nvidia")
    path.parent.chmod(0o777)
    said = seen(fake, tmp_path, LD_LIBRARY_PATH="")["driver"]
    why = f"was not loaded: {path.parent} is world-writable"
    assert (said["status"], said["what"]) == ("missing", f"{path} is outside the loader's path and {why}")
    assert not fake.counts()
    planted(tmp_path, "/run/opengl-driver/lib")  # another one, that root alone could have put there
    assert seen(fake, tmp_path, LD_LIBRARY_PATH="")["driver"]["status"] == "limited"


def test_a_library_that_cannot_be_loaded_is_said(fake: Fake, tmp_path: Path) -> None:
    path = planted(tmp_path, "/usr/lib/wsl/lib")
    path.write_bytes(b"of another kind of machine")
    said = seen(fake, tmp_path, LD_LIBRARY_PATH="")["driver"]
    assert said["status"] == "missing"
    assert said["what"].startswith(f"{path} is outside the loader's path and was not loaded: {path}: ")


def test_n09_n10_a_driver_that_hangs_is_said_and_the_rest_is_answered(fake: Fake) -> None:
    fake.hang(INIT)
    said = told(env=fake.env())
    assert said["driver"]["status"] == "missing"
    assert said["driver"]["what"].startswith("no response from the driver for 3 s (nvmlInit")
    assert said["driver"]["unlock"] == "sudo dmesg | grep -E 'NVRM|Xid'"
    assert said["psi"]["status"] != "unknown"
    assert said["loader"]["value"]["num_workers"] is not None


def test_n09_a_single_gpu_that_hangs(fake: Fake, tmp_path: Path) -> None:
    fake.hang("nvmlDeviceGetName", gpu=3)
    assert "(nvmlDeviceGetName does not return)" in seen(fake, tmp_path)["driver"]["what"]


def test_n03_module_and_library_differ(fake: Fake, tmp_path: Path) -> None:
    fake.fail(INIT, 18)
    said = seen(fake, tmp_path, module("570.86.10"))
    assert (said["driver"]["status"], said["driver"]["unlock"]) == ("missing", None)
    assert said["match"]["what"].startswith("kernel module 570.86.10, library 580.65.06: new CUDA programs fail")
    assert (said["match"]["status"], said["match"]["unlock"]) == ("missing", "sudo reboot")


@pytest.mark.parametrize(
    ("code", "on_host", "in_container"),
    [
        (9, "sudo modprobe nvidia", "docker run --gpus all IMAGE"),
        (4, "sudo gputop doctor", "docker run --gpus all IMAGE"),
        (999, "sudo dmesg | grep -E 'NVRM|Xid'", "docker restart CONTAINER"),
        (15, "sudo dmesg | grep -E 'NVRM|Xid'", "sudo dmesg | grep -E 'NVRM|Xid'"),
    ],
)
def test_n02_n04_a_driver_that_does_not_open(
    fake: Fake, tmp_path: Path, code: int, on_host: str, in_container: str
) -> None:
    fake.fail(INIT, code)
    said = seen(fake, tmp_path / "host")["driver"]
    assert (said["status"], said["unlock"]) == ("missing", on_host)
    if code != 999:  # whose container is known by the real mark
        said = seen(fake, tmp_path / "box", {".dockerenv": ""})["driver"]
        assert (said["status"], said["unlock"]) == ("missing", in_container)


def test_root_whom_the_driver_refuses_is_not_told_to_use_sudo(fake: Fake, tmp_path: Path) -> None:
    fake.fail(INIT, 4)
    said = seen(fake, tmp_path, uid=0)["driver"]
    assert (said["status"], said["unlock"]) == ("missing", None)


def test_n05_n06_no_gpu_a_silent_one_and_one_that_is_hidden(fake: Fake, tmp_path: Path) -> None:
    fake.fail("nvmlDeviceGetHandleByIndex*", 15, gpu=2)
    said = seen(fake, tmp_path / "a")
    assert said["gpus"]["what"] == "GPU 2 does not respond; the others do"
    assert said["driver"]["what"].startswith("driver 580.65.06 responds: 7 x ")
    fake.clear("*")
    fake.set("gpus", 0)
    said = seen(fake, tmp_path / "b", {".dockerenv": ""})
    assert (said["driver"]["status"], said["driver"]["unlock"]) == ("missing", "docker run --gpus all IMAGE")
    assert said["gpus"]["status"] == "unknown"
    fake.set("gpus", 1)
    files = {}
    for slot in ("1b", "1c"):
        place = f"sys/bus/pci/devices/0000:{slot}:00.0"
        files |= {f"{place}/vendor": "0x10de\n", f"{place}/class": "0x030200\n"}
    said = seen(fake, tmp_path / "c", files)["gpus"]
    assert (said["status"], said["what"]) == ("limited", "2 GPUs on the PCI bus, 1 listed by the driver")


def test_n32_sleeping_gpus_are_not_woken(fake: Fake, tmp_path: Path) -> None:
    place = "sys/bus/pci/devices/0000:1b:00.0"
    files = {f"{place}/vendor": "0x10de\n", f"{place}/class": "0x030200\n"}
    said = seen(fake, tmp_path, {**files, f"{place}/power/runtime_status": "suspended\n"})
    assert (said["driver"]["status"], said["gpus"]["what"]) == ("unknown", "1 NVIDIA GPU on the PCI bus, not queried")
    assert sum(fake.counts().values()) == 0


REPLACE = "pip uninstall -y torch && pip install torch --index-url https://download.pytorch.org/whl"


@pytest.mark.parametrize(
    ("version", "cuda", "state", "status", "unlock"),
    [
        ("2.8.0+cpu", None, {}, "missing", f"{REPLACE}/cu130"),
        ("2.8.0+cpu", None, {"cuda_version": 12040}, "missing", f"{REPLACE}/cu126"),
        ("2.9.0+cu130", "13.0", {"cuda_version": 12040}, "missing", f"{REPLACE}/cu126"),
        ("2.4.0+cu124", "12.4", {"cuda_version": 12020}, "ok", None),
        ("1.13.1+cu117", "11.7", {"cuda_version": 12080}, "limited", f"{REPLACE}/cu126"),
        ("2.0.1+cu118", "11.8", {}, "ok", None),
    ],
)  # fmt: skip
def test_pytorch_against_driver_and_gpus(
    fake: Fake, tmp_path: Path, version: str, cuda: str | None, state: dict[str, int], status: str, unlock: str | None
) -> None:
    fake.update(state)
    said = seen(fake, tmp_path, torch(version, cuda))["torch"]
    assert (said["status"], said["unlock"]) == (status, unlock)
    assert said["value"] == {"version": version, "cuda": cuda}


def test_n01_without_a_library(tmp_path: Path, fake: Fake) -> None:
    if told()["driver"]["status"] == "ok":
        pytest.skip("not covered: there is a real driver here")
    said = told()["driver"]
    assert said["status"] == "missing"
    assert said["unlock"] in ("docker run --gpus all IMAGE", "gputop demo", "sudo ubuntu-drivers install", None)


@pytest.mark.parametrize(
    ("files", "on_bus", "what", "unlock"),
    [
        (
            {"usr/bin/ubuntu-drivers": ""},
            2,
            "2 NVIDIA GPUs on the PCI bus but no driver",
            "sudo ubuntu-drivers install",
        ),
        ({"usr/bin/dnf": ""}, 1, "install NVIDIA's driver for this distribution", None),
        ({"usr/bin/ubuntu-drivers": ""}, 0, "No NVIDIA GPU found", "gputop demo"),
        ({".dockerenv": ""}, 1, "No NVIDIA GPU found", "docker run --gpus all IMAGE"),
    ],
)
def test_n01_the_driver_is_installed_as_the_machine_installs_one(
    tmp_path: Path, files: dict[str, str], on_bus: int, what: str, unlock: str | None
) -> None:
    note = Note(subject="driver", key="no-library", text="No NVIDIA GPU found.")
    here = machine(tmp_path, files)
    here.driver.facts = lambda: NvidiaFacts(note=note, in_sys=on_bus)  # type: ignore[method-assign]
    said = line(here, "driver")
    assert what in said.what
    assert (said.status, said.unlock) == ("missing", unlock)


def test_a_library_that_is_no_file_is_not_loaded(fake: Fake, tmp_path: Path) -> None:
    """To load a pipe holds the interpreter for ever: no thread of ours would go on."""
    path = planted(tmp_path, "/usr/lib/wsl/lib")
    path.unlink()
    os.mkfifo(path, 0o644)
    said = seen(fake, tmp_path, LD_LIBRARY_PATH="")["driver"]
    assert (said["status"], said["what"]) == (
        "missing", f"{path} is outside the loader's path and was not loaded: it is no file"
    )  # fmt: skip
