"""Pages where workers ask for qualifications and take their tests."""

from __future__ import annotations

from typing import Any

ROUTES: tuple[Any, ...] = ()
