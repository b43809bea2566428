"""Every rule there is. To import this is to load them all, which takes longer than anything else here."""

from dataclasses import replace
from inspect import unwrap

from gputop.diagnose.rule import RULES, Rule
from gputop.diagnose.rules import cpu, device, efficiency, feed, inside, memory, meta, numerics, ranks, storage, usage

# in the order in which rules are listed and asked; meta tells what the others cannot judge
GROUPS = (usage, feed, efficiency, cpu, storage, memory, ranks, device, inside, numerics, meta)
_ORDER = {module.__name__.rpartition(".")[2]: place for place, module in enumerate(GROUPS)}


def _turn(rule: Rule) -> tuple[bool, bool, int, int, str, int]:
    """By groups, within one by its ORDER; a rule that is not in it comes last in its group, as it is written.

    A rule that fills in where no other speaks comes after all groups but meta, to know what they could not judge.
    """
    place = _ORDER[rule.group]
    order, code = getattr(GROUPS[place], "ORDER", ()), unwrap(rule.judge).__code__
    within = order.index(rule.id) if rule.id in order else len(order)
    return rule.group == "meta", rule.last, place, within, code.co_filename, code.co_firstlineno


# in this order, whichever of them somebody imported first
for _place, _rule in enumerate(sorted(RULES.values(), key=_turn)):
    del RULES[_rule.id]
    RULES[_rule.id] = replace(_rule, place=_place)

__all__ = ["GROUPS", "RULES"]
