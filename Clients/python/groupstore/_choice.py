"""The choice between the agent and watching a store directly, as `groupstore watch` makes it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Optional

from . import _protocol as protocol
from ._blocking import Watch, answer
from ._core import Subscription
from ._direct import ADDRESS, PROGRAM, DirectSource, check_directory, names_group
from ._fallback import FallbackSource
from ._front import start
from ._protocol import Message, Path, Selection
from ._sources import AgentSource, Request, Source
from ._tokens import TokenFile
from .errors import NoAgent, Refused

if TYPE_CHECKING:
    from ._asyncio import AsyncWatch

LOOKUP_TIMEOUT = 10.0


class Choice:
    """One choice, from the arguments of `watch`, and then from what the agent serves."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments
        self._selection = Selection.of(arguments)
        self._store = os.fsencode(arguments["store"])
        self._is_address = ADDRESS.fullmatch(self._store) is not None
        agent, wait = arguments["agent"], bool(arguments["wait"])
        if wait and (agent is False or not self._is_address):
            raise ValueError("wait=True needs an agent, and a store's name, GROUP_ID/NAME")
        self.needs_lookup = not wait and agent is not False
        """True if the choice depends on what the agent serves."""
        self.address = self._store if wait else None
        """The store's name at the agent; None if the file is to be watched directly."""

    def lookup(self) -> Request[Choice]:
        """Returns the request whose answer decides."""
        return Request("status", LOOKUP_TIMEOUT, self._arguments["path"], {}, self.decide)

    def decide(self, reply: Message, rows: list[Message]) -> Choice:
        """Decides from the groups that the agent serves. Raises Refused, and NotUnderstood."""
        groups = [
            (row["group"].encode("utf-8", "surrogateescape"), protocol.path_bytes(row, "directory"))
            for row in rows
            if row.get("type") == "group" and isinstance(row.get("group"), str)
        ]
        self.address = self._address(groups)
        return self

    def _address(self, groups: list[tuple[bytes, bytes]]) -> Optional[bytes]:
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
            # Only an agent is wanted: it says why it doesn't serve it.
            return self._store
        raise Refused(
            "not_served",
            f"the agent doesn't serve a group with the store {os.fsdecode(self._store)}",
            "add its directory to the agent's configuration, or name it GROUP_ID/NAME",
        )

    @property
    def _may_watch(self) -> bool:
        """True if the file may be watched directly: its directory exists, or the program finds its group."""
        if self._arguments["agent"] is True:
            return False
        if names_group(self._store):
            # Without the program, the agent's answer says more than that it is missing.
            return shutil.which(os.fsdecode(self._arguments["program"] or PROGRAM)) is not None
        return os.path.isdir(os.path.dirname(os.path.abspath(self._store)))

    def absent(self, error: NoAgent) -> None:
        """Raises an error unless the file is to be watched directly because there is no agent."""
        if error.code == "no_agent" and self._may_watch:
            return
        if error.code == "no_agent" and self._arguments["agent"] is None and not names_group(self._store):
            check_directory(self._store)
        raise error

    def source(self) -> tuple[Source, Optional[TokenFile]]:
        """Returns where the events come from, and the token file."""
        given, selection = self._arguments, self._selection
        tokens = TokenFile(given["token_file"]) if given["token_file"] else None
        since = start(given["since"], tokens)
        if self.address is None:
            return DirectSource(self._store, since, selection, given["program"]), tokens
        subscription = Subscription(self.address, since, selection, given["path"], bool(given["wait"]))
        if given["agent"] is None and not given["wait"]:
            return FallbackSource(subscription, selection, given["program"]), tokens
        return AgentSource(subscription), tokens


def _is_same(directory: bytes, other: bytes) -> bool:
    try:
        return os.path.samefile(directory, other)
    except (OSError, ValueError):
        return False


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

    If the agent goes away, the next event is Disconnected. Unless `agent` or `wait` is given, the file itself is
    watched after 10 seconds, if this user may read it, until the agent is back: a Reset precedes the changes.

    - `store`: A database file, or GROUP_ID/NAME. A store that is watched directly need not exist, but its directory. A
      directory that exists takes precedence over a group of that name.
    - `agent`: True receives events from the agent only, False watches the file even if an agent serves it.
    - `wait`: Waits for an agent that isn't there yet. The store is then named GROUP_ID/NAME.
    - `since`, `token_file`, `tables`, `entities`, `operations`, `authors`, `except_authors`, `rows`, `durable`: As for
      `Changes`.
    - `detail`, `progress`: As for `Changes`. Without an agent, they have no effect.
    - `path`: The agent's socket; by default, the environment names it.
    - `program`: The `groupstore` program that watches the file; by default, the one on `$PATH`.

    Raises NoAgent if there is none and the file can't be watched instead, DirectoryMissing if its directory doesn't
    exist, InvalidOption, and Refused. Iteration raises NoAgent, Refused, DirectoryMissing (also for a group that
    doesn't exist), ProgramMissing and ProgramFailed.
    """
    choice = Choice(locals())
    if choice.needs_lookup:
        try:
            answer(choice.lookup())
        except NoAgent as error:
            choice.absent(error)
    return Watch(*choice.source())


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
    choice = Choice(locals())
    from ._asyncio import AsyncWatch, answer_async

    if choice.needs_lookup:
        try:
            await answer_async(choice.lookup())
        except NoAgent as error:
            choice.absent(error)
    return AsyncWatch(*choice.source())
