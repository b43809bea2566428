"""What GPUs are called in CUDA_VISIBLE_DEVICES: by numbers, and where those are others for a job, by uuids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.model import Frame
from tests.diagnose.test_rules_usage import pair
from tests.rule_cases import after, found

ONE, OTHER = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-1f31aaaa-d72c-4106-c12f-20bd9faed9f6"
ALIKE = "GPU-8932f937-0000-4106-c12f-20bd9faed9f6"
INSTANCE = "MIG-8932f937-0000-5106-c12f-20bd9faed9f6"


@pytest.mark.parametrize(
    ("place", "uuids", "parent", "name"),
    [
        ({}, (ONE, OTHER), None, "0"),
        ({"container": "exp"}, (ONE, OTHER), None, "GPU-8932f937"),
        ({"slurm_job": "7"}, (ONE, OTHER), None, "GPU-8932f937"),
        ({"container": "exp"}, (ONE, ALIKE), None, ONE),
        ({}, (INSTANCE, OTHER), "GPU-2", INSTANCE),
    ],
)
def test_gpus_are_named_as_the_job_sees_them(
    place: dict[str, Any], uuids: tuple[str, str], parent: str | None, name: str
) -> None:
    made = pair(**place)

    def frame(t: float) -> Frame:
        now = made(t)
        (first, second), (trainer,) = now.gpus, now.processes
        shares = tuple(replace(share, uuid=uuid) for share, uuid in zip(trainer.gpus, uuids, strict=True))
        gpus = (replace(first, uuid=uuids[0], parent_uuid=parent), replace(second, uuid=uuids[1]))
        return replace(now, gpus=gpus, processes=(replace(trainer, gpus=shares),))

    told = found(after(frame, 54, 1), "gpu-unused-in-job")
    assert told is not None
    assert told.evidence[1].text == "GPU 0 busy 97 %"
    assert told.steps[1].command == f"export CUDA_VISIBLE_DEVICES={name}"
