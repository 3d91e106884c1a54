"""The agent's events, and the file's own while the agent is away."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Optional

from ._core import Subscription, log
from ._direct import DirectSource
from ._protocol import Path, Selection
from ._sources import AgentSource, Connection, Source, Wish
from .errors import GroupStoreError
from .events import Event

ABSENCE = 10.0
"""The seconds that an agent may be away before the file is watched. A restarted one knows what happened since."""
LOOK_INTERVAL = 2.0
"""The seconds between looks for an agent meanwhile."""


class FallbackSource(Source):
    """The events of an agent. If it is away for long, those of the file, until it is back.

    A token continues in either if the store keeps a history and durable tokens were requested. Otherwise, a Reset
    follows each change of sides.
    """

    def __init__(self, subscription: Subscription, selection: Selection, program: Optional[Path]) -> None:
        self._agent = AgentSource(subscription)
        self._selection = selection
        self._program = program
        self._direct: Optional[DirectSource] = None
        self._has_event = False
        self._may_fall_back = True
        self._look_at = 0.0
        self._ending: Optional[Iterator[float]] = None
        self._pause_end = 0.0

    @property
    def is_direct(self) -> bool:
        return self._direct is not None

    @property
    def token(self) -> Optional[str]:
        return (self._direct or self._agent).token

    def step(self, is_ready: bool) -> Optional[Event]:
        now = time.monotonic()
        if self._ending is not None and not self._has_ended(now):
            return None
        if self._direct is None:
            event = self._agent.step(is_ready)
            if event is not None or not self._is_due(now):
                return event
            self._fall_back(now)
            is_ready = False
        elif now >= self._look_at:
            self._look_at = now + LOOK_INTERVAL
            if self._agent_listens():
                self._leave_direct(self._direct, now)
                return None
        return self._step_direct(is_ready, now)

    def _is_due(self, now: float) -> bool:
        core = self._agent.subscription
        is_lost = core.lost_at is not None and now >= core.lost_at + ABSENCE
        # The agent's path may lead elsewhere in another mount namespace, or not be for this user.
        return is_lost and self._may_fall_back and core.place is not None and os.access(core.place, os.R_OK)

    def _fall_back(self, now: float) -> None:
        self._agent.end()
        self._agent.subscription.rewind(self.token)
        place = self._agent.subscription.place
        assert place is not None
        self._direct = DirectSource(place, self.token, self._selection, self._program)
        self._has_event, self._look_at = False, now + LOOK_INTERVAL
        log.warning("the agent is away; watching %s without it", os.fsdecode(place))

    def _step_direct(self, is_ready: bool, now: float) -> Optional[Event]:
        assert self._direct is not None
        try:
            event = self._direct.step(is_ready)
        except GroupStoreError as error:
            if self._has_event:
                raise
            # The agent may know better.
            log.warning("can't watch the store without the agent, waiting for it: %s", error)
            self._may_fall_back = False
            self._leave_direct(self._direct, now)
            return None
        self._has_event = self._has_event or event is not None
        return event

    def _leave_direct(self, direct: DirectSource, now: float) -> None:
        self._ending, self._pause_end = direct.end(), now
        self._agent.subscription.resume(direct.token, now)
        self._direct = None

    def _has_ended(self, now: float) -> bool:
        """Returns True if the program has ended, for which nothing here waits."""
        if now < self._pause_end:
            return False
        pause = next(self._ending, None) if self._ending is not None else None
        if pause is not None:
            self._pause_end = now + pause
            return False
        self._ending = None
        return True

    def _agent_listens(self) -> bool:
        try:
            Connection(self._agent.subscription.path).close()
        except (OSError, ValueError):
            return False
        return True

    def wish(self) -> Wish:
        if self._ending is not None:
            return Wish({}, self._pause_end)
        if self._direct is not None:
            return Wish(self._direct.wish().descriptors, self._look_at)
        wish, core = self._agent.wish(), self._agent.subscription
        if core.lost_at is None or not self._may_fall_back:
            return wish
        due = core.lost_at + ABSENCE
        if time.monotonic() >= due:
            # Without a place that can be read now; the connection's own time may be none.
            due = time.monotonic() + LOOK_INTERVAL
        return Wish(wish.descriptors, due if wish.until is None else min(wish.until, due))

    def rewind(self, token: Optional[str]) -> None:
        (self._direct or self._agent).rewind(token)

    def end(self) -> Iterator[float]:
        ending, self._ending = self._ending, None
        self._agent.end()
        if ending is not None:
            yield from ending
        if self._direct is not None:
            yield from self._direct.end()
