"""Names that programs stumble over."""

STORES = [
    "Notes.sqlite", "Notes", ".hidden.sqlite", "-rf.sqlite", "a b.sqlite", " lead.sqlite", "trail.sqlite ",
    "a%20b.sqlite", "a%2Fb.sqlite", "100%.sqlite", "q?uery.sqlite", "frag#ment.sqlite",
    "semi;colon&amp.sqlite", "quo'te.sqlite",
    'dou"ble.sqlite', "back\\slash.sqlite", "tab\tbed.sqlite", "new\nline.sqlite", "\x1b[31mred.sqlite",
    "$(touch x).sqlite", "*.sqlite", "~.sqlite", "...sqlite", "Stra\u00dfe.sqlite", "e\u0301.sqlite", "\u00e9.sqlite",
    "\U0001f469\u200d\U0001f680.sqlite",
    "\u202egnp.sqlite", "\u65e5\u672c.sqlite", "file:x.sqlite", "a:b.sqlite", "NOTES.SQLITE", "notes.db.lock",
    "x" * 90 + ".sqlite",
    "\u00fc" * 50 + ".sqlite", "{\"id\":1}.sqlite", "null", "0", "+.sqlite", "a,b=c.sqlite",
    "[x].sqlite", "\u00a0.sqlite",
]

# Pairs of distinct names, however alike they look.
TWINS = [
    ("Notes", "notes"), ("e\u0301", "\u00e9"), ("a", "a "), ("a", " a"), ("a%2Fb", "a_b"), ("a%20b", "a b"),
    ("a%", "a%25"),
    ("a", "a.lock"), ("a#", "a"), ("a?", "a"), ("\u212b", "\u00c5"), ("a\n", "a"), ("-a", "a"), ("x" * 200, "x" * 201),
    ("\U0001f600" * 40, "\U0001f600" * 39), ("a;", "a"), ("a\\", "a"), ("a+", "a "), ("...", "...."), ("\ufeffa", "a"),
]


def store_name(rng):
    return rng.choice(STORES) if rng.random() < 0.75 else "Notes.sqlite"


def item_name(rng):
    """Returns a file's name in the group; some are as long as a name may be."""
    if rng.random() < 0.15:
        letter = rng.choice(["y", "%", "\u00e4", "\u65e5"])
        return letter * ((255 - rng.randint(0, 12)) // len(letter.encode()))
    return rng.choice(STORES)
