"""What requesters told a worker."""

from __future__ import annotations

from typing import Any

ROUTES: tuple[Any, ...] = ()
