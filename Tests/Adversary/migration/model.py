"""Core Data models in the format notes: XML (section 3), version hashes (2), tables (1.4, 1.5).

Written from the format notes alone. Nothing here asks the program under test.
"""

import base64
import copy
import hashlib
import struct
import unicodedata
import uuid
from xml.sax.saxutils import quoteattr as quoted

# Attribute type -> (code in the version hash, SQL type), section 1.4.
TYPES = {
    "Integer 16": (100, "INTEGER"),
    "Integer 32": (200, "INTEGER"),
    "Integer 64": (300, "INTEGER"),
    "Boolean": (800, "INTEGER"),
    "Decimal": (400, "DECIMAL"),
    "Double": (500, "FLOAT"),
    "Float": (600, "FLOAT"),
    "String": (700, "VARCHAR"),
    "URI": (1200, "VARCHAR"),
    "Date": (900, "TIMESTAMP"),
    "Binary": (1000, "BLOB"),
    "UUID": (1100, "BLOB"),
    "Transformable": (1800, "BLOB"),
    "Composite": (2100, None),
}
WHOLE = ("Integer 16", "Integer 32", "Integer 64", "Boolean")
NUMBERS = WHOLE + ("Decimal", "Double", "Float")  # conversions among these are allowed, section 4.2
HEAD = (
    '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
    '<model type="com.apple.IDECoreDataModeler.DataModel" documentVersion="1.0" lastSavedToolsVersion="1"'
    ' systemVersion="1" minimumToolsVersion="Automatic" sourceLanguage="Swift"'
    ' userDefinedModelVersionIdentifier="">'
)


class Attribute:
    kind = "attribute"

    def __init__(
        self,
        name,
        type="String",
        optional=True,
        default=None,
        ident=None,
        external=False,
        preserved=False,
        transient=False,
        elements=(),
        derived=None,
    ):
        self.name, self.type, self.optional, self.default, self.ident = name, type, optional, default, ident
        self.external, self.preserved, self.transient = external, preserved, transient
        self.elements, self.derived = list(elements), derived

    @property
    def identity(self):
        return self.ident or self.name

    def leaves(self, path=None):
        """Returns the paths and attributes with a column: for a composite, its elements."""
        path = path or (self.name,)
        if self.type != "Composite":
            yield path, self
        for element in self.elements:
            yield from element.leaves(path + (element.name,))

    def default_value(self):
        """Returns what SQLite holds for the default in the XML."""
        text = self.default
        if text is None:
            return None
        if self.type in WHOLE:
            if not text.lstrip("-").isdigit():
                return {"YES": 1, "NO": 0}.get(text)  # None: left over from another type, which is refused
            return int(text)
        if self.type == "Float":
            return struct.unpack("f", struct.pack("f", float(text)))[0]
        if self.type in ("Double", "Decimal", "Date"):
            return float(text)
        return uuid.UUID(text).bytes if self.type == "UUID" else text


class Relationship:
    kind = "relationship"
    transient = False

    def __init__(self, name, dest, inverse=None, many=False, ordered=False, optional=True, ident=None):
        self.name, self.dest, self.inverse, self.many = name, dest, inverse, many
        self.ordered, self.optional, self.ident = ordered, optional, ident

    @property
    def identity(self):
        return self.ident or self.name


class Entity:
    def __init__(
        self, name, *properties, parent=None, abstract=False, ident=None, unique=(), indexes=(), modifier=None
    ):
        self.name, self.parent, self.abstract, self.ident = name, parent, abstract, ident
        self.properties, self.modifier = list(properties), modifier
        self.unique, self.indexes = [list(u) for u in unique], list(indexes)

    @property
    def identity(self):
        return self.ident or self.name

    def attributes(self):
        return [p for p in self.properties if p.kind == "attribute"]

    def relationships(self):
        return [p for p in self.properties if p.kind == "relationship"]


class Model:
    def __init__(self, *entities):
        self.entities = {}
        for entity in entities:
            self.add(entity)

    def add(self, entity):
        self.entities[entity.name] = entity
        return entity

    def __getitem__(self, name):
        return self.entities[name]

    def copy(self):
        return copy.deepcopy(self)

    def line(self, name):
        """Returns the entity's ancestors, root first, and itself."""
        line = []
        while name:
            line.insert(0, name)
            name = self[name].parent
        return line

    def root(self, name):
        return self.line(name)[0]

    def roots(self):
        return [e.name for e in self.entities.values() if not e.parent]

    def children(self, name):
        return [e.name for e in self.entities.values() if e.parent == name]

    def family(self, name):
        return [name] + [x for child in self.children(name) for x in self.family(child)]

    def properties(self, name):
        """Returns the entity's properties, inherited ones first."""
        return [p for e in self.line(name) for p in self[e].properties]

    def property(self, name, key):
        return next((p for p in self.properties(name) if p.name == key), None)

    def declaring(self, name, key):
        return next((e for e in self.line(name) if any(p.name == key for p in self[e].properties)), None)

    def inverse(self, relationship):
        return relationship.inverse and self.property(relationship.dest, relationship.inverse)

    def fault(self):
        """Returns why Xcode wouldn't compile the model, or None."""
        tables = set()
        for name, entity in self.entities.items():
            seen = []
            parent = entity.parent
            while parent:
                if parent not in self.entities or parent in seen or parent == name:
                    return "parents"
                seen.append(parent)
                parent = self[parent].parent
        for name, entity in self.entities.items():
            if not entity.parent:
                if name.upper() in tables:
                    return "two tables"
                tables.add(name.upper())
            names = [p.name for p in self.properties(name)]
            if len(set(names)) != len(names):
                return "two properties of a name"
            for r in entity.relationships():
                if r.dest not in self.entities:
                    return "destination"
                if r.inverse:
                    inverse = self.inverse(r)
                    if (
                        inverse is None
                        or inverse.kind != "relationship"
                        or inverse.inverse != r.name
                        or inverse.dest != name
                        or self.declaring(r.dest, r.inverse) != r.dest
                    ):
                        return "inverse"
            for keys in entity.unique + [k for _, k in entity.indexes]:
                if any(k not in names for k in keys):
                    return "index"
        return None

    # XML -------------------------------------------------------------------------------------------------------

    def xml(self):
        out, composites = [HEAD], []

        def flag(key, value):
            return f' {key}="YES"' if value else ""

        def attribute(a):
            text = f"<attribute name={quoted(a.name)}{flag('optional', a.optional)}{flag('transient', a.transient)}"
            text += f' attributeType="{a.type}"{flag("allowsExternalBinaryDataStorage", a.external)}'
            text += flag("preserveAfterDeletion", a.preserved)
            if a.default is not None:
                key = "defaultDateTimeInterval" if a.type == "Date" else "defaultValueString"
                text += f" {key}={quoted(a.default)}"
            if a.derived:
                text += f' derived="YES" derivationExpression={quoted(a.derived)}'
            if a.ident:
                text += f" elementID={quoted(a.ident)}"
            if a.type == "Composite":
                composites.append((f"C{len(composites)}", a))
                text += f' elementName="C{len(composites) - 1}"'
            return text + "/>"

        def relationship(r):
            text = f"<relationship name={quoted(r.name)}{flag('optional', r.optional)}"
            text += ' toMany="YES"' if r.many else ' maxCount="1"'
            text += flag("ordered", r.many and r.ordered) + ("" if r.many or r.optional else ' minCount="1"')
            text += f' deletionRule="Nullify" destinationEntity={quoted(r.dest)}'
            if r.inverse:
                text += f" inverseName={quoted(r.inverse)} inverseEntity={quoted(r.dest)}"
            if r.ident:
                text += f" elementID={quoted(r.ident)}"
            return text + "/>"

        for e in self.entities.values():
            text = (
                f"<entity name={quoted(e.name)} representedClassName={quoted(e.name)}{flag('isAbstract', e.abstract)}"
            )
            text += f" parentEntity={quoted(e.parent)}" if e.parent else ""
            text += f" elementID={quoted(e.ident)}" if e.ident else ""
            text += f" versionHashModifier={quoted(e.modifier)}" if e.modifier else ""
            out.append(text + ' syncable="YES">')
            for p in sorted(e.properties, key=lambda p: p.name):
                out.append(" " + (attribute(p) if p.kind == "attribute" else relationship(p)))
            for name, keys in e.indexes:
                elements = "".join(
                    f'<fetchIndexElement property={quoted(k)} type="Binary" order="ascending"/>' for k in keys
                )
                out.append(f" <fetchIndex name={quoted(name)}>{elements}</fetchIndex>")
            if e.unique:
                out.append(
                    " <uniquenessConstraints>"
                    + "".join(
                        "<uniquenessConstraint>"
                        + "".join(f"<constraint value={quoted(k)}/>" for k in keys)
                        + "</uniquenessConstraint>"
                        for keys in e.unique
                    )
                    + "</uniquenessConstraints>"
                )
            out.append("</entity>")
        done = 0
        while done < len(composites):  # an element may be a composite itself, which appends to the list
            name, a = composites[done]
            done += 1
            out.append(f'<composite name="{name}">' + "".join(attribute(x) for x in a.elements) + "</composite>")
        return "\n".join(out + ["</model>"])

    # Version hashes, section 2 ---------------------------------------------------------------------------------

    def has_unhashed(self):
        """Returns whether the model has composites, whose hash is only reported (section 2)."""
        return any(a.type == "Composite" for e in self.entities.values() for a in e.attributes())

    def hashes(self):
        memo = {}

        def base(p):
            flags = (1 if p.optional else 0) | (2 if p.transient else 0)
            return hashlib.sha256(p.name.encode() + struct.pack("<H", flags)).digest()

        def of_property(p, owner):
            if p.kind == "attribute" and p.derived:
                return hashlib.sha256(p.derived.encode()).digest()
            if p.kind == "attribute":
                data = base(p) + struct.pack("<i", TYPES[p.type][0])
                return hashlib.sha256(data + b"\1" * p.external + b"\1" * p.preserved).digest()
            data = base(p) + p.dest.encode()
            if p.inverse and not (p.inverse == p.name and p.dest == owner):
                data += p.inverse.encode()
            data += struct.pack("<ii", 0 if p.many else 1, 0 if p.many or p.optional else 1)
            return hashlib.sha256(data + (b"\1\0" if p.many and p.ordered else b"")).digest()

        def of_entity(name):
            if name not in memo:
                e = self[name]
                data = name.encode() + (b"\1" if e.abstract else b"\0")
                data += of_entity(e.parent) if e.parent else b""
                owned = [(p.name.encode("utf-16-be"), p, o) for o in self.line(name) for p in self[o].properties]
                for _, p, owner in sorted(owned, key=lambda x: x[0]):
                    data += b"" if p.transient else of_property(p, owner)
                data += (e.modifier or "").encode() + "".join(sorted(".".join(u) for u in e.unique)).encode()
                memo[name] = hashlib.sha256(data).digest()
            return memo[name]

        return {name: of_entity(name) for name in self.entities}

    def digest(self):
        h = self.hashes()
        return base64.b64encode(hashlib.sha512(b"".join(n.encode() + h[n] for n in sorted(h))).digest()).decode()


# Tables, sections 1.4 and 1.5 ----------------------------------------------------------------------------------

BUCKETS = [(4, 5), (8, 11), (17, 23), (29, 41), (47, 67), (76, 113), (123, 199), (199, 317), (322, 521), (521, 839)]


def key_hash(key):
    """Returns the hash of a CFDictionary of 10.4 (section 1.5)."""
    data = key.encode("utf-16-le")
    units = [data[i] | data[i + 1] << 8 for i in range(0, len(data), 2)]
    if len(units) > 23:
        units = units[:8] + units[-16:]
    h = len(units)
    for unit in units:
        h = (h * 257 + unit) & 0xFFFFFFFF
    return (h + (h << (len(units) & 31))) & 0xFFFFFFFF


def bucket_order(keys):
    size = next(b for capacity, b in BUCKETS if capacity >= len(keys))
    slots = [None] * size
    for key in keys:
        i = key_hash(key) % size
        while slots[i] is not None and slots[i] != key:
            i = (i + 1) % size
        slots[i] = key
    return [s for s in slots if s is not None]


class Layout:
    """A model's entity numbers, tables and columns.

    column[(entity, path or relationship's name)], number_column and order_column name the columns; join[(entity,
    relationship)] is (table, owner's column, target's column, column of the targets' order).
    """

    def __init__(self, model):
        self.model, self.ids, self.order = model, {}, []
        self.tables, self.column, self.number_column, self.order_column = {}, {}, {}, {}
        self.joins, self.join = {}, {}

        def by_name(name):
            return (name.lower(), name)

        def walk(name):
            self.order.append(name)
            self.ids[name] = len(self.order)
            for child in sorted(model.children(name), key=by_name):
                walk(child)

        for root in sorted(model.roots(), key=by_name):
            walk(root)
        for root in [n for n in self.order if not model[n].parent]:
            self._table(root)
        self._joins(sorted(self.order, key=by_name))

    def table(self, name):
        return "Z" + self.model.root(name).upper()

    def _table(self, root):
        model, columns = self.model, {"Z_PK": "INTEGER", "Z_ENT": "INTEGER", "Z_OPT": "INTEGER"}

        def add(name, sql="INTEGER"):
            free, i = name, 1
            while free in columns:
                free, i = name + str(i), i + 1
            columns[free] = sql
            return free

        for n in [x for x in self.order if model.root(x) == root]:
            for a in sorted(model[n].attributes(), key=lambda p: p.name):
                for path, leaf in ([] if a.transient else a.leaves()):
                    self.column[(n, path)] = add("Z" + leaf.name.upper(), TYPES[leaf.type][1])
            ones = [r for r in sorted(model[n].relationships(), key=lambda p: p.name) if not r.many]
            for r in ones:
                self.column[(n, r.name)] = add("Z" + r.name.upper())
                if model.children(r.dest):
                    self.number_column[(n, r.name)] = add(f"Z{self.ids[r.dest]}_{r.name.upper()}")
            for r in ones:
                inverse = model.inverse(r)
                if inverse and inverse.many and inverse.ordered:
                    self.order_column[(n, r.name)] = add("Z_FOK_" + r.name.upper())
        for n in self.order:  # to-many without an inverse: a reference in the destination's table
            for r in sorted(model[n].relationships(), key=lambda p: p.name):
                if r.many and not r.inverse and model.root(r.dest) == root:
                    self.column[(n, r.name)] = add(f"Z{self.ids[n]}{r.name.upper()}")
                    if r.ordered:
                        self.order_column[(n, r.name)] = add(f"Z_FOK_{self.ids[n]}{r.name.upper()}")
        self.tables[self.table(root)] = columns

    def _joins(self, names):
        model, taken, done = self.model, {}, set()

        def add(name, entity):
            used, free, i = taken.setdefault(model.root(entity), set()), name, 1
            while free in used:
                free, i = name + str(i), i + 1
            used.add(free)
            return free

        for n in names:
            keys = ["_ent", "_pk", "_opt"]
            for e in model.line(n):
                keys += sorted(a.name for a in model[e].attributes() if not a.transient)
                for r in sorted(model[e].relationships(), key=lambda p: p.name):
                    if not r.many:
                        keys.append("_Z" + r.name.upper())
                        if model.children(r.dest):
                            keys.append(f"_Z{self.ids[r.dest]}_{r.name.upper()}")
                    keys.append(r.name)
            own = {r.name: r for r in model[n].relationships()}
            for key in bucket_order(keys):
                r = own.get(key)
                inverse = r and model.inverse(r)
                if not r or not r.many or not inverse or not inverse.many or (n, key) in done:
                    continue
                other = model.declaring(r.dest, r.inverse)
                self_inverse = (n, key) == (other, inverse.name)
                done |= {(n, key), (other, inverse.name)}
                a, b = f"{self.ids[n]}{inverse.name.upper()}", f"{self.ids[other]}{key.upper()}"
                first, second = add("Z_" + a, n), "REFLEXIVE" if self_inverse else add("Z_" + b, other)
                first_order = "Z_FOK_" + a if inverse.ordered else None
                second_order = ("FOK_REFLEXIVE" if self_inverse else "Z_FOK_" + b) if r.ordered else None
                table = f"Z_{self.ids[n]}{key.upper()}"
                self.joins[table] = {c: "INTEGER" for c in (first, second, first_order, second_order) if c}
                self.join[(n, key)] = (table, first, second, second_order)
                if not self_inverse:
                    self.join[(other, inverse.name)] = (table, second, first, first_order)


def mixes_forms(*models):
    """Returns whether two property names differ only in Unicode form: no document says which columns they get."""
    names = {p.name.upper() for m in models for e in m.entities.values() for p in e.properties}
    return len({unicodedata.normalize("NFC", n) for n in names}) < len(names)
