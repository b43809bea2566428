"""Steps that give a container more: each engine by its own command and rights, and none where there is no such."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.diagnose.test_rules_cpu_quota import confined
from tests.rule_cases import after, found

ID = "0123456789ab" * 5 + "0123"
ROOTLESS = f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container"


@pytest.mark.parametrize(
    ("group", "viewer", "command", "root"),
    [
        (f"/system.slice/docker-{ID}.scope", 1000, "sudo docker update --cpus 8 0123456789ab", True),
        (f"/docker/{ID}", 1000, "sudo docker update --cpus 8 0123456789ab", True),
        (f"/machine.slice/libpod-{ID}.scope/container", 1000, "sudo podman update --cpus 8 0123456789ab", True),
        (ROOTLESS, 1000, "podman update --cpus 8 0123456789ab", False),
        (ROOTLESS, 1002, None, False),
        (ROOTLESS, 0, None, False),  # root has one of its own
        (ROOTLESS.replace("libpod", "docker"), 1000, "docker update --cpus 8 0123456789ab", False),
        (ROOTLESS.replace("libpod", "docker"), 0, None, False),
        (f"/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope", 1000, None, False),
        (f"/kubepods/burstable/pod1/{ID}", 1000, None, False),
        ("/lxc/box", 1000, None, False),
    ],
)
def test_docker_is_asked_for_its_own_containers_only_and_as_root(
    group: str, viewer: int, command: str | None, root: bool
) -> None:
    made = confined(2.4, throttled_percent=63.0, container="0123456789ab", cgroup=group, uid=1000)
    told = found(after(lambda t: replace(made(t), viewer_uid=viewer)), "cpu-quota")
    assert told is not None
    assert told.steps[0].text.startswith("Raise the CPU limit of its container to 8 CPUs")
    assert (told.steps[0].command, told.steps[0].needs_root) == (command, root)
    assert ("resources.limits.cpu: 8" in told.steps[0].text) == ("kubepods" in group)
