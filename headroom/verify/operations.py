"""Comparison of what two runs asked of a virtual GPU, operation by operation.

A `detach` or `no_grad` in the wrong place leaves its trace in the operations of the backward passes, or of the forward
passes that were meant to stay as they are, even where rows, gradients and parameters are as many as before.
"""

from collections import Counter
from typing import Final

from headroom.records.run import RunRecord, VirtualCoverage
from headroom.records.trial import Check

NAME: Final = "operations"
TO_HOST: Final = "to host"
"""How the virtual GPU calls a copy from the device to the host."""

_FUSED_INFERENCE: Final = frozenset(
    {
        "_native_multi_head_attention", "_nested_from_padded", "_nested_tensor_from_mask",
        "_transformer_encoder_layer_fwd",
    }
)  # fmt: skip
_RANDOM: Final = frozenset(
    {
        "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "native_dropout", "normal",
        "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "random", "randperm",
        "uniform",
    }
)  # fmt: skip
# What a model is made of: none of it can be the afterwork on collected results that goes to the host with them.
_OF_MODELS: Final = frozenset(
    {
        "_efficient_attention_forward", "_flash_attention_forward", "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention", "addmm", "baddbmm", "bmm",
        "convolution", "embedding", "mm", "native_batch_norm", "native_group_norm", "native_layer_norm",
    }
)  # fmt: skip
_VIEWS: Final = frozenset(
    {
        "_reshape_alias", "_unsafe_view", "as_strided", "expand", "permute", "select", "slice", "split", "squeeze", "t",
        "transpose", "unbind", "unsqueeze", "view",
    }
)  # fmt: skip
# How often a program reads a number or prints may depend on the clock.
_UNCOUNTED: Final = frozenset({"_local_scalar_dense"})


def check_operations(original: RunRecord, candidate: RunRecord) -> Check | None:
    """Compare two whole runs on a virtual GPU; None where there is nothing to compare.

    Equal but for fused kernels of inference, or for what goes on on the host, is not compared (`passed` is None): then
    other operations do the same work.
    """
    if original.virtual is None or candidate.virtual is None:
        return None
    if original.outcome != "completed" or candidate.outcome != "completed":
        return None
    backward = _difference(
        original.virtual.backward_operations, candidate.virtual.backward_operations
    )
    if backward:
        return _changed(backward, "in backward passes")
    forward = _difference(original.virtual.forward_operations, candidate.virtual.forward_operations)
    if not forward:
        count = sum(_total(candidate.virtual))
        return Check(name=NAME, passed=True, value=f"all {count} the same, forward and backward")
    return _forward_check(forward)


def _forward_check(difference: dict[str, tuple[int, int]]) -> Check:
    more = {name for name, (before, after) in difference.items() if after > before}
    if more & _FUSED_INFERENCE:
        value = "inference runs on torch's fused kernels, whose results may differ, at padded places above all"
        return Check(name=NAME, passed=None, value=value)
    fewer = difference.keys() - more
    if more == {TO_HOST} and not fewer & (_RANDOM | _OF_MODELS):
        return Check(name=NAME, passed=None, value="what was collected is worked on on the host")
    return _changed(difference, "outside of backward passes")


def _changed(difference: dict[str, tuple[int, int]], where: str) -> Check:
    # The largest difference tells most, if it is more than a view.
    name, (before, after) = max(
        difference.items(),
        key=lambda item: (item[0] not in _VIEWS, abs(item[1][1] - item[1][0]), item[0]),
    )
    return Check(
        name=NAME,
        passed=False,
        value=f"{after} times {name}",
        expected=f"{before} times",
        where=where,
    )


def _difference(before: dict[str, int], after: dict[str, int]) -> dict[str, tuple[int, int]]:
    one, other = Counter(before), Counter(after)
    return {
        name: (one[name], other[name])
        for name in one.keys() | other.keys()
        if one[name] != other[name] and name not in _UNCOUNTED
    }


def _total(coverage: VirtualCoverage) -> tuple[int, int]:
    return sum(coverage.forward_operations.values()), sum(coverage.backward_operations.values())
