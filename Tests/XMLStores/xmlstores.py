#!/usr/bin/env python3
"""Random models, and XML stores of them as Core Data writes them: what `groupstore migrate --to` makes of each is read by
an independent implementation of SQLite stores (Tests/Inference), and every value, link, order and record is compared.

The files are in many encodings, with and without byte order marks, and have the ends of lines of all systems.

Each round also damages the file at random: the program must end with an error, and leave nothing behind. It must refuse
what Python's XML parser refuses, and what no value or element is, with the line.

usage: xmlstores.py GROUPSTORE [--seed N] [--first N] [--rounds N] [--keep DIRECTORY]
"""

import argparse
import base64
import collections
import os
import plistlib
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import uuid
import xml.etree.ElementTree
from xml.sax.saxutils import escape

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "Inference"))

import hashes
import store as stores
from changes import Author
from layout import Layout

WORDS = {
    "Integer 16": "int16", "Integer 32": "int32", "Integer 64": "int64", "Boolean": "bool", "Double": "double",
    "Float": "float", "Decimal": "decimal", "Date": "date", "String": "string", "URI": "uri", "UUID": "uuid",
    "Binary": "binary", "Transformable": "binary",
}
TEXTS = (
    "", " ", "  two  ", "a\nb", "a\r\nb\tc", "<b>&amp;</b>", "it's \"so\"", "]]>", "\\", "\\u", "\\u003c", "C:\\users",
    "😀 é e\u0301", "\u2028", "x" * 3000, "\x01\x1f", "NULL", "0", "\\n",
)
# The declared encoding, Python's name of it, and a byte order mark.
ENCODINGS = (
    ("", "utf-8", b""), ("", "utf-8", b"\xef\xbb\xbf"), ("UTF-8", "utf-8", b""), ("utf-8", "utf-8", b"\xef\xbb\xbf"),
    ("", "utf-16-le", b"\xff\xfe"), ("UTF-16", "utf-16-be", b"\xfe\xff"), ("UTF-16", "utf-16-le", b"\xff\xfe"),
    ("UTF-16LE", "utf-16-le", b""), ("", "utf-16-be", b""), ("ISO-8859-1", "iso-8859-1", b""),
    ("ISO-8859-15", "iso-8859-15", b""), ("windows-1252", "cp1252", b""), ("windows-1251", "cp1251", b""),
    ("US-ASCII", "ascii", b""), ("KOI8-R", "koi8-r", b""), ("GB18030", "gb18030", b""),
)
# What is put in place of a text in the file, and no conversion may accept.
STRAY = (
    ("</object>", "stray</object>"), ("</object>", "</object>\n\nstray"), ("<object ", "]]&gt;<object "),
    ("</databaseInfo>", "x</databaseInfo>"), ("<metadata>", "<metadata>."), ("</database>", "</database>\nstray"),
    ("</database>", "&#32;stray</database>"), ("</database>", "<database/></database>"), ("<database>", "<database>&nbsp;"),
    ("<database>", "<database x='&nbsp;'>"), ("</database>", "<object/></database>"),
    ("<databaseInfo>", "<databaseInfo></databaseInfo><databaseInfo>"), ("<metadata>", "<metadata><key>a</key>"),
    ("<metadata>", "<metadata></metadata><metadata>"), ("<UUID>", "<UUID>1</UUID><UUID>"),
    ("\"file:///System/Library/DTDs/CoreData.dtd\"", "\"CoreData.dtd\" [<!ENTITY nbsp ' '>]"), ("</UUID>", "</uuid>"),
    ("<version>", "<version a='1' a='2'>"), ("<version>", "<version>&#0;"), ("<version>", "<version>\x0b"),
    ("<version>", "<version>\ufffe"),
)
# Numbers that don't fit their types.
LARGE = {
    "int16": ("32768", "1e400"), "int32": ("2147483648", "0x10"), "int64": ("9223372036854775808", "1.0"),
    "double": ("1e400", "-1e400", "1e-400", "0x10"), "float": ("1e39", "-1e400", "1e-60"), "decimal": ("1e400", "nan"),
    "date": ("1e400", "inf"),
}


def content(text, rand):
    """Writes a text. Core Data writes some characters as `\\u` and four digits, the low byte first."""
    found = []
    for character in text:
        code = ord(character)
        if code < 32 and character not in "\n\t\r" or character in "<>&\"'" and rand.random() < 0.5:
            found.append(f"\\u{code & 255:02x}{code >> 8:02x}")
        elif character == "\r":
            found.append("&#13;")
        else:
            found.append(escape(character))
    return "".join(found)


def written(attribute, value, rand):
    """Returns the text of a value, and the value that SQLite must have."""
    kind = attribute.type
    if kind == "String":
        value = rand.choice(TEXTS) if not attribute.unique else value
        return content(value, rand), value
    if kind == "URI":
        return content(value, rand), value
    if kind == "Integer 64" and not attribute.unique and rand.random() < 0.4:
        value = rand.choice((2**63 - 1, -(2**63), 2**53 + 1))
        return str(value), value
    if kind in ("Integer 16", "Integer 32", "Integer 64", "Boolean"):
        return str(value), value
    if kind == "Date":
        return f"{value:.20f}", value
    if kind == "Decimal":
        text = rand.choice(("0.1", "-7", "1234567890123.25", "9007199254740993", "0.000001"))
        return text, int(text) if "." not in text else float(text)
    if kind in ("Double", "Float"):
        return repr(value), value
    if kind == "UUID":
        return str(uuid.UUID(bytes=value)).upper(), value
    if attribute.external:
        value = b"\x01" + value[1:]
    plain = value[1:] if attribute.external else value
    lines = base64.encodebytes(plain).decode()
    return ("\n" + lines if rand.random() < 0.5 else lines.replace("\n", "")), value


class Round:
    def __init__(self, groupstore, directory, seed, number):
        self.groupstore, self.directory = groupstore, directory
        self.random = random.Random(f"{seed}.{number}")
        author = Author(self.random)
        self.model = author.model()
        for entity in self.model.entities.values():
            # Composite attributes came after XML stores.
            gone = {one.name for one in entity.attributes if one.type == "Composite"}
            entity.attributes = [one for one in entity.attributes if one.name not in gone]
            entity.indexes = [one for one in entity.indexes if not gone & {each.name for each in one.attributes}]
        self.next = author.next(self.model)
        self.layout = Layout(self.model)
        self.problems = []

    def path(self, name):
        return os.path.join(self.directory, name)

    def run(self, *words):
        done = subprocess.run([self.groupstore, *words], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    def check(self, what, found, wanted):
        if found != wanted:
            self.problems.append(f"{what}: found {found!r}, not {wanted!r}")

    def play(self):
        self.model.write(self.path("V1.xcdatamodel"))
        status, said = self.run("create", self.path("V1.sqlite"), "--model", self.path("V1.xcdatamodel"))
        if status:
            return "unusable"
        for name in self.model.entities:
            for one in self.model.entities[name].attributes:
                one.unique = any(one in each for other in self.model.entities for each in self.model.constraints(other))
        objects, links = stores.fill(self.path("V1.sqlite"), self.model, self.layout, self.random)
        is_clear = self.write(objects, links)
        status, said = self.migrate("V1.xcdatamodel", "M.sqlite")
        if not is_clear:
            self.check(f"exit with names that are the same in lower case: {said}", status, 65)
            self.check("a new store", os.path.exists(self.path("M.sqlite")), False)
            return "wrong" if self.problems else "ambiguous"
        if status:
            self.problems.append(f"exit {status}: {said}")
            return "wrong"
        self.compare(links)
        self.onward()
        self.damage()
        self.refuse()
        return "wrong" if self.problems else "converted"

    def migrate(self, model, to):
        return self.run(
            "migrate", self.path("Old.xml"), "--model", self.path(model), "--to", self.path(to), "--json")

    # Writing

    def write(self, objects, links):
        """Writes the XML store. Returns false if names in it stand for several properties that have values."""
        numbers = self.random.sample(range(1, 5000), len(objects))
        self.ids = dict(zip(objects, numbers))
        self.wanted = {}
        elements = []
        is_clear = True
        for identity, (entity, _, values) in objects.items():
            line = self.model.line(entity)
            names = collections.Counter(
                each.name.lower() for member in line for each in [*member.attributes, *member.relationships]
                if not getattr(each, "transient", False))
            stored = dict(self.model.stored(entity))
            lines, kept = [], {}
            for name, value in values.items():
                kept[name] = None
                if value is None:
                    continue
                text, kept[name] = written(stored[name], value, self.random)
                word = WORDS[stored[name].type]
                lines.append(f'<attribute name="{name.lower()}" type="{word}">{text}</attribute>')
                is_clear = is_clear and names[name.lower()] == 1
            for member in line:
                for one in member.relationships:
                    others = [target for owner, target in links.get((member.name, one.name), ()) if owner == identity]
                    back = one.inverse and self.model.relationship(one.destination, one.inverse)
                    # Core Data writes both ends; a file may lack one of them.
                    is_left_out = (
                        back and back is not one and not one.ordered and self.leaves_out(member.name, one, back))
                    refs = "" if not others or is_left_out else ' idrefs="' + " ".join(
                        f"z{self.ids[each]}" for each in others) + '"'
                    kind = "0/0" if one.many else "1/1"
                    lines.append(
                        f'<relationship name="{one.name.lower()}" type="{kind}" '
                        f'destination="{one.destination.upper()}"{refs}></relationship>')
                    is_clear = is_clear and names[one.name.lower()] == 1
            self.wanted[self.model.root(entity), self.ids[identity]] = (entity, 1, kept)
            body = "\n        ".join(lines)
            elements.append(
                f'    <object type="{entity.upper()}" id="z{self.ids[identity]}">\n        {body}\n    </object>')
        self.random.shuffle(elements)
        self.uuid = str(uuid.UUID(bytes=self.random.randbytes(16))).upper()
        self.metadata = {
            "NSPersistenceFrameworkVersion": 754, "NSStoreModelVersionHashes": hashes.of(self.model),
            "NSStoreModelVersionHashesVersion": 3, "NSStoreModelVersionIdentifiers": [""],
            "com.example.own": {"key": "value <&>", "data": b"\0\1", "number": 7},
        }
        plist = plistlib.dumps(self.metadata).decode()
        plist = plist[plist.index("<plist"):]
        text = (
            '<?xml version="1.0" standalone="yes"?>\n'
            '<!DOCTYPE database SYSTEM "file:///System/Library/DTDs/CoreData.dtd">\n\n<database>\n    <databaseInfo>\n'
            f"        <version>134481920</version>\n        <UUID>{self.uuid}</UUID>\n"
            f"        <nextObjectID>5000</nextObjectID>\n        <metadata>\n{plist}</metadata>\n    </databaseInfo>\n"
            + "\n".join(elements) + "\n</database>\n")
        self.declared, self.encoding, self.mark = self.random.choice(ENCODINGS)
        declaration = f' encoding="{self.declared}"' if self.declared else ""
        text = text.replace('version="1.0"', 'version="1.0"' + declaration, 1)
        text = text.replace("\n", self.random.choice(("\n", "\n", "\r\n", "\r")))
        self.text = self.encoded(text)
        self.document = text
        with open(self.path("Old.xml"), "wb") as file:
            file.write(self.text)
        self.links = links
        return is_clear

    def encoded(self, text):
        return self.mark + text.encode(self.encoding, "xmlcharrefreplace")

    def leaves_out(self, entity, one, back):
        """Decides once for each relationship. The other end of it is then written."""
        self.left = getattr(self, "left", {})
        declaring = self.model.declaring(one.destination, one.inverse)
        if (declaring, back.name) in self.left:
            return False if self.left[declaring, back.name] else self.left.setdefault((entity, one.name), False)
        return self.left.setdefault((entity, one.name), self.random.random() < 0.3)

    # Comparing

    def compare(self, links):
        found, found_links, wrong = stores.read(self.path("M.sqlite"), self.model, self.layout)
        self.problems += wrong
        for identity in sorted(self.wanted.keys() | found.keys()):
            one, other = found.get(identity), self.wanted.get(identity)
            if one and other and one[2].keys() == other[2].keys():
                for name, value in other[2].items():
                    self.check(f"{identity}.{name}", (type(one[2][name]) in (int, float), one[2][name]),
                               (type(value) in (int, float), value))
                one, other = one[:2], other[:2]
            self.check(f"object {identity}", one, other)

        def renumbered(pairs):
            return [((owner[0], self.ids[owner]), (target[0], self.ids[target])) for owner, target in pairs]

        for (entity, name), pairs in links.items():
            wanted = renumbered(pairs)
            self.check(f"links of {entity}.{name}", collections.Counter(found_links[entity, name]),
                       collections.Counter(wanted))
            one = self.model.relationship(entity, name)
            if one.many and one.ordered:
                for owner in {owner for owner, _ in wanted}:
                    self.check(
                        f"order of {entity}.{name} of {owner}",
                        [target for each, target in found_links[entity, name] if each == owner],
                        [target for each, target in wanted if each == owner])
        store = sqlite3.connect(self.path("M.sqlite"))
        self.check("integrity", store.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
        ((identity, plist),) = store.execute("SELECT Z_UUID, Z_PLIST FROM Z_METADATA").fetchall()
        self.check("UUID", identity, self.uuid)
        metadata = plistlib.loads(plist)
        self.check("app's own metadata", metadata["com.example.own"], self.metadata["com.example.own"])
        self.check("hashes", metadata["NSStoreModelVersionHashes"], hashes.of(self.model))
        self.check("type", metadata["NSStoreType"], "SQLite")
        for number, most in store.execute("SELECT Z_ENT, Z_MAX FROM Z_PRIMARYKEY"):
            entity = next(name for name, each in self.layout.numbers.items() if each == number)
            keys = [key for root, key in self.wanted if root == entity]
            self.check(f"Z_MAX of {entity}", most, max(keys, default=0))
        fresh = sqlite3.connect(self.path("V1.sqlite"))
        schema = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY 1, 2"
        self.check("schema", store.execute(schema).fetchall(), fresh.execute(schema).fetchall())
        store.close()
        fresh.close()
        with open(self.path("Old.xml"), "rb") as file:
            self.check("the original", file.read() == self.text, True)

    def onward(self):
        """Migrates to the next version, at once and in two steps."""
        if hashes.of(self.next) == hashes.of(self.model):
            return
        bundle = self.path("App.xcdatamodeld")
        os.mkdir(bundle)
        self.model.write(os.path.join(bundle, "V1.xcdatamodel"))
        self.next.write(os.path.join(bundle, "V2.xcdatamodel"))
        with open(os.path.join(bundle, ".xccurrentversion"), "wb") as file:
            plistlib.dump({"_XCCurrentVersionName": "V2.xcdatamodel"}, file)
        status, said = self.migrate("App.xcdatamodeld", "N1.sqlite")
        other, said_too = self.run(
            "migrate", self.path("M.sqlite"), "--model", bundle, "--to", self.path("N2.sqlite"), "--json")
        self.check(f"exit of both ways: {said} {said_too}", status, other)
        if status == 0 and other == 0:
            self.check("both ways to V2", self.dump("N1.sqlite"), self.dump("N2.sqlite"))

    def dump(self, name):
        store = sqlite3.connect(self.path(name))
        lines = list(store.iterdump())
        store.close()
        return lines

    # Damage

    def damage(self):
        for number in range(3):
            data = bytearray(self.text)
            for _ in range(self.random.choice((1, 1, 3, 10))):
                start = self.random.randrange(len(data))
                end = min(len(data), start + self.random.choice((1, 1, 5, 200)))
                kind = self.random.randrange(4)
                if kind == 0:
                    data[start:end] = self.random.randbytes(end - start)
                elif kind == 1:
                    del data[start:end]
                elif kind == 2:
                    data[start:start] = data[start:end]
                else:
                    other = self.random.randrange(len(data))
                    data[start:end] = data[other:other + end - start]
                if not data:
                    data = bytearray(b"<")
            with open(self.path("Old.xml"), "wb") as file:
                file.write(data)
            status, said = self.migrate("V1.xcdatamodel", f"D{number}.sqlite")
            if status not in (0, 64, 65, 74):
                self.problems.append(f"damaged file: exit {status}: {said}")
            if status == 0 and not is_well_formed(bytes(data)):
                self.problems.append("a damaged file, which isn't well-formed, is converted")
            left = [name for name in os.listdir(self.directory) if name.startswith((f"D{number}", ".groupstore"))]
            if status and left:
                self.problems.append(f"damaged file: exit {status} leaves {left}")

    # What isn't in the file's language

    def refuse(self):
        for number in range(2):
            words = [word for word in LARGE if f'type="{word}">' in self.document]
            if words and self.random.random() < 0.5:
                word = self.random.choice(words)
                start = f'type="{word}">'
                place = self.document.index(start) + len(start)
                end = self.document.index("<", place)
                text = self.document[:place] + self.random.choice(LARGE[word]) + self.document[end:]
            else:
                part, replacement = self.random.choice([one for one in STRAY if one[0] in self.document])
                place = self.document.index(part)
                text = self.document.replace(part, replacement, 1)
            with open(self.path("Old.xml"), "wb") as file:
                file.write(self.encoded(text))
            status, said = self.migrate("V1.xcdatamodel", f"R{number}.sqlite")
            near = text[max(0, place - 40):place + 60]
            if status != 65 or "bad_xml_store" not in said or ", line " not in said:
                self.problems.append(f"{self.declared} {self.encoding}: not refused, exit {status}: {near!r}: {said}")
            if os.path.exists(self.path(f"R{number}.sqlite")):
                self.problems.append(f"a refused file leaves a store: {near!r}")


def is_well_formed(data):
    """Returns False if Python's parser refuses the bytes for a reason other than their encoding's name."""
    try:
        xml.etree.ElementTree.fromstring(data)
    except xml.etree.ElementTree.ParseError as error:
        # 18: an encoding that Python's parser doesn't know.
        return error.code == 18
    except (LookupError, ValueError):
        return True
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groupstore")
    parser.add_argument("--seed", default=str(os.getpid()))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--keep", help="where the files of rounds that fail are left")
    options = parser.parse_args()
    counts = collections.Counter()
    for number in range(options.first, options.first + options.rounds):
        with tempfile.TemporaryDirectory(prefix="xmlstores.") as directory:
            this = Round(options.groupstore, directory, options.seed, number)
            outcome = this.play()
            counts[outcome] += 1
            if this.problems:
                print(f"xmlstores: seed {options.seed} round {number}", flush=True)
                for problem in this.problems[:8]:
                    print("    " + problem[:600], flush=True)
                if options.keep:
                    shutil.copytree(directory, os.path.join(options.keep, str(number)), dirs_exist_ok=True)
    said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    print(f"xmlstores: seed {options.seed}: {options.rounds} rounds: {said}", flush=True)
    sys.exit(1 if counts["wrong"] else 0)


if __name__ == "__main__":
    main()
