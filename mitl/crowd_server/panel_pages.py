"""How a panel's participants come and go: arrival by the study link, the ends and their codes."""

from __future__ import annotations

from typing import Any

ROUTES: tuple[Any, ...] = ()
