"""A small training on the CPU that measures itself: `metered.py KIND [step ms] [batch ms]`, until its input ends.

Prints `ready` after some steps, and at its end what it measured: of each optimizer step after the first how long it
took and how long it waited for batches, and whether there was an evaluation in it. Both sleep for their times.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KIND = sys.argv[1]
STEP_S, BATCH_S = (float(value) / 1000 for value in (sys.argv[2:4] or ("20", "45")))
BATCH, SLOW_S = 4, 0.25


class Samples(Dataset):
    """Each takes its part of the time of a batch."""

    def __init__(self, count: int, each_s: float) -> None:
        self.count, self.each_s = count, each_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        time.sleep(self.each_s)
        if KIND == "slow" and place % (20 * BATCH) == 10 * BATCH:
            time.sleep(SLOW_S)
        return torch.randn(8), place % 2


def waited(batches: Iterator[list[torch.Tensor]]) -> Iterator[tuple[list[torch.Tensor], float]]:
    """The same, each with the time until it came."""
    while True:
        began_s = time.perf_counter()
        batch = next(batches)
        yield batch, time.perf_counter() - began_s


def main() -> None:
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    if KIND == "compiled":
        model.compile(backend="eager")
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for _ in range(2 if KIND == "several" else 1)]
    train = DataLoader(
        Samples(10_000, BATCH_S / BATCH), batch_size=BATCH, num_workers=0 if KIND in ("alone", "slow") else 1
    )
    valid = DataLoader(Samples(40, 0.0), batch_size=BATCH)
    over = threading.Event()
    threading.Thread(target=listen, args=(over,), daemon=True).start()
    steps: list[tuple[float, float, bool]] = []
    wait_s, ended_s, evaluated = 0.0, 0.0, False
    scaler = torch.amp.GradScaler("cpu", enabled=KIND == "framework")
    batches = made() if KIND == "no-loader" else ahead(iter(train)) if KIND == "framework" else iter(train)
    for number, ((inputs, labels), each_s) in enumerate(waited(batches)):
        wait_s += each_s

        def backward(
            number: int = number, inputs: torch.Tensor = inputs, labels: torch.Tensor = labels
        ) -> torch.Tensor:
            time.sleep(STEP_S + (SLOW_S if KIND == "slow" and number % 20 == 15 else 0.0))
            loss = nn.functional.cross_entropy(model(inputs), labels)
            scaler.scale(loss).backward()
            return loss

        if KIND == "closure":  # as Lightning does
            optimizers[0].step(backward)
        else:
            loss = backward()
            if KIND in ("notes", "nan"):
                notes(number, loss)
            if KIND == "accumulates" and number % 4 != 3:
                continue
            scaler.step(optimizers[0])
            scaler.update()
        now_s = time.perf_counter()
        steps.append((now_s - ended_s, wait_s, evaluated))
        wait_s, ended_s, evaluated = 0.0, now_s, False
        for optimizer in optimizers[1:]:
            optimizer.step()
        if KIND == "evaluates" and len(steps) % 10 == 0:
            evaluated = True
            for held_out, _ in valid:
                time.sleep(STEP_S / 2)
                with torch.no_grad():
                    model(held_out)
        if len(steps) == 6:
            print("ready", flush=True)
        if over.is_set():
            break
    print(json.dumps(steps[1:]), flush=True)


def ahead(batches: Iterator[list[torch.Tensor]]) -> Iterator[list[torch.Tensor]]:
    """Each batch when the next one is there, as the loaders of Accelerate do."""
    batch = next(batches)
    for after in batches:
        yield batch
        batch = after


def notes(number: int, loss: torch.Tensor) -> None:
    """As `gputop.note` and `gputop.mark` do, of a gputop that need not be installed here."""
    agent = sys.modules["gputop_agent"]
    agent.note({"loss": loss * (float("nan") if KIND == "nan" and number >= 12 else 1.0), "lr": 0.01})
    if number % 10 == 0:
        agent.mark("epoch", number // 10)
    if KIND == "nan" and number == 30:
        raise FloatingPointError("the loss is no number")


def listen(over: threading.Event) -> None:
    """Read without Python's buffers, whose locks a forked worker would inherit."""
    while os.read(0, 4096):
        pass
    over.set()


def made() -> Iterator[list[torch.Tensor]]:
    while True:
        yield [torch.randn(BATCH, 8), torch.zeros(BATCH, dtype=torch.long)]


if __name__ == "__main__":
    main()
