"""Further reading on a finding: guides that cover it, and the reason for our choice where guides differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gputop.diagnose.finding import Finding


class Guide(NamedTuple):
    """An external page."""

    title: str
    address: str


PYTORCH = Guide("PyTorch's tuning guide", "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html")
AUTODL = Guide("AutoDL on performance (Chinese)", "https://api.autodl.com/docs/perf/")
_BY_GROUP: Mapping[str, tuple[Guide, ...]] = {
    "usage": (AUTODL,),
    "feed": (PYTORCH, AUTODL),
    "efficiency": (PYTORCH,),
    "cpu": (AUTODL, PYTORCH),
    "storage": (AUTODL,),
    "ranks": (PYTORCH,),
}  # of the rules; the guides cover nothing else: no temperatures, memory or hardware


# topics on which guides differ, or whose advice does not always hold: what gputop does, and why
CHOICES: Mapping[str, str] = {
    "gpu-bound-healthy": "Guides call a GPU good from 80 or 90 % busy on, and one says that 95 % is no green light: "
    "busy is only that some kernel runs. So here it takes 90 % and a second sign: its units, or its power.",
    "small-job": "Guides put the limit between a good and a bad load at 30, 80 or 90 % busy. Low is here less than "
    "half, with little power, and nobody who is waited for.",
    "starved-cpu-idle": "Guides begin with slightly fewer workers than cores, with 4 to 8, or with half of the cores. "
    "Here it is what these loaders get done: as many as feed the GPU, and a few more.",
    "loader-in-main": "Guides begin with slightly fewer workers than cores, with 4 to 8, or with half of the cores. "
    "Here it is half of the CPUs of this job, at most 8: nothing was measured yet, and too many cost memory.",
    "workers-oversized": "One guide wants nearly a worker for each core. Here cores are those that this job may use, "
    "shared by its ranks: a limit of its container counts, which PyTorch does not see.",
    "busy-not-effective": "A guide calls it compute-bound where few FLOPs come of a GPU that is fully busy. Here that "
    "is little work: the units that compute are idle.",
    "mem-bw-bound": "A guide looks for it where the GPU is less than 30 % busy. But it is busy while memory is moved: "
    "so here the bandwidth decides, however busy it is.",
    "sync-log-stall": "A guide's own training loop fetches the loss at every step. PyTorch advises against that, and "
    "so does this rule: the GPU must be empty before a number can be had.",
    "thermal": "83 C, which a guide names, is a limit of desktop cards. Here it is the limit that the card tells; "
    "83 C counts where it tells none.",
    "threads-process": "A guide expects idle CPUs where there are too many threads; others measured full ones, as "
    "threads spin while they wait. So here it counts how long they wait for a CPU.",
    "threads-host": "A guide expects idle CPUs where there are too many threads, and sets 4 or 8; others measured full "
    "ones. So here it counts how long threads wait for a CPU, and the number is the CPUs by the experiments.",
    "openblas-on-intel": "A guide also empties ~/.condarc. Here no settings are deleted, and that "
    "OpenBLAS is there is no fault: pip's NumPy always brings it.",
}


def choice(finding: Finding) -> str:
    """What gputop does where guides differ on this finding, and why; empty where they agree."""
    return " ".join(text for rule in (finding.rule, *finding.causes) if (text := CHOICES.get(rule)))


def guides(finding: Finding) -> list[Guide]:
    """Guides on its causes, then on its rule; none if nothing needs to be done."""
    from gputop.diagnose.rules import RULES  # imported late: only a finding needs them

    if finding.healthy:
        return []
    known = [RULES[rule].group for rule in (*finding.causes, finding.rule) if rule in RULES]
    return list(dict.fromkeys(guide for group in known for guide in _BY_GROUP.get(group, ())))
