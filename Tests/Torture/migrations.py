"""Migrates a Core Data store in place or on its way into the group: it is as it was, or migrated."""

import os

import stores
from world import World

_ATTRIBUTE = '<attribute name="{}" optional="YES" attributeType="{}"{}/>'
_PHOTO = _ATTRIBUTE.format("photo", "Binary", ' allowsExternalBinaryDataStorage="YES"')
_VERSIONS = {
    "Notes": _ATTRIBUTE.format("title", "String", "") + _PHOTO,
    "Notes 2": _ATTRIBUTE.format("caption", "String", ' elementID="title"') + _ATTRIBUTE.format("stars", "Integer 16", "")
    + _PHOTO,
}
_MAPPING = "mapping: 1\nentities:\n  - {from: Note, to: Note, attributes: {caption: $source.title}}\n"


class MigrationWorld(World):
    """A scenario whose store gets another version of its model."""

    def _prepare(self):
        # The migrating user reads the model.
        os.chmod(self._templates, 0o755)
        self._model = _make_model(self._templates)
        self._mapping = self._template("notes.yaml")
        with open(self._mapping, "w", encoding="utf-8") as file:
            file.write(_MAPPING)
        for place in ("legacy", "group"):
            os.mkdir(self._template(place), 0o755)
        home = self._template(os.path.basename(self.home))
        stores.make_core_data(self.scenario.kind, home, self.programs.groupstore, self._model)
        if self.scenario.closed:
            stores.close(home)
        self.uses_log = stores.uses_log(home)

    def _command_words(self):
        how = ["--model", self._model] + ["--mapping", self._mapping] * (self.scenario.change == "mapped")
        if not self.scenario.at_its_place:
            return super()._command_words() + how
        store = os.path.join(self.group, stores.NAME)
        return self.program() + ["migrate", store, "--json", "--deadline", "10"] + how

    def _wanted(self):
        """Returns the result of an undisturbed run; the migration tests check whether that is right."""
        self.reset()
        status, summary, said = self.run_again("command")
        if status != 0:
            raise RuntimeError(f"{self.scenario}: {status}: {summary or said}")
        return stores.content(self.group), []


def _make_model(directory):
    bundle = os.path.join(directory, "Notes.xcdatamodeld")
    for name, attributes in _VERSIONS.items():
        folder = os.path.join(bundle, name + ".xcdatamodel")
        os.makedirs(folder)
        with open(os.path.join(folder, "contents"), "w", encoding="utf-8") as file:
            file.write(f'<?xml version="1.0"?>\n<model><entity name="Note">{attributes}</entity></model>\n')
    with open(os.path.join(bundle, ".xccurrentversion"), "w", encoding="utf-8") as file:
        file.write("<plist><dict><key>_XCCurrentVersionName</key><string>Notes 2.xcdatamodel</string></dict></plist>\n")
    return bundle
