"""Values, names and comparisons, as SQLite and the document on merging have them."""

import math

NAMES = [
    "a", "ab", "abc", "a b", "select", "order", "x'y", 'q"r', "имя", "ИМЯ", "名前", "é", "É", "%", "[x]", "`y`",
    "*", "t;--",
    "group", "table", "value", "values", "a.b", "main", "legacy", "temp", "Z_PK", "Z_ENT", "ZNOTE", "Z_1TAGS",
    "ACHANGE", "ANSCKx", "key", "_", "1", "null", "new", "old", "\u202eabc", "e\u0301", "a\nb", "x" * 70, "row",
    "__x", "?1", ":n", "@n", "$n", "staged", "\U0001f600", "rowid", "oid", "_rowid_", "id", "ID2", "i",
]  # fmt: skip

NUMBERS = [
    0, 1, 2, 3, -1, 2**63 - 1, -(2**63), 2**53, 2**53 + 1, 1.0, 2.0, 0.0, -0.0, 2.0**53, 2.0**63, 1e308, 5e-324, 1.5,
    math.inf, -math.inf, math.nan, 0.1, 1e15, 123456789012345678,
]  # fmt: skip
TEXTS = [
    b"", b"a", b"A", b"a ", b"a  ", b"A ", "ä".encode(), "Ä".encode(), b"a\0b", b"a\0c", b"A\0b", b"\0", b"1",
    b"1.0", b"1e0",
    b"NULL", b"'", b'"', b"b", b"B", "e\u0301".encode(), "é".encode(), "\ufeffa".encode(), "\U0001f600".encode(),
    b"0x1",
    b" 1", b"x" * 300, b"a\t", b"9007199254740993", b"a,b", b"z",
]  # fmt: skip
MALFORMED = [b"\xff", b"\xc3", b"a\xff", b"\xed\xa0\x80", b"\xf0\x9f", b"\xc0\x80"]
BLOBS = [b"", b"\0", b"a", b"1", b"a\0b", b"\xff", b"\1" * 60, b"\2" * 70]


class Text(bytes):
    """A text's bytes; plain `bytes` are a BLOB."""

    def __repr__(self):
        return f"Text({bytes(self)!r})"


def value(chance, wellformed=False):
    """Returns a random value of any storage class."""
    kind = chance.random()
    if kind < 0.08:
        return None
    if kind < 0.45:
        return chance.choice(NUMBERS)
    if kind < 0.85:
        return Text(chance.choice(TEXTS if wellformed or chance.random() < 0.85 else MALFORMED))
    if kind < 0.99:
        return chance.choice(BLOBS)
    return chance.randbytes(chance.choice([5000, 70000]))


def exact(value):
    """Returns what distinguishes all values that SQLite distinguishes."""
    if isinstance(value, Text):
        return ("text", bytes(value))
    if isinstance(value, float):
        return ("real", value.hex())
    return (type(value).__name__, value)


def comparable(value, collation="BINARY"):
    """Returns what is equal for equal values: numbers by value, texts by the collation, BLOBs by their bytes."""
    if isinstance(value, Text):
        text = bytes(value)
        if collation == "RTRIM":
            text = text.rstrip(b" ")
        elif collation == "NOCASE":  # SQLite compares up to the first NUL, and then the lengths
            return ("text", text.split(b"\0")[0].upper(), len(text))
        return ("text", text)
    if isinstance(value, bytes):
        return ("blob", value)
    return ("number", value)


def newer(one, other):
    """Returns whether `one` is greater, None if the two can't be compared or are equal."""
    numbers = all(isinstance(v, (int, float)) for v in (one, other))
    texts = all(isinstance(v, Text) for v in (one, other))
    if not (numbers or texts) or bytes_or_number(one) == bytes_or_number(other):
        return None
    return bytes_or_number(one) > bytes_or_number(other)


def bytes_or_number(value):
    return bytes(value) if isinstance(value, Text) else value


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def folded(name):
    """Returns a name as SQLite compares names: without the case of ASCII letters."""
    return "".join(c.lower() if c.isascii() else c for c in name)
