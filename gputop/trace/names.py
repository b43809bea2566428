"""Classify names in a trace: communication kernels, matrix products, tensor cores; waiting calls.

Names are those of torch, Kineto and the CUDA libraries. Patterns for communication and copies are from
HolisticTraceAnalysis, the tensor-core list from the TensorBoard plugin with later additions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum

from gputop.safe.text import clean

UNQUOTED = re.compile(r"(?<=[:,\[\s])N/A(?=\s*[,\]}])")  # unquoted in old files

LONGEST = 256  # characters kept of a name; C++ templates run to thousands
MOST = 50_000
MOST_CHARS = 8 << 20  # of all names
MORE = "(other names)"


class ActivityKind(IntEnum):
    """What a GPU activity is."""

    COMPUTE = 0
    COMM = 1
    TO_DEVICE = 2
    TO_HOST = 3
    COPY = 4  # on the device, or between two
    SET = 5


class SpanMeaning(IntEnum):
    """What a CPU span means for the breakdown."""

    NONE = 0
    STEP = 1
    DATA = 2
    OPTIMIZER = 3
    ZERO_GRAD = 4
    BACKWARD = 5
    FORWARD = 6
    COMM = 7
    CREATE = 8
    ZERO = 9
    MOVE = 10
    READ = 11  # the host waits for a number
    NAN_CHECK = 12


class CudaCall(IntEnum):
    """What a CUDA runtime or driver call does."""

    OTHER = 0
    LAUNCH = 1
    WAIT = 2
    ALLOCATE = 3
    CAPTURE = 4  # starts or ends a graph capture: launches in between do not run
    LOAD = 5  # loads code, creates a context: once each
    PROFILE = 6  # the profiler's own: CUPTI creates a buffer at a thread's first launch


# NCCL and other libraries that move tensors between GPUs: DeepEP, pplx-kernels (a2a_), NVSHMEM, PyTorch's symmetric
# memory (one_shot, two_shot, multimem, barrier, signals), the all-reduces of vLLM, SGLang, aiter, TensorRT-LLM and
# FlashInfer (cross_device_reduce, quickreduce, Lamport), MSCCL and MSCCL++, oneCCL, Transformer Engine's user buffers
COMM = re.compile(
    r"^(?:nccl|rccl)|(?:nccl|rccl)(?:Dev)?Kernel|\bdeep_ep::|\bep::int(?:er|ra)node|\bpplx::|\ba2a_|nvshmem|multimem_|"
    r"symmetric_memory::|\bbarrier_kernel|(?:put|wait)_signal_kernel|cross_device_(?:reduce|store)|quickreduce|lamport|"
    r"mscclpp|msccl|\boneccl|\bccl_|userbuffers_|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|(?:one|two)_?shot",
    re.IGNORECASE,
)
# Inductor names a kernel after the operators it fuses: one that waits for an all-gather transfers nothing itself
_INDUCTOR = re.compile(r"^triton_(?:[a-z]{2,12}_)?fused_")
SETS = re.compile(r"^(?:hip)?Memset", re.IGNORECASE)
COPIES = re.compile(r"^(?:hip)?Memcpy|^dma", re.IGNORECASE)
GEMM = re.compile(
    r"gemm|gemv|convol|conv\d|_conv|[dw]grad|fprop|cutlass|nvjet|gmma|winograd|implicit|mma_|flash_|fmha|scudnn|cijk_",
    re.IGNORECASE,
)
TENSOR = re.compile(
    r"h?s?884|1688|16816|161616|hmma|imma|tensorop|xmma_(?:gemm|implicit_gemm|warp_specialized)|tf32|bf16|wgmma|gmma|"
    r"nvjet|sm(?:80|90|100)_xmma|flash_|fmha|cutlass.*(?:tensorop|sm90)"
)
FULL_PRECISION = re.compile(r"sgemm|scudnn|simt", re.IGNORECASE)
STREAMING = re.compile(r"elementwise|reduce|norm|softmax|copy", re.IGNORECASE)  # memory-bound rather than compute-bound
CAST = re.compile(r"float16(?:tofloat32)?_copy_kernel|(?:Load|Store)WithCast|float8_copy_kernel")
COPY = "aten::copy_"
CASTING = frozenset({"aten::to", "aten::_to_copy", COPY})  # each calls the next one
LAYOUT = re.compile(r"nchwToNhwc|nhwcToNchw", re.IGNORECASE)
FUSED = re.compile(r"multi_tensor_apply|fused", re.IGNORECASE)
PAGEABLE = re.compile(r"Pageable")
STEP = re.compile(r"(ProfilerStep|gputop\.step|TensorFlow step)#(\d+)")

_OPERATORS = {
    "aten::fill_": SpanMeaning.CREATE,
    "aten::normal_": SpanMeaning.CREATE,
    "aten::uniform_": SpanMeaning.CREATE,
    "aten::zero_": SpanMeaning.ZERO,
    "aten::to": SpanMeaning.MOVE,
    "aten::_local_scalar_dense": SpanMeaning.READ,
    "aten::nonzero": SpanMeaning.READ,
    "aten::isnan": SpanMeaning.NAN_CHECK,
}
# torch process groups' names for collectives, in CPU spans
RECORDED = ("nccl:", "gloo:", "mpi:", "ucc:", "xccl:", "hccl:")
# collective operators: of torch's dispatcher, of oneCCL's bindings; on a CPU they last as long as the collective
EXCHANGES = ("c10d::", "oneccl", "torch_ccl::", "ccl::")
# ATen operators; a backward function with a number is one, those without belong to a program and may communicate
COMPUTES = re.compile(r"aten::|(?:autograd::engine::evaluate_function: )?\w+Backward\d+$")
# the last two: counted by CUPTI as overhead
_LOAD = re.compile(
    r"^(?:cu|cuda|hip)(?:Module|Library)(?:Load|Get)|^cuInit$|PrimaryCtxRetain$|^cuCtxCreate|"
    r"(?:Module|Function) Loading"
)
COMPILES = "(dynamo_timed)"  # suffixes of torch.compile spans
_PROFILE = re.compile(r"Activity Buffer Request|Instrumentation")  # the same
_LAUNCH = re.compile(r"launch|memcpy|memset", re.IGNORECASE)
_WAIT = re.compile(r"Synchronize$|^(?:cuda|hip)Memcpy$")
_CAPTURE = re.compile(r"(?:Begin|End)Capture", re.IGNORECASE)
_ALLOCATE = re.compile(r"^(?:cuda|hip)(?:Malloc|Free)$|^cuMem(?:Create|Map|Unmap|Release)$")


def kind(name: str) -> ActivityKind:
    """The kind of a kernel, copy or memset by name."""
    if COMM.search(name) and not _INDUCTOR.match(name):
        return ActivityKind.COMM
    if COPIES.search(name):
        return (
            ActivityKind.TO_DEVICE if "HtoD" in name else ActivityKind.TO_HOST if "DtoH" in name else ActivityKind.COPY
        )
    return ActivityKind.SET if SETS.search(name) else ActivityKind.COMPUTE


def mark(name: str) -> SpanMeaning:
    """The meaning of a CPU span by name."""
    if name.startswith("aten::"):
        return _OPERATORS.get(name, SpanMeaning.NONE)
    if STEP.match(name):
        return SpanMeaning.STEP
    for start, meaning in (
        ("enumerate(DataLoader)#", SpanMeaning.DATA),
        ("IteratorGetNext", SpanMeaning.DATA),  # of TensorFlow
        ("Optimizer.step#", SpanMeaning.OPTIMIZER),
        ("Optimizer.zero_grad#", SpanMeaning.ZERO_GRAD),
        ("autograd::engine::evaluate_function", SpanMeaning.BACKWARD),
        *((start, SpanMeaning.COMM) for start in (*RECORDED, *EXCHANGES)),
    ):
        if name.startswith(start):
            return meaning
    lowered = name.lower()
    return SpanMeaning.FORWARD if lowered.endswith(".forward") or lowered.strip("# ") == "forward" else SpanMeaning.NONE


_EVERY_TRACE = re.compile(r"PyTorch Profiler|ProfilerStep|gputop\.")
# old Kineto has regions among the operators: those without a namespace that are no autograd functions
_OPERATOR = re.compile(r"::|Backward\d*$|^<|^[A-Z]\w*$|^(?:detach|contiguous|resolve_(?:conj|neg)|split|chunk)_?$")
_INDEX = re.compile(r"(?<=\S) \d+$")


def is_region(name: str, meaning: int, *, old: bool = False) -> bool:
    """Whether an annotation is a region (record_function) of the program or a library.

    Not those torch adds to every trace: steps, optimizer hooks, DataLoader, collectives. In an `old` trace operators
    have the same category.
    """
    if old and _OPERATOR.search(name):
        return False
    return meaning in (SpanMeaning.NONE, SpanMeaning.FORWARD) and not _EVERY_TRACE.match(name)


def region(name: str) -> str:
    """The display name of a region: torchrec writes `## forward ##`, Lightning `[pl][profile]forward`.

    torchrec numbers its batches there: `## copy_batch_to_gpu 7 ##` is always the same region.
    """
    text = name.removeprefix("[pl][profile]").removeprefix("[pl][module]")
    if text.startswith("##"):
        text = _INDEX.sub("", text.strip("# "))
    return text or name


def call(name: str) -> CudaCall:
    """What a runtime call does, by its name."""
    if _WAIT.search(name):
        return CudaCall.WAIT
    if _LOAD.search(name):
        return CudaCall.LOAD
    if _PROFILE.fullmatch(name):
        return CudaCall.PROFILE
    if _LAUNCH.search(name):
        return CudaCall.LAUNCH
    if _CAPTURE.search(name):
        return CudaCall.CAPTURE
    return CudaCall.ALLOCATE if _ALLOCATE.search(name) else CudaCall.OTHER


_ADDRESS = re.compile(r" at 0x[0-9a-f]{4,16}(?=>)")  # of `<built-in method item of Tensor object at 0x7f00>`


class Names:
    """Names as small numbers, sanitized and truncated, each classified once."""

    def __init__(self, meaning: Callable[[str], int]) -> None:
        self.texts: list[str] = []
        self.meanings: list[int] = []
        self._meaning = meaning
        self._numbers: dict[str, int] = {}
        self._chars = 0

    def number(self, raw: str) -> int:
        """The number of a raw name; TypeError if it is no text."""
        found = self._numbers.get(raw)
        return self._new(raw) if found is None else found

    def _new(self, raw: str) -> int:
        if not isinstance(raw, str):
            raise TypeError("a name is text")
        if " at 0x" in raw and (bare := _ADDRESS.sub("", raw)) != raw:  # the same function on any object
            number = self.number(bare)
            if len(self._numbers) < 2 * MOST:
                self._numbers[raw] = number
            return number
        full = len(self.texts) >= MOST or self._chars >= MOST_CHARS
        if full or len(raw) > 4 * LONGEST:
            raw = MORE if full else raw[: 4 * LONGEST]
            found = self._numbers.get(raw)
            if found is not None:
                return found
        self._chars += len(raw)
        text = clean(raw, LONGEST)
        self._numbers[raw] = number = len(self.texts)
        self.texts.append(text)
        self.meanings.append(self._meaning(raw))
        return number
