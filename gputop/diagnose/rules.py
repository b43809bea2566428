"""Every rule there is. To import this is to load them all, which takes longer than anything else here."""

from dataclasses import replace
from inspect import unwrap

from gputop.diagnose import cpu, device, efficiency, feed, inside, memory, meta, numerics, ranks, storage, usage
from gputop.diagnose.rule import RULES, Rule

# the modules of the rules, in the order in which rules are listed and asked; meta tells what the others cannot judge
GROUPS = (usage, feed, efficiency, cpu, storage, memory, ranks, device, inside, numerics, meta)
_ORDER = {module.__name__.rpartition(".")[2]: place for place, module in enumerate(GROUPS)}


def _turn(rule: Rule) -> tuple[bool, bool, int, int, int]:
    """By groups; who fills in where no other speaks comes after those, to know what they could not judge.

    Within a group in the order of its `__all__`, within a module as they are written.
    """
    place = _ORDER[rule.group]
    modules, judge = getattr(GROUPS[place], "__all__", ()), unwrap(rule.judge)
    module = judge.__module__.rpartition(".")[2]
    within = modules.index(module) if module in modules else 0
    return rule.group == "meta", rule.last, place, within, judge.__code__.co_firstlineno


# in this order, whichever of them somebody imported first
for _place, _rule in enumerate(sorted(RULES.values(), key=_turn)):
    del RULES[_rule.id]
    RULES[_rule.id] = replace(_rule, place=_place)

__all__ = ["GROUPS", "RULES"]
