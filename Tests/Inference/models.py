"""Random managed object models, the changes of a next version, and Xcode's XML of both."""

import copy
import os
from xml.sax.saxutils import quoteattr

NUMERIC = ("Integer 16", "Integer 32", "Integer 64", "Boolean", "Double", "Float", "Decimal")
SPATIAL = ("Integer 16", "Integer 32", "Double", "Float")
TYPES = NUMERIC + ("String", "URI", "Date", "Binary", "UUID", "Transformable")
WHOLE = ("Integer 16", "Integer 32", "Integer 64", "Boolean")


def leaves(attribute):
    """Returns an attribute's leaves: a composite attribute is kept as its elements."""
    if attribute.type != "Composite":
        return [(attribute.name, attribute)]
    return [(f"{attribute.name}.{one.name}", one) for one in attribute.elements]


class Attribute:
    def __init__(self, name, kind):
        self.name, self.type, self.identifier = name, kind, name
        self.optional, self.default, self.external, self.transient = True, None, False, False
        # Persistent history keeps it when the object is deleted.
        self.preserved = False
        # A composite attribute's parts.
        self.elements = []


class Relationship:
    def __init__(self, name, destination, inverse):
        self.name, self.destination, self.inverse, self.identifier = name, destination, inverse, name
        self.many, self.ordered = False, False


class Index:
    """A fetch index. It refers to attributes, whatever their names."""

    def __init__(self, name, attributes, spatial):
        self.name, self.attributes, self.spatial = name, attributes, spatial
        self.ascending = [True] * len(attributes)


class Entity:
    def __init__(self, name, parent=None):
        self.name, self.parent, self.identifier, self.abstract = name, parent, name, False
        self.attributes, self.relationships = [], []
        # Fetch indexes, and lists of attributes whose values together are unique.
        self.indexes, self.unique = [], []
        # A change of indexes takes effect only with a change of one of these.
        self.modifier = None


class Model:
    def __init__(self):
        self.entities = {}

    def copy(self):
        return copy.deepcopy(self)

    def add(self, entity):
        self.entities[entity.name] = entity
        return entity

    def roots(self):
        return self.children(None)

    def children(self, name):
        return [one for one in self.entities.values() if one.parent == name]

    def line(self, name):
        """Returns the ancestors, the root first, and the entity itself."""
        found = []
        while name:
            found.insert(0, self.entities[name])
            name = self.entities[name].parent
        return found

    def root(self, name):
        return self.line(name)[0].name

    def family(self, name):
        return [one.name for one in self.entities.values() if name in [each.name for each in self.line(one.name)]]

    def attributes(self, name):
        return [one for entity in self.line(name) for one in entity.attributes]

    def stored(self, name):
        """Returns the columns of the entity's objects: (key, attribute), with a composite's elements separately."""
        return [
            found for one in self.attributes(name) if not one.transient for found in leaves(one)]

    def indexes(self, entity):
        """Returns the indexes whose attributes the entity still has."""
        return [one for one in self.entities[entity].indexes if self._are_stored(entity, one.attributes) and not (
            one.spatial and any(each.type not in SPATIAL for each in one.attributes))]

    def constraints(self, entity):
        return [one for one in self.entities[entity].unique if self._are_stored(entity, one)]

    def _are_stored(self, entity, attributes):
        there = [one for one in self.attributes(entity) if not one.transient]
        return all(any(one is each for each in there) for one in attributes)

    def relationships(self, name):
        return [one for entity in self.line(name) for one in entity.relationships]

    def relationship(self, entity, name):
        """Returns the relationship; None for the inverse of one without an inverse."""
        return None if name is None else next(one for one in self.relationships(entity) if one.name == name)

    def declaring(self, entity, name):
        for one in self.line(entity):
            if any(each.name == name for each in one.attributes + one.relationships):
                return one.name
        return None

    def names(self, entity):
        """Returns the names and identifiers that a property declared by the entity may not take."""
        found = set()
        for member in self.family(entity):
            for one in self.attributes(member) + self.relationships(member):
                found |= {one.name, one.identifier}
        return found

    def write(self, path):
        os.makedirs(path)
        lines = [
            '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>',
            '<model type="com.apple.IDECoreDataModeler.DataModel" documentVersion="1.0">',
        ]
        for entity in self.entities.values():
            for one in entity.attributes:
                if one.type == "Composite":
                    elements = "".join(
                        "<attribute" + _fields(each, {"attributeType": each.type, "optional": True}) + "/>"
                        for each in one.elements)
                    lines.append(f'<composite name="{entity.name}.{one.name}">{elements}</composite>')
        for entity in self.entities.values():
            lines.append("<entity" + _fields(entity, {
                "parentEntity": entity.parent, "isAbstract": entity.abstract, "representedClassName": entity.name,
                "versionHashModifier": entity.modifier,
            }) + ">")
            for one in entity.attributes:
                default = one.default if one.type != "Date" else None
                date = one.default if one.type == "Date" else None
                lines.append("<attribute" + _fields(one, {
                    "attributeType": one.type, "optional": one.optional, "transient": one.transient,
                    "allowsExternalBinaryDataStorage": one.external, "defaultValueString": default,
                    "preserveAfterDeletion": one.preserved,
                    "compositeName": f"{entity.name}.{one.name}" if one.type == "Composite" else None,
                    "defaultDateTimeInterval": date,
                }) + "/>")
            for one in entity.relationships:
                lines.append("<relationship" + _fields(one, {
                    "optional": True, "toMany": one.many, "maxCount": None if one.many else "1",
                    "ordered": one.ordered, "destinationEntity": one.destination, "inverseName": one.inverse,
                    "inverseEntity": one.destination if one.inverse else None, "deletionRule": "Nullify",
                }) + "/>")
            for one in self.indexes(entity.name):
                elements = "".join(
                    f'<fetchIndexElement property="{each.name}" type="{"RTree" if one.spatial else "Binary"}" '
                    f'order="{"ascending" if is_ascending else "descending"}"/>'
                    for each, is_ascending in zip(one.attributes, one.ascending))
                lines.append(f'<fetchIndex name="{one.name}">{elements}</fetchIndex>')
            constraints = "".join(
                "<uniquenessConstraint>" + "".join(f'<constraint value="{each.name}"/>' for each in one)
                + "</uniquenessConstraint>" for one in self.constraints(entity.name))
            if constraints:
                lines.append(f"<uniquenessConstraints>{constraints}</uniquenessConstraints>")
            lines.append("</entity>")
        lines.append("</model>")
        with open(os.path.join(path, "contents"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines))


def _fields(one, fields):
    fields = {"name": one.name, **fields}
    if one.identifier != one.name:
        fields["elementID"] = one.identifier
    words = []
    for name, value in fields.items():
        if value is None or value is False:
            continue
        words.append(f" {name}={quoteattr('YES' if value is True else str(value))}")
    return "".join(words)
