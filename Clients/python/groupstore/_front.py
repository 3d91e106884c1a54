"""The base classes of the blocking front and of the one for asyncio."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from ._core import Subscription
from ._direct import DirectSource
from ._protocol import Path, Selection
from ._sources import AgentSource, Source
from ._tokens import TokenFile


def start(since: Optional[str], tokens: Optional[TokenFile]) -> Optional[str]:
    """Returns the token to begin after."""
    return tokens.read() if since is None and tokens is not None else since


class Front:
    """A store's events for the caller, with the token of the last one."""

    def __init__(self, source: Source, tokens: Optional[TokenFile]) -> None:
        self._source = source
        self._tokens = tokens
        self._is_closed = False

    @property
    def token(self) -> Optional[str]:
        """The token of the last event that was returned, or a later one if the following events are left out.

        Save it once you have handled the event, and pass it as `since`: each change is then delivered at least once.
        `token_file` does so by itself.
        """
        return self._source.token

    @property
    def is_direct(self) -> bool:
        """True if the store is watched without an agent."""
        return self._source.is_direct

    def commit(self) -> None:
        """Marks the last event as handled: with `token_file`, its token is written.

        Asking for the next event and the end of a `with` block without an exception do so too. Raises OSError if it
        can't be written.
        """
        if self._tokens is not None:
            self._tokens.write(self.token)


class AgentFront(Front):
    """The options of `Changes` and `AsyncChanges`."""

    def __init__(
        self,
        store: Path,
        since: Optional[str] = None,
        tables: Optional[Iterable[str]] = None,
        path: Optional[Path] = None,
        *,
        entities: Optional[Iterable[str]] = None,
        operations: Optional[Iterable[str]] = None,
        authors: Optional[Iterable[str]] = None,
        except_authors: Optional[Iterable[str]] = None,
        rows: bool = False,
        durable: bool = False,
        detail: bool = True,
        progress: bool = False,
        wait: bool = False,
        token_file: Optional[Path] = None,
    ) -> None:
        selection = Selection.of(locals())
        tokens = TokenFile(token_file) if token_file else None
        super().__init__(AgentSource(Subscription(store, start(since, tokens), selection, path, wait)), tokens)


class DirectFront(Front):
    """The options of `DirectChanges` and `AsyncDirectChanges`."""

    def __init__(
        self,
        store: Path,
        since: Optional[str] = None,
        tables: Optional[Iterable[str]] = None,
        *,
        entities: Optional[Iterable[str]] = None,
        operations: Optional[Iterable[str]] = None,
        authors: Optional[Iterable[str]] = None,
        except_authors: Optional[Iterable[str]] = None,
        rows: bool = False,
        durable: bool = False,
        program: Optional[Path] = None,
        token_file: Optional[Path] = None,
    ) -> None:
        selection = Selection.of(locals())
        tokens = TokenFile(token_file) if token_file else None
        super().__init__(DirectSource(store, start(since, tokens), selection, program), tokens)
