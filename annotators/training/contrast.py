"""In-batch softmax in both directions, in the two forms that go by one name, and negatives of all devices.

Source: Parekh et al., Crisscrossed Captions, EACL 2021, equation 1 and its appendix on the training setup.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, distributed
from torch.nn import functional as F

from annotators.training.triplet import positive_terms, soft_greatest


def softmax_own_outside(
    similarities: Tensor, matches: Tensor, scale: float = 1.0, known: Tensor | None = None
) -> Tensor:
    """Scalar: as equation 1 prints it, where the own pair is missing in the sum below the fraction (j != i).

    It has no lower bound: a batch whose pairs are all found still pushes on. Each positive pair makes a term, with the
    negatives of its image and of its caption, so that other positives of either are in no sum; terms are averaged. A
    term without negatives, whose logarithm would be minus infinity, is 0.

    Args:
        similarities: (I, C); the paper's are products of embeddings that are no unit vectors.
        scale: by which similarities are multiplied; for cosines, 1 over a temperature.
    """

    def term(own: Tensor, others: Tensor, negative: Tensor) -> Tensor:
        lacking = soft_greatest(scale * others, negative) - scale * own[:, 0]
        return torch.where(negative.any(-1), lacking, 0.0)

    return _averaged(positive_terms(similarities, matches, known, term))


def softmax_common(
    similarities: Tensor, matches: Tensor, scale: float = 1.0, known: Tensor | None = None
) -> Tensor:
    """Scalar: cross-entropy of the own pair among itself and the negatives, the usual form; never below 0.

    Arguments and averages as in ``softmax_own_outside``; a term without negatives is 0 by itself.
    """

    def term(own: Tensor, others: Tensor, negative: Tensor) -> Tensor:
        return F.softplus(soft_greatest(scale * others, negative) - scale * own[:, 0])

    return _averaged(positive_terms(similarities, matches, known, term))


def _averaged(both: tuple[Tensor, Tensor]) -> Tensor:
    return (both[0].sum() + both[1].sum()) / max(1, len(both[0]))


def gathered(rows: Tensor) -> Tensor:
    """(N, ...) the rows of all processes of ``torch.distributed``, by rank; ``rows`` themselves in a lone process.

    Processes may bring different numbers of rows. Every process gets the same; what it computes of it sends gradients
    to all, and they are summed. So where each process computes the same loss, and gradients of parameters are averaged
    over processes as ``DistributedDataParallel`` does, the step is that of one process with the whole batch. Whole
    numbers, as the items' ids from which labels are made, can be gathered too.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return rows
    return cast(Tensor, _Gathered.apply(rows))  # type: ignore[no-untyped-call]


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        world, rank = distributed.get_world_size(), distributed.get_rank()
        count = torch.tensor([len(rows)], device=rows.device)
        counts = [torch.empty_like(count) for _ in range(world)]
        distributed.all_gather(counts, count)
        sizes = [int(each) for each in counts]
        # All processes must send alike shapes.
        padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in range(world)]
        distributed.all_gather(parts, padded)
        ctx.own = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Tensor:
        total = gradients[0].contiguous().clone()
        distributed.all_reduce(total)
        return cast(Tensor, total[ctx.own])
