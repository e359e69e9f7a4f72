"""Which answers pass a gold control."""

from __future__ import annotations

from dataclasses import dataclass

from mitl.records import Label, PairRole


@dataclass(frozen=True, slots=True)
class GoldRule:
    """The answers with which each kind of control passes; by default those of its own side of the scale."""

    positive: tuple[Label, ...] = (Label.YES, Label.WEAK_YES)
    negative: tuple[Label, ...] = (Label.WEAK_NO, Label.NO)

    def passes(self, role: PairRole) -> tuple[Label, ...]:
        """The answers with which a control of this role passes."""
        if not role.is_gold:
            raise ValueError(f"role is {role.value!r}, but only gold controls pass or fail")
        return self.positive if role is PairRole.GOLD_POSITIVE else self.negative

    def passed(self, role: PairRole, label: Label | None) -> bool | None:
        """Whether a control of this role was answered as expected; None where it was not answered."""
        expected = self.passes(role)
        return None if label is None else label in expected

    @property
    def text(self) -> str:
        """The rule in words."""
        positive, negative = (
            " or ".join(label.value.replace("_", " ") for label in labels)
            for labels in (self.positive, self.negative)
        )
        return f"a gold positive passes with {positive}, a gold negative with {negative}"
