"""Core Data's version hashes, from their description."""

import base64
import hashlib
import struct

_CODES = {
    "Integer 16": 100, "Integer 32": 200, "Integer 64": 300, "Decimal": 400, "Double": 500, "Float": 600, "String": 700,
    "Boolean": 800, "Date": 900, "Binary": 1000, "UUID": 1100, "URI": 1200, "Transformable": 1800, "Composite": 2100,
}


def _hash(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def _base(name, optional, transient):
    return _hash(name.encode(), struct.pack("<H", (1 if optional else 0) | (2 if transient else 0)))


def _attribute(one):
    if one.type == "Composite":
        own = _hash(_base(one.name, one.optional, one.transient), struct.pack("<i", _CODES[one.type]))
        return own + b"".join(_attribute(each) for each in one.elements)
    return _hash(
        _base(one.name, one.optional, one.transient), struct.pack("<i", _CODES[one.type]),
        b"\1" if one.external else b"", b"\1" if one.preserved else b"")


def _relationship(model, entity, one):
    back = model.relationship(one.destination, one.inverse)
    name = b"" if back is None or back is one else one.inverse.encode()
    return _hash(
        _base(one.name, True, False), one.destination.encode(), name, struct.pack("<ii", 0 if one.many else 1, 0),
        b"\1\0" if one.ordered else b"")


def of(model):
    """Returns each entity's 32 bytes."""
    found = {}

    def add(entity):
        hashes = {}
        for each in model.line(entity.name):
            hashes |= {one.name: _attribute(one) for one in each.attributes if not one.transient}
            hashes |= {one.name: _relationship(model, each, one) for one in each.relationships}
        found[entity.name] = _hash(
            entity.name.encode(), b"\1" if entity.abstract else b"\0", found[entity.parent] if entity.parent else b"",
            *(hashes[name] for name in sorted(hashes)), (entity.modifier or "").encode(),
            *sorted(".".join(each.name for each in one).encode() for one in model.constraints(entity.name)))
        for child in model.children(entity.name):
            add(child)

    for root in model.roots():
        add(root)
    return found


def checksum(hashes):
    return base64.b64encode(_hash(*(hashes[name] for name in sorted(hashes)))).decode()
