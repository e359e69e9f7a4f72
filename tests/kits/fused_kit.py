"""Fusion by its quickest model, for tests that are about something else than which model is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mitl.fusion import fusing, models


@contextmanager
def quickest_model() -> Iterator[None]:
    """The logistic model stands alone: to fit all of them, and to choose, takes most of a small fusion."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusing, "BASES", {"logistic": models.BASES["logistic"]})
        yield


@pytest.fixture(scope="module", autouse=True)
def quickest() -> Iterator[None]:
    """In all of a module that imports it."""
    with quickest_model():
        yield
