"""Changed rows: their values, and how the wire has them. Nothing here reads, writes or waits."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Optional, Union

__all__ = ["ChangedRow", "MalformedText", "Value"]


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
    """The columns before the row's first change in the page, if `history enable --before` recorded them or the rows
    come from the store's pages.
    """
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
    tombstone: Optional[dict[str, Value]] = None
    """The attributes of a deleted object that its model keeps, in a Core Data store."""
    truncated: bool = False
    """True if the row is too long for the wire, and lacks its longest member."""


def row(line: Mapping[str, Any], table: Mapping[str, Any]) -> ChangedRow:
    """Returns a row of the wire, whose table's line is known or empty. Raises KeyError, TypeError and ValueError."""
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
        tombstone=_tombstone(line),
        truncated=line.get("truncated") is True,
    )


def _tombstone(line: Mapping[str, Any]) -> Optional[dict[str, Value]]:
    found = line.get("tombstone")
    return None if found is None else {name: _value(each) for name, each in found.items()}


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


def plain(value: Any) -> Any:
    """Returns a row, or a part of one, as JSON has it: a row without the members that say nothing."""
    if isinstance(value, ChangedRow):
        members = {each.name: getattr(value, each.name) for each in fields(value)}
        return {name: plain(each) for name, each in members.items() if each is not None and each not in ({}, False)}
    if isinstance(value, MalformedText):
        return {"text_b64": base64.b64encode(value.data).decode("ascii")}
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, float) and math.isinf(value):
        return {"real": str(value)}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value
