"""What a job runs, and whether two runs are comparable: same script, arguments, ranks and GPUs.

Arguments may differ in settings that findings advise (loaders, threads, precision, compilation) and in output
locations. Any other difference, such as the batch size, makes it another workload, for which nothing is claimed.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from gputop.diagnose.start_command import program
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Job, Process
from gputop.safe.text import clean, redact_argv

_MOST_WORDS, _LONGEST = 200, 300  # arguments kept, and characters of each
_SHOWN = 40  # characters of a value
_NOTEBOOK = "ipykernel_launcher"  # its arguments are a different file each time
_OPTION = re.compile(r"-{1,2}[A-Za-z]|[A-Za-z_+][\w.+]*=")  # also `data.workers=4`, as in Hydra
_KNOBS = {
    "loader": "workers num-workers n-workers nworkers num-data-workers data-workers loader-workers dataloader-workers "
    "dataloader-num-workers workers-per-gpu j prefetch prefetch-factor dataloader-prefetch-factor pin-memory pin-mem "
    "no-pin-mem dataloader-pin-memory persistent-workers dataloader-persistent-workers in-order any-order",
    "threads": "threads num-threads nthreads n-threads torch-threads omp-threads omp-num-threads cpu-threads",
    "precision": "precision dtype amp no-amp amp-dtype use-amp mixed-precision fp16 bf16 tf32 half autocast",
    "compile": "compile no-compile torch-compile use-compile torchcompile cuda-graphs channels-last",
    "logging": "log-every log-interval log-freq log-every-n-steps log-steps logging-steps print-freq print-every "
    "image-every images-every checkpoint-every checkpoint-every-s checkpoint-interval checkpoint-aside save-every "
    "save-freq save-interval save-steps async-save",
    "results": "name run-name run-id exp-name experiment-name tag output out output-dir out-dir save-dir log-dir "
    "logdir results-dir checkpoint-dir work-dir seed",
}
_KIND = {name: kind for kind, names in _KNOBS.items() for name in names.split()}
UNSHOWN = "results"  # differences of this kind are no change


class Difference(NamedTuple):
    """One changed argument."""

    kind: str  # loader, threads, precision, compile, logging, results; empty: of the workload itself
    text: str  # batch-size 64 → 128


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """What a job runs, where, and on which GPUs."""

    script: str  # its path, or -m and a module with the folder it was started in
    arguments: tuple[str, ...] = ()
    host: str
    user: str
    ranks: int = 1
    gpus: str = ""  # number and model

    @property
    def program(self) -> tuple[str, str, str]:
        """Key of a script."""
        return self.host, self.user, self.script

    @property
    def name(self) -> str:
        """Display name."""
        return clean(self.script.removeprefix("-m ").partition(" in ")[0].rpartition("/")[2], _SHOWN)


def run_of(job: Job, ranks: Sequence[Process], frame: Frame, folder: str) -> JobRun | None:
    """The run of a job by its first rank, started in `folder`; None if it cannot be recognized again.

    Code on a command line, a notebook, a process title over the arguments: none of these identifies a later run.
    """
    words = program(redact_argv(ranks[0].command))[:_MOST_WORDS]
    user = job.user or ranks[0].user
    if not words or not user:
        return None
    if words[0] == "-m":
        if len(words) < 2 or words[1] == _NOTEBOOK:
            return None
        script, rest = f"-m {words[1]} in {folder}", words[2:]
    else:
        script, rest = os.path.normpath(PurePosixPath(folder) / words[0]), words[1:]
    names = (frame.by_uuid[share.uuid].name for rank in ranks for share in rank.gpus if share.uuid in frame.by_uuid)
    models = Counter(name or "GPU" for name in names)
    return JobRun(
        script=clean(script),
        arguments=tuple(clean(word, _LONGEST) for word in rest),
        host=clean(frame.hostname, _LONGEST),
        user=clean(user, _LONGEST),
        ranks=len(ranks),
        gpus=", ".join(f"{count}× {clean(name, _SHOWN)}" for name, count in sorted(models.items())),
    )


def differences(before: JobRun, after: JobRun) -> tuple[Difference, ...]:
    """Differences between two runs of one script; those of an empty kind make them different workloads."""
    old, new = options(before.arguments), options(after.arguments)
    both = ((name, old.get(name), new.get(name)) for name in {**old, **new})
    found = [_difference(name, was, now) for name, was, now in both if was != now]
    if before.ranks != after.ranks:
        found.append(Difference("", f"ranks {before.ranks} → {after.ranks}"))
    elif before.gpus != after.gpus:
        found.append(Difference("", f"GPUs {before.gpus or 'none'} → {after.gpus or 'none'}"))
    return tuple(found)


def options(arguments: Sequence[str]) -> Mapping[str, str]:
    """Arguments by normalized name (`--batch-size 64`, `--batch_size=64`, `batch_size=64`), others by position."""
    found: dict[str, str] = {}
    places, waiting = 0, ""
    for word in arguments:
        if _OPTION.match(word):
            flag, equals, value = word.partition("=")
            name = flag.lstrip("-+").replace("_", "-").lower()
            found[name] = f"{found[name]} {value}" if found.get(name) else value
            waiting = name if flag.startswith("-") and not equals else ""
        elif waiting:
            found[waiting] = f"{found[waiting]} {word}".strip()
        else:
            places += 1
            found[f"argument {places}"] = word
    return found


def _difference(name: str, old: str | None, new: str | None) -> Difference:
    bare = name.rpartition(".")[2]
    flag = not old and not new
    shown = [_value(value, flag=flag) for value in (old, new)]
    return Difference(_KIND.get(bare, ""), f"{clean(name, _SHOWN)} {shown[0]} → {shown[1]}")


def _value(value: str | None, *, flag: bool) -> str:
    if value is None:
        return "off" if flag else "unset"
    return clean(value, _SHOWN) or "on"
