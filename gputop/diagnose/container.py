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
    made_by = "docker" if _DOCKER.search(group) else "podman" if _PODMAN.search(group) else ""
    if not made_by:
        return Step(text=text)
    command = f"{made_by} update {setting} {container}"
    if not _OF_A_USER.search(group):
        return Step(text=text, command=f"sudo {command}", needs_root=True)
    # root and others have one of their own, which does not know it
    if view.frame.viewer_uid == 0 or closed(view, process):
        return Step(text=f"{text}, which is for its user to do")
    return Step(text=text, command=command)
