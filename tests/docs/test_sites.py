"""The files for sites that the manual prints: each is what a tool of its ecosystem takes."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from gputop import docs
from gputop.cli import parser
from tests.docs.test_docs import rows
from tests.docs.test_man_page import run, tool

FOLDER = Path(docs.__file__).parent / "sites"
KUBERNETES = Path(__file__).parents[1] / "assets" / "kubernetes-1.34.json"
UNITS = ("gputop-record.service", "gputop-export.service")


def test_every_file_is_printed_and_explained_once() -> None:
    shipped = {f"sites/{path.name}" for path in FOLDER.iterdir()}
    assert set(docs.FILES) == shipped
    named = [name for _, text in rows(docs.read("sites"))[:8] for name in re.findall(r"`(sites/[\w.-]+)`", text)]
    assert set(named) == shipped
    for name in docs.FILES:
        assert docs.read(name) == (FOLDER.parent / name).read_text(encoding="utf-8")


def test_a_file_says_how_it_is_installed() -> None:
    for path in FOLDER.iterdir():
        if path.suffix in (".sh", ".service", ".yaml") or path.name == "Containerfile":
            assert f"gputop docs sites/{path.name} > " in path.read_text(), path


@pytest.mark.parametrize("name", [name for name in docs.FILES if name.endswith(".sh")])
def test_scripts_are_plain_shell(name: str) -> None:
    run(tool("shellcheck"), "--shell=sh", "--severity=style", str(FOLDER.parent / name))


@pytest.mark.parametrize("name", UNITS)
def test_systemd_takes_the_units(name: str, tmp_path: Path) -> None:
    verify, text = tool("systemd-analyze"), (FOLDER / name).read_text()
    there = tmp_path / name
    # the program and the user are of the site
    there.write_text(text.replace("/usr/local/bin/gputop", str(shutil.which("true"))).replace("gputop\n", "root\n"))
    said = run(verify, "verify", "--man=no", str(there))
    assert name not in said, said


@pytest.mark.parametrize("name", UNITS)
def test_what_a_unit_starts_is_a_command(name: str, tmp_path: Path) -> None:
    words = arguments(name, tmp_path)
    assert parser().parse_args(words).command in words
    if "record" in words:
        assert re.fullmatch(r"/logs/\d{8}T\d{6}\.jsonl\.gz", words[-1])


def test_one_unit_sends_alerts_and_it_has_a_network(tmp_path: Path) -> None:
    """Services do not see each other's locks, and a recorder that is started again would send again what holds."""
    started = {name: parser().parse_args(arguments(name, tmp_path)) for name in UNITS}
    senders = [name for name, args in started.items() if not getattr(args, "no_alerts", False)]
    assert senders == ["gputop-export.service"]
    assert "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6\n" in (FOLDER / senders[0]).read_text()


def arguments(name: str, tmp_path: Path) -> list[str]:
    """What gputop gets from a unit, after systemd's quoting and the shell's."""
    (line,) = re.findall(r"(?m)^ExecStart=(.*)$", (FOLDER / name).read_text())
    stub = tmp_path / "gputop"
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stub.chmod(0o755)
    command = shlex.split(line.replace("$$", "$").replace("%%", "%").replace("/usr/local/bin/gputop", str(stub)))
    done = subprocess.run(command, env={"LOGS_DIRECTORY": "/logs"}, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_user_and_the_folder_of_the_recordings_are_made(tmp_path: Path) -> None:
    users, files = tool("systemd-sysusers"), tool("systemd-tmpfiles")
    (tmp_path / "etc").mkdir()
    run(users, f"--root={tmp_path}", str(FOLDER / "gputop-sysusers.conf"))
    assert "gputop:" in (tmp_path / "etc" / "passwd").read_text()
    run(files, f"--root={tmp_path}", "--create", str(FOLDER / "gputop-tmpfiles.conf"))
    assert (tmp_path / "var" / "log" / "gputop").stat().st_mode & 0o777 == 0o750


def manifests(text: str) -> list[Mapping[str, Any]]:
    """The objects of a manifest, each checked against the schema of its kind."""
    schemas = json.loads(KUBERNETES.read_text())
    found = list(yaml.safe_load_all(text))
    for each in found:
        schema = {**schemas["kinds"][each["kind"]], "definitions": schemas["definitions"]}
        errors = [f"{list(error.path)}: {error.message}" for error in Draft202012Validator(schema).iter_errors(each)]
        assert errors == []
    return found


def test_the_daemonset_is_valid_and_has_no_more_rights_than_it_needs() -> None:
    text = docs.read("sites/kubernetes-daemonset.yaml")
    _, daemonset = manifests(text)
    pod = daemonset["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["hostPID"]
    assert pod["runtimeClassName"] == "nvidia"
    assert not {"hostNetwork", "hostIPC", "volumes", "serviceAccountName"} & set(pod)
    assert not pod["automountServiceAccountToken"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert parser().parse_args(container["args"]).command == "export"


def test_the_variant_with_more_rights_is_valid_too() -> None:
    text = docs.read("sites/kubernetes-daemonset.yaml")
    blocks = re.findall(r"(?m)^ +# securityContext:\n(?: +#  .*\n)+", text)
    parts = [yaml.safe_load(re.sub(r"(?m)^ +# ", "", block))["securityContext"] for block in blocks]
    whole = manifests(text)[1]
    spec = whole["spec"]["template"]["spec"]
    spec["securityContext"], spec["containers"][0]["securityContext"] = parts
    manifests(yaml.safe_dump(dict(whole)))
    assert parts[1]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_PTRACE", "DAC_READ_SEARCH"]}
    assert "privileged" not in parts[1]
    with pytest.raises(AssertionError, match="hostPid"):
        manifests(text.replace("hostPID:", "hostPid:"))


def test_the_container_recipe_can_be_read() -> None:
    text = re.sub(r"\\\n", " ", docs.read("sites/Containerfile"))
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    known = {"FROM", "ARG", "RUN", "COPY", "ENV", "USER", "ENTRYPOINT"}
    assert {word for word, _ in lines} <= known
    of = dict(lines)
    assert json.loads(of["ENTRYPOINT"]) == ["gputop"]
    assert not of["USER"].startswith(("0", "root")), "not root"
    assert all(re.fullmatch(r"[A-Z_]+=\S+", each) for each in of["ENV"].split())
