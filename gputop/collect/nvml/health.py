"""The health of a GPU's memory, and what the driver asks to be done about it."""

from __future__ import annotations

from typing import Any

from gputop.collect.nvml.card import Card
from gputop.collect.nvml.fields import Answer, count, field, flag, read, tally
from gputop.collect.nvml.gate import ABSENT
from gputop.collect.nvml.probe import Answers, probe

_ACTIONS = ("none", "reset", "reboot", "drain peers", "drain and reset", "recover domain", "reset bus", "reboot system")


def _action(_card: Card, _name: str, answer: Answer) -> str | None:
    number = int(answer.value)
    return _ACTIONS[number] if 0 <= number < len(_ACTIONS) else None


HEALTH = (
    field("ecc_corrected", tally, 3),
    field("ecc_uncorrected", tally, 4),
    field("remapped_corrected", count(), 142),
    field("remapped_uncorrected", count(), 143),
    field("remap_pending", flag, 144),
    field("remap_failed", flag, 145),
    field("recovery_action", _action, 230),
    field("retirement_pending", flag, 31),
)
_REFUSED_S = 10.0  # who must be reset refuses what is asked every second
_RETIRED = (field("single", count(), 29), field("double", count(), 30))
_ALL = (*HEALTH, *_RETIRED)


@probe(every_s=30, fills=(*(one.name for one in HEALTH), "retired_pages"))
def health(card: Card) -> Answers:
    """Memory errors, replaced rows, retired pages and the driver's wish, in one call."""
    given: dict[str, Any] = read(card, _ALL)
    single, double = given.pop("single"), given.pop("double")
    known = [pages for pages in (single, double) if isinstance(pages, int)]
    return given | {"retired_pages": sum(known) if known else single}


@probe(every_s=2, backs=("recovery_action",))
def refusals(card: Card) -> Answers:
    """That it must be reset, from its refusals, where the driver has no number for what it wishes; no call."""
    refuses = card.gate.clock() - card.refused_s < _REFUSED_S
    return {"recovery_action": "reset" if refuses else ABSENT}
