"""Fusion by its quickest model, for tests that are about something else than which model is chosen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mitl.fusion import fusing, models


@pytest.fixture(scope="module", autouse=True)
def quickest() -> Iterator[None]:
    """The logistic model stands alone in all of a module that imports this.

    To fit all of them, and to choose, takes most of a small fusion.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusing, "BASES", {"logistic": models.BASES["logistic"]})
        yield
