"""Core Data's XML stores: written with odd encodings, line ends, forms and numbers; converted, and compared with what was written."""

import base64, os, plistlib, shutil, sqlite3, uuid
from round import *

WORDS = {
    "Integer 16": "int16",
    "Integer 32": "int32",
    "Integer 64": "int64",
    "Decimal": "decimal",
    "Double": "double",
    "Float": "float",
    "Boolean": "bool",
    "String": "string",
    "Date": "date",
    "Binary": "binary",
    "UUID": "uuid",
    "URI": "uri",
    "Transformable": "binary",
}
# texts that are odd for a number: (text, what it means or None if only a refusal or NULL would be right)
ODD = {
    "Integer 16": [
        ("32767", 32767),
        ("32768", None),
        ("-32769", None),
        ("+5", 5),
        ("007", 7),
        (" 5 ", 5),
        ("5.0", 5),
        ("5.5", None),
        ("0x10", None),
        ("1e2", 100),
        ("", None),
        ("٣", None),
        ("5 6", None),
        ("99999999999999999999", None),
    ],
    "Integer 64": [
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("9007199254740993", 2**53 + 1),
        ("-9223372036854775808", -(2**63)),
        ("1e3", 1000),
        ("12abc", None),
    ],
    "Double": [
        ("1e300", 1e300),
        ("1e309", None),
        ("0.1", 0.1),
        ("4.9e-324", 5e-324),
        ("nan", None),
        ("inf", "any"),
        ("1,5", None),
        (".5", 0.5),
        ("-0.0", 0),
        ("123456789012345678901234567890", 123456789012345678901234567890.0),
        ("1_0", None),
        ("0x1p3", None),
    ],
    "Decimal": [
        ("0.1", 0.1),
        ("123456789012345678", 123456789012345678),
        ("1E2", 100),
        ("abc", None),
        ("12345678901234567890.5", "any"),
        ("NaN", None),
    ],
    "Boolean": [
        ("1", 1),
        ("0", 0),
        ("true", 1),
        ("false", 0),
        ("YES", 1),
        ("NO", 0),
        ("2", "any"),
        ("maybe", None),
        ("-1", "any"),
    ],
    "Date": [
        ("0", 0),
        ("1e9", 10**9),
        ("723485158.13594794273", 723485158.13594794273),
        ("2001-01-01", None),
        ("", None),
        ("1e400", None),
    ],
    "UUID": [
        ("2cb996df-63da-4182-bc5b-7cb919c1bb09", bytes.fromhex("2cb996df63da4182bc5b7cb919c1bb09")),
        ("2CB996DF63DA4182BC5B7CB919C1BB09", "any"),
        ("xyz", None),
    ],
    "Binary": [("!!!!", None), ("YQ", "any"), ("Y Q = =\n", b"a"), ("YQ==YQ==", None), ("", b"")],
}
ODD["Integer 32"] = ODD["Integer 16"][2:3] and [
    ("2147483647", 2**31 - 1),
    ("2147483648", None),
    ("-2147483649", None),
    ("1.", "any"),
]
ODD["Float"] = [("3.4e38", "any"), ("0.5", 0.5), ("1e39", "any"), ("x", None)]


def esc(rng, t, cr=True):
    """Text for XML, in one of its forms."""
    if rng.random() < 0.15 and t.isascii() and "]]>" not in t and "\r" not in t:
        return "<![CDATA[" + t + "]]>"
    out = ""
    for c in t:
        if c in "<&":
            out += rng.choice([{"<": "&lt;", "&": "&amp;"}[c], "&#%d;" % ord(c)])
        elif c == "\r" or (c == "\n" and cr):
            out += "&#13;" if c == "\r" else "&#10;"
        elif c == ">":
            out += "&gt;"
        elif rng.random() < 0.02:
            out += "&#x%x;" % ord(c)
        else:
            out += c
    return out


def number(rng, t, v):
    return repr(v) if isinstance(v, float) else str(v)


def write(r, m, st, meta, hashes=True, odd=None):
    """The text of an XML store with the State's content. odd: (object, attribute, text) replaces a value's text."""
    rng, m_ = r.rng, m
    style = {k: rng.random() for k in ("lower", "both", "quote", "order", "comment")}
    low = (lambda n: n.lower()) if style["lower"] < 0.7 else (lambda n: n)
    q = "'" if style["quote"] < 0.2 else '"'
    A = lambda k, v: f"{k}={q}{v.replace('&', '&amp;').replace('<', '&lt;').replace(q, '&#%d;' % ord(q))}{q}"
    o = []
    for (root, pk), e in sorted(st.obj.items(), key=lambda x: rng.random() if style["order"] < 0.5 else x[0][1]):
        o.append(f"    <object {A('type', e.upper() if style['lower'] < 0.7 else e)} {A('id', 'z%d' % pk)}>")
        parts = []
        for c, a in m.attrs(e):
            if a.trans:
                continue
            v, t = st.val[(root, pk), a.name], a.type
            if odd and odd[:2] == ((root, pk), a.name):
                text = odd[2]
            elif v is None or a.derived:
                continue
            elif t in ("Binary", "Transformable"):
                if isinstance(v, tuple):
                    v = b""
                b = base64.b64encode(v).decode()
                text = "\n".join(b[i : i + 76] for i in range(0, len(b), 76)) + rng.choice(["", "\n"])
            elif t == "UUID":
                text = str(uuid.UUID(bytes=v)).upper()
            elif t in ("String", "URI"):
                text = esc(rng, v)
            else:
                text = number(rng, t, v)
            parts.append(f"        <attribute {A('name', low(a.name))} {A('type', WORDS[t])}>{text}</attribute>")
        for c, x in m.rels(e):
            if x.trans:
                continue
            ls = [b for a, b in st.links.get((c, x.name), ()) if a == (root, pk)]
            if x.ordered and (c, x.name) in st.order:
                ls = st.order[c, x.name].get((root, pk), [])
            i = m.rel_of(x.dest, x.inv) if x.inv else None
            if i and i is not x and not i.ordered and not x.ordered and style["both"] < 0.3 and x.name > i.name:
                ls = []  # told by one side only
            if ls or rng.random() < 0.5:
                parts.append(
                    f"        <relationship {A('name', low(x.name))} {A('type', '0/0' if x.many else '1/1')} {A('destination', x.dest.upper() if style['lower'] < 0.7 else x.dest)}"
                    + (f" {A('idrefs', ' '.join('z%d' % b[1] for b in ls))}" if ls else "")
                    + "></relationship>"
                )
        if style["order"] < 0.3:
            rng.shuffle(parts)
        if style["comment"] < 0.1:
            parts.insert(0, "        <!-- a comment -->")
        o += parts + ["    </object>"]
    keep = (
        {k: v for k, v in meta.items() if k.startswith("NSStoreModel") or k == "NSPersistenceFrameworkVersion"}
        if hashes
        else {}
    )
    keep["app's own"] = "kept <&> é"
    keep["number"] = 7
    pl = plistlib.dumps(keep, sort_keys=False).decode()
    pl = pl[pl.index("<plist") :]
    body = (
        [
            "<database>",
            "    <databaseInfo>",
            "        <version>134481920</version>",
            "        <UUID>2CB996DF-63DA-4182-BC5B-7CB919C1BB09</UUID>",
            f"        <nextObjectID>{max([k[1] for k in st.obj] or [101]) + 1}</nextObjectID>",
            "        <metadata>",
            pl,
            "        </metadata>",
            "    </databaseInfo>",
        ]
        + o
        + ["</database>", ""]
    )
    return body


def encode(r, body):
    rng = r.rng
    e = rng.choice(["utf-8"] * 4 + ["utf-8-bom", "none", "utf-16", "utf-16-le-bom", "iso-8859-1", "us-ascii"])
    eol = rng.choice(["\n", "\n", "\r\n", "\r"])
    decl = {"utf-8-bom": "UTF-8", "none": None, "utf-16-le-bom": "UTF-16"}.get(e, e.upper())
    text = (
        f'<?xml version="1.0"{" encoding=%s%s%s" % (chr(34), decl, chr(34)) if decl else ""} standalone="yes"?>\n<!DOCTYPE database SYSTEM "file:///System/Library/DTDs/CoreData.dtd">\n\n'
        + "\n".join(body)
    )
    text = text.replace("\n", eol)
    r.count(f"XML in {e}")
    r.story.append(f"{e}, line ends {eol!r}")
    if e == "utf-8-bom":
        return b"\xef\xbb\xbf" + text.encode()
    if e == "utf-16-le-bom":
        return b"\xff\xfe" + text.encode("utf-16-le")
    if e in ("iso-8859-1", "us-ascii"):
        return text.encode(e, "xmlcharrefreplace")
    return text.encode("utf-8" if e == "none" else e)


def convert(r):

    rng = r.rng
    m = random_model(rng)
    for _ in range(50):
        if valid(m) and not any(
            len({p.name.lower() for _, p in m.attrs(e) + m.rels(e)}) < len(m.attrs(e) + m.rels(e)) for e in m.ents
        ):
            break
        m = random_model(rng)
    m.forget_ids()
    for e in m.ents.values():  # one's own inverse with an order: no file says how it is stored
        for x in e.rels.values():
            if x.inv == x.name:
                x.ordered = False
    m2, said = (None, []) if rng.random() < 0.7 else next_model(rng, m, 1)
    if m2 and any(w in " ".join(said) for w in ("inverse", "unique")):
        m2, said = None, []
    r.story += said
    r.model(m, m2)
    import generate

    generate.MISSING[0] = 0
    try:
        src = r.new_store("M 1" if m2 else None, "x.sqlite", m, one_count=True)
    finally:
        generate.MISSING[0] = 0.05
    if not src:
        return
    r.db.close()
    st = State(src, m)
    for k, v in list(st.val.items()):
        if isinstance(v, tuple):
            st.val[k] = None  # an external file that is missing
    for v in st.val.values():
        if isinstance(v, float) and (v != v or abs(v) == float("inf")):
            return
    meta = plistlib.loads(st.meta[0][1])
    odd, want = None, None
    cands = [
        (o, a)
        for o, e in sorted(st.obj.items())
        for c, a in m.attrs(e)
        if not a.trans and not a.derived and a.type in ODD
    ]
    if cands and rng.random() < 0.35:
        o, a = rng.choice(cands)
        text, want = rng.choice(ODD[a.type])
        odd = (o, a.name, text)
        r.story.append(f"{st.obj[o]}.{a.name} ({a.type}) of {o[1]} is {text!r}")
        r.count("XML with an odd value")
    body = write(r, m, st, meta, hashes=bool(m2) or rng.random() < 0.9, odd=odd)
    breakage = None
    if not odd and rng.random() < 0.15:
        breakage = rng.choice(
            ["dup id", "no target", "unknown attribute", "unknown entity", "unknown relationship", "cut"]
        )
        at = [i for i, l in enumerate(body) if "<object" in l]
        if at:
            i = rng.choice(at)
            if breakage == "dup id":
                body[i:i] = [body[i], "    </object>"]
            elif breakage == "no target":
                body[i + 1 : i + 1] = [
                    '<relationship name="nothing" type="0/0" destination="NOTHING" idrefs="z99999"></relationship>'
                ]
            elif breakage == "unknown attribute":
                body[i + 1 : i + 1] = ['<attribute name="nobodyknows" type="string">x</attribute>']
            elif breakage == "unknown relationship":
                body[i + 1 : i + 1] = [
                    '<relationship name="nobodyknows" type="0/0" destination="X" idrefs="z102"></relationship>'
                ]
            elif breakage == "unknown entity":
                body[i:i] = ['<object type="NOBODYKNOWS" id="z99998"></object>']
            elif breakage == "id":
                body[i] = body[i].replace('"z', '"q').replace("'z", "'q")
            else:
                body = body[: i + 1]
            r.story.append(breakage)
            r.count("XML that is broken")
        else:
            breakage = None
    data = encode(r, body)
    os.makedirs(r.here + "/old")
    S = r.here + "/old/" + rng.choice(["X.xml", "my X.xml", "data"])
    open(S, "wb").write(data)
    start = tree(r.here)
    how = rng.choice(["migrate", "migrate", "relocate"])
    N = r.here + "/new.sqlite"
    if how == "migrate":
        args = ["migrate", S, "--model", r.bundle, "--to", N]
    else:
        os.makedirs(r.here + "/group")
        args = ["relocate", S, r.here + "/group", "--model", r.bundle, "--name", "new.sqlite"]
        N = r.here + "/group/new.sqlite"
    start = tree(r.here)
    rc1, dry, _ = r.run(*args, "--dry-run")
    if tree(r.here) != start:
        r.problem("dry run changed files", set(start) ^ set(tree(r.here)))
    killed = 0
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        rc, run, _ = r.run(*args, kill=rng.uniform(0.004, 0.08))
        if rc is not None:
            break
        killed += 1
        if how == "migrate" and os.path.exists(N):
            rc, run = 0, dry
            break
    else:
        rc, run, _ = r.run(*args)
    r.count(f"XML {how}: exit {rc}")
    if rc:
        if rc1 == 0:
            r.problem("two answers", f"dry run 0, run {rc}: {run[-1:]}")
        now = tree(r.here, skip=(".groupstore",))
        if now != start:
            r.problem("a refusal changed files", set(now.items()) ^ set(start.items()))
        err = (run[-1].get("error") or {}) if run else {}
        r.count(f"XML refused {err.get('code')}")
        if (
            not breakage
            and err.get("code") == "bad_xml_store"
            and (not odd or (want is not None and odd[2] == str(want)))
        ):
            r.problem("XML refused", f"{odd}: {err}")
        return
    leftovers(r, r.here)
    if rc1:
        r.problem("two answers", f"dry run {rc1} {dry[-1:]}, run 0")
    if breakage:
        r.problem("XML broken and taken", f"{breakage}: {run[-1:]}")
    if how == "relocate":
        if os.path.exists(S):
            r.problem("two stores", f"{S} is still there")
        if not any(
            open(os.path.join(p, f), "rb").read() == data
            for a in archives(r.here + "/group")
            for p, _, fs in os.walk(a)
            for f in fs
        ):
            r.problem("not archived", "the XML store isn't in the archive, whole")
    elif open(S, "rb").read() != data:
        r.problem("--to changed the store", S)
    c = r.scratch + "/n.sqlite"
    shutil.copy(N, c)
    for x in ("-wal",):
        if os.path.exists(N + x):
            shutil.copy(N + x, c + x)
    from coredata import support

    try:
        new = State(c, m2 or m, sup=support(N))
    except (LookupError, sqlite3.Error) as x:
        r.problem("unreadable", x)
        return
    if odd:
        v = new.val.get((odd[0], odd[1])) if not m2 else "migrated"
        if want is None:
            r.problem(
                "XML took an odd value",
                f"{odd[2]!r} of type {[a.type for c_, a in m.attrs(st.obj[odd[0]]) if a.name == odd[1]]} became {v!r}",
            )
        elif want != "any" and v != want and not m2:
            r.problem("XML took an odd value", f"{odd[2]!r} became {v!r}")
        st.val[odd[0], odd[1]] = v
        if m2:
            return
    for k in st.opt:
        st.opt[k] = new.opt.get(k, 1)
    d = Diff(st, new, strict=bool(m2))
    for b in new.bad[:3] + d.wrong[:3] + d.orders[:3]:
        r.problem("XML wrong content", b)
    if not m2:
        for w in ("gone", "values", "changes", "links", "ends"):
            if getattr(d, w):
                r.problem("XML loss", f"{w}: {str(getattr(d, w))[:300]}")
        k = run[-1].get("objects")
        if not killed and k is not None and k != len(st.obj):
            r.problem("XML count", f"{k} objects told, {len(st.obj)} there")
    else:
        lost = {w: sum(map(len, getattr(d, w).values())) for w in ("gone", "values", "changes", "links")}
        if any(lost.values()) and not (
            run[-1].get("removes")
            or [x for x in dry if x.get("type") == "note"]
            or [x for x in run if x.get("type") == "note"]
        ):
            r.problem("silent loss (XML)", lost)
    if new.meta[0][0] != "2CB996DF-63DA-4182-BC5B-7CB919C1BB09":
        r.problem("metadata", f"UUID {new.meta[0][0]}")
    pl = plistlib.loads(new.meta[0][1])
    if pl.get("app's own") != "kept <&> é" or pl.get("number") != 7:
        r.problem("metadata", f"the app's own metadata: {pl}")
