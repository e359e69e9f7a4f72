"""What the operator does by the page: pause, resume, expire, invite, revoke, export."""

from __future__ import annotations

from typing import Any

ROUTES: tuple[Any, ...] = ()
