"""What is known of single pairs, looked up by whatever shows some of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property

from mitl.crowd.truth import TruthOf
from mitl.positives.pair_answers import PairAnswer, judgement_frame
from mitl.records import CaptionItem, Concept, ImageItem, Judgement, Label, Pair, Shortcoming
from mitl.records.frames import counts
from mitl.stages.analysing.snapshot import Snapshot

OBJECT = "object"
"""A thing that a caption tells of and the image does not show, or shows as another."""


def wrong_parts(shortcomings: Sequence[Shortcoming], concepts: Sequence[Concept]) -> tuple[str, ...]:
    """What of a caption is wrong for an image: ``object``, and concepts by name; what is only left out is not wrong.

    Source: the kinds of Chun et al., ECCV Caption, Fig. F.1 (object, colour, quantity).
    """
    strange = Shortcoming.NOT_IN_IMAGE in shortcomings or Concept.SPECIES in concepts
    named = tuple(concept.value for concept in concepts if concept is not Concept.SPECIES)
    if not strange and not named and Shortcoming.DESCRIBED_WRONGLY in shortcomings:
        return (Concept.OTHER.value,)
    return (OBJECT, *named) if strange else named


class PairFacts:
    """Items, answers, ranks and ratings by pair; by surrogate ids."""

    def __init__(
        self, known: Snapshot, answers: Mapping[Pair, PairAnswer], truth: TruthOf | None = None
    ) -> None:
        self._truth = truth
        self.images: Mapping[int, ImageItem] = {image.id: image for image in known.images}
        self.captions: Mapping[int, CaptionItem] = {caption.id: caption for caption in known.captions}
        self.ratings = known.ratings
        self.answers = answers
        self._records: dict[Pair, list[Judgement]] = defaultdict(list)
        records = [row.record for row in known.judgements]
        for record, is_counting in zip(records, counts(judgement_frame(records)).tolist(), strict=True):
            if is_counting:
                self._records[record.pair].append(record)
        self._proposals = known.proposals

    @cached_property
    def ranks(self) -> Mapping[Pair, Mapping[str, int]]:
        """Pair → annotator → the better of its ranks over both directions."""
        found: dict[Pair, dict[str, int]] = defaultdict(dict)
        for proposal in self._proposals:
            ranks = found[proposal.pair]
            ranks[proposal.annotator] = min(proposal.rank, ranks.get(proposal.annotator, proposal.rank))
        return dict(found)

    def found_by(self, pair: Pair) -> tuple[tuple[str, int], ...]:
        """(annotator, rank) of each proposal of the pair."""
        return tuple(self.ranks.get(pair, {}).items())

    def is_original(self, pair: Pair) -> bool:
        """Whether the caption was written for this image."""
        return self.captions[pair.caption_id].image_id == pair.image_id

    def is_refused(self, pair: Pair) -> bool:
        """Whether people answered, and called it no match."""
        answer = self.answers.get(pair)
        return answer is not None and not answer.label.is_positive

    def given(self, pair: Pair) -> tuple[Label, ...]:
        """The usable answers, best first."""
        labels = (record.label for record in self._records.get(pair, ()))
        return tuple(sorted((label for label in labels if label is not None), key=lambda label: label.code))

    def reasons(self, pair: Pair) -> tuple[tuple[Shortcoming, ...], tuple[Concept, ...]]:
        """What its workers ticked, each once."""
        records: Sequence[Judgement] = self._records.get(pair, ())
        shortcomings = dict.fromkeys(tick for record in records for tick in record.shortcomings)
        return tuple(shortcomings), tuple(
            dict.fromkeys(tick for record in records for tick in record.concepts)
        )

    def truth(self, pair: Pair) -> Label | None:
        """What is true of it; None where that is not known."""
        if self._truth is None:
            return None
        image, caption = self.images[pair.image_id], self.captions[pair.caption_id]
        return self._truth(image.external_id, caption.external_id).label
