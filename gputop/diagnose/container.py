"""Steps that give a container more: by the program that made it, with the rights that this takes."""

from __future__ import annotations

import re
from shlex import quote

from gputop.diagnose.finding import Step
from gputop.diagnose.looking import closed
from gputop.diagnose.view import View
from gputop.model import Process

# how groups are called that each makes, with systemd and without
_DOCKER = re.compile(r"/docker[-/][0-9a-f]{12}")
_PODMAN = re.compile(r"/libpod[-/](?:\w+-)?[0-9a-f]{12}")
_OF_A_USER = re.compile(r"/user@\d+\.service/")


def widened(view: View, process: Process, text: str, setting: str, in_kubernetes: str) -> Step:
    """`setting` is an option that Docker and Podman share. A pod is changed by its owner, others by no command."""
    group, container = process.cgroup or "", quote(process.container or "")
    if "kubepods" in group:
        return Step(text=f"{text}, in Kubernetes by {in_kubernetes}")
    if _DOCKER.search(group):
        return Step(text=text, command=f"sudo docker update {setting} {container}", needs_root=True)
    if not _PODMAN.search(group):
        return Step(text=text)
    if not _OF_A_USER.search(group):
        return Step(text=text, command=f"sudo podman update {setting} {container}", needs_root=True)
    if closed(view, process):  # root has a podman of its own, which does not know it
        return Step(text=f"{text}, which is for its user to do")
    return Step(text=text, command=f"podman update {setting} {container}")
