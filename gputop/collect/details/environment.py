"""The environment a process was started with. Secrets are masked as it is read: nothing else ever holds them."""

from __future__ import annotations

import os
from collections.abc import Collection

from gputop.collect.files import slurp, slurp_all
from gputop.collect.processes.readings import Values, line
from gputop.model import Identity, Missing, Variable
from gputop.safe import attach
from gputop.safe.identity import parse_stat
from gputop.safe.text import LIMIT, clean, decode, redact, redact_variable
from gputop.source import OTHERS_ENVIRONMENT

FILLS, OTHERS = ("environment",), "others"
MOST_BYTES, MOST_VARIABLES, LONGEST = 1 << 20, 2000, 1 << 16


class Environment:
    """Reads the variables of one process. What somebody asked to see is set by who looks."""

    def __init__(self, root: str, identity: Identity, uid: int | None = None) -> None:
        self._folder = f"{root}/{identity.pid}"
        self._uid = os.geteuid() if uid is None else uid
        self.revealed: Collection[str] = frozenset()
        self.others = False

    def read(self) -> Values:
        """The variables by name, and whether they are another user's; OSError when they may not be read."""
        others, revealed = not self._own(), self.revealed
        if others and not (self._uid == 0 and self.others):
            denied = Missing(metric="environment", reason="denied", unlock=attach.unlock(uid=self._uid))
            return {"missing": (OTHERS_ENVIRONMENT if self._uid == 0 else denied,)}
        stat = parse_stat(slurp(f"{self._folder}/stat"))
        if stat is None or stat.kernel_thread or stat.state in "ZX":  # its file is empty, which says nothing
            return {"missing": (Missing(metric="environment", reason="absent"),)}
        raw = slurp_all(f"{self._folder}/environ", MOST_BYTES)
        return {"environment": variables(raw, revealed), OTHERS: others}

    def _own(self) -> bool:
        """Whether it runs with our uid alone, by its status: its folder's owner is root where it may not be dumped."""
        uids = line(slurp(f"{self._folder}/status", 16384), b"\nUid:").split()[:3]
        return bool(uids) and {int(uid) for uid in uids} == {self._uid}


def variables(raw: bytes, revealed: Collection[str]) -> tuple[Variable, ...]:
    """The variables of an environ file, by name; an entry without a `=` is one without a value."""
    entries = [entry.partition(b"=") for entry in raw.split(b"\x00")[:MOST_VARIABLES] if entry]
    return tuple(sorted((_variable(name, value, revealed) for name, _, value in entries), key=lambda one: one.name))


def _variable(raw_name: bytes, raw_value: bytes, revealed: Collection[str]) -> Variable:
    told, value = decode(raw_name, LONGEST), decode(raw_value, LONGEST)
    # before they are cut: the half of a token does not look like one; a name may be anything, a command line say
    name, masked = clean(redact(told), 256), redact_variable(told, value)
    shown = name in revealed
    secret = masked != value or name != told
    return Variable(name=name, value=clean(value if shown else masked, LIMIT), secret=secret, revealed=shown)
