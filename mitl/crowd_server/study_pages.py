"""Study information and consent before the first HIT."""

from __future__ import annotations

from typing import Any

ROUTES: tuple[Any, ...] = ()
