"""Process groups without NCCL, and DistributedDataParallel with its buckets but without its reducer."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.parallel.distributed as parallel
from torch import Tensor, nn

from .device import VirtualDevice

FIRST_BUCKET_BYTES = 1 << 20  # torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
DEFAULT_BUCKET_MIB = 25
_Real: Any = parallel.DistributedDataParallel


def install(device: VirtualDevice) -> None:
    """Replaces `init_process_group` and DistributedDataParallel, if this torch has them."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    real_init = distributed.init_process_group

    def init_process_group(
        backend: Any = None, *args: Any, rank: int = -1, world_size: int = -1, **kwargs: Any
    ) -> None:
        """A group whose collectives return at once: every rank is alone."""
        from torch.testing._internal.distributed.fake_pg import FakeStore

        device.report.not_modelled(
            "Collectives are replaced by a group that does nothing: NCCL's buffers are not counted."
        )
        real_init(
            backend="fake",
            rank=rank if rank >= 0 else int(os.environ.get("RANK", "0")),
            world_size=world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", "1")),
            store=FakeStore(),
        )

    distributed.init_process_group = init_process_group
    distributed.distributed_c10d.init_process_group = init_process_group
    for module in (parallel, torch.nn.parallel):
        module.DistributedDataParallel = DistributedDataParallel


class DistributedDataParallel(_Real):  # type: ignore[misc]
    """Stands for the real one on CUDA modules: its reducer waits for CUDA events.

    Holds the buckets that the real one holds, and calls the module; gradients stay where they are.
    """

    def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not any(parameter.is_cuda for parameter in trained):
            super().__init__(module, *args, **kwargs)
            self._buckets = None
            return
        nn.Module.__init__(self)
        self.module = module
        self.device_ids = kwargs.get("device_ids", args[0] if args else None)
        self.gradient_as_bucket_view = kwargs.get("gradient_as_bucket_view", False)
        self.require_backward_grad_sync = True
        cap_mib = kwargs.get("bucket_cap_mb") or DEFAULT_BUCKET_MIB
        self._buckets = _buckets(trained, int(cap_mib * (1 << 20)))
        if self.gradient_as_bucket_view:
            for bucket, members in self._buckets:
                _keep_gradients_in(bucket, members)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Calls the module."""
        if self._buckets is None:
            return super().forward(*inputs, **kwargs)
        return self.module(*inputs, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients are never exchanged here."""
        yield

    def register_comm_hook(self, state: object, hook: Any) -> None:
        """Gradients are never exchanged here."""

    def _set_static_graph(self) -> None:
        """Nothing depends on it here."""


def _buckets(parameters: list[Tensor], cap_bytes: int) -> list[tuple[Tensor, list[Tensor]]]:
    """Flat gradient buffers as the reducer allocates them, last parameters first."""
    groups, _ = torch.distributed._compute_bucket_assignment_by_size(
        parameters, [FIRST_BUCKET_BYTES, cap_bytes]
    )
    buckets = []
    for group in reversed(groups):
        members = [parameters[index] for index in group]
        flat = torch.empty(
            sum(member.numel() for member in members),
            dtype=members[0].dtype,
            device=members[0].device,
        )
        buckets.append((flat, members))
    return buckets


def _keep_gradients_in(bucket: Tensor, members: list[Tensor]) -> None:
    """`gradient_as_bucket_view`: gradients move into the bucket as soon as they are there."""
    offset = 0
    for member in members:
        place = bucket.as_strided(member.shape, member.stride(), offset)
        offset += member.numel()

        def move(parameter: Tensor, place: Tensor = place) -> None:
            if parameter.grad is not None and parameter.grad.data_ptr() != place.data_ptr():
                place.copy_(parameter.grad)
                parameter.grad = place

        member.register_post_accumulate_grad_hook(move)
