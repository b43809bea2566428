"""Every rule there is. To import this is to load them all, which takes longer than anything else here."""

from gputop.diagnose import cpu, device, efficiency, feed, inside, memory, ranks, storage, usage

# isort: split
from gputop.diagnose import meta  # last: it tells what the others cannot judge

# isort: split
from gputop.diagnose.rule import RULES

GROUPS = (
    usage,
    feed,
    efficiency,
    cpu,
    storage,
    memory,
    ranks,
    device,
    inside,
    meta,
)  # the modules of the rules, in the order in which rules are listed

__all__ = ["GROUPS", "RULES"]
