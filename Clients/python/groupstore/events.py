"""The events of a store. They are the same with an agent and without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Union

from ._rows import ChangedRow

__all__ = [
    "Abandoned",
    "BranchChanged",
    "Changed",
    "Connected",
    "Disconnected",
    "Event",
    "Hazard",
    "HazardOver",
    "Holder",
    "Migrated",
    "Progress",
    "Relocated",
    "Relocating",
    "Reset",
]


@dataclass(frozen=True)
class Holder:
    """A process that has a store open."""

    pid: int
    """The process's identifier; 0 if it isn't known."""
    program: str
    """The program's name."""
    elsewhere: bool = False
    """True if the process is in another PID namespace than the agent."""


@dataclass(frozen=True)
class Changed:
    """A transaction was committed, and is visible to a reader from now on."""

    token: str
    """The position of this event."""
    tables: Optional[list[str]]
    """The changed tables, or None if they aren't known."""
    complete: bool
    """True if no other table was changed."""
    rows: Optional[list[ChangedRow]] = None
    """All changed rows that the subscription selects, without their values, as `read_changes` returns them.

    None if they weren't requested, aren't known or are too many.
    """


@dataclass(frozen=True)
class BranchChanged:
    """A process has committed to files of the store that have lost their names: a history that nobody else sees.

    It comes while a Hazard of that process lasts, and may come for a commit that Changed has reported. The store's
    content is as before.
    """

    token: str
    """The position of this event."""
    pid: int
    """The process's identifier."""
    tables: Optional[list[str]]
    """The changed tables, or None if they aren't known."""
    complete: bool
    """True if no other table was changed."""


@dataclass(frozen=True)
class Relocating:
    """A legacy store is about to become this one.

    The state lasts until Relocated, Abandoned, Reset or Disconnected.
    """

    token: str
    """The position of this event."""
    waiting_for: list[Holder]
    """The processes that still have the store open; empty while the relocation is working."""


@dataclass(frozen=True)
class Progress:
    """The progress of a relocation or migration, at most ten times a second. Only an agent sends it, on request."""

    token: str
    """The position of the event before."""
    work: str
    """`relocating` while the store is copied, or `migrating`."""
    fraction: float
    """The part of the work that is done, from 0 to 1. A relocation that also migrates counts twice from 0."""
    doing: str
    """The present activity, for people."""


@dataclass(frozen=True)
class Relocated:
    """The store was relocated: open it at `to`."""

    token: str
    """The position of this event."""
    origin: str
    """The store's former path. A name that isn't UTF-8 has the form that `os.fsdecode` returns."""
    to: str
    """The store's path, in the same form."""


@dataclass(frozen=True)
class Migrated:
    """The store was migrated to another model version: read everything again, if this program knows that version."""

    token: str
    """The position of this event."""
    from_model: Optional[str]
    """The former version's name; None if it is unknown."""
    to_model: str
    """The version's name."""


@dataclass(frozen=True)
class Abandoned:
    """The relocation that Relocating announced ended without moving anything."""

    token: str
    """The position of this event."""
    outcome: str
    """The outcome, such as `conflict`."""
    message: str
    """The reason, for people."""


@dataclass(frozen=True)
class Hazard:
    """Commits to the store can be lost or hidden from now on: its files were removed or replaced under a program."""

    token: str
    """The position of this event."""
    code: str
    """The kind, such as `orphaned_log`; see the wire protocol's section "Hazards"."""
    holder: Holder
    """The process whose open file it is about; its `pid` is 0 if the state has none."""
    path: str
    """The file as the process names it; empty if this user may not know it."""
    message: str
    """What is the matter, in one sentence."""
    hint: str
    """What to do, in one line."""
    warning: bool = False
    """True if the state only makes a loss possible."""


@dataclass(frozen=True)
class HazardOver:
    """The hazard of that code and process is over."""

    token: str
    """The position of this event."""
    code: str
    """The kind."""
    holder: Holder
    """The process whose open file it was about."""


@dataclass(frozen=True)
class Reset:
    """Everything you know is stale: read it again."""

    token: str
    """The position of this event."""
    reason: str
    """`subscribed` for the first event, else a reason of the wire protocol's section "Reset"."""


@dataclass(frozen=True)
class Disconnected:
    """The agent went away. The client keeps trying to connect; no later change is missed without a Reset.

    `watch` watches the file itself after 10 seconds without an agent, unless it was told to use the agent only.
    The state lasts until Connected or Reset.
    """


@dataclass(frozen=True)
class Connected:
    """The agent is back. Changes since then follow, as a Changed or as a Reset."""

    token: str
    """The position after which the events continue."""


Event = Union[
    Changed,
    BranchChanged,
    Relocating,
    Progress,
    Relocated,
    Migrated,
    Abandoned,
    Hazard,
    HazardOver,
    Reset,
    Disconnected,
    Connected,
]
"""Any event."""
