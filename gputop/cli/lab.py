"""The command that trains in several precisions, in the user's own Python, and says what each of them gains."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gputop.cli import experiment
from gputop.cli.experiment import Asked, Experiment, whole_number
from gputop.cli.line import USAGE, Command, Failure

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.page import Page

_EXAMPLE = """\
def make():                              # in train.py: gputop lab train.py:make
    model = torchvision.models.resnet18()
    data = ImageFolder("/data/train", transform)
    loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=WORKERS)
    return model, loader, torch.nn.CrossEntropyLoss()
"""


def _page(result: Mapping[str, Any]) -> Page:
    from gputop.lab.precision_report import page

    return page(result)


def _verdict(result: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict, and each precision below its ceilings."""
    from gputop.lab.precision import verdict
    from gputop.lab.roofline import spots

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


LAB = Experiment(
    kind="lab", program="child_lab.py", example=_EXAMPLE, unit="steps", rows="runs", page=_page, extra=_verdict
)


def lab(args: argparse.Namespace, settings: Settings) -> int:
    """Run each precision in turns, then two batch sizes, then the ceilings."""
    from gputop.cli.from_process import MAKERS, SKETCH, filled
    from gputop.lab.precision import Plan, compare

    if args.last:
        return experiment.last(LAB, args, settings)
    filled(args, settings, "lab", MAKERS, SKETCH)
    if args.warmup >= args.steps:
        raise Failure(f"--warmup {args.warmup} leaves none of --steps {args.steps} to measure", USAGE)
    asked = Asked(LAB, args)
    plan = Plan(steps=args.steps, warmup=args.warmup, repeats=args.repeats, fp16=args.fp16, tf32=args.tf32)
    asked.request, asked.rounds = {"steps": plan.steps, "batch_size": args.batch_size}, plan.children
    facts = {"steps": plan.steps, "warmup": plan.warmup, "repeats": plan.repeats}
    return experiment.run(asked, settings, facts, lambda result: compare(asked, plan, result))


def _arguments(parser: argparse.ArgumentParser) -> None:
    from gputop.lab.loading import BATCH_SIZE
    from gputop.lab.precision import REPEATS, STEPS, WARMUP

    experiment.arguments(parser, LAB, "(model, loader), (model, batch, loss_fn) or (loader, step)")
    parser.add_argument("--fp16", action="store_true", help="also fp16 with a GradScaler, for GPUs before Ampere")
    parser.add_argument("--tf32", action="store_true", help="also fp32 with matrix products in TF32")
    parser.add_argument(
        "--steps", type=whole_number, default=STEPS, metavar="N", help=f"steps of each run, with the warm-up ({STEPS})"
    )
    parser.add_argument(
        "--warmup", type=whole_number, default=WARMUP, metavar="N", help=f"of them before the clock starts ({WARMUP})"
    )
    parser.add_argument(
        "--repeats",
        type=whole_number,
        default=REPEATS,
        metavar="N",
        help=f"runs of each precision, in turns ({REPEATS})",
    )
    parser.add_argument(
        "--batch-size",
        type=whole_number,
        default=BATCH_SIZE,
        metavar="N",
        help=f"where it returns a Dataset ({BATCH_SIZE})",
    )


COMMANDS = (
    Command(
        name="lab",
        help="train in fp32, bf16 and bf16 + torch.compile: what each gains, and what limits a step",
        run=lab,
        arguments=_arguments,
    ),
)
