"""A Core Data model, as XML, with what a merge must know of it."""

import os

HEAD = (
    '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
    '<model type="com.apple.IDECoreDataModeler.DataModel" documentVersion="1.0" lastSavedToolsVersion="1"'
    ' systemVersion="1" minimumToolsVersion="Automatic" sourceLanguage="Swift" userDefinedModelVersionIdentifier="">'
)


class Entity:
    """`attributes`: name -> type; `one`: to-one name -> (destination, inverse); `many`: to-many name -> (destination,
    inverse, ordered); `unique`: constraints."""

    def __init__(self, name, attributes, one=(), many=(), unique=(), parent=None, external=()):
        self.name, self.attributes, self.one, self.many = name, attributes, dict(one), dict(many)
        self.unique, self.parent, self.external = [list(u) for u in unique], parent, external

    def xml(self):
        parent = f' parentEntity="{self.parent}"' if self.parent else ""
        lines = [f'<entity name="{self.name}" representedClassName="{self.name}"{parent} syncable="YES">']
        for name, kind in self.attributes.items():
            outside = ' allowsExternalBinaryDataStorage="YES"' if name in self.external else ""
            lines.append(f'<attribute name="{name}" optional="YES" attributeType="{kind}"{outside}/>')
        for name, (destination, inverse) in self.one.items():
            lines.append(
                f'<relationship name="{name}" optional="YES" maxCount="1" deletionRule="Nullify"'
                f' destinationEntity="{destination}" inverseName="{inverse}" inverseEntity="{destination}"/>'
            )
        for name, (destination, inverse, ordered) in self.many.items():
            order = ' ordered="YES"' if ordered else ""
            lines.append(
                f'<relationship name="{name}" optional="YES" toMany="YES" deletionRule="Nullify"{order}'
                f' destinationEntity="{destination}" inverseName="{inverse}" inverseEntity="{destination}"/>'
            )
        if self.unique:
            lines.append("<uniquenessConstraints>")
            for constraint in self.unique:
                lines.append(
                    "<uniquenessConstraint>"
                    + "".join(f'<constraint value="{c}"/>' for c in constraint)
                    + "</uniquenessConstraint>"
                )
            lines.append("</uniquenessConstraints>")
        return "\n".join([*lines, "</entity>"])


class Model:
    def __init__(self, entities):
        self.entities = {e.name: e for e in entities}

    def line(self, name):
        """Returns the entity and its ancestors, the root first."""
        found = []
        while name:
            found.insert(0, self.entities[name])
            name = self.entities[name].parent
        return found

    def below(self, name):
        """Returns the names of an entity and of all that inherit from it."""
        return [n for n in self.entities if name in [e.name for e in self.line(n)]]

    def attributes(self, name):
        return {k: v for e in self.line(name) for k, v in e.attributes.items()}

    def one(self, name):
        return {k: v for e in self.line(name) for k, v in e.one.items()}

    def external(self, name):
        return [a for e in self.line(name) for a in e.external]

    def table(self, name):
        return "Z" + self.line(name)[0].name.upper()

    def write(self, directory):
        path = os.path.join(directory, "M.xcdatamodel")
        os.makedirs(path)
        with open(os.path.join(path, "contents"), "w") as file:
            file.write("\n".join([HEAD, *(e.xml() for e in self.entities.values()), "</model>"]))
        return path


def random_model(chance):
    """Returns a model with every kind of relationship; its names are sometimes prefixes of each other."""
    a = chance.choice(
        [
            dict(Note="Note", Tag="Tag", Folder="Folder", Item="Item", Photo="Photo", Movie="Movie", Event="Event"),
            dict(Note="A", Tag="AB", Folder="ABC", Item="ABCD", Photo="ABCDE", Movie="B", Event="AA"),
            dict(
                Note="Order",
                Tag="Group",
                Folder="Select",
                Item="Table",
                Photo="Index",
                Movie="Values",
                Event="Primarykey0",
            ),
            dict(Note="Zeta", Tag="Eta", Folder="Été", Item="名前", Photo="имя", Movie="Zz", Event="Ent"),
        ]
    )
    n = chance.choice(
        [
            str,
            lambda x: {"title": "t", "note": "te", "folder": "t1", "cover": "t11", "parent": "t2", "tags": "t3"}.get(
                x, x
            ),
        ]
    )
    ordered = chance.random() < 0.6
    return (
        a,
        n,
        Model(
            [
                Entity(
                    a["Note"],
                    {
                        "mark": "String",
                        "uuid": "UUID",
                        n("title"): "String",
                        "modifiedAt": "Date",
                        "body": "Binary",
                        "size": "Integer 64",
                        "exact": "Decimal",
                    },
                    one={
                        n("folder"): (a["Folder"], "notes"),
                        n("cover"): (a["Photo"], n("note")),
                        n("parent"): (a["Note"], "children"),
                    },
                    many={
                        n("tags"): (a["Tag"], "notes", chance.random() < 0.3),
                        "children": (a["Note"], n("parent"), False),
                        "events": (a["Event"], "about", False),
                        "like": (a["Note"], "likedBy", False),
                        "likedBy": (a["Note"], "like", False),
                    },
                    unique=[["uuid"]],
                    external=["body"],
                ),
                Entity(
                    a["Tag"],
                    {"mark": "String", "name": "String", "color": "String"},
                    many={"notes": (a["Note"], n("tags"), False)},
                    unique=[["name"], ["color"]] if chance.random() < 0.4 else [["name"]],
                ),
                Entity(
                    a["Folder"],
                    {"mark": "String", "name": "String", "score": "Double"},
                    many={"notes": (a["Note"], n("folder"), ordered)},
                ),
                Entity(
                    a["Item"],
                    {"mark": "String", "code": "Integer 64"},
                    many={"events": (a["Event"], "item", False)},
                    unique=[["code"]],
                ),
                Entity(
                    a["Photo"],
                    {"width": "Float", n("title"): "String"},
                    one={n("note"): (a["Note"], n("cover"))},
                    parent=a["Item"],
                ),
                Entity(a["Movie"], {"length": "Double", n("title"): "String"}, parent=a["Item"]),
                Entity(
                    a["Event"],
                    {"mark": "String", "text": "String", "on": "Boolean"},
                    one={"about": (a["Note"], "events"), "item": (a["Item"], "events")},
                ),
            ]
        ),
    )
