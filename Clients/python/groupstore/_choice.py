"""The choice between the agent and watching a store directly, as `groupstore watch` makes it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, Optional

from . import _protocol as protocol
from ._asyncio import AsyncChanges, AsyncWatch, ask_async
from ._blocking import Changes, Watch, ask
from ._direct import AsyncDirectChanges, DirectChanges
from ._protocol import Path
from .errors import NoAgent, Refused

LOOKUP_TIMEOUT = 10.0
ADDRESS = re.compile(rb"[^/]+/[^/]+")


class _Chooser:
    """One choice: the store, what the caller wants, and then what the agent serves."""

    def __init__(self, store: Path, agent: Optional[bool], options: dict[str, Any]) -> None:
        self._store = os.fsencode(store)
        self._agent, self._wait = agent, bool(options["wait"])
        self._is_address = ADDRESS.fullmatch(self._store) is not None
        if self._wait and (agent is False or not self._is_address):
            raise ValueError("wait=True needs an agent, and a store's name, GROUP_ID/NAME")

    @property
    def needs_lookup(self) -> bool:
        """True if the choice depends on what the agent serves."""
        return not self._wait and self._agent is not False

    @property
    def store(self) -> Optional[bytes]:
        """The store's name at the agent, if no lookup is needed; None if the file is to be watched directly."""
        return self._store if self._wait else None

    def address(self, rows: list[dict[str, Any]]) -> Optional[bytes]:
        """Returns the store's name at the agent; None if the file is to be watched directly. Raises Refused."""
        groups: list[tuple[bytes, bytes]] = []
        for row in rows:
            if row.get("type") == "group" and isinstance(row.get("group"), str):
                groups.append((row["group"].encode("utf-8", "surrogateescape"), protocol.path_bytes(row, "directory")))
        # A name of a served group takes precedence over a path, which may be a link that a relocation left.
        if self._is_address and any(self._store.startswith(group + b"/") for group, _ in groups):
            return self._store
        directory, name = os.path.split(os.path.realpath(self._store))
        for group, place in groups:
            if name and _is_same(directory, place):
                return group + b"/" + name
        if self._may_watch:
            return None
        if self._is_address:
            # The agent says why it doesn't serve it.
            return self._store
        raise Refused(
            "not_served",
            f"the agent doesn't serve a group with the store {os.fsdecode(self._store)}",
            "add its directory to the agent's configuration, or name it GROUP_ID/NAME",
        )

    @property
    def _may_watch(self) -> bool:
        """True if the file may be watched directly: it can only be a path, or leads to a directory that exists."""
        return self._agent is not True and os.path.isdir(os.path.dirname(os.path.abspath(self._store)))

    def absent(self, error: NoAgent) -> None:
        """Raises the error unless the file is to be watched directly because there is no agent."""
        if error.code != "no_agent" or not self._may_watch:
            raise error


def _is_same(directory: bytes, other: bytes) -> bool:
    try:
        return os.path.samefile(directory, other)
    except (OSError, ValueError):
        return False


def _options(**options: Any) -> dict[str, Any]:
    """Returns options with lists of names, which are passed on more than once."""
    return {
        name: protocol.names(value, name) if name in protocol.NAME_LISTS else value for name, value in options.items()
    }


def _direct_options(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options that also apply without an agent."""
    return {name: value for name, value in options.items() if name not in ("detail", "progress", "wait")}


def watch(
    store: Path,
    *,
    agent: Optional[bool] = None,
    since: Optional[str] = None,
    token_file: Optional[Path] = None,
    tables: Optional[Iterable[str]] = None,
    entities: Optional[Iterable[str]] = None,
    operations: Optional[Iterable[str]] = None,
    authors: Optional[Iterable[str]] = None,
    except_authors: Optional[Iterable[str]] = None,
    rows: bool = False,
    durable: bool = False,
    detail: bool = True,
    progress: bool = False,
    wait: bool = False,
    path: Optional[Path] = None,
    program: Optional[Path] = None,
) -> Watch:
    """Returns a store's events, one after another: from an agent if one serves the store, else by watching the file.

        with groupstore.watch("/srv/notes/Notes.sqlite") as events:
            for event in events:
                print(event)

    A token of an agent means nothing to a direct watch, nor the other way round: the first event is then a Reset. With
    `durable`, it continues, if the store keeps a history.

    - `store`: A database file, or GROUP_ID/NAME. A store that is watched directly need not exist, but its directory.
    - `agent`: True receives events from the agent only, False watches the file even if an agent serves it.
    - `wait`: Waits for an agent that isn't there yet. The store is then named GROUP_ID/NAME.
    - `since`, `token_file`, `tables`, `entities`, `operations`, `authors`, `except_authors`, `rows`, `durable`: As for
      `Changes`.
    - `detail`, `progress`: As for `Changes`. Without an agent, they have no effect.
    - `path`: The agent's socket; by default, the environment names it.
    - `program`: The `groupstore` program that watches the file; by default, the one on `$PATH`.

    Raises NoAgent if there is none and the file can't be watched instead, and Refused. Iteration raises NoAgent,
    Refused and ProgramFailed.
    """
    options = _options(
        since=since,
        token_file=token_file,
        tables=tables,
        entities=entities,
        operations=operations,
        authors=authors,
        except_authors=except_authors,
        rows=rows,
        durable=durable,
        detail=detail,
        progress=progress,
        wait=wait,
    )
    chooser = _Chooser(store, agent, options)
    address = chooser.store
    if chooser.needs_lookup:
        try:
            address = chooser.address(ask("status", LOOKUP_TIMEOUT, path)[1])
        except NoAgent as error:
            chooser.absent(error)
    if address is None:
        return DirectChanges(store, program=program, **_direct_options(options))
    return Changes(address, path=path, **options)


async def watch_async(
    store: Path,
    *,
    agent: Optional[bool] = None,
    since: Optional[str] = None,
    token_file: Optional[Path] = None,
    tables: Optional[Iterable[str]] = None,
    entities: Optional[Iterable[str]] = None,
    operations: Optional[Iterable[str]] = None,
    authors: Optional[Iterable[str]] = None,
    except_authors: Optional[Iterable[str]] = None,
    rows: bool = False,
    durable: bool = False,
    detail: bool = True,
    progress: bool = False,
    wait: bool = False,
    path: Optional[Path] = None,
    program: Optional[Path] = None,
) -> AsyncWatch:
    """Like `watch`, for asyncio. The options are the same.

    async with await groupstore.watch_async("/srv/notes/Notes.sqlite") as events:
        async for event in events:
            print(event)
    """
    options = _options(
        since=since,
        token_file=token_file,
        tables=tables,
        entities=entities,
        operations=operations,
        authors=authors,
        except_authors=except_authors,
        rows=rows,
        durable=durable,
        detail=detail,
        progress=progress,
        wait=wait,
    )
    chooser = _Chooser(store, agent, options)
    address = chooser.store
    if chooser.needs_lookup:
        try:
            address = chooser.address((await ask_async("status", LOOKUP_TIMEOUT, path))[1])
        except NoAgent as error:
            chooser.absent(error)
    if address is None:
        return AsyncDirectChanges(store, program=program, **_direct_options(options))
    return AsyncChanges(address, path=path, **options)
