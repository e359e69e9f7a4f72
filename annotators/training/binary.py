"""Losses for labels that say match or no match: triplets, which differ in their negatives, and in-batch softmax.

Every function takes ``similarities`` (I, C) of I images and C captions, which need not be as many, and two masks of
that shape. ``matches`` says which pairs are positives: the own ones, and those that people judged so. ``known`` says
which pairs count at all (all of them where it is None): a pair outside it is neither positive nor negative. Negatives
are the known pairs that are no match.

Where the papers have one positive s(V_i, T_i) for a query, here every positive pair makes a term of its own, against
the negatives of its image and against those of its caption; with ``matches`` the diagonal that is the printed equation.
Equation 10 of BCLS, which leaves other pairs with r = 1 out and still asks only for the own pair, is ``matches`` the
diagonal and ``known`` false at those pairs. A positive pair whose image or caption has no negative adds nothing there.
Nothing is divided by the batch: these are the sums that are printed.

Sources: Li et al., Image-Text Retrieval with Binary and Continuous Label Supervision (BCLS), equations 1 and 10 to 16;
of the softmax, Parekh et al., Crisscrossed Captions, EACL 2021, equation 1 and its appendix on the training setup.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, distributed
from torch.nn import functional as F

MARGIN = 0.2
"""m. BCLS prints none; 0.2 on cosines is that of Faghri et al., VSE++, BMVC 2018."""
GAMMA = 50.0
"""Of Triplet-SN: BCLS, section IV-A."""

Term = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(P, 1) similarities of positives, (P, G) of the same query with all items, (P, G) which are negatives -> (P,)."""


def positive_terms(
    similarities: Tensor, matches: Tensor, known: Tensor | None, term: Term
) -> tuple[Tensor, Tensor]:
    """The terms of all positive pairs, with the image as the query and with the caption as the query: (P,) each.

    Pairs come in the order of their rows. Without a positive pair both are empty, and their sum is 0 with gradient 0.
    """
    counted = torch.ones_like(matches) if known is None else known
    images, captions = (matches & counted).nonzero(as_tuple=True)
    negatives = ~matches & counted
    own = similarities[images, captions][:, None]
    return (
        term(own, similarities[images], negatives[images]),
        term(own, similarities.T[captions], negatives.T[captions]),
    )


def greatest(values: Tensor, among: Tensor) -> Tensor:
    """(..., ) the greatest of ``values`` (..., G) among those of the mask; very low where there is none."""
    return values.masked_fill(~among, _lowest(values)).max(-1).values


def soft_greatest(values: Tensor, among: Tensor) -> Tensor:
    """(..., ) the logarithm of the summed exponentials of ``values`` (..., G); very low where the mask is empty."""
    return values.masked_fill(~among, _lowest(values)).logsumexp(-1)


def _lowest(values: Tensor) -> float:
    # Not minus infinity, whose log-sum-exp has no gradient; a quarter, so that a difference stays finite.
    return torch.finfo(values.dtype).min / 4


def _summed(similarities: Tensor, matches: Tensor, known: Tensor | None, term: Term) -> Tensor:
    by_image, by_caption = positive_terms(similarities, matches, known, term)
    return by_image.sum() + by_caption.sum()


def sum_of_hinges(
    similarities: Tensor, matches: Tensor, margin: float = MARGIN, known: Tensor | None = None
) -> Tensor:
    """Scalar: every negative that is not farther than the positive by the margin adds what it lacks.

    Source: BCLS, equation 1, and 10 where other pairs with r = 1 are left out.
    """

    def term(own: Tensor, others: Tensor, negative: Tensor) -> Tensor:
        return ((others - own + margin).clamp(min=0) * negative).sum(-1)

    return _summed(similarities, matches, known, term)


def semi_hard(
    similarities: Tensor, matches: Tensor, margin: float = MARGIN, known: Tensor | None = None
) -> Tensor:
    """Scalar: for each positive pair the closest negative that is still farther than it, if within the margin.

    A positive pair that every negative beats has no such negative and adds nothing: the source does not say what
    happens then.

    Source: Schroff et al., FaceNet, CVPR 2015, section 3.2, on similarities instead of distances.
    """

    def term(own: Tensor, others: Tensor, negative: Tensor) -> Tensor:
        hardest = greatest(others, negative & (others < own))
        return (hardest - own[:, 0] + margin).clamp(min=0)

    return _summed(similarities, matches, known, term)


def hardest_negative(
    similarities: Tensor, matches: Tensor, margin: float = MARGIN, known: Tensor | None = None
) -> Tensor:
    """Scalar, Triplet-HN: for each positive pair only the closest negative; of equal ones the first.

    Source: BCLS, equations 12 and 13; Faghri et al., VSE++, BMVC 2018, equation 6.
    """

    def term(own: Tensor, others: Tensor, negative: Tensor) -> Tensor:
        return (greatest(others, negative) - own[:, 0] + margin).clamp(min=0)

    return _summed(similarities, matches, known, term)


def soft_negative(
    similarities: Tensor,
    matches: Tensor,
    margin: float = MARGIN,
    gamma: float = GAMMA,
    known: Tensor | None = None,
) -> Tensor:
    """Scalar, Triplet-SN: all negatives as one, the log-sum-exp of gamma times their similarities, over gamma.

    It lies above the closest negative by at most log(number of negatives) / gamma, and tends to it with gamma
    (equation 16).

    Source: BCLS, equations 14 and 15.
    """

    def term(own: Tensor, others: Tensor, negative: Tensor) -> Tensor:
        soft = soft_greatest(gamma * others, negative) / gamma
        return (soft - own[:, 0] + margin).clamp(min=0)

    return _summed(similarities, matches, known, term)


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
    return cast("Tensor", _Gathered.apply(rows))  # type: ignore[no-untyped-call]


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        world, rank = distributed.get_world_size(), distributed.get_rank()
        count = torch.tensor([len(rows)], device=rows.device)
        counts = [torch.empty_like(count) for _ in range(world)]
        distributed.all_gather(counts, count)
        sizes = [int(size) for size in counts]
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
        return cast("Tensor", total[ctx.own])
