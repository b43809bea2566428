"""Ancestors and descendants of the processes that matter. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

LOADER = "pt_data_w"  # how torch names the main thread of a DataLoader worker: pt_data_worker
AGENT = "pt_elastic"  # and that of torchrun
FRAMEWORKS = frozenset({"torch", "tensorflow", "jax"})  # libraries that programs train with
_STARTERS = ("python", AGENT, "torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "slurmstepd")  # of sessions
_SHELLS = ("sh", "bash", "zsh", "dash", "ash", "ksh", "fish", "tcsh", "csh")
LARGEST = 2048  # processes of one command: more than that is no job but a machine
DEEPEST = 64  # a tree is never that deep; parents read at different times could form a circle


class CommandGroup(NamedTuple):
    """What shows whether a process is of the same command as its children: its name, and its process group."""

    name: str
    group: int | None


class Parentage:
    """Parents and children by pid, as of one moment."""

    def __init__(self, parents: Mapping[int, int]) -> None:
        self.parents = parents
        self.children: dict[int, list[int]] = {}
        for pid, parent in parents.items():
            self.children.setdefault(parent, []).append(pid)

    def above(self, pid: int) -> list[int]:
        """Ancestors, the nearest first. In a container the first process may be one that matters."""
        found: list[int] = []
        parent = self.parents.get(pid, 0)
        while parent > 0 and parent in self.parents and len(found) < DEEPEST:
            found.append(parent)
            parent = self.parents[parent]
        return found

    def below(self, pids: Iterable[int]) -> set[int]:
        """Descendants of these, themselves excluded unless they descend from one another."""
        found: set[int] = set()
        left = [child for pid in pids for child in self.children.get(pid, ())]
        while left:
            pid = left.pop()
            if pid not in found:
                found.add(pid)
                left.extend(self.children.get(pid, ()))
        return found

    def kin(self, roots: Iterable[int]) -> set[int]:
        """These processes with all their ancestors and descendants, as far as they exist."""
        here = [pid for pid in roots if pid in self.parents]
        found = set(here) | self.below(here)
        for pid in here:
            found.update(self.above(pid))
        return found

    def family(self, pid: int, members: Mapping[int, CommandGroup]) -> set[int]:
        """Everything that was started by the command that a process belongs to, with the process itself.

        A shell gives each command a separate process group, and a script keeps all it starts in its own.
        Launchers give their ranks other groups; their names identify them. What the same shell started beside it
        may be ranks of its job, and is checked, too.
        """
        root = pid
        for above in self.above(pid):
            parent, child = members.get(above), members.get(root)
            if parent is None or child is None:
                break
            if parent.group != child.group and not parent.name.startswith(_STARTERS):
                break
            root = above
        found = {root} | self.below([root])
        shell = self.parents.get(root, 0)
        if shell in members and members[shell].name in _SHELLS:  # `rank 0 & rank 1 &`: each has a separate group
            beside = set(self.children[shell]) | self.below(self.children[shell])
            found = found | beside if len(beside) <= LARGEST else found
        return found if len(found) <= LARGEST else self.kin([pid])
