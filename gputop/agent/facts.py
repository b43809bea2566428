"""What only the process itself knows: threads, allocator, loaders, the model's device and types, AMP, TF32, DDP or DP.

Objects are found in the frames of its threads. They are looked at from another thread while the program runs, so
nothing of them is called that could run the program's code: classes by their method resolution order, modules by their
dictionaries.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Iterator

from .memory import MOST_BLOCKS, devices
from .profilers import whole

_DEEPEST, _MOST_MODULES, _MOST_VALUES = 100, 20_000, 5000
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_WRAPPERS = {"DistributedDataParallel": "DDP", "DataParallel": "DP", "FullyShardedDataParallel": "FSDP"}
_LOADER = ("num_workers", "batch_size", "pin_memory", "prefetch_factor", "persistent_workers", "timeout")
_ITERATOR = ("num_workers", "pin_memory", "prefetch_factor", "persistent_workers")


def facts(everything: bool = False) -> dict[str, Any]:
    """What could be found; what could not is None or not there. `everything` reads all live objects, which holds the
    interpreter up to a second."""
    torch = whole("torch")
    if torch is None:
        return {"torch": None}
    values = list(_live() if everything else _reached())
    found: dict[str, Any] = {"torch": str(getattr(torch, "__version__", ""))[:40]}
    for name, look in (
        ("threads", lambda: _threads(torch)),
        ("precision", lambda: _precision(torch, values)),
        ("memory", lambda: devices(torch)),
        ("loaders", lambda: _loaders(values) or _loaders(_feeds())),
        ("models", lambda: _models(torch, values)),
        ("distributed", distributed),
    ):
        try:
            found[name] = look()
        except Exception:  # another torch, or a program that changes what is read
            found[name] = None
    return found


def _reached() -> Iterator[Any]:
    """The values in the frames of all threads, the attributes of `self` among them."""
    seen: set[int] = set()
    for frame in list(sys._current_frames().values()):
        at: Any = frame
        for _ in range(_DEEPEST):
            if at is None:
                break
            scope = at.f_locals
            for value in list(scope.values()) if len(scope) < _MOST_VALUES else ():
                yield from _with_parts(value, seen)
            at = at.f_back
    main = getattr(sys.modules.get("__main__"), "__dict__", {})
    for value in list(main.values()):
        yield from _with_parts(value, seen)


def _with_parts(value: Any, seen: set[int]) -> Iterator[Any]:
    if id(value) in seen or issubclass(type(value), type):
        return
    seen.add(id(value))
    yield value
    inner = _attributes(value)
    if len(inner) < _MOST_VALUES:
        for each in list(inner.values()):
            if id(each) not in seen:
                seen.add(id(each))
                yield each


def _live() -> Iterator[Any]:
    import gc

    yield from gc.get_objects()


def _feeds() -> list[Any]:
    """The DataLoaders and their iterators wherever they are: a `for` keeps its own where no frame shows it."""
    if whole("torch.utils.data") is None or sys.getallocatedblocks() > MOST_BLOCKS:
        return []
    known: dict[int, bool] = {}  # by the id of a class: to hash one may run the program's code
    found = []
    for value in _live():
        kind = id(type(value))
        if kind not in known:
            known[kind] = not _kin(value).isdisjoint(("DataLoader", "_BaseDataLoaderIter"))
        if known[kind]:
            found.append(value)
    return found


def _attributes(value: Any) -> dict[str, Any]:
    """The dictionary of an object that has one, without asking its class."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except Exception:
        return {}
    return found if type(found) is dict else {}


def _kin(value: Any) -> set[str]:
    """The names of its classes; not isinstance(), which runs code of the program."""
    return {kind.__name__ for kind in type(value).__mro__}


def _threads(torch: Any) -> dict[str, Any]:
    return {
        "intra": torch.get_num_threads(),
        "inter": torch.get_num_interop_threads(),
        "environment": {name: os.environ[name][:20] for name in _THREADS if name in os.environ},
    }


def _precision(torch: Any, values: list[Any]) -> dict[str, Any]:
    scalers = [value for value in values if "GradScaler" in _kin(value)]
    return {
        "tf32_matmul": bool(torch._C._get_cublas_allow_tf32()),
        "tf32_cudnn": bool(torch._C._get_cudnn_allow_tf32()),
        "cudnn_benchmark": bool(torch._C._get_cudnn_benchmark()),
        "grad_scaler": any(_attributes(each).get("_enabled") for each in scalers) if scalers else None,
        "autocast": any("autocast" in _kin(value) for value in values) or None,
    }


def _loaders(values: list[Any]) -> list[dict[str, Any]]:
    """The DataLoaders; `in_use` is None where no reachable iterator shows it: a `for` keeps its own out of reach."""
    iterators = [_attributes(value) for value in values if "_BaseDataLoaderIter" in _kin(value)]
    used = {id(inner.get("_dataset")) for inner in iterators}
    found = []
    for value in values:
        if "DataLoader" in _kin(value):
            inner = _attributes(value)
            plain = _plain({name: inner.get(name) for name in _LOADER})
            dataset = inner.get("dataset")
            in_use = id(dataset) in used if used else None
            found.append({**plain, "dataset": type(dataset).__name__[:80], "in_use": in_use})
    for inner in [] if found else iterators:  # they know their settings too, where the loader is out of reach
        said = {**_plain({name: inner.get(f"_{name}") for name in _ITERATOR}), "in_use": True}
        if said not in found:  # that of the epoch before may not have been collected yet
            found.append(said)
    return sorted(found, key=lambda each: not each["in_use"])[:8]


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in values.items() if type(each) in (int, float, bool, type(None))}


def _models(torch: Any, values: list[Any]) -> list[dict[str, Any]]:
    """The modules that no other of those in reach holds, the largest first."""
    modules = {id(value): value for value in values if "Module" in _kin(value) and "_modules" in _attributes(value)}
    within: set[int] = set()
    found = []
    for module in modules.values():
        below = list(_below(module))
        within.update(id(each) for each in below[1:])
        found.append((module, below))
    described = [_model(torch, module, below) for module, below in found if id(module) not in within]
    return sorted((each for each in described if each["parameters"]), key=lambda each: -each["parameters"])[:4]


def _below(module: Any) -> Iterator[Any]:
    """It and all modules in it."""
    rest, seen = [module], {id(module)}
    while rest and len(seen) < _MOST_MODULES:
        each = rest.pop()
        yield each
        for child in list((_attributes(each).get("_modules") or {}).values()):
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                rest.append(child)


def _model(torch: Any, module: Any, below: list[Any]) -> dict[str, Any]:
    devices: dict[str, int] = {}
    types: dict[str, int] = {}
    total = 0
    for each in below:
        for parameter in list((_attributes(each).get("_parameters") or {}).values()):
            if type(parameter) in (torch.nn.Parameter, torch.Tensor):  # a subclass may run code when it is asked
                size = parameter.numel()
                total += size
                devices[str(parameter.device)] = devices.get(str(parameter.device), 0) + size
                types[str(parameter.dtype)[6:]] = types.get(str(parameter.dtype)[6:], 0) + size
    wrapped = next((short for each in below[:3] for name, short in _WRAPPERS.items() if name in _kin(each)), None)
    training = _attributes(module).get("training")
    described = {"name": type(module).__name__[:80], "parameters": total, "devices": devices, "dtypes": types}
    compiled = any("OptimizedModule" in _kin(each) for each in below[:3])
    training = training if type(training) is bool else None
    return {**described, "wrapped": wrapped, "compiled": compiled, "training": training}


def distributed() -> dict[str, Any] | None:
    """Which rank this is, of how many; None where it is alone."""
    module = whole("torch.distributed")
    if module is None or not module.is_available() or not module.is_initialized():
        return None
    return {"rank": module.get_rank(), "world": module.get_world_size(), "backend": str(module.get_backend())[:20]}
