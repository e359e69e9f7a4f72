"""Losses are what their papers print: against slow transcriptions, numbers by hand, limits, and checked gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from annotators.training.binary import (
    hardest_negative,
    semi_hard,
    soft_negative,
    softmax_common,
    softmax_own_outside,
    sum_of_hinges,
)
from annotators.training.continuous import (
    Rung,
    co_caption_similarities,
    graded_contrast,
    hard_sliding_window,
    kendall,
    ladder_like,
    measured_alpha,
    pseudo_relevance,
    sam_like,
    sliding_window,
    windows,
)
from annotators.training.losses import LOSSES, Labels, LossSettings, Unjudged, loss_of
from mitl.errors import TrainingError

M, GAMMA, ALPHA, BETA = 0.2, 50.0, 0.2, 0.1


def batch(size, seed=0):
    """Cosines (B, B), labels of which the diagonal is 1, and the diagonal as matches."""
    generator = torch.Generator().manual_seed(seed)
    s = torch.rand(size, size, generator=generator, dtype=torch.float64) * 2 - 1
    r = torch.rand(size, size, generator=generator, dtype=torch.float64) * 1.9 - 1
    own = torch.eye(size, dtype=torch.bool)
    return s, r.masked_fill(own, 1.0), own


def plus(x):
    return max(float(x), 0.0)


def eq_1(s, B):
    return sum(
        plus(s[i, j] - s[i, i] + M) + plus(s[j, i] - s[i, i] + M)
        for i in range(B)
        for j in range(B)
        if i != j
    )


def eq_12(s, B):
    total = 0.0
    for i in range(B):
        others = [j for j in range(B) if j != i]
        total += plus(M - s[i, i] + max(s[i, j] for j in others))
        total += plus(M - s[i, i] + max(s[j, i] for j in others))
    return total


def eq_14(s, B):
    total = 0.0
    for i in range(B):
        others = [j for j in range(B) if j != i]
        v = math.log(sum(math.exp(GAMMA * s[i, j]) for j in others)) / GAMMA
        t = math.log(sum(math.exp(GAMMA * s[j, i]) for j in others)) / GAMMA
        total += plus(v - s[i, i] + M) + plus(t - s[i, i] + M)
    return total


def face_net(s, B):
    total = 0.0
    for i in range(B):
        for line in (s[i], s[:, i]):
            semi = [float(line[j]) for j in range(B) if j != i and line[j] < s[i, i]]
            total += plus(max(semi) - s[i, i] + M) if semi else 0.0
    return total


def eq_17(s, r, B, alpha):
    total = 0.0
    for i in range(B):
        for j in range(B):
            for k in range(B):
                total += plus(s[i, k] - s[i, j]) if r[i, j] > r[i, k] + alpha else 0.0
                total += plus(s[k, i] - s[j, i]) if r[j, i] > r[k, i] + alpha else 0.0
    return total


def sets(r, m, count):
    """Places of the positives and of the negatives of window m (from 1) among labels."""
    top = 1 - (count - m) * BETA
    return [j for j in range(len(r)) if r[j] >= top - 1e-6], [
        k for k in range(len(r)) if r[k] < top - ALPHA - 1e-6
    ]


def eq_18_and_19(s, r, B):
    count = round((2 - ALPHA) / BETA)
    every, hard = 0.0, 0.0
    for m in range(1, count + 1):
        for i in range(B):
            for near, label in ((s[i], r[i]), (s[:, i], r[:, i])):
                above, below = sets(label, m, count)
                every += sum(plus(near[k] - near[j]) for j in above for k in below)
                if above and below:
                    hard += plus(max(near[k] for k in below) - min(near[j] for j in above))
    return every, hard / count


def cxc_eq_1(s, B, *, common):
    total = 0.0
    for i in range(B):
        for line in (s[i], s[:, i]):
            terms = [math.exp(line[j]) for j in range(B) if common or j != i]
            total -= float(s[i, i]) - math.log(sum(terms))
    return total / B


@pytest.mark.parametrize("seed", range(4))
def test_triplets_are_the_printed_equations(seed):
    """Equations 1, 12 to 15 and FaceNet's semi-hard negatives, written out as loops."""
    s, _, own = batch(6, seed)

    assert sum_of_hinges(s, own, M).item() == pytest.approx(eq_1(s, 6))
    assert hardest_negative(s, own, M).item() == pytest.approx(eq_12(s, 6))
    assert soft_negative(s, own, M, GAMMA).item() == pytest.approx(eq_14(s, 6))
    assert semi_hard(s, own, M).item() == pytest.approx(face_net(s, 6))


@pytest.mark.parametrize("seed", range(4))
def test_kendall_losses_are_the_printed_equations(seed):
    """Equations 4, 17, 18, 19 and 20, written out as loops."""
    s, r, _ = batch(6, seed)
    every, hard = eq_18_and_19(s, r, 6)

    assert kendall(s, r).item() == pytest.approx(eq_17(s, r, 6, 0.0))
    assert kendall(s, r, ALPHA).item() == pytest.approx(eq_17(s, r, 6, ALPHA))
    assert sliding_window(s, r, ALPHA, BETA).item() == pytest.approx(every)
    assert hard_sliding_window(s, r, ALPHA, BETA).item() == pytest.approx(hard)


@pytest.mark.parametrize("seed", range(4))
def test_softmax_is_the_printed_equation_and_the_common_form(seed):
    """CxC's equation 1 without the own pair below the fraction, and cross-entropy."""
    s, _, own = batch(6, seed)

    assert softmax_own_outside(s, own).item() == pytest.approx(cxc_eq_1(s, 6, common=False))
    assert softmax_common(s, own).item() == pytest.approx(cxc_eq_1(s, 6, common=True))


def test_by_hand():
    """Two images, two captions: .5 and .9 own, .6 and .1 across."""
    s = torch.tensor([[0.5, 0.6], [0.1, 0.9]], dtype=torch.float64)
    own = torch.eye(2, dtype=torch.bool)
    r = torch.tensor([[1.0, 0.3], [0.0, 1.0]], dtype=torch.float64)

    # i2t: .6 - .5 + .2 = .3 and 0; t2i: .1 - .5 + .2 < 0 and .6 - .9 + .2 < 0.
    for loss in (sum_of_hinges, hardest_negative, soft_negative):
        assert loss(s, own, 0.2).item() == pytest.approx(0.3)
    # The one negative of the first image is closer than its match, so it is not semi-hard.
    assert semi_hard(s, own, 0.2).item() == 0
    assert kendall(s, r).item() == pytest.approx(0.1)
    # The first row's labels 1 and .3 are parted by the tops 1, .9, .8, .7, .6: .3 < top - .2. Five of 18 windows.
    assert sliding_window(s, r).item() == pytest.approx(0.5)
    assert hard_sliding_window(s, r).item() == pytest.approx(0.5 / 18)
    assert softmax_own_outside(s, own).item() == pytest.approx(
        -(0.5 - 0.6 + 0.9 - 0.1 + 0.5 - 0.1 + 0.9 - 0.6) / 2
    )
    # s - r / 5: .3, .54; .1, .7. Only the first row is out of order, by .24.
    assert sam_like(s, own, r, tau=5).item() == pytest.approx(0.24)
    assert ladder_like(s, r, (Rung(1.0, 0.2, 2.0),)).item() == pytest.approx(0.6)
    # One sample: p = sigmoid(0) = 1/2 for every pair.
    assert graded_contrast(torch.zeros(2, 2, 1, 1), torch.eye(2)).item() == pytest.approx(4 * math.log(2))


def test_soft_negatives_tend_to_the_hardest():
    """Equation 16: the difference falls with gamma, and is at most log(n) / gamma a term."""
    s, _, own = batch(8)
    hard = hardest_negative(s, own, M).item()
    gaps = [soft_negative(s, own, M, gamma).item() - hard for gamma in (5.0, 50.0, 500.0, 5000.0)]

    assert gaps == sorted(gaps, reverse=True)
    assert all(
        0 <= gap <= 16 * math.log(7) / gamma for gap, gamma in zip(gaps, (5, 50, 500, 5000), strict=True)
    )


def test_equation_11():
    """With the own pair alone above the rest, Kendall's loss is the sum of hinges without a margin."""
    s, _, own = batch(6)

    assert kendall(s, own.double()).item() == pytest.approx(sum_of_hinges(s, own, 0.0).item())


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_right(name):
    """Numeric and computed gradients agree, on a batch of two captions an image with pairs that nobody judged."""
    generator = torch.Generator().manual_seed(3)
    s = (torch.rand(3, 6, generator=generator, dtype=torch.float64) * 1.8 - 0.9).requires_grad_()
    labels = rectangular(generator)

    assert torch.autograd.gradcheck(lambda x: LOSSES[name](x, labels), (s,))


def rectangular(generator):
    matches = torch.arange(6) // 2 == torch.arange(3)[:, None]
    relevance = torch.rand(3, 6, generator=generator, dtype=torch.float64).masked_fill(matches, 1.0)
    known = matches | (torch.rand(3, 6, generator=generator) < 0.7)
    return Labels(matches, relevance, known)


@pytest.mark.parametrize("name", LOSSES)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=20)
def test_order_of_items_does_not_matter(name, seed):
    """Images and captions in another order give the same loss."""
    generator = torch.Generator().manual_seed(seed)
    s = torch.rand(3, 6, generator=generator, dtype=torch.float64)
    labels = rectangular(generator)
    rows, columns = (torch.randperm(n, generator=generator) for n in (3, 6))

    def moved(each):
        return each[rows][:, columns]

    other = Labels(moved(labels.matches), moved(labels.relevance), moved(labels.known))
    assert LOSSES[name](moved(s), other).item() == pytest.approx(LOSSES[name](s, labels).item())


@pytest.mark.parametrize("name", LOSSES)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=20)
def test_unknown_pairs_take_no_part(name, seed):
    """Whatever similarity and relevance a pair outside ``known`` has, the loss is the same; it gets no gradient."""
    generator = torch.Generator().manual_seed(seed)
    s = torch.rand(3, 6, generator=generator, dtype=torch.float64)
    labels = rectangular(generator)
    noise = torch.rand(3, 6, generator=generator, dtype=torch.float64).masked_fill(labels.known, 0.0)
    changed = Labels(labels.matches, (labels.relevance - noise).clamp(-1, 1), labels.known)
    other = (s + noise).requires_grad_()
    loss = LOSSES[name](other, changed)
    (gradient,) = torch.autograd.grad(loss, other)

    assert loss.item() == pytest.approx(LOSSES[name](s, labels).item())
    assert not gradient[~labels.known].any()


@given(seed=st.integers(0, 10_000))
@settings(max_examples=20)
def test_nothing_is_lost_where_the_order_is_right(seed):
    """Kendall's losses are 0 where similarities rise with labels; a triplet's where matches lead by the margin."""
    _, r, own = batch(5, seed)
    rising = (r * 3).tanh()

    assert (
        kendall(rising, r).item()
        == sliding_window(rising, r).item()
        == hard_sliding_window(rising, r).item()
        == 0
    )
    led = torch.where(own, 0.9, r.clamp(max=0.5))
    for loss in (sum_of_hinges, hardest_negative, soft_negative, semi_hard):
        assert loss(led, own, 0.2).item() == 0


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"probabilistic"}))
def test_a_batch_of_one_pair_teaches_nothing(name):
    """There is nothing to hold it against: 0, with a finite gradient of 0."""
    s = torch.full((1, 1), 0.3, requires_grad=True)
    loss = LOSSES[name](s, Labels.of_own(torch.zeros(1, dtype=torch.int64), 1))
    (gradient,) = torch.autograd.grad(loss, s)

    assert loss.item() == 0
    assert gradient.item() == 0


@pytest.mark.parametrize("name", LOSSES)
def test_a_batch_without_known_pairs_is_zero(name):
    """No positive, no negative, only empty windows."""
    s = torch.rand(3, 4, requires_grad=True)
    nothing = torch.zeros(3, 4, dtype=torch.bool)
    loss = LOSSES[name](s, Labels(nothing, torch.zeros(3, 4), nothing))
    (gradient,) = torch.autograd.grad(loss, s)

    assert loss.item() == 0
    assert not gradient.any()


def test_windows():
    """18 of them, from the top on; the lowest that would have no negatives is left out; a part of one is cut off."""
    tops, bottoms = windows(0.2, 0.1)

    assert len(tops) == 18
    assert (tops[0].item(), bottoms[-1].item()) == pytest.approx((1.0, -0.9))
    assert len(windows(0.0, 0.3)[0]) == 6
    for alpha, beta in ((2.0, 0.1), (-0.1, 0.1), (0.2, 0.0), (0.2, 1.9)):
        with pytest.raises(TrainingError, match=r"such as|take one"):
            windows(alpha, beta)


def test_equation_10_is_a_choice_of_known():
    """Other pairs with r = 1 are left out where they are not known, and positives of their own where they match."""
    s, r, own = batch(4)
    r[0, 1] = 1.0
    full = r == 1
    expected = sum(
        (plus(s[i, j] - s[i, i] + M) if r[i, j] < 1 else 0)
        + (plus(s[j, i] - s[i, i] + M) if r[j, i] < 1 else 0)
        for i in range(4)
        for j in range(4)
    )

    assert sum_of_hinges(s, own, M, own | ~full).item() == pytest.approx(expected)
    assert sum_of_hinges(s, full, M).item() >= expected


def test_half_precision_is_computed_in_float32():
    """Fifty times a cosine in bfloat16 would be off by tenths."""
    s, _, own = batch(8)
    half = s.bfloat16()
    labels = Labels(own, own.float(), torch.ones_like(own))

    assert LOSSES["triplet-sn"](half, labels).dtype == torch.float32
    assert LOSSES["triplet-sn"](half, labels).item() == pytest.approx(
        LOSSES["triplet-sn"](half.double(), labels).item(), rel=1e-5
    )


def test_labels_say_what_nobody_judged_means():
    """A negative, or nothing; own pairs count in any case."""
    own, judged = torch.eye(2, dtype=torch.bool), torch.tensor([[False, True], [False, False]])

    assert Labels.of(own, own.float(), judged, Unjudged.NEGATIVE).known.all()
    assert Labels.of(own, own.float(), judged, Unjudged.LEFT_OUT).known.tolist() == [
        [True, True],
        [False, True],
    ]


def test_bad_input_says_what_would_be_right():
    """Shapes, values and names."""
    own = torch.eye(2, dtype=torch.bool)
    with pytest.raises(TrainingError, match="should be equal"):
        Labels(own, torch.zeros(3, 2), own)
    with pytest.raises(TrainingError, match="from -1 to 1"):
        Labels(own, torch.full((2, 2), 5.0), own)
    with pytest.raises(TrainingError, match="known: hinges"):
        loss_of("hinge")


def test_settings_reach_the_losses():
    """BCLS is the sum of its two halves, each with the numbers given."""
    s, r, own = batch(5)
    labels = Labels(own, r, torch.ones_like(own))
    given_ = LossSettings(margin=0.1, gamma=20, alpha=0.4, beta=0.2)
    expected = soft_negative(s, own, 0.1, 20) + hard_sliding_window(s, r, 0.4, 0.2)

    assert loss_of("bcls", given_)(s, labels).item() == pytest.approx(expected.item() / 5)


def test_alpha_is_the_spread_of_co_captions():
    """Three captions of one image and two of another make four pairs; one pair has no spread."""
    angles = np.deg2rad([0, 60, 90, 10, 40])
    vectors = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    images = np.array([7, 7, 7, 2, 2])
    cosines = np.cos(np.deg2rad([60, 90, 30, 30]))

    assert sorted(co_caption_similarities(vectors, images)) == pytest.approx(sorted(cosines), abs=1e-6)
    assert measured_alpha(vectors, images) == pytest.approx(cosines.std(), abs=1e-6)
    with pytest.raises(TrainingError, match="alpha"):
        measured_alpha(vectors, np.array([1, 2, 3, 4, 4]))


def test_pseudo_relevance():
    """The mean cosine with an image's own captions; exactly 1 for captions that were written for it."""
    own = np.array([[[1, 0], [0, 1]]], np.float32)
    vectors = np.array([[1, 0], [-1, 0]], np.float32)

    assert pseudo_relevance(own, vectors, np.array([0, 5])).tolist() == [[1.0, -0.5]]
