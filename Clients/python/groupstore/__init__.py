"""Receives an event for every commit to a SQLite or Core Data store, by any program, and for its relocation.

Blocking:

    import groupstore

    with groupstore.watch("/srv/notes/Notes.sqlite") as events:
        for event in events:
            if isinstance(event, (groupstore.Changed, groupstore.Reset, groupstore.Relocated)):
                read_the_store_again()

With asyncio:

    async with await groupstore.watch_async("group.com.example.notes/Notes.sqlite", tables=["ZNOTE"]) as events:
        async for event in events: ...

The events come from the groupstore agent if one serves the store, else from the program `groupstore watch --direct`.
`Changes` and `AsyncChanges` use the agent only, `DirectChanges` and `AsyncDirectChanges` only the program.

The first event is a Reset (reason `subscribed`): a program that reads the store after it misses nothing. To continue in
another run, pass `token_file`, or save an event's token once you have handled the event, and pass it as `since`: each
change is then delivered at least once.

As a program, `python3 -m groupstore STORE` prints one JSON object per event.

The package needs Python 3.9 or later and only its standard library. It logs the program's warnings to the logger
`groupstore`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._blocking import Changes, DirectChanges, Watch, ask
from ._choice import watch, watch_async
from ._protocol import socket_path
from ._rows import ChangedRow, MalformedText, Value
from ._values import ChangePage, read_changes, read_changes_async
from ._version import __version__
from .errors import (
    DirectoryMissing,
    GroupStoreError,
    InvalidOption,
    NoAgent,
    ProgramFailed,
    ProgramMissing,
    Refused,
    UnknownOperation,
)
from .events import (
    Abandoned,
    BranchChanged,
    Changed,
    Connected,
    Disconnected,
    Event,
    Hazard,
    HazardOver,
    Holder,
    Migrated,
    Progress,
    Relocated,
    Relocating,
    Reset,
)

if TYPE_CHECKING:
    from ._asyncio import AsyncChanges, AsyncDirectChanges, AsyncWatch, ask_async

__all__ = [
    "Abandoned",
    "AsyncChanges",
    "AsyncDirectChanges",
    "AsyncWatch",
    "BranchChanged",
    "ChangePage",
    "Changed",
    "ChangedRow",
    "Changes",
    "Connected",
    "DirectChanges",
    "DirectoryMissing",
    "Disconnected",
    "Event",
    "GroupStoreError",
    "Hazard",
    "HazardOver",
    "Holder",
    "InvalidOption",
    "MalformedText",
    "Migrated",
    "NoAgent",
    "ProgramFailed",
    "ProgramMissing",
    "Progress",
    "Refused",
    "Relocated",
    "Relocating",
    "Reset",
    "UnknownOperation",
    "Value",
    "Watch",
    "__version__",
    "ask",
    "ask_async",
    "read_changes",
    "read_changes_async",
    "socket_path",
    "watch",
    "watch_async",
]


def __getattr__(name: str) -> Any:
    # A program that doesn't use asyncio doesn't import it: that takes longer than to import all the rest.
    if name in ("AsyncChanges", "AsyncDirectChanges", "AsyncWatch", "ask_async"):
        from . import _asyncio

        return getattr(_asyncio, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
