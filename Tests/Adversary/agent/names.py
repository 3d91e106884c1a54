"""Names that are nasty on purpose; a file may have each of them."""

LONG = b"long-" + b"x" * 250

NAMES = [
    b"plain", b"two\nlines", b"\xff\xfenot utf-8", "e\u0301".encode(), "\u00e9".encode(), b"-rf", b"--json", b" ", b" both ends ",
    b"%s%n%20", b"*?[a]", b"'\"`$(id)", b"back\\slash", b"\x1b[31mred", "\u202etxt.exe".encode(), b"a#b?mode=ro", b"~", b".hidden",
    b"...", b"a=b", b"a,b: {c}", b"\t", b"\x01\x7f", "\U0001f4a9".encode(), "\ufeffmark".encode(), b"group.x", b"=", LONG,
    b"(deleted)", b"\\040", b"caf\xc3", b"CON", "\u2028line".encode(), b"&amp;", b"#", b"null",
]  # fmt: skip

# The side files' names are eight bytes longer, and Core Data's folder's is nine bytes longer.
STORE_NAMES = [name[:200] + b".sqlite" for name in NAMES] + [b"N", b".n", b"a.b.c", b"no-wal-here.db"]


def fits_yaml(name):
    """Returns whether a name fits a configuration: YAML is text and can't express some control characters."""
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return "\x7f" not in text and "\ufeff" not in text


def directory_name(r):
    return r.choice(NAMES) if r.random() < 0.7 else b"d%d" % r.randrange(1000)


def store_name(r):
    return r.choice(STORE_NAMES) if r.random() < 0.5 else b"Notes.sqlite"
