"""Telling the crowd server what was decided, behind the person's back, so that nobody waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from mitl.crowd.paying import CarriedOut
from mitl.errors import MitlError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SendingState:
    """What the sender is at."""

    working: bool = False
    problem: str = ""
    """Why the last try failed; empty where it did not. What was decided is kept all the same."""
    news: str = ""
    """What a person should know of what was done."""


class DecisionSender:
    """Carries decisions to the server in one thread of its own, whenever it is woken."""

    def __init__(self, carry: Callable[[], CarriedOut]) -> None:
        self._carry = carry
        self._condition = threading.Condition()
        self._wanted = False
        self._closed = False
        self._standing = SendingState()
        self._thread = threading.Thread(target=self._run, name="mitl-desk-sender", daemon=True)
        self._thread.start()

    @property
    def standing(self) -> SendingState:
        """What it is at now."""
        with self._condition:
            return self._standing

    def wake(self) -> None:
        """Carry out what is stored; what comes meanwhile is carried out next."""
        with self._condition:
            self._wanted = True
            self._standing = SendingState(True, self._standing.problem, self._standing.news)
            self._condition.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Whether everything that was asked for was tried within this time."""
        with self._condition:
            return self._condition.wait_for(lambda: not self._standing.working, timeout_s)

    def close(self, timeout_s: float = 30.0) -> None:
        """Finish the calls that are under way and stop."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._wanted or self._closed)
                if not self._wanted:
                    return
                self._wanted = False
            standing = self._try()
            with self._condition:
                self._standing = SendingState(self._wanted, standing.problem, standing.news)
                self._condition.notify_all()

    def _try(self) -> SendingState:
        try:
            done = self._carry()
        except MitlError as error:
            return SendingState(problem=str(error))
        except Exception as error:
            logger.exception("decisions could not be carried out")
            return SendingState(
                problem=f"something unforeseen ({type(error).__name__}); the log has the details"
            )
        return SendingState(news="; ".join(done.told))
