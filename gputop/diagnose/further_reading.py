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
    "gpu-bound-healthy": "Guides call a GPU healthy from 80 or 90 % busy; one warns that even 95 % proves little, as "
    "busy means only that some kernel runs. gputop requires 90 % and a second metric: SM activity or power.",
    "small-job": "Guides call a GPU underused below 30, 80 or 90 % busy. gputop uses 50 %, with low power and no "
    "workers to wait for.",
    "starved-cpu-idle": "Guides begin with slightly fewer workers than cores, with 4 to 8, or with half of the cores. "
    "gputop measures the throughput of the present workers: as many as feed the GPU, plus a few.",
    "loader-in-main": "Guides begin with slightly fewer workers than cores, with 4 to 8, or with half of the cores. "
    "gputop starts with half of the job's CPUs, at most 8: nothing is measured yet, and workers cost memory.",
    "workers-oversized": "One guide recommends nearly one worker per core. gputop counts the cores this job may use, "
    "shared by its ranks, including a container limit that PyTorch does not see.",
    "busy-not-effective": "A guide calls a fully busy GPU with few FLOPs compute-bound. gputop calls it low SM "
    "activity: the compute units are idle.",
    "mem-bw-bound": "A guide expects it below 30 % GPU busy. But a GPU is busy while memory moves, so gputop decides "
    "by bandwidth alone.",
    "sync-log-stall": "Many example training loops fetch the loss at every step. PyTorch's tuning guide advises "
    "against that: reading a value back waits until the GPU is idle.",
    "thermal": "A guide names 83 °C, a limit of desktop cards. gputop uses the slowdown temperature the GPU reports, "
    "and 83 °C only where it reports none.",
    "threads-process": "A guide expects idle CPUs with too many threads; others measured saturated ones, as threads "
    "spin while they wait. gputop decides by CPU wait.",
    "threads-host": "A guide expects idle CPUs with too many threads, and sets 4 or 8; others measured saturated ones. "
    "gputop decides by CPU wait, and recommends the CPUs divided by the experiments.",
    "openblas-on-intel": "A guide also empties ~/.condarc. gputop deletes no settings, and OpenBLAS by itself is no "
    "fault: pip's NumPy always includes it.",
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
