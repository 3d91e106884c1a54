"""Pages of changed rows, with or without their values."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from ._blocking import answer
from ._protocol import Message, NotUnderstood, Path, Selection
from ._rows import ChangedRow, row
from ._sources import Request

__all__ = ["ChangePage", "read_changes", "read_changes_async"]


@dataclass(frozen=True)
class ChangePage:
    """A page of changes.

    With values, pages bring a copy of the store up to date: per page, remove the rows that are gone, then insert or
    replace the others. After a page without `more`, the copy equals the store at a commit.
    """

    rows: list[ChangedRow]
    """The rows, in the order of their changes; with values, of the first change of each."""
    token: str
    """The token for the next page."""
    more: bool
    """True if the next page is available at once."""
    reset: Optional[str] = None
    """The reason why the rows don't cover everything since the token, such as `epoch`: read the store again."""
    schema: Optional[str] = None
    """The state of the store's schema, if values were requested.

    Each change of the schema and each VACUUM changes it."""
    encoding: Optional[str] = None
    """The store's text encoding, if values were requested."""
    unrecorded: list[str] = field(default_factory=list)
    """The tables whose changes aren't recorded, if values were requested."""


def read_changes(
    store: Path,
    since: Optional[str] = None,
    *,
    values: bool = False,
    schema: Optional[str] = None,
    limit: Optional[int] = None,
    tables: Optional[Iterable[str]] = None,
    entities: Optional[Iterable[str]] = None,
    operations: Optional[Iterable[str]] = None,
    authors: Optional[Iterable[str]] = None,
    except_authors: Optional[Iterable[str]] = None,
    path: Optional[Path] = None,
    timeout: Optional[float] = 40.0,
) -> ChangePage:
    """Asks the agent for a page of the rows that changed after a durable token, or of all that is kept.

    The store keeps a history, or the agent's configuration has `rows: true` for it and finds the rows in its pages.

        page = groupstore.read_changes("group.com.example.notes/Notes.sqlite", token, values=True)

    - `values`: Each row once, whole, as it is now.
    - `schema`: The state of an earlier page. If the store's schema has another one, the page is a reset.
    - `limit`: At most this many rows, 1 to 1000.

    The other options select changes, and are those of `Changes`. Raises Refused and NoAgent.
    """
    return answer(_request(locals()))


async def read_changes_async(
    store: Path,
    since: Optional[str] = None,
    *,
    values: bool = False,
    schema: Optional[str] = None,
    limit: Optional[int] = None,
    tables: Optional[Iterable[str]] = None,
    entities: Optional[Iterable[str]] = None,
    operations: Optional[Iterable[str]] = None,
    authors: Optional[Iterable[str]] = None,
    except_authors: Optional[Iterable[str]] = None,
    path: Optional[Path] = None,
    timeout: Optional[float] = 40.0,
) -> ChangePage:
    """Like `read_changes`, with asyncio."""
    request = _request(locals())
    from ._asyncio import answer_async

    return await answer_async(request)


def _request(arguments: Mapping[str, Any]) -> Request[ChangePage]:
    """Returns the request for a page, from the arguments of `read_changes`."""
    members: Message = {"store": os.fsencode(arguments["store"]), **Selection.of(arguments).lists()}
    members.update({name: arguments[name] for name in ("since", "schema", "limit") if arguments[name] is not None})
    if arguments["values"]:
        members["values"] = True
    return Request("changes", arguments["timeout"], arguments["path"], members, _page)


def _page(reply: Message, lines: list[Message]) -> ChangePage:
    """Returns the page of an answer. Raises NotUnderstood."""
    try:
        return _checked_page(reply, lines)
    except (KeyError, TypeError, ValueError) as error:
        raise NotUnderstood(f"it sent a page that can't be read: {error!r}") from None


def _checked_page(reply: Message, lines: list[Message]) -> ChangePage:
    tables: dict[tuple[str, Optional[str]], Message] = {}
    header: Message = {}
    rows: list[ChangedRow] = []
    reset: Optional[str] = None
    for line in lines:
        kind = line.get("type")
        if kind == "batch":
            header = line
        elif kind == "table":
            tables[line["table"], line.get("entity")] = line
        elif kind == "reset":
            reset = reset or str(line["reason"])
        elif kind == "row":
            rows.append(row(line, tables.get((line["table"], line.get("entity")), {})))
    return ChangePage(
        rows=rows,
        token=reply["token"],
        more=bool(reply.get("more", False)),
        reset=reset,
        schema=reply.get("schema", header.get("schema")),
        encoding=header.get("encoding"),
        unrecorded=list(header.get("unrecorded", [])),
    )
