"""The cards that can be simulated, with the constants that decide memory.

`measured` names the constants that were read from a real card of that kind; the rest comes from public specifications
and from reading torch's sources, or is taken over from the H200. Measured with torch 2.11.0+cu130, driver 580. The
total memory of the others is what torch reports for them in public logs: it varies by some tens of MiB with driver and
ECC.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20

WORKSPACE_HOPPER_BYTES = 32 * MIB
"""cuBLAS workspace per handle and stream on compute capability 9.0 (`getChosenWorkspaceSize`, CublasHandlePool.cpp)."""
WORKSPACE_OTHER_BYTES = 2 * 4096 * 1024 + 8 * 16 * 1024
"""The same on every other card: `:4096:2:16:8` (same source)."""
LT_WORKSPACE_BYTES = MIB
"""cuBLASLt workspace, taken once by the first product with a fused bias. Measured on an H200."""
CONTEXT_BYTES = 552_402_944
"""What the CUDA context holds outside the allocator right after initialisation. Measured on an H200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One kind of card.

    Attributes:
        key: the name by which it is asked for.
        name: what `torch.cuda.get_device_name` says.
        total_memory_bytes: what `cudaMemGetInfo` calls total; a little below the size on the box.
        capability: compute capability, major and minor.
        multiprocessors: streaming multiprocessors; they decide how reductions are split.
        threads_per_multiprocessor: `maxThreadsPerMultiProcessor`.
        blas_workspace_bytes: cuBLAS workspace of one handle.
        lt_workspace_bytes: cuBLASLt workspace.
        context_bytes: device memory outside the allocator after initialisation.
        measured: names of the attributes above that were read from a real card.
    """

    key: str
    name: str
    total_memory_bytes: int
    capability: tuple[int, int]
    multiprocessors: int
    threads_per_multiprocessor: int
    blas_workspace_bytes: int = WORKSPACE_OTHER_BYTES
    lt_workspace_bytes: int = LT_WORKSPACE_BYTES
    context_bytes: int = CONTEXT_BYTES
    measured: frozenset[str] = frozenset()


_H200_MEASURED = frozenset(
    {
        "name",
        "total_memory_bytes",
        "capability",
        "multiprocessors",
        "threads_per_multiprocessor",
        "blas_workspace_bytes",
        "lt_workspace_bytes",
        "context_bytes",
    }
)

_TABLE = (
    Card(
        key="h200",
        name="NVIDIA H200",
        total_memory_bytes=150_109_880_320,
        capability=(9, 0),
        multiprocessors=132,
        threads_per_multiprocessor=2048,
        blas_workspace_bytes=WORKSPACE_HOPPER_BYTES,
        measured=_H200_MEASURED,
    ),
    Card(
        key="h100",
        name="NVIDIA H100 80GB HBM3",
        total_memory_bytes=81_089 * MIB,
        capability=(9, 0),
        multiprocessors=132,
        threads_per_multiprocessor=2048,
        blas_workspace_bytes=WORKSPACE_HOPPER_BYTES,
    ),
    Card(
        key="a100-80gb",
        name="NVIDIA A100-SXM4-80GB",
        total_memory_bytes=81_050 * MIB,
        capability=(8, 0),
        multiprocessors=108,
        threads_per_multiprocessor=2048,
    ),
    Card(
        key="a100-40gb",
        name="NVIDIA A100-SXM4-40GB",
        total_memory_bytes=40_326 * MIB,
        capability=(8, 0),
        multiprocessors=108,
        threads_per_multiprocessor=2048,
    ),
    Card(
        key="l40s",
        name="NVIDIA L40S",
        total_memory_bytes=45_589 * MIB,
        capability=(8, 9),
        multiprocessors=142,
        threads_per_multiprocessor=1536,
    ),
    Card(
        key="l4",
        name="NVIDIA L4",
        total_memory_bytes=22_579 * MIB,
        capability=(8, 9),
        multiprocessors=58,
        threads_per_multiprocessor=1536,
    ),
    Card(
        key="a10",
        name="NVIDIA A10",
        total_memory_bytes=22_592 * MIB,
        capability=(8, 6),
        multiprocessors=72,
        threads_per_multiprocessor=1536,
    ),
    Card(
        key="rtx4090",
        name="NVIDIA GeForce RTX 4090",
        total_memory_bytes=24_210 * MIB,
        capability=(8, 9),
        multiprocessors=128,
        threads_per_multiprocessor=1536,
    ),
    Card(
        key="rtx3090",
        name="NVIDIA GeForce RTX 3090",
        total_memory_bytes=24_253 * MIB,
        capability=(8, 6),
        multiprocessors=82,
        threads_per_multiprocessor=1536,
    ),
    Card(
        key="v100",
        name="Tesla V100-SXM2-16GB",
        total_memory_bytes=16_160 * MIB,
        capability=(7, 0),
        multiprocessors=80,
        threads_per_multiprocessor=2048,
    ),
    Card(
        key="v100-32gb",
        name="Tesla V100-SXM2-32GB",
        total_memory_bytes=32_501 * MIB,
        capability=(7, 0),
        multiprocessors=80,
        threads_per_multiprocessor=2048,
    ),
    Card(
        key="t4",
        name="Tesla T4",
        total_memory_bytes=15_102 * MIB,
        capability=(7, 5),
        multiprocessors=40,
        threads_per_multiprocessor=1024,
    ),
)

CARDS: dict[str, Card] = {card.key: card for card in _TABLE}
"""Every card, by the name it is asked for."""
