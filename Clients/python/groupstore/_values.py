"""Pages of changed rows, with or without their values."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from ._asyncio import answer_async
from ._blocking import answer
from ._protocol import Message, NotUnderstood, Path, Selection
from ._sources import Request

__all__ = ["ChangePage", "ChangedRow", "MalformedText", "Value", "read_changes", "read_changes_async"]


@dataclass(frozen=True)
class MalformedText:
    """Text that isn't valid in the store's encoding."""

    data: bytes
    """Its bytes, in that encoding."""


Value = Union[None, int, float, str, bytes, MalformedText]
"""A value as SQLite stores it: NULL, INTEGER, REAL, TEXT or BLOB."""


@dataclass(frozen=True)
class ChangedRow:
    """A change of a row; with values, all of its changes in a page as one."""

    number: int
    """The number of the change, of the last one with values."""
    table: str
    """The table's name."""
    entity: Optional[str]
    """The entity's name in a Core Data store."""
    operation: str
    """`insert`, `update` or `delete`; with values, `delete` if the row is gone."""
    key: tuple[Value, ...]
    """The rowid, or the key's values of a WITHOUT ROWID table."""
    values: Optional[dict[str, Value]]
    """The stored columns as they are now; None if the row is gone, or values weren't requested."""
    before: Optional[dict[str, Value]] = None
    """The columns before the row's first change in the page, if `history enable --before` recorded them."""
    properties: dict[str, str] = field(default_factory=dict)
    """The columns of Core Data's attributes and to-one relationships, by their names."""
    related: dict[str, list[tuple[Value, ...]]] = field(default_factory=dict)
    """The many-to-many relationships of an object in Core Data's own history, by name: the key of each related object,
    and its positions in ordered relationships.
    """
    columns: Optional[list[str]] = None
    """The columns that an update assigned; None if they aren't known."""
    author: Optional[str] = None
    """The author that the writer declared."""
    time: Optional[str] = None
    """The time of the change by the writer's clock, in ISO 8601."""
    transaction: Optional[int] = None
    """The commit that the change belongs to, if it is known for certain."""


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
    """Asks the agent for a page of the rows that changed after a durable token, or of all that the history keeps.

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
    return await answer_async(_request(locals()))


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
            rows.append(_row(line, tables.get((line["table"], line.get("entity")), {})))
    return ChangePage(
        rows=rows,
        token=reply["token"],
        more=bool(reply.get("more", False)),
        reset=reset,
        schema=reply.get("schema", header.get("schema")),
        encoding=header.get("encoding"),
        unrecorded=list(header.get("unrecorded", [])),
    )


def _row(line: Mapping[str, Any], table: Mapping[str, Any]) -> ChangedRow:
    key = line.get("key")
    transaction = line.get("transaction")
    if isinstance(transaction, dict):
        transaction = transaction.get("id") if transaction.get("exact") else None
    return ChangedRow(
        number=line["number"],
        table=line["table"],
        entity=line.get("entity"),
        operation=line["op"],
        key=tuple(_value(each) for each in (key if isinstance(key, list) else [key])),
        values=_columns(line, "values", table),
        before=_columns(line, "before", table),
        properties=_properties(table),
        related=_related(line, table),
        columns=line.get("columns"),
        author=line.get("author"),
        time=line.get("time"),
        transaction=transaction,
    )


def _columns(line: Mapping[str, Any], key: str, table: Mapping[str, Any]) -> Optional[dict[str, Value]]:
    if key not in line:
        return None
    names, found = table["columns"], line[key]
    if len(names) != len(found):
        raise ValueError("a row has other columns than its table")
    return {name: _value(each) for name, each in zip(names, found)}


def _properties(table: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for column, each in zip(table.get("columns", []), table.get("properties", [])):
        if each is None:
            continue
        if "attribute" in each:
            found[each["attribute"]] = column
        elif each.get("holds") == "key":
            found[each["relationship"]] = column
    return found


def _related(line: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, list[tuple[Value, ...]]]:
    return {
        relationship["relationship"]: [tuple(_value(each) for each in row) for row in rows]
        for relationship, rows in zip(table.get("to_many", []), line.get("to_many", []))
    }


def _value(value: Any) -> Value:
    """Returns a value in its JSON form. Raises ValueError."""
    if value is None or isinstance(value, (str, float)) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, dict) and len(value) == 1:
        ((kind, content),) = value.items()
        if kind == "integer":
            return int(content)
        if kind == "real":
            return float(content)
        if kind == "base64":
            return base64.b64decode(content, validate=True)
        if kind == "text_b64":
            return MalformedText(base64.b64decode(content, validate=True))
    raise ValueError(f"unknown value {value!r}")
