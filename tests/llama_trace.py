"""A trace of a training as it is on a GPU: a step waits for its batch, computes, communicates, and steps."""

from __future__ import annotations

from typing import NamedTuple

from tests.traces import GEMM, MAIN, NCCL, PAGEABLE, Made

NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
FLASH = "flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>(Flash_fwd_params)"
FLASH_BACK = "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128>>(Flash_bwd_params)"
NORM = "void at::native::vectorized_layer_norm_kernel<float>(int)"
ADAM = "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>(int)"
LAYERS, STEP_US, AUTOGRAD = 16, 224_000.0, 141
DATA_US, FORWARD_US, BACKWARD_US, OPTIMIZER_US = 92_000.0, 42_000.0, 55_000.0, 27_000.0


class Op(NamedTuple):
    """An operator, its inputs, its kernel."""

    name: str
    dims: list[list[int]]
    kernel: str


MM = Op("aten::mm", [[8192, 4096], [4096, 11008]], GEMM)
MM_BACK = Op("aten::mm", [[4096, 8192], [8192, 11008]], GEMM)
ATTENTION = Op("aten::_flash_attention_forward", [[8, 4096, 32, 128]] * 3, FLASH)
ATTENTION_BACK = Op("aten::_flash_attention_backward", [[8, 4096, 32, 128]] * 5, FLASH_BACK)


def llama(steps: int = 4, *, rank: int = 0, ranks: int = 4, slow: float = 1.0, memory: bool = True) -> Made:
    """So many steps of one rank; `slow`: its batches take so many times as long."""
    made = Made(distributedInfo={"rank": rank, "world_size": ranks, "backend": "nccl"})
    begin = 0.0
    for number in range(steps):
        data = DATA_US * slow * (1.4 if number == 2 else 1.0)
        took = STEP_US + data - DATA_US
        made.step(number + 1, begin, took)
        made.note(NEXT, begin + 40, data - 80)
        at = begin + data
        made.kernel(PAGEABLE, at + 400, 3_600, stream=13, launch=at + 300, bytes=268_435_456)
        _passes(made, at)
        made.note("Optimizer.step#AdamW.step", at + FORWARD_US + BACKWARD_US + 2_000, OPTIMIZER_US)
        for place in range(10):
            made.kernel(ADAM, at + 106_000 + place * 1_900, 1_850, launch=at + 100_000 + 100 * place)
        if memory:
            for place in range(40):
                held = (30 + 0.9 * (place if place < 20 else 40 - place) + 0.2 * number) * 2**30
                made.memory(at + place * 2_500, int(held), 62 * 2**30)
        begin += took
    return made


def _passes(made: Made, at: float) -> None:
    """Forward and backward: operators on the CPU, kernels behind them, the gradients on their way."""
    each, back = FORWARD_US / LAYERS, BACKWARD_US / LAYERS
    for layer in range(LAYERS):
        start, late = at + layer * each, at + FORWARD_US + layer * back
        _operator(made, MM, start, each * 0.58)
        _operator(made, ATTENTION, start + each * 0.6, each * 0.32)
        made.host("autograd::engine::evaluate_function: MmBackward0", late, back * 0.9, tid=AUTOGRAD)
        _operator(made, MM_BACK, late + 50, back * 0.56, AUTOGRAD)
        _operator(made, ATTENTION_BACK, late + back * 0.6, back * 0.28, AUTOGRAD)
    made.kernel(NORM, at + FORWARD_US - 300, 280)
    made.kernel(NCCL, at + FORWARD_US + 20_000, 38_000, stream=20, launch=at + FORWARD_US + 12_000)


def _operator(made: Made, op: Op, start: float, took: float, tid: int = MAIN) -> None:
    """One operator, and the kernel that it launches: it takes as long, and begins 4.5 ms later."""
    types = ["c10::BFloat16"] * len(op.dims)
    number = made.host(op.name, start, took, tid=tid, **{"Input Dims": op.dims, "Input type": types})
    made.kernel(op.kernel, start + 4_500, took, launch=start + took / 2, **{"External id": number})
