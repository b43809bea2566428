"""A model with its data, of whatever the user's function returned, and one training step of them.

    return model, loader                    # or a batch in place of the loader; gputop chooses loss and optimizer
    return model, loader, loss_fn           # loss_fn(outputs, targets), as torch.nn's losses are
    return model, loader, loss_fn, optimizer
    return loader, step                     # as for gputop loader: step(batch) does all of one training step
    an object with model, and loader, dataset or batch; if it has them, loss(model, batch), optimizer, step(batch)

Standard library and torch only, Python 3.8 and later: it runs in the user's Python, beside a child of the lab.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from child_request import Wrong

CHOSEN = "%s, chosen by gputop"
LEARNING_RATE = 1e-4  # of the default optimizer: the result does not matter, only its time
DATA = ("loader", "dataset", "batch")


class Training:
    """One training step of a known model, or the user's own step."""

    def __init__(self, torch, model, data, loss=None, optimizer=None, step=None, request=None):
        self.torch, self.model, self.step_of_user = torch, model, step
        self.loader, self.batch = feed(torch, data, request or {})
        self.loss, self.loss_name = loss, "the function's own" if loss or step else None
        self.optimizer = optimizer
        self.optimizer_name = "the step's own" if step else type(optimizer).__name__ if optimizer else None
        own = next(model.parameters(), None) if model is not None else None
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if own is not None and (step is not None or own.device.type != "cpu"):
            self.device = own.device  # where the user put it
        if step is None:
            self.settle()

    def settle(self):
        """Move the model to its device, and create an optimizer for its parameters if the function returned none."""
        self.model.to(self.device)  # in place: an optimizer keeps its parameters
        trained = [one for one in self.model.parameters() if one.requires_grad]
        if self.optimizer is None and trained:
            self.optimizer = self.torch.optim.AdamW(trained, lr=LEARNING_RATE)
            self.optimizer_name = CHOSEN % "AdamW"

    def batches(self):
        """Batches over all epochs; the first epoch must yield one."""
        if self.loader is None:
            while True:
                yield self.batch
        while True:
            empty = True
            for batch in self.loader:
                empty = False
                yield batch
            if empty:
                raise Wrong("the DataLoader yields no batch")

    def placed(self, batch):
        """A batch on the model's device; the user's own step moves it itself."""
        return batch if self.step_of_user else moved(batch, self.device)

    def run(self, batch, autocast=None, scaler=None):
        """One training step."""
        if self.step_of_user:
            with autocast or Nothing():
                return self.step_of_user(batch)
        with autocast or Nothing():
            loss = self.lost(batch)
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.step(self.optimizer)
            scaler.update()
        else:
            loss.backward()
            if self.optimizer is not None:
                self.optimizer.step()
        if self.optimizer is not None:
            self.optimizer.zero_grad(set_to_none=True)
        else:
            self.model.zero_grad()
        return loss

    def infer(self, batch):
        """One forward pass; the caller turns gradients off."""
        return self.step_of_user(batch) if self.step_of_user else called(self.model, batch)[0]

    def lost(self, batch):
        """The loss of one batch."""
        if self.loss is not None:
            return self.loss(self.model, batch)
        output, target = called(self.model, batch)
        loss, self.loss_name = chosen(self.torch, output, target)
        return loss

    def synchronize(self):
        """Wait for the GPU, if there is one."""
        if self.torch.cuda.is_available():
            self.torch.cuda.synchronize()


class Nothing:
    """A context without effect."""

    def __enter__(self):
        return None

    def __exit__(self, *raised):
        return None


def training(torch, made, request):
    """The training from what the function returned; Wrong says in one line what it must return."""
    module = torch.nn.Module
    if isinstance(made, (tuple, list)) and made and isinstance(made[0], module) and len(made) <= 4:
        if len(made) == 1:
            return alone(torch, made[0], request)
        loss = made[2] if len(made) > 2 else None
        optimizer = made[3] if len(made) > 3 else None
        checked(loss, optimizer, request)
        return Training(torch, made[0], made[1], of_outputs(loss), optimizer, request=request)
    if isinstance(made, (tuple, list)) and len(made) == 2 and callable(made[1]):
        return Training(torch, module_of(torch, made[1]), made[0], step=made[1], request=request)
    data = next((getattr(made, name) for name in DATA if getattr(made, name, None) is not None), None)
    model = getattr(made, "model", None)
    if data is not None and isinstance(model, module):
        loss, optimizer = getattr(made, "loss", None), getattr(made, "optimizer", None)
        step = getattr(made, "step", None)
        checked(loss, optimizer, request)
        if loss is None and callable(step):
            return Training(torch, model, data, step=step, request=request)
        return Training(torch, model, data, loss, optimizer, request=request)
    if data is not None and callable(getattr(made, "step", None)):
        return Training(torch, module_of(torch, made.step), data, step=made.step, request=request)
    if isinstance(made, module):
        return alone(torch, made, request)
    kind = type(made).__name__
    if isinstance(made, (tuple, list)):
        kind = "(%s)" % ", ".join(type(one).__name__ for one in made[:5])
    raise Wrong("%s returned %s: return model, loader or model, batch, loss_fn" % (request["function"], kind))


def alone(torch, model, request):
    """A model without data: requires its sample shape."""
    shape = request.get("shape")
    if not shape:
        raise Wrong("%s returned a model without data: return model, loader" % request["function"])
    return Training(torch, model, torch.randn(1, *shape), request=request)


def checked(loss, optimizer, request):
    """Check types before anything runs."""
    if loss is not None and not callable(loss):
        raise Wrong("the loss that %s returned is %s, not a function" % (request["function"], type(loss).__name__))
    if optimizer is not None and not (hasattr(optimizer, "step") and hasattr(optimizer, "zero_grad")):
        kind = type(optimizer).__name__
        raise Wrong("the optimizer that %s returned is %s, not a torch.optim optimizer" % (request["function"], kind))


def of_outputs(loss_fn):
    """Convert a loss of outputs and targets to one of model and batch."""
    if loss_fn is None:
        return None

    def loss(model, batch):
        output, target = called(model, batch)
        return loss_fn(output) if target is None else loss_fn(output, target)

    return loss


def called(model, batch):
    """The model's output for a batch, and the target if there is one: (inputs, target), a dict, or inputs alone."""
    if isinstance(batch, Mapping):
        return model(**batch), None
    if isinstance(batch, (tuple, list)) and len(batch) >= 2:
        return model(batch[0]), batch[1]
    return model(batch[0] if isinstance(batch, (tuple, list)) else batch), None


def chosen(torch, output, target):
    """A default loss, and its name: the model's own, else the usual one for such targets."""
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if own is not None:
        return own, "the model's own"
    if isinstance(output, Mapping):
        output = next(iter(output.values()))
    if hasattr(output, "logits"):
        output = output.logits
    if isinstance(output, (tuple, list)):
        output = output[0]
    if output.dim() == 0:
        return output, "the model's own"
    functional = torch.nn.functional
    if torch.is_tensor(target):
        classes = not target.is_floating_point() and target.dtype != torch.bool
        if classes and output.dim() == target.dim() + 1:
            return functional.cross_entropy(output, target), CHOSEN % "cross_entropy"
        if target.is_floating_point() and target.shape == output.shape:
            return functional.mse_loss(output, target), CHOSEN % "mse_loss"
    return output.float().square().mean(), CHOSEN % "mean of squares"


def feed(torch, data, request):
    """The loader and the batch, of which one is None."""
    kinds = torch.utils.data
    if isinstance(data, kinds.DataLoader):
        return data, None
    if isinstance(data, kinds.Dataset):
        shuffle = not isinstance(data, kinds.IterableDataset)
        return kinds.DataLoader(data, batch_size=request.get("batch_size") or 64, shuffle=shuffle), None
    several = isinstance(data, list) and data and all(isinstance(one, (tuple, list, Mapping)) for one in data)
    if tensors(data) and not several:
        return None, data
    if hasattr(data, "__iter__") and not isinstance(data, (str, bytes)):
        if iter(data) is data:
            raise Wrong("the data that %s returned can be read once only: return a DataLoader" % request["function"])
        return data, None
    kind = type(data).__name__
    raise Wrong("%s returned %s for its data: return a DataLoader, or a batch" % (request["function"], kind))


def tensors(batch):
    """All tensors in a batch, at any depth of tuples, lists and dicts."""
    if hasattr(batch, "element_size") and hasattr(batch, "dim"):
        return [batch]
    if isinstance(batch, Mapping):
        return [one for value in batch.values() for one in tensors(value)]
    if isinstance(batch, (tuple, list)):
        return [one for value in batch for one in tensors(value)]
    return []


def mapped(batch, change):
    """A batch with `change` applied to each of its tensors."""
    if hasattr(batch, "element_size") and hasattr(batch, "dim"):
        return change(batch)
    if isinstance(batch, Mapping):
        return {key: mapped(value, change) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(mapped(value, change) for value in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(mapped(value, change) for value in batch)
    return batch


def moved(batch, device):
    """A batch on a device."""
    return mapped(batch, lambda tensor: tensor.to(device, non_blocking=True))


def size_of(batch):
    """Number of samples: the first dimension of its first tensor; None if there is none."""
    found = tensors(batch)
    return int(found[0].shape[0]) if found and found[0].dim() else None


def resized(batch, size):
    """A batch resized by repeating or truncating its samples."""
    old = size_of(batch)
    if not old:
        raise Wrong("the batch has no size: its first tensor has no dimension of samples")

    def change(tensor):
        if not tensor.dim() or tensor.shape[0] != old:
            return tensor
        if size <= old:
            return tensor[:size].contiguous()
        times = -(-size // old)
        return tensor.repeat(times, *[1] * (tensor.dim() - 1))[:size].contiguous()

    return mapped(batch, change)


def peaks(torch, device):
    """Peak memory: what CUDA allocated, or the process's resident memory."""
    if device.type == "cuda":
        return {
            "peak_bytes": torch.cuda.max_memory_allocated(device),
            "reserved_bytes": torch.cuda.max_memory_reserved(device),
        }
    import resource

    return {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "reserved_bytes": None}


def module_of(torch, step):
    """The model trained by the user's step, if found in its closure, object or globals."""
    found = []
    owner = getattr(step, "__self__", None)
    if owner is not None:
        found += list(vars(owner).values()) if hasattr(owner, "__dict__") else []
    try:
        closure = inspect.getclosurevars(inspect.unwrap(getattr(step, "__func__", step)))
    except TypeError:
        pass
    else:
        found += list(closure.nonlocals.values()) + list(closure.globals.values())
    losses = torch.nn.modules.loss._Loss
    models = [one for one in found if isinstance(one, torch.nn.Module) and not isinstance(one, losses)]
    return models[0] if len(models) == 1 else None
