"""Every signature of a trace fires on what it is for, and keeps silent on what only looks like it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.trace import report
from gputop.trace.names import ActivityKind, kind
from gputop.trace.read import read
from gputop.trace.signatures import SIGNATURES
from gputop.trace.verdict import TraceVerdict, TraceView, all_verdicts
from tests import traces
from tests.traces import ADD, BACKWARD, FP32, GEMM, NCCL, PAGEABLE, PINNED, REST, Made, busy, recipe, starved

MS = 1000.0
CAST = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)"
)


def said(made: Made, path: Path) -> dict[str, TraceVerdict]:
    """What is said of a trace, by id."""
    return {
        verdict.rule.split()[0]: verdict for verdict in all_verdicts(TraceView(read(made.write(path / "made.json"))))
    }


def mixed(*shares: tuple[str, float], **args: object) -> Made:
    """A GPU that is always busy, with so much of each step in kernels of these names."""
    made = Made()
    for number in range(4):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        for name, share in shares:
            made.kernel(name, at, share * 100 * MS, launch=max(0.0, at - 20 * MS), **args)
            at += share * 100 * MS
    return made


def waiting(data_ms: float, iterator: str, *, gap: bool = True, gpu: bool = True) -> Made:
    """Steps of 100 ms that begin with a wait for data; the GPU stands still meanwhile, or at their end."""
    made = Made()
    for number in range(4):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        made.note(f"enumerate(DataLoader)#_{iterator}DataLoaderIter.__next__", at, data_ms * MS)
        if gpu:
            made.kernel(GEMM, at + (data_ms * MS if gap else 0), (99.9 - data_ms) * MS)
    return made


def reading(times: int, *, idle: bool) -> Made:
    """The CPU reads a number so often a step, and the GPU has nothing to do after each, or all the time something."""
    made = Made()
    for number in range(4):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        each = 100 * MS / times
        for place in range(times):
            start = at + place * each
            made.kernel(GEMM, start, each * (0.7 if idle else 0.999), launch=start - 1)
            made.host("aten::_local_scalar_dense", start + 5, each * 0.8)
            made.call("cudaStreamSynchronize", start + 6, each * 0.79)
    return made


def depending(reads: int) -> Made:
    """The GPU idles for half of each step with work in its queue, and the CPU reads so many numbers."""
    made = Made()
    for number in range(4):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        for place in range(10):
            start = at + place * 10 * MS
            made.kernel(GEMM, start, 5 * MS, launch=max(0.0, start - 20 * MS))
        for place in range(reads):
            made.host("aten::_local_scalar_dense", at + place * 100, 2)
    return made


def optimizing(kernels: int, name: str) -> Made:
    """A fifth of each step is the optimizer's."""
    made = Made()
    for number in range(4):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        made.kernel(GEMM, at, 79 * MS)
        made.note("Optimizer.step#AdamW.step", at + 80 * MS, 20 * MS)
        for place in range(kernels):
            start = at + 80 * MS + (place + 1) * 19 * MS / kernels
            made.kernel(name, start, 10, launch=start - 5)
    return made


def ahead(mark: str, kernel: str) -> Made:
    """A GPU that is always busy; the CPU, half a step ahead, spends half of each step on what the GPU does in 3 ms."""
    made = Made()
    for number in range(1, 5):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        made.kernel(GEMM, at, 97 * MS, launch=at - 3 * MS)
        made.note(mark, at + 45 * MS, 50 * MS)
        for place in range(100):
            made.host("aten::zero_", at + (46 + place / 4) * MS, 20)
            made.kernel(kernel, at + 97 * MS + place * 30, 29, launch=at + (46 + place / 4) * MS + 5)
    return made


def copying(name: str, size: int, *, alone_ms: float = 0.0) -> Made:
    """A batch is copied a step, while a kernel runs or with so much time alone."""
    made = busy() if not alone_ms else Made()
    for number in range(4):
        at = number * 100 * MS
        if alone_ms:
            made.step(number, at, 100 * MS)
            made.kernel(GEMM, at + alone_ms * MS, (99 - alone_ms) * MS)
        made.kernel(name, at + 10, (alone_ms or 5) * MS - 20, stream=9, bytes=size)
    return made


def communicating(alone_ms: float, *, hidden_ms: float = 0.0, **head: object) -> Made:
    made = Made(**head)
    for number in range(4):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        made.kernel(GEMM, at, (100 - alone_ms) * MS, launch=max(0.0, at - 20 * MS))
        made.kernel(NCCL, at + (100 - alone_ms - hidden_ms) * MS, (alone_ms + hidden_ms) * MS, stream=20)
    return made


def growing(each: int, reserved: int = 2 * 10**9, peak: int = 0) -> Made:
    made = busy()
    for number in range(4):
        for place in range(10):  # what a step takes and gives back
            made.memory(number * 100 * MS + place * 10 * MS + 1, 10**9 + number * each + place % 9 * 10**8, reserved)
    made.memory(350 * MS + 2, 10**9 + 2 * each + peak, reserved + peak)
    made.memory(350 * MS + 3, 10**9 + 2 * each, reserved)
    made.memory(399 * MS, 10**9 + 3 * each, reserved)
    return made


def churning(times: int, first: int = 0) -> Made:
    """cudaMalloc so often in each step from number `first` on."""
    made = busy()
    for number in range(first, 4):
        for place in range(times):
            made.call("cudaMalloc", number * 100 * MS + place * MS, 20)
    return made


def churning_early() -> Made:
    made = busy()
    for place in range(50):
        made.call("cudaMalloc", place * MS, 20)
    return made


def parallel(name: str, devices: int) -> Made:
    made = busy()
    made.host(name, 10, 50 * MS)
    for device in range(1, devices):
        made.kernel(GEMM, 10, 100, device=device)
    return made


def talking(name: str, **head: object) -> Made:
    made = busy(**head)
    made.note(name, 10, 5 * MS)
    return made


def met() -> Made:
    """All ranks have waited for each other once, which is no communication."""
    made = busy()
    made.note("gloo:barrier", 10, 3)
    return made


def checking(each: int) -> Made:
    """A backward pass of 40 functions with so many checks for NaN in each."""
    made = busy()
    for place in range(40):
        at = 1000 + place * 100
        made.host("autograd::engine::evaluate_function: MulBackward0", at, 90, tid=traces.BACKWARD)
        for check in range(each):
            made.host("aten::isnan", at + 10 + check, 1, tid=traces.BACKWARD)
    return made


def creating(first: str, second: str, copy: str) -> Made:
    """In each step an operator, then aten::to, and a copy that it launches."""
    made = busy()
    for number in range(4):
        at = number * 100 * MS + 500
        made.host("aten::zeros", at, 20)
        made.host(first, at + 5, 10)
        made.host(second, at + 30, 20)
        made.kernel(copy, at + 60, 5, launch=at + 40, stream=9, bytes=100)
    return made


def zeroing(each: int) -> Made:
    made = busy()
    for number in range(4):
        at = number * 100 * MS
        made.note("Optimizer.zero_grad#SGD.zero_grad", at + 1, 2 * MS)
        for place in range(each):
            made.host("aten::zero_", at + 2 + place * 10, 5)
    return made


def paused(gap_ms: float) -> Made:
    """One pause between two stretches of work."""
    made = Made()
    made.step(1, 0, 1000 * MS)
    made.step(2, 1000 * MS, 1000 * MS + gap_ms * MS)
    made.kernel(GEMM, 0, 1000 * MS, launch=0)
    made.kernel(GEMM, 1000 * MS + gap_ms * MS, 1000 * MS)
    return made


def many(odd: int, share: float) -> Made:
    """Three matrix products with so much of the time, for inputs with a dim like this; and what is around them."""
    made = Made()
    for number in range(4):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        dims = [[2048, odd], [odd, 1024]]
        op = made.host("aten::mm", at + 1, 20, **{"Input Dims": dims, "Input type": ["c10::BFloat16"] * 2})
        for place in range(3):
            name, took = f"{GEMM}_{place}", share * 33 * MS
            made.kernel(name, at + place * 33 * MS, took, launch=max(0, at - 20 * MS), **{"External id": op})
        for place in range(20):
            made.kernel(f"{ADD}{place}", at + 99 * MS - (place + 1) * 1.2 * MS, 1.0 * MS * (2 - share), stream=8)
    return made


def loading(idle_ms: float, *functions: str) -> Made:
    """Steps of 100 ms whose GPU idles at the beginning, while the CPU is in these functions, the outermost first."""
    made = Made()
    for number in range(4):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        for place, name in enumerate(functions):
            made.host(name, at + place, idle_ms * MS - 2 * place, "python_function")
        made.kernel(GEMM, at + idle_ms * MS, (100 - idle_ms) * MS - 10)
    return made


def exchanging(ms: float) -> Made:
    """Ranks on CPUs that are in collectives of gloo for so long of 100 ms."""
    made = Made()
    for number in range(4):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        made.host("aten::mm", at, (100 - ms) * MS)
        made.host("gloo:all_reduce", at + (100 - ms) * MS, ms * MS, "user_annotation", tid=BACKWARD)
    return made


Case = Callable[[], Made]
FIRES: list[tuple[str, Case, Case]] = [  # what it is for, and what only looks like it
    ("T00", busy, starved),
    ("T01", lambda: many(1000, 0.95), lambda: many(1000, 0.3)),
    ("T02", starved, lambda: starved(kernels=100, every_us=400)),
    ("T03", lambda: waiting(30, "SingleProcess"), lambda: waiting(30, "MultiProcessing", gap=False)),
    ("T04", lambda: mixed((FP32, 0.5), (ADD, 0.4)), lambda: mixed((FP32, 0.3), (GEMM, 0.6))),
    ("T05", lambda: copying(PAGEABLE, 5_000_000), lambda: copying(PAGEABLE, 900)),
    ("T06", lambda: reading(10, idle=True), lambda: reading(10, idle=False)),
    ("T06", lambda: depending(150), lambda: depending(50)),
    ("T07", lambda: copying(PINNED, 10**8, alone_ms=10), lambda: copying(PINNED, 10**8)),
    ("T08", lambda: communicating(15), lambda: communicating(5, hidden_ms=50)),
    ("T09", lambda: growing(50_000_000), lambda: growing(5_000_000)),
    ("T10", lambda: optimizing(200, ADD), lambda: optimizing(200, "multi_tensor_apply_kernel<FusedAdam>")),
    ("T11", lambda: mixed((ADD, 0.6), (GEMM, 0.3)), lambda: mixed((ADD, 0.3), (GEMM, 0.6))),
    ("T12", lambda: parallel("DataParallel.forward", 2), lambda: parallel("DistributedDataParallel.forward", 2)),
    ("T13", lambda: talking("gloo:all_reduce"), lambda: talking("nccl:all_reduce")),
    ("T13", lambda: talking("gloo:all_reduce"), met),
    ("T14", lambda: checking(1), lambda: checking(0)),
    (
        "T15",
        lambda: mixed((GEMM, 0.95), **{"blocks per SM": 0.2}),
        lambda: mixed((GEMM, 0.95), **{"blocks per SM": 0.9}),
    ),
    ("T16", lambda: churning(3), churning_early),
    (
        "T17",
        lambda: creating("aten::zero_", "aten::to", PAGEABLE),
        lambda: creating("aten::zero_", "aten::to", "Memcpy DtoD (Device -> Device)"),
    ),
    ("T18", lambda: zeroing(40), lambda: zeroing(3)),
    ("T19", lambda: mixed(("cudnn::ops::nchwToNhwcKernel<float>", 0.1), (GEMM, 0.85)), lambda: mixed((GEMM, 0.9))),
    ("T21", lambda: growing(0, peak=75 * 10**9), lambda: growing(0, peak=60 * 10**9)),
    ("T22", lambda: paused(600), lambda: paused(100)),
    ("T23", lambda: mixed((CAST, 0.4), (GEMM, 0.5)), lambda: mixed((CAST, 0.05), (GEMM, 0.9))),
    ("T24", lambda: loading(69, "train.py(1): main"), lambda: loading(15, "train.py(1): main")),
    ("T25", lambda: exchanging(95), lambda: exchanging(10)),
    ("T27", lambda: recipe(("augment", 90, ""), *REST), lambda: recipe(("encoder", 90, "aten::mm"), *REST)),
    ("T26", lambda: mixed((PINNED, 0.5)), lambda: mixed((PINNED, 0.5), (GEMM, 0.4))),
]


@pytest.mark.parametrize(("rule", "fires", "quiet"), FIRES, ids=[rule for rule, _, _ in FIRES])
def test_a_signature_fires_on_what_it_is_for_only(rule: str, fires: Case, quiet: Case, tmp_path: Path) -> None:
    found = said(fires(), tmp_path)
    assert rule in found
    assert not found[rule].headline.endswith(".")
    assert found[rule].steps
    assert rule not in said(quiet(), tmp_path)


def test_a_cpu_that_is_ahead_loses_nothing(tmp_path: Path) -> None:
    """Half of the CPU's time is no half of the step where the GPU is busy all the while."""
    found = said(ahead("Optimizer.step#AdamW.step", ADD), tmp_path)
    assert "T10" not in found
    assert found["T00"].healthy
    zeroed = said(ahead("Optimizer.zero_grad#AdamW.zero_grad", ADD), tmp_path)["T18"]
    assert zeroed.lost_share is not None
    assert zeroed.lost_share < 0.01


def test_the_start_of_a_program_hides_no_idle_time(tmp_path: Path) -> None:
    """A fifth of the time in all, of which a part that is too small to be told of is the start."""
    made = Made()
    for number in range(2):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        made.kernel(GEMM, at, 60 * MS)
        made.kernel(ADD, at + (78 if number else 68) * MS, (22 if number else 12) * MS)
    made.kernel(GEMM, 98 * MS, 2 * MS)
    made.call("cudaMalloc", 61 * MS, 6 * MS)
    path = made.write(tmp_path / "start.json")
    found = TraceView(read(path))
    assert found.found.share(found.found.gaps) == pytest.approx(0.22, abs=0.001)
    assert found.found.share(found.startup.spans) == pytest.approx(0.04, abs=0.001)
    assert "No known bottleneck" not in " ".join(report.page(found).words)


def test_an_idle_gpu_is_never_without_a_word_and_names_where_the_cpu_was(tmp_path: Path) -> None:
    """The most specific function of one's own that covers most of the pauses, not the loop around all of it."""
    functions = ("train.py(9): main", "image_transforms.py(30): normalize", "numpy/core.py(3): mean")
    told_of = said(loading(69, *functions), tmp_path)["T24"]
    assert told_of.headline == (
        "GPU idle 69 % of the time, CPU mostly in `image_transforms.normalize`, calling `core.mean` (69 ms per step)"
    )
    assert told_of.severity == "crit"
    assert said(loading(69), tmp_path)["T24"].headline.startswith("GPU idle 69 % of the time")


def test_what_an_idle_gpu_waits_for_is_unknown_without_launches(tmp_path: Path) -> None:
    made = loading(69)
    launched = said(made, tmp_path)["T24"]
    assert [number.value for number in launched.numbers] == pytest.approx([69, 69], abs=0.1)
    made.events = [event for event in made.events if event.get("cat") != "cuda_runtime"]
    assert [number.text for number in said(made, tmp_path)["T24"].numbers] == ["GPU idle"]


def test_the_time_of_a_function_is_not_that_of_what_it_calls(tmp_path: Path) -> None:
    made = loading(67, "train.py(9): main")
    for number in range(4):
        made.host("numpy/core.py(3): mean", number * 100 * MS + 30 * MS, 36 * MS, "python_function")
    assert said(made, tmp_path)["T24"].headline == (
        "GPU idle 67 % of the time, CPU mostly in `train.main` (67 ms per step), calling `core.mean` "
        "in 54 % of that time"
    )


def test_what_one_rank_loses_is_not_said_of_all(tmp_path: Path) -> None:
    """All wait for data, three of them a tenth as long as the one that is late."""
    views = []
    for rank, data_ms in enumerate((5, 5, 50, 5)):
        made = waiting(data_ms, "MultiProcessing")
        made.head["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 4}
        views.append(TraceView(read(made.write(tmp_path / f"rank{rank}.json"))))
    for view in views:
        view.ranks = views
    assert all(any(verdict.rule.startswith("T03") for verdict in view.verdicts) for view in views)
    assert not any(point.text.startswith("all ") for point in report.ranks(views).points)
    assert "dataloader-bound, step waits for data 50 % of the time" in [
        point.text for point in report.page(views[2]).points
    ]


def test_many_regions_say_how_many_there_are(tmp_path: Path) -> None:
    made = Made()
    for number in range(20):
        made.note(f"layer.{number}", number * 10 * MS, (10 - number / 10) * MS)
        made.kernel(GEMM, number * 10 * MS, 8 * MS, launch=number * 10 * MS)
    view = TraceView(read(made.write(tmp_path / "trace.json")))
    table = next(table for table in report.page(view).tables if table.title.startswith("Regions"))
    assert table.title == "Regions (record_function, longest 16 of 20)"
    assert [row[0] for row in table.rows] == [f"layer.{number}" for number in range(16)]


@pytest.mark.parametrize(
    ("function", "said_of_it", "step"),
    [
        ("<built-in function sleep>", "`train.main`, calling `sleep` (", "Speed up `train.main`."),
        (
            "<built-in method item of Tensor object at 0x7f00>",
            "`train.main`, calling `item` (",
            "Speed up `train.main`",
        ),
        (
            "torch/utils/data/dataloader.py(631): __next__",
            "`train.main`, waiting for its DataLoader (",
            "Raise num_workers",
        ),
    ],
)
def test_an_idle_gpu_names_what_the_program_calls(function: str, said_of_it: str, step: str, tmp_path: Path) -> None:
    found = said(loading(69, "train.py(9): main", function), tmp_path)["T24"]
    assert said_of_it in found.headline
    assert found.steps[0].startswith(step)


def test_a_function_is_one_whatever_it_is_called_on(tmp_path: Path) -> None:
    """Each call on a tensor of its own, so that no single one covers much of the idle time."""
    made = Made()
    for number in range(8):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        made.kernel(GEMM, at + 80 * MS, 20 * MS)
        made.host("train.py(9): main", at, 79 * MS, "python_function")
        item = f"<built-in method item of Tensor object at 0x7f{number:04x}>"
        made.host(item, at + 1, 70 * MS, "python_function")
    assert "calling `item` in 89 % of that time" in said(made, tmp_path)["T24"].headline
    view = TraceView(read(str(tmp_path / "made.json")))
    (table,) = [table for table in report.page(view).tables if table.title.startswith("Python functions")]
    assert ("<built-in method item of Tensor object>", "560 ms", "560 ms", "8") in table.rows


def test_nothing_is_well_beside_what_is_not(tmp_path: Path) -> None:
    found = said(mixed((FP32, 0.99)), tmp_path)
    assert found["T04"].severity != "info"
    assert "T00" not in found


@pytest.mark.parametrize(
    "name",
    [
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)",
        "deep_ep::internode_ll::combine<true>",
        "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16, 8>(int4*, float*)",
        "nvshmemi_transfer_rma_nbi_kernel",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>",
        "void trtllm::oneShotAllReduceKernel<8>",
        "mscclKernel_Sum_half_LL", "mscclpp::allreduce6", "oneccl::reduce_scatter_kernel",
        "userbuffers_fp16_sum_inplace_gpu_rr_rs_oop", "ncclSymkDevKernel_AllGather_ST",
        # PyTorch, torch/csrc/distributed/c10d/symm_mem
        "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8, false>(c10::BFloat16**)",
        "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>(c10::BFloat16**)",
        "void (anonymous namespace)::multimem_one_shot_reduce_kernel<c10::BFloat16, 16>",
        "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)",
        "c10d::symmetric_memory::wait_signal_kernel(unsigned int**, int, int, int, int, unsigned long)",
        # vLLM, SGLang, FlashInfer, TensorRT-LLM, perplexity's pplx-garden
        "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot>",
        "void sglang::cross_device_reduce_2stage<__nv_bfloat16, 8>",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1, __nv_bfloat16, 8>",
        "void pplx::a2a_dispatch_send_kernel<true, false, 16ul, 8ul>", "void a2a_combine_recv_kernel<16ul>",
    ],
)  # fmt: skip
def test_communication_is_known_by_more_names_than_nccl(name: str) -> None:
    assert kind(name) == ActivityKind.COMM


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", "segment_reduce_forward_kernel",
        "void at::native::(anonymous namespace)::vectorized_gather_kernel<16, long>", "indexSelectLargeIndex",
        "void gatherTopK<float, unsigned int, 2, false>", "cudnn::bn_fw_tr_1C11_kernel_NCHW", "flash_fwd_kernel",
        "scatter_gather_elementwise_kernel", "triton_poi_fused_all_gather_into_tensor_wait_tensor_0",
        "triton_red_fused__to_copy_all_reduce_native_layer_norm_3", "triton_fused_reduce_scatter_tensor_1",
        "triton_per_fused_all_reduce_sum_7",
    ],
)  # fmt: skip
def test_what_reduces_and_gathers_on_one_gpu_is_no_communication(name: str) -> None:
    assert kind(name) == ActivityKind.COMPUTE


@pytest.mark.parametrize(
    "name",
    [
        *(f"{backend}:all_reduce" for backend in ("gloo", "mpi", "ucc", "xccl", "nccl")),
        "c10d::allreduce_", "oneccl_bindings_for_pytorch::allreduce", "torch_ccl::allreduce",
    ],
)  # fmt: skip
def test_collectives_on_the_cpu_are_a_phase(name: str, tmp_path: Path) -> None:
    made = Made()
    for number in range(4):
        made.step(number, number * 100 * MS, 100 * MS)
        made.host(name, number * 100 * MS + 5 * MS, 95 * MS, "cpu_op" if "::" in name else "user_annotation")
    view = TraceView(read(made.write(tmp_path / "x.json")))
    assert {phase.name: (phase.host_us or 0) / MS for phase in view.phases}["communication"] == 380
    assert not view.regions
    assert view.verdicts[0].headline.startswith("communication-bound on the CPU, 95 % of the time")


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize(("hidden_ms", "exposed_ms"), [(97, 0), (60, 37), (10, 87)])
def test_collectives_behind_computation_cost_nothing(
    hidden_ms: int, exposed_ms: int, around: bool, tmp_path: Path
) -> None:
    """A thread of gloo is in a collective while the training thread computes for a part of it."""
    made = Made()
    for number in range(4):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        if around:  # names of the program's own hide nothing
            made.note("train_step", at, 100 * MS)
        made.host("aten::linear", at + MS, hidden_ms * MS)
        made.host("aten::addmm", at + MS, hidden_ms * MS)
        made.host("gloo:all_reduce", at + MS, 97 * MS, "user_annotation", tid=BACKWARD)
    view = TraceView(read(made.write(tmp_path / "x.json")))
    cpu = {phase.name: (phase.host_us or 0) / MS / 4 for phase in view.phases}
    assert cpu.get("communication", 0) == pytest.approx(exposed_ms)
    assert sum(cpu.values()) == pytest.approx(100)
    found = {verdict.rule: verdict for verdict in view.verdicts}
    assert ("T25 cpu-communication" in found) == (exposed_ms >= 20)
    if exposed_ms:
        assert found["T25 cpu-communication"].lost_share == pytest.approx(exposed_ms / 100)


def test_a_collective_within_backward_is_in_one_phase(tmp_path: Path) -> None:
    made = Made()
    for number in range(4):
        at = number * 100 * MS
        made.step(number, at, 100 * MS)
        made.host("autograd::engine::evaluate_function: SplitBackward", at + 20 * MS, 80 * MS)
        made.host("gloo:all_reduce", at + 40 * MS, 60 * MS, "user_annotation", tid=BACKWARD)
    cpu = {
        phase.name: (phase.host_us or 0) / MS / 4 for phase in TraceView(read(made.write(tmp_path / "x.json"))).phases
    }
    assert cpu == pytest.approx({"forward and other": 20, "backward": 20, "communication": 60})


def test_a_healthy_trace_is_silent(tmp_path: Path) -> None:
    found = said(busy(), tmp_path)
    assert set(found) == {"T00"}
    assert found["T00"].healthy


def test_all_signatures_are_declared_and_tried() -> None:
    assert sorted(SIGNATURES) == [f"T{number:02}" for number in range(28)]
    assert set(SIGNATURES) - {rule for rule, _, _ in FIRES} == {"T20"}  # below


@pytest.mark.parametrize(("late_ms", "fires"), [(30, True), (3, False)])
def test_the_rank_that_waits_least_is_late(late_ms: float, fires: bool, tmp_path: Path) -> None:
    """Rank 2 begins its collective late, so that it is over soonest; that of the others lasts longer."""
    views = []
    for rank in range(4):
        made = communicating(40 - (late_ms if rank == 2 else 0), distributedInfo={"rank": rank, "world_size": 4})
        views.append(TraceView(read(made.write(tmp_path / f"{rank}.json.gz"))))
    for view in views:
        view.ranks = views
    verdicts = [verdict for view in views for verdict in all_verdicts(view) if verdict.rule.startswith("T20")]
    assert [verdict.headline.startswith("straggler, other ranks wait for rank 2") for verdict in verdicts] == [
        True
    ] * fires


def test_the_shape_that_tensor_cores_cannot_use_is_named(tmp_path: Path) -> None:
    odd = said(many(1001, 0.95), tmp_path)["T01"]
    assert odd.severity == "warn"
    assert odd.steps[0] == "aten::mm [[2048, 1001], [1001, 1024]]: pad 1001 to a multiple of 8, preferably 64."
    assert said(many(1024, 0.95), tmp_path)["T01"].severity == "info"


def test_the_cpu_alone_is_judged_too(tmp_path: Path) -> None:
    found = said(waiting(30, "SingleProcess", gpu=False), tmp_path)
    assert found["T03"].severity == "warn"
    assert "num_workers" in found["T03"].steps[0]
    assert set(found) == {"T03"}


def test_what_all_ranks_show_is_told_once(tmp_path: Path) -> None:
    """The ranks of one job wait alike for their data."""
    views = []
    for rank in range(3):
        made = waiting(30 + rank, "SingleProcess")
        made.head["distributedInfo"] = {"rank": rank, "world_size": 3}
        views.append(TraceView(read(made.write(tmp_path / f"{rank}.json"))))
    for view in views:
        view.ranks = views
    together = report.ranks(views)
    assert [point.source for point in together.points] == ["T03 input-bound", "T22 gaps"]
    assert together.points[0].text.startswith("all 3 ranks: dataloader-bound, main process loads data 32 % of the time")
    assert all(point.source != "T03 input-bound" for view in views for point in report.page(view).points)
    views[0].ranks = (views[0],)
    assert "T03 input-bound" in [point.source for point in report.page(views[0]).points]
