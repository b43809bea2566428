"""What the rules say where there is no GPU to look at: each that needs one cannot judge, for the same reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields

from gputop.diagnose.finding import Abstained
from gputop.diagnose.rule import Rule
from gputop.diagnose.subjects import subject_of
from gputop.model import Frame, Gpu, Missing

_OF_GPUS = {field.name for field in fields(Gpu)} | {"gpus"}  # the latter of a process
_NONE = "the driver lists no GPU"


def without_gpus(frame: Frame, rules: Iterable[Rule]) -> Iterator[Abstained]:
    """An abstention of each rule that judges GPUs, or processes that use one."""
    note = next((note for note in frame.notes if note.subject == "driver"), None)
    why = f"{note.text if note else _NONE}: gputop doctor says what helps".replace(".:", ":")
    about = subject_of(frame.host)
    for rule in rules:
        if not rule.alone:
            wanted = [need.split(" or ") for need in rule.needs or rule.partly]
            lacked = [names[0] for names in wanted if _OF_GPUS.issuperset(names)] or ["gpus"]
            missing = tuple(Missing(metric=name, reason="absent", unlock=why) for name in lacked)
            yield Abstained(rule=rule.id, subject=about, missing=missing, unlock=why)
