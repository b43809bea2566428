"""The command that finds the largest batch that fits, in the user's own Python."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from threading import Event
from typing import TYPE_CHECKING, Any

from gputop.cli import experiment
from gputop.cli.experiment import Asked, Experiment, whole_number
from gputop.cli.line import Command, Failure

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.model import Gpu, Process
    from gputop.page import Page

_DRIVER_S = 5.0  # the longest wait for the driver, which says what else runs on a GPU
_UNSEEN_BYTES = 1 << 30  # of memory in use, from which somebody uses a GPU whose processes cannot be seen
_EXAMPLE = """\
def make():                              # in train.py: gputop maxbatch train.py:make
    model = torchvision.models.resnet18()
    batch = torch.randn(8, 3, 224, 224), torch.zeros(8, dtype=torch.long)
    return model, batch, torch.nn.CrossEntropyLoss()
    return model                         # enough with --shape 3,224,224
"""


def _page(result: Mapping[str, Any]) -> Page:
    from gputop.lab.batch_size import page

    return page(result)


MAXBATCH = Experiment(
    kind="maxbatch", program="child_maxbatch.py", example=_EXAMPLE, unit="steps", rows="tries", page=_page
)


def maxbatch(args: argparse.Namespace, settings: Settings) -> int:
    """Look what else runs on the GPU, then try one batch after the other."""
    from gputop.cli.from_process import MAKERS, SKETCH, filled
    from gputop.lab.batch_size import Plan, search

    if args.last:
        return experiment.last(MAXBATCH, args, settings)
    filled(args, settings, "maxbatch", MAKERS, SKETCH)
    asked = Asked(MAXBATCH, args)
    plan = Plan(start=args.start, inference=args.inference, shape=args.shape)
    asked.request = {"batch_size": plan.start, "inference": plan.inference, "shape": plan.shape}

    def measure(result: dict[str, Any]) -> None:
        device = asked("the device", {"mode": "device"})
        if device["device"] == "cuda":
            result["gpu"] = device["name"]
            if not args.beside_others:
                _alone(args, settings, device["uuid"])
        search(asked, plan, result)

    return experiment.run(asked, settings, {"inference": plan.inference, "gpu": None}, measure)


def _alone(args: argparse.Namespace, settings: Settings, uuid: str | None) -> None:
    """Failure where something else runs on the GPU: it would fail for memory that this search takes."""
    from gputop.cli.opening import open_source

    source = open_source(getattr(args, "source", "live"), settings, patience_s=_DRIVER_S)
    stop = Event()
    frames = source.frames(stop)
    frame = next(frames)
    stop.set()
    next(frames, None)  # it lets go of the driver
    if why := in_use(frame.gpus, frame.processes, uuid):
        raise Failure(f"{why}: nothing was tried; --beside-others tries all the same")


def in_use(gpus: Sequence[Gpu], processes: Sequence[Process], uuid: str | None) -> str | None:
    """Why a GPU is not ours alone, or not known to be; None where it is. Without its uuid every GPU counts."""
    found = [gpu for gpu in gpus if uuid in (None, gpu.uuid)]
    if not found:
        return "the driver does not say what else runs on the GPU"
    for gpu in found:
        users = [
            process
            for process in processes
            if any(share.uuid == gpu.uuid and share.kind != "graphics" for share in process.gpus)
        ]
        if users:
            first = users[0]
            more = f" and {len(users) - 1} more" if len(users) > 1 else ""
            user = f" of {first.user}" if first.user else ""
            return f"PID {first.pid}{user}{more} is on GPU {gpu.index} and may run out of memory"
        if gpu.vram_used_bytes is None and not gpu.unified_memory:
            return f"the memory in use of GPU {gpu.index} is unknown"
        if (gpu.vram_used_bytes or 0) - (gpu.vram_reserved_bytes or 0) > _UNSEEN_BYTES:
            return f"GPU {gpu.index} is in use by processes that cannot be seen from here"
    return None


def _shape(text: str) -> tuple[int, ...]:
    """Sizes with commas."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= 10**9 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape of a sample: write 3,224,224")
    return tuple(int(part) for part in parts)


def _arguments(parser: argparse.ArgumentParser) -> None:
    from gputop.lab.batch_size import START

    experiment.arguments(parser, MAXBATCH, "(model, batch, loss_fn), (model, loader), or a model with --shape")
    parser.add_argument("--inference", action="store_true", help="forward passes without gradients only")
    parser.add_argument("--shape", type=_shape, metavar="LIST", help="of one sample, where only a model is returned")
    parser.add_argument(
        "--start", type=whole_number, default=START, metavar="N", help=f"the first batch that is tried ({START})"
    )
    parser.add_argument("--beside-others", action="store_true", help="even on a GPU that other processes use")


COMMANDS = (
    Command(
        name="maxbatch",
        help="find the largest batch that fits, by real training steps, and the batch to train with",
        run=maxbatch,
        arguments=_arguments,
    ),
)
