"""A DataLoader that no variable names is found by the agent all the same."""

from __future__ import annotations

from pathlib import Path

from tests.traced_jobs import job, scratch

INLINE = """
import time
import torch
from torch.utils.data import DataLoader
began = False
while True:
    for _ in DataLoader(torch.rand(4096, 8), batch_size=8, num_workers=0):
        if not began:
            print("ready", flush=True)
            began = True
        time.sleep(0.05)
"""


def test_the_loader_of_a_for_loop_is_told_whatever_the_loop_does() -> None:
    with scratch() as folder:
        program = Path(folder, "inline.py")
        program.write_text(INLINE)
        with job(folder, program=str(program)) as training:
            agent = training.agent()
            for _ in range(20):
                (loader,) = agent.answer("facts")["facts"]["loaders"]
                assert (loader["num_workers"], loader["in_use"]) == (0, True)
            agent.close()
