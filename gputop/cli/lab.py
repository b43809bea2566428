"""Commands of the lab: precisions, DataLoader and largest batch, measured in the user's own Python."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from threading import Event
from typing import TYPE_CHECKING, Any

from gputop.cli import experiment
from gputop.cli.experiment import Children, ExperimentCommand, whole_number
from gputop.cli.options import USAGE, CliCommand, Failure

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.model import Gpu, Process
    from gputop.report import Page


_LAB_EXAMPLE = """\
def make():                              # in train.py: gputop lab train.py:make
    model = torchvision.models.resnet18()
    data = ImageFolder("/data/train", transform)
    loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=WORKERS)
    return model, loader, torch.nn.CrossEntropyLoss()
"""


def _precision_page(result: Mapping[str, Any]) -> Page:
    from gputop.lab.precision_report import page

    return page(result)


def _verdict(result: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict, and each precision relative to its ceilings."""
    from gputop.lab.precision import spots, verdict

    points = {
        spot.kind: {
            "flops_per_s": spot.flops_per_s,
            "mfu": spot.utilization,
            "flops_per_byte": spot.intensity,
            "bound": spot.bound,
        }
        for spot in spots(result)
    }
    return {"verdict": verdict(result), "roofline": points}


LAB = ExperimentCommand(
    kind="lab",
    program="child_lab.py",
    example=_LAB_EXAMPLE,
    unit="steps",
    rows="runs",
    page=_precision_page,
    extra=_verdict,
)


def lab(args: argparse.Namespace, settings: Settings) -> int:
    """Run the precisions in turns, then two batch sizes, then the ceilings."""
    from gputop.cli.from_process import MAKERS, SKETCH, take_settings
    from gputop.lab.precision import PrecisionPlan, compare

    if args.last:
        return experiment.last(LAB, args, settings)
    take_settings(args, settings, "lab", MAKERS, SKETCH)
    if args.warmup >= args.steps:
        raise Failure(f"--warmup {args.warmup} must be less than --steps {args.steps}", USAGE)
    asked = Children(LAB, args)
    plan = PrecisionPlan(steps=args.steps, warmup=args.warmup, repeats=args.repeats, fp16=args.fp16, tf32=args.tf32)
    asked.request, asked.rounds = {"steps": plan.steps, "batch_size": args.batch_size}, plan.children
    facts = {"steps": plan.steps, "warmup": plan.warmup, "repeats": plan.repeats}
    return experiment.run(asked, settings, facts, lambda result: compare(asked, plan, result))


def _lab_arguments(parser: argparse.ArgumentParser) -> None:
    from gputop.lab.loader import BATCH_SIZE
    from gputop.lab.precision import REPEATS, STEPS, WARMUP

    experiment.arguments(parser, LAB, "(model, loader), (model, batch, loss_fn) or (loader, step)")
    parser.add_argument("--fp16", action="store_true", help="also fp16 with a GradScaler, for GPUs older than Ampere")
    parser.add_argument("--tf32", action="store_true", help="also fp32 with TF32 matrix products")
    parser.add_argument(
        "--steps", type=whole_number, default=STEPS, metavar="N", help=f"steps per run, including warm-up ({STEPS})"
    )
    parser.add_argument(
        "--warmup", type=whole_number, default=WARMUP, metavar="N", help=f"warm-up steps, not timed ({WARMUP})"
    )
    parser.add_argument(
        "--repeats",
        type=whole_number,
        default=REPEATS,
        metavar="N",
        help=f"runs per precision, interleaved ({REPEATS})",
    )
    parser.add_argument(
        "--batch-size",
        type=whole_number,
        default=BATCH_SIZE,
        metavar="N",
        help=f"batch size, if FACTORY returns a Dataset ({BATCH_SIZE})",
    )


_MOST_WORKERS = 1024
_SETTINGS = 5  # measured after the worker counts, for the remaining time
_LOADER_EXAMPLE = """\
def make_loader():                       # in train.py: gputop loader train.py:make_loader
    data = ImageFolder("/data/train")
    loader = DataLoader(data, batch_size=64, shuffle=True)
    return loader                        # or, to learn how long the step waits for it:
    return loader, step                  # step(batch) does one training step
"""


def _loader_page(result: Mapping[str, Any]) -> Page:
    from gputop.lab.loader_report import page

    return page(result)


def _advice(result: Mapping[str, Any]) -> dict[str, Any]:
    """The code line to write, if everything was measured."""
    from gputop.lab.loader import line, per_rank, plan_of

    if "recommended" not in result or result.get("ended"):
        return {"line": None}
    return {"line": line(result, per_rank(plan_of(result), result["recommended"]))}


_SKETCH = """\
def make_loader():
    dataset = ...  # as the training makes it
    return DataLoader(dataset, batch_size={batch_size}, shuffle=True, num_workers={workers})
"""
LOADER = ExperimentCommand(
    kind="loader",
    program="child_loader.py",
    example=_LOADER_EXAMPLE,
    unit="batches",
    rows="workers",
    page=_loader_page,
    extra=_advice,
)


def loader(args: argparse.Namespace, settings: Settings) -> int:
    """Measure each number of workers, then each other setting."""
    from gputop.cli.from_process import take_settings
    from gputop.lab.loader import BATCH_SIZE, LoaderPlan, sweep

    if args.last:
        return experiment.last(LOADER, args, settings)
    seen = take_settings(args, settings, "loader", ("loader", "dataset", "data"), _SKETCH)
    asked = Children(LOADER, args)
    cpus, jobs = _host(settings)
    own = seen.workers if seen else None
    plan = LoaderPlan(cpus=cpus, jobs=jobs, workers=args.workers, batches=args.batches, own=own)
    size = args.batch_size or (seen.batch_size if seen else None) or BATCH_SIZE
    asked.request, asked.rounds = {"batch_size": size}, len(plan.counts) + _SETTINGS
    return experiment.run(asked, settings, {"cpus": cpus, "jobs": jobs}, lambda result: sweep(asked, plan, result))


def _host(settings: Settings) -> tuple[int, int]:
    """Usable CPUs, and the number of ranks that share them, as counted by `gputop doctor`."""
    from gputop.doctor.machine import DoctorContext
    from gputop.doctor.share import share

    try:
        found = share(DoctorContext(nvml=settings.nvml))
    except OSError:
        return len(os.sched_getaffinity(0)), 1
    return found.allowed, found.jobs


def _worker_counts(text: str) -> tuple[int, ...]:
    """Comma-separated numbers of workers."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) <= _MOST_WORKERS for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of worker counts such as 0,4,8")
    return tuple(int(part) for part in parts)


def _loader_arguments(parser: argparse.ArgumentParser) -> None:
    from gputop.lab.loader import BATCH_SIZE, BATCHES

    returns = "a DataLoader, a Dataset, (loader, step) or (model, loader)"
    experiment.arguments(parser, LOADER, returns)
    parser.add_argument(
        "--workers",
        type=_worker_counts,
        metavar="LIST",
        help="values of num_workers to measure (0,2,4,8,12, up to the CPUs allowed)",
    )
    parser.add_argument(
        "--batches", type=whole_number, default=BATCHES, metavar="N", help=f"batches timed per setting ({BATCHES})"
    )
    parser.add_argument(
        "--batch-size",
        type=whole_number,
        metavar="N",
        help=f"batch size, if FACTORY returns a Dataset ({BATCH_SIZE})",
    )


_DRIVER_S = 5.0  # longest wait for the driver, which reports other GPU processes
_UNSEEN_BYTES = 1 << 30  # of memory in use: above, an invisible process uses the GPU
_MAXBATCH_EXAMPLE = """\
def make():                              # in train.py: gputop maxbatch train.py:make
    model = torchvision.models.resnet18()
    batch = torch.randn(8, 3, 224, 224), torch.zeros(8, dtype=torch.long)
    return model, batch, torch.nn.CrossEntropyLoss()
    return model                         # enough with --shape 3,224,224
"""


def _batch_page(result: Mapping[str, Any]) -> Page:
    from gputop.lab.batch_size import page

    return page(result)


MAXBATCH = ExperimentCommand(
    kind="maxbatch",
    program="child_maxbatch.py",
    example=_MAXBATCH_EXAMPLE,
    unit="steps",
    rows="tries",
    page=_batch_page,
)


def maxbatch(args: argparse.Namespace, settings: Settings) -> int:
    """Check for other processes on the GPU, then try one batch size after the other."""
    from gputop.cli.from_process import MAKERS, SKETCH, take_settings
    from gputop.lab.batch_size import BatchPlan, search

    if args.last:
        return experiment.last(MAXBATCH, args, settings)
    take_settings(args, settings, "maxbatch", MAKERS, SKETCH)
    asked = Children(MAXBATCH, args)
    plan = BatchPlan(start=args.start, inference=args.inference, shape=args.shape)
    asked.request = {"batch_size": plan.start, "inference": plan.inference, "shape": plan.shape}

    def measure(result: dict[str, Any]) -> None:
        device = asked("the device", {"mode": "device"})
        if device["device"] == "cuda":
            result["gpu"] = device["name"]
            if not args.beside_others:
                _check_gpu_free(args, settings, device["uuid"])
        search(asked, plan, result)

    return experiment.run(asked, settings, {"inference": plan.inference, "gpu": None}, measure)


def _check_gpu_free(args: argparse.Namespace, settings: Settings, uuid: str | None) -> None:
    """Raise Failure if anything else runs on the GPU: the search takes its memory."""
    from gputop.cli.sources import open_source

    source = open_source(getattr(args, "source", "live"), settings, patience_s=_DRIVER_S)
    stop = Event()
    frames = source.frames(stop)
    frame = next(frames)
    stop.set()
    next(frames, None)  # releases the driver
    if why := in_use(frame.gpus, frame.processes, uuid):
        raise Failure(f"{why}: nothing was run; --beside-others runs anyway")


def in_use(gpus: Sequence[Gpu], processes: Sequence[Process], uuid: str | None) -> str | None:
    """Why a GPU is in use, or not known to be free; None if it is free. Without a uuid every GPU counts."""
    found = [gpu for gpu in gpus if uuid in (None, gpu.uuid)]
    if not found:
        return "the driver does not report the other processes of the GPU"
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
            return f"PID {first.pid}{user}{more} uses GPU {gpu.index} and could run out of memory"
        if gpu.vram_used_bytes is None and not gpu.unified_memory:
            return f"the memory used on GPU {gpu.index} is unknown"
        if (gpu.vram_used_bytes or 0) - (gpu.vram_reserved_bytes or 0) > _UNSEEN_BYTES:
            return f"GPU {gpu.index} is used by processes that are not visible here"
    return None


def _shape(text: str) -> tuple[int, ...]:
    """Comma-separated sizes."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= 10**9 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape such as 3,224,224")
    return tuple(int(part) for part in parts)


def _maxbatch_arguments(parser: argparse.ArgumentParser) -> None:
    from gputop.lab.batch_size import START

    experiment.arguments(parser, MAXBATCH, "(model, batch, loss_fn), (model, loader), or a model with --shape")
    parser.add_argument("--inference", action="store_true", help="forward passes only, without gradients")
    parser.add_argument(
        "--shape", type=_shape, metavar="LIST", help="shape of one sample, if FACTORY returns only a model"
    )
    parser.add_argument(
        "--start", type=whole_number, default=START, metavar="N", help=f"first batch size to try ({START})"
    )
    parser.add_argument("--beside-others", action="store_true", help="run even if other processes use the GPU")


COMMANDS = (
    CliCommand(
        name="loader",
        help="benchmark a DataLoader and print the best settings",
        examples=("gputop loader train.py:make_loader", "gputop loader --from $(pgrep -nf train.py)"),
        run=loader,
        arguments=_loader_arguments,
    ),
    CliCommand(
        name="lab",
        help="compare fp32, bf16 and torch.compile on your model",
        examples=("gputop lab train.py:make", "gputop lab --last"),
        run=lab,
        arguments=_lab_arguments,
    ),
    CliCommand(
        name="maxbatch",
        help="find the largest batch size that fits in GPU memory",
        examples=("gputop maxbatch train.py:make", "gputop maxbatch --inference --shape 3,224,224 train.py:model"),
        run=maxbatch,
        arguments=_maxbatch_arguments,
    ),
)
