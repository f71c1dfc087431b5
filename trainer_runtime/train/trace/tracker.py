"""Adds up what the tensors of a training's steps take, as `torch.distributed._tools.MemTracker`
does, whose figures of each module take most of its time."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

from torch import Tensor, UntypedStorage, nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from trainer_runtime.core.answers.traced import (
    ACTIVATIONS,
    GRADIENTS,
    KINDS,
    OPTIMIZER,
    OTHER,
    PARAMETERS,
    TEMPORARIES,
    MemoryTrace,
)
from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.config.curriculum import Curriculum, Shape


class Tracker:
    """Follows a training's steps from `begin` to `answer`."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._storages = _Storages()
        self._entered = ExitStack()
        self._gradients = 0
        shapes = Curriculum.of(config).shapes
        self.shape: Shape = max(shapes, key=lambda of: (of.micro_batch * of.seq_len, of.seq_len))

    def begin(self, model: nn.Module, optimizer: Optimizer, others: Iterable[Tensor] = ()) -> None:
        """Before the first step; `others`: what is kept as long as the model."""
        self._model, self._optimizer = model, optimizer
        self._others = [*others, *model.buffers()]
        for kind, tensors in ((PARAMETERS, model.parameters()), (OTHER, self._others)):
            for tensor in tensors:
                self._storages.put(tensor, kind)
        for parameter in filter(lambda of: of.requires_grad, model.parameters()):
            hooked: Any = parameter  # whose method PyTorch does not annotate
            hooked.register_post_accumulate_grad_hook(self._add_gradient)
        self._entered.enter_context(self._storages)

    def steps(self) -> Iterator[int]:
        """The steps to take; they differ in what is there before them: the first has no optimizer's
        state, and only the second micro-batch of a step has gradients."""
        yield from (1, 2)

    def accumulation(self, step: int) -> int:
        """How many micro-batches make up a step."""
        return min(self.shape.accumulation, step)

    def begin_forward(self) -> None:
        self._storages.kind = ACTIVATIONS

    def begin_backward(self) -> None:
        self._storages.kind = TEMPORARIES

    def begin_optimizer(self) -> None:
        """After the backward pass of the step's last micro-batch."""
        self._storages.kind = OPTIMIZER
        gradients = (parameter.grad for parameter in self._model.parameters())
        self._gradients = _size(gradient for gradient in gradients if gradient is not None)

    def answer(self) -> MemoryTrace:
        """The figures, once the steps were taken."""
        self._entered.close()
        states = self._optimizer.state.values()
        moments = (value for state in states for value in state.values())
        at_peak = self._storages.at_peak
        return MemoryTrace(
            micro_batch=self._config.batch.micro_batch,
            strategy=self._config.compute.strategy,
            recompute=self._config.compute.activation_checkpointing,
            peak_bytes=sum(at_peak.values()),
            passing_bytes=self._storages.passing_peak,
            state={
                PARAMETERS: _size(self._model.parameters()),
                GRADIENTS: self._gradients,
                OPTIMIZER: _size(value for value in moments if isinstance(value, Tensor)),
                OTHER: _size(self._others),
            },
            at_peak={kind: at_peak[kind] for kind in KINDS},
        )

    def _add_gradient(self, parameter: Tensor) -> None:
        if parameter.grad is not None:
            self._storages.put(parameter.grad, GRADIENTS)


class _Storages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The storages that exist, with what each is for. `kind`: of those that operators make now."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kind = OTHER
        self.at_peak: Counter[str] = Counter()
        self._present: Counter[str] = Counter()
        self._total = self._peak = self.passing_peak = 0
        # By the storage's address: its kind and bytes, and what notices its end.
        self._held: dict[int, tuple[str, int, weakref.ref[UntypedStorage]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(tensor, Tensor):
                self._follow(tensor.untyped_storage())
        if self._total > self._peak:
            self._peak, self.at_peak = self._total, self._present.copy()
        passing = self._present[ACTIVATIONS] + self._present[TEMPORARIES]
        self.passing_peak = max(self.passing_peak, passing)
        return result

    def put(self, tensor: Tensor, kind: str) -> None:
        """States what a tensor is for."""
        storage = tensor.untyped_storage()
        self._follow(storage)
        before, size, ending = self._held[storage._cdata]
        self._present[before] -= size
        self._present[kind] += size
        self._held[storage._cdata] = kind, size, ending

    def _follow(self, storage: UntypedStorage) -> None:
        address = storage._cdata
        if address in self._held:
            return
        size = storage.nbytes()
        ending = weakref.ref(storage, lambda _: self._end(address))
        self._held[address] = self.kind, size, ending
        self._present[self.kind] += size
        self._total += size

    def _end(self, address: int) -> None:
        kind, size, _ = self._held.pop(address)
        self._present[kind] -= size
        self._total -= size


def _size(tensors: Iterable[Tensor]) -> int:
    """Bytes of their storages, each counted once."""
    storages = {storage._cdata: storage for storage in (of.untyped_storage() for of in tensors)}
    return sum(storage.nbytes() for storage in storages.values())
