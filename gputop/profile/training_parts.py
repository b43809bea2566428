"""Classify the samples of a training program by the functions on its stacks."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from gputop.profile.code import is_own
from gputop.profile.stacks import Profile


class TrainingPart(NamedTuple):
    """One known part. A stack belongs to the first part listed below that matches one of its frames."""

    name: str  # of a fact, for the rules
    text: str  # after `main thread `
    frame: re.Pattern[str]  # of a frame's name: Class.function (file.py:12)
    phase: str = ""  # of a step: data, forward, backward, optimizer, comms
    line: re.Pattern[str] | None = None  # of the innermost line's text, if known: a call into C


_NEVER = re.compile(r"(?!)")
# in the text of an innermost line; Python's own waits have separate frames
_WAITS_FOR_RANKS = re.compile(r"\.wait\(")
_READS_BACK = re.compile(r"\.(?:item|cpu|tolist|numpy|synchronize)\(\s*\)|\bprint\(")


def _part(
    name: str,
    text: str,
    *frames: tuple[str, str],
    phase: str = "",
    line: re.Pattern[str] | None = None,
    native: str = "",
) -> TrainingPart:
    """`frames` are pairs of function and file; a function may be qualified by its class.

    `native`: prefixes of C and C++ functions, in any file.
    """
    either = "|".join(rf"(?:{function}) \((?:[^)]*/)?(?:{file})(?::\d+)?\)$" for function, file in frames)
    frame = rf"(?:^|\.)(?:{either})"
    return TrainingPart(name, text, re.compile(rf"{frame}|^(?:{native})" if native else frame), phase, line)


PARTS = (
    _part("loads-in-main", "loading data itself", ("fetch", r"fetch\.py"), phase="data"),
    _part(
        "waits-for-data",
        "waiting for the DataLoader",
        ("__next__|_next_data|_get_data|_try_get_data|__iter__|_get_iterator", r"dataloader\.py"),
        phase="data",
    ),
    _part("compiles", "compiling", (r"\w+", r"convert_frame\.py|compile_fx\.py|async_compile\.py")),
    _part(
        "data-parallel",
        "DataParallel, copying the model and its batches",
        ("replicate|scatter|gather", r"data_parallel\.py"),
        ("replicate", r"replicate\.py"),
        (r"scatter\w*|gather\w*", r"scatter_gather\.py"),
        phase="comms",
    ),
    _part(
        "collectives",
        "in collectives",
        (r"\w+", r"distributed_c10d\.py|_functional_collectives\w*\.py|_fsdp_collectives\.py|p2p_communication\.py"),
        (r"wait_for_unshard|_unshard|_reduce_grad|_wait_for_computation_stream", r"\w*fsdp\w*\.py|_runtime_utils\.py"),
        (r"_sync_\w+|_sync_buffers|_distributed_broadcast_coalesced", r"distributed\.py"),
        (r"all_?reduce\w*|all_?gather\w*|reduce_scatter\w*|broadcast\w*|barrier|all_to_all\w*|wait", r"comm\.py"),
        (r"synchronize|_allreduce\w*|poll", r"mpi_ops\.py"),
        phase="comms",
        line=_WAITS_FOR_RANKS,
        native=r"c10d::|gloo::|nccl[A-Z]\w*|nvshmem\w*|MPI_\w+",
    ),
    _part("saves", "saving a checkpoint", (r"\w*save\w*", r"serialization\.py|state_dict_saver\.py")),
    TrainingPart("sync", "reading results back or printing them", _NEVER, "", _READS_BACK),
    _part(
        "logs",
        "logging and drawing",
        ("emit|callHandlers|_log", r"__init__\.py"),
        (r"add_\w+", r"writer\.py"),
        ("refresh|display", r"std\.py"),
        ("log|_log", r"wandb_run\.py"),
        ("save_image|make_grid", r"utils\.py"),
        ("savefig|imsave", r"pyplot\.py|figure\.py"),
        ("save", r"Image\.py"),
        ("imwrite", r"v[23]\.py|core\.py"),
    ),
    _part("backward", "backward", ("_engine_run_backward", r"graph\.py"), ("backward", r".*\.py"), phase="backward"),
    _part(
        "optimizer",
        "optimizer",
        (r"\w*step\w*|zero_grad|\w*_use_grad", r"\w*optim\w*\.py|adam\w*\.py|sgd\.py|adagrad\.py|rmsprop\.py"),
        ("step", r"lbfgs\.py|muon\.py|adafactor\.py"),
        phase="optimizer",
    ),
    _part("forward", "forward", ("_call_impl|_wrapped_call_impl", r"module\.py"), ("forward", ".*"), phase="forward"),
)
_LINES = tuple((place, part.line) for place, part in enumerate(PARTS) if part.line)
LINALG = _part("linalg-in-loaders", "in linear algebra of NumPy", (r"\w+", r"_?linalg\.py"))
PHASES = ("data", "forward", "backward", "optimizer", "comms")


def main(profile: Profile) -> Profile:
    """The main thread of the profiled process, if threads are identified; else everything."""
    found = profile.only(lambda thread: thread.main and thread.pid in (None, profile.subject))
    return found if found.stacks else profile


def loaders(profile: Profile) -> Profile:
    """The main threads of its other processes, usually loaders, without the frames before the fork."""
    found = profile.only(lambda thread: thread.main and thread.pid not in (None, profile.subject))
    cut = Profile((stack[worker(stack) or 0 :], count) for stack, count in found.stacks.items())
    cut.files, cut.lines = found.files, found.lines
    return cut


def worker(stack: tuple[str, ...]) -> int | None:
    """Index in a stack where a loader's own work begins."""
    return next((place for place, name in enumerate(stack) if name.startswith("_worker_loop (")), None)


def share(profile: Profile, part: TrainingPart) -> float:
    """Share (0-1) of samples with a frame of this part."""
    hit = sum(count for stack, count in profile.stacks.items() if any(map(part.frame.search, stack)))
    return hit / profile.total if hit else 0.0


def shares(profile: Profile) -> dict[TrainingPart, float]:
    """Shares (0-1) of samples by part, the largest first; their sum is at most 1."""
    counts = dict.fromkeys(PARTS, 0.0)
    known: dict[str, int] = {}
    for stack, count in profile.stacks.items():
        first = min((_place(name, known) for name in stack), default=len(PARTS))
        if (text := profile.lines.get(stack[-1])) is not None:
            first = min(first, next((place for place, line in _LINES if line.search(text)), first))
        if first < len(PARTS):
            counts[PARTS[first]] += count
    total = profile.total or 1.0
    return {part: counts[part] / total for part in sorted(PARTS, key=lambda part: -counts[part])}


def phases(profile: Profile) -> dict[str, float]:
    """Shares of samples by phase of a step; without phases that no name identifies."""
    found = shares(profile)
    sums = {phase: sum(share for part, share in found.items() if part.phase == phase) for phase in PHASES}
    return {phase: share for phase, share in sums.items() if share}


def _place(name: str, known: dict[str, int]) -> int:
    """Index of the first part that matches a frame."""
    place = known.get(name)
    if place is None:
        fits = (place for place, part in enumerate(PARTS) if part.frame.search(name))
        place = known[name] = next(fits, len(PARTS))
    return place


Kind = Literal["waits", "own", "library"]

_WAITING_PARTS = tuple(part.frame for part in PARTS if part.name in ("waits-for-data", "collectives"))
# blocking functions of Python's library and of torch: function and file
_BLOCKS = re.compile(
    r"(?:^|\.)(?:wait|wait_for|acquire|_wait_for_tstate_lock|join|get|recv|_recv|recv_bytes|poll|_poll|select|accept"
    r"|sleep|synchronize|readinto) \((?:threading|queues?|connection|selectors|popen_fork|socket|subprocess|synchronize"
    r"|streams|__init__)\.py(?::\d+)?\)$"
)


def kind(frame: str, files: dict[str, str]) -> Kind:
    """Kind of a frame by its name; `files` has the full path of its file if known."""
    if _BLOCKS.search(frame) or any(pattern.search(frame) for pattern in _WAITING_PARTS):
        return "waits"
    return "own" if is_own(files.get(frame, "")) else "library"
