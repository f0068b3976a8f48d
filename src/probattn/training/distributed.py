"""Several processes, through accelerate; one process needs no launcher.

Several processes are started by torchrun: `torchrun --nproc_per_node 2 -m probattn ...`. All folders must be on a disk
that every machine sees.
"""

import contextlib
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from probattn.training.errors import CheckpointError, OutputError

__all__ = ["Processes", "is_main_process"]

T = TypeVar("T")


def is_main_process() -> bool:
    """Whether this is the first of the processes that torchrun started, or the only one."""
    return int(os.environ.get("RANK", "0")) == 0


class Processes:
    """The ranks of this run and what they tell each other."""

    def __init__(self) -> None:
        try:
            from accelerate import Accelerator
            from accelerate.utils import DistributedDataParallelKwargs
        except ImportError as error:
            raise ImportError("training needs accelerate; install it with `pip install probattn[train]`") from error
        # A stage may leave parameters unused (another site, another bound). Buffers are averaged by `average_`.
        handler = DistributedDataParallelKwargs(find_unused_parameters=True, broadcast_buffers=False)
        # Without cpu=True accelerate takes every rank on a machine without accelerators for a run of its own.
        has_accelerator = torch.accelerator.is_available()
        self._accelerator = Accelerator(cpu=not has_accelerator, mixed_precision="no", kwargs_handlers=[handler])
        self.rank: int = self._accelerator.process_index
        self.num_ranks: int = self._accelerator.num_processes
        self.device: torch.device = self._accelerator.device
        launched = int(os.environ.get("WORLD_SIZE", 1))
        if launched != self.num_ranks:
            raise RuntimeError(
                f"WORLD_SIZE is {launched}, but accelerate sees {self.num_ranks} process(es); start several processes "
                "with torchrun, and one process without WORLD_SIZE in the environment"
            )

    @property
    def is_main(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module on this rank's device, with gradients averaged over ranks; replaces the module wrapped before."""
        module = module.to(self.device)
        if self.num_ranks == 1:
            return module
        self._accelerator.free_memory()  # drops the last wrapper, whose hooks sit on the same parameters
        with warnings.catch_warnings():
            # Newer torch prefers another name, which the oldest supported one does not have.
            warnings.filterwarnings("ignore", message=".*broadcast_buffers.* is deprecated.*")
            return cast(nn.Module, self._accelerator.prepare_model(module))

    def without_sync(self, module: nn.Module) -> AbstractContextManager[None]:
        """Inside the block, backward passes add up on this rank alone."""
        if self.num_ranks == 1:
            return contextlib.nullcontext()
        return cast(AbstractContextManager[None], self._accelerator.no_sync(module))

    def sum(self, values: Sequence[float]) -> list[float]:
        """Each value's sum over ranks, the same on all of them."""
        if self.num_ranks == 1:
            return list(values)
        stacked = torch.tensor(values, dtype=torch.float64, device=self.device)
        return [float(value) for value in self._accelerator.reduce(stacked, reduction="sum")]

    def average_(self, tensors: Sequence[Tensor]) -> None:
        """Replace floating-point tensors by their mean over ranks, all others by the main rank's."""
        for tensor in tensors if self.num_ranks > 1 else ():
            if tensor.is_floating_point():
                torch.distributed.all_reduce(tensor)
                tensor /= self.num_ranks
            else:
                torch.distributed.broadcast(tensor, src=0)

    def gather(self, item: T) -> list[T]:
        """Every rank's item, in the order of ranks, on all of them."""
        if self.num_ranks == 1:
            return [item]
        from accelerate.utils import gather_object

        return cast(list[T], gather_object([item]))

    def from_main(self, item: T) -> T:
        """The main rank's item, on all ranks."""
        if self.num_ranks == 1:
            return item
        from accelerate.utils import broadcast_object_list

        items: list[Any] = [item]
        broadcast_object_list(items)
        return cast(T, items[0])

    def on_main(self, action: Callable[[], T]) -> T:
        """Run on the main rank alone; all ranks get the result, or the error if a file could not be read or written."""
        result: T | None = None
        error: Exception | None = None
        if self.is_main:
            try:
                result = action()
            except (CheckpointError, OutputError) as caught:
                if self.num_ranks == 1:
                    raise
                error = caught
        result, error = self.from_main((result, error))
        if error is not None:
            raise error
        return cast(T, result)
