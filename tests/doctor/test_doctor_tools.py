"""py-spy, NVIDIA's Python binding and what hides it, the private folder: real programs, modules and folders."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doctor_machine import ROOT, UNORDERED, line, machine, told


@pytest.mark.parametrize(
    ("script", "status", "says", "unlock"),
    [
        ("echo py-spy 0.4.3", "ok", "py-spy 0.4.3", ""),
        ("echo py-spy 0.3.14", "limited", "0.3.14 is too old", "install --upgrade py-spy"),
        ("exit 127", "missing", "does not run", "install --force-reinstall py-spy"),
        ("exec sleep 9", "missing", "does not run", "install --force-reinstall py-spy"),
        (None, "missing", "not installed", "install py-spy"),
    ],
)
@pytest.mark.parametrize("where", ["beside", "path"])
def test_py_spy(tmp_path: Path, script: str | None, status: str, says: str, unlock: str, where: str) -> None:
    program = tmp_path / where / "py-spy"
    files = {} if script is None else {f"{where}/py-spy": f"#!/bin/sh\n{script}\n"}
    box = machine(
        tmp_path, files, program=str(tmp_path / "beside/python"), environ={"PATH": f"{tmp_path}/path:/usr/bin:/bin"}
    )
    if script is not None:
        program.chmod(0o755)
    said = line(box, "py-spy")
    assert said.status == status
    assert says in said.what
    assert (said.unlock or "").endswith(unlock)


def test_the_real_py_spy_beside_us_runs() -> None:
    assert told("--no-nvml")["py-spy"]["what"].startswith("py-spy ")


def shadowed(folder: Path, *, variable: bool = True) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "PYTHONSAFEPATH": "1"}


@pytest.mark.parametrize("text", ["def nvmlInit(): pass\n", "raise ImportError\n", "import sys; sys.exit\n"])
def test_n35_another_pynvml_is_named_with_its_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "pynvml.py").write_text(text)
    said = told(env=shadowed(tmp_path), start=UNORDERED)
    assert said["pynvml"]["status"] == "missing"
    assert said["pynvml"]["what"] == f"{tmp_path}/pynvml.py shadows NVIDIA's module"
    assert said["pynvml"]["unlock"] == "env -u PYTHONPATH gputop doctor"
    assert (said["driver"]["status"], said["driver"]["unlock"]) == ("missing", None)
    assert "see pynvml" in said["driver"]["what"]


def test_n35_the_old_distribution_is_taken_out(tmp_path: Path) -> None:
    """As `pip install pynvml==11.4` leaves it: a package of its own beside its record."""
    (tmp_path / "pynvml").mkdir()
    (tmp_path / "pynvml/__init__.py").write_text("__version__ = '11.4.1'\n")
    (tmp_path / "pynvml-11.4.1.dist-info").mkdir()
    (tmp_path / "pynvml-11.4.1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: pynvml\nVersion: 11.4.1\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from pathlib import Path\nfrom tests.doctor_machine import line, machine\n"
        f"print(line(machine(Path({str(tmp_path)!r})), 'pynvml').unlock)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    first, second = done.stdout.strip().split("; ")
    assert first.endswith("-m pip uninstall -y pynvml")
    assert second.endswith("-m pip install --force-reinstall nvidia-ml-py")


def test_n35_no_binding_at_all_and_an_old_one(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
class Without:
    def find_spec(self, name, path=None, target=None):
        if name == "pynvml":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Without())
from tests.doctor_machine import line, machine
said = line(machine(Path(sys.argv[1])), "pynvml")
assert (said.status, said.what) == ("missing", "nvidia-ml-py is not installed: no GPU can be read"), said
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], cwd=ROOT, check=True, timeout=60)
    import pynvml

    old = tmp_path / "old"
    (old / "nvidia_ml_py-12.535.77.dist-info").mkdir(parents=True)
    (old / "nvidia_ml_py-12.535.77.dist-info/METADATA").write_text("Name: nvidia-ml-py\nVersion: 12.535.77\n")
    shutil.copy(pynvml.__file__, old)
    said = told("--no-nvml", env=shadowed(old), start=UNORDERED)["pynvml"]
    assert (said["status"], said["value"]["version"]) == ("limited", "12.535.77")


def test_f_the_runtime_folder_of_somebody_else_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tmp" / f"gputop-{os.geteuid()}"
    said = line(machine(tmp_path), "runtime")
    assert (said.status, said.what) == ("ok", f"{path} is created when needed")
    assert not path.exists()
    (tmp_path / "tmp").chmod(0o1777)
    path.mkdir(mode=0o700)
    assert line(machine(tmp_path), "runtime").what == f"{path} is private"
    path.chmod(0o755)
    said = line(machine(tmp_path), "runtime")
    assert (said.status, said.unlock) == ("missing", f"ls -ld {path}")
    assert "mode 0755, not 0700" in said.what
    path.rmdir()
    path.symlink_to("/etc")
    assert "is a link" in line(machine(tmp_path), "runtime").what
    path.unlink()
    if os.geteuid() == 0:
        path.mkdir(mode=0o700)
        os.chown(path, 12345, 12345)
        assert "belongs to another user (uid 12345)" in line(machine(tmp_path), "runtime").what
