"""Works out where Core Data keeps a model's objects in SQLite: an independent oracle, written from the format's description."""

_SIZES = ((4, 5), (8, 11), (17, 23), (29, 41), (47, 67), (76, 113), (123, 199), (199, 317), (322, 521), (521, 839))
SQL_TYPES = {
    "Integer 16": "INTEGER", "Integer 32": "INTEGER", "Integer 64": "INTEGER", "Boolean": "INTEGER",
    "Decimal": "DECIMAL", "Double": "FLOAT", "Float": "FLOAT", "String": "VARCHAR", "URI": "VARCHAR",
    "Date": "TIMESTAMP", "Binary": "BLOB", "UUID": "BLOB", "Transformable": "BLOB",
}


def _hash(key):
    counted = key if len(key) <= 23 else key[:8] + key[-16:]
    found = len(key)
    for letter in counted:
        found = (found * 257 + ord(letter)) & 0xFFFFFFFF
    return (found + (found << (len(key) & 31))) & 0xFFFFFFFF


from models import leaves


class Layout:
    """Entity numbers, tables with their columns' types, and the place of each property."""

    def __init__(self, model):
        self.model = model
        self.numbers = {}
        self._number(None)
        self.columns = {}
        # (entity, property) -> column names by part: "value", "entity", "place".
        self.place = {}
        # (entity, relationship) -> (table, own column, other column, place of the others, own place).
        self.joins = {}
        for entity in model.roots():
            self._table(entity)
        self._join_tables()

    def _number(self, parent):
        for entity in sorted(self.model.children(parent), key=lambda one: (one.name.lower(), one.name)):
            self.numbers[entity.name] = len(self.numbers) + 1
            self._number(entity.name)

    def table(self, entity):
        return "Z" + self.model.root(entity).upper()

    def by_number(self):
        return sorted(self.model.entities.values(), key=lambda one: self.numbers[one.name])

    def _table(self, root):
        table = "Z" + root.name.upper()
        columns = self.columns[table] = {"Z_PK": "INTEGER", "Z_ENT": "INTEGER", "Z_OPT": "INTEGER"}

        def add(name, kind):
            chosen, count = name, 0
            while chosen in columns:
                count += 1
                chosen = name + str(count)
            columns[chosen] = kind
            return chosen

        for entity in self.by_number():
            if self.model.root(entity.name) != root.name:
                continue
            for attribute in sorted(entity.attributes, key=lambda one: one.name):
                for key, leaf in leaves(attribute) if not attribute.transient else ():
                    column = add("Z" + leaf.name.upper(), SQL_TYPES[leaf.type])
                    self.place[entity.name, key] = {"value": column}
            kept = [one for one in sorted(entity.relationships, key=lambda one: one.name) if not one.many]
            for one in kept:
                parts = self.place[entity.name, one.name] = {"value": add("Z" + one.name.upper(), "INTEGER")}
                if self.model.children(one.destination):
                    number = self.numbers[one.destination]
                    parts["entity"] = add(f"Z{number}_{one.name.upper()}", "INTEGER")
            for one in kept:
                back = self.model.relationship(one.destination, one.inverse)
                if back and back.ordered:
                    self.place[entity.name, one.name]["place"] = add("Z_FOK_" + one.name.upper(), "INTEGER")

        # A to-many relationship without an inverse is kept with its targets.
        for entity in self.by_number():
            for one in sorted(entity.relationships, key=lambda one: one.name):
                if one.many and not one.inverse and self.model.root(one.destination) == root.name:
                    name = f"{self.numbers[entity.name]}{one.name.upper()}"
                    parts = self.place[entity.name, one.name] = {"value": add("Z" + name, "INTEGER")}
                    if one.ordered:
                        parts["place"] = add("Z_FOK_" + name, "INTEGER")

    def _join_tables(self):
        taken = {}

        def column(name, entity):
            names = taken.setdefault(self.model.root(entity), set())
            chosen, count = name, 0
            while chosen in names:
                count += 1
                chosen = name + str(count)
            names.add(chosen)
            return chosen

        for entity in sorted(self.model.entities.values(), key=lambda one: (one.name.lower(), one.name)):
            for relationship in self._met(entity):
                if (entity.name, relationship.name) in self.joins or not relationship.many or not relationship.inverse:
                    continue
                inverse = self.model.relationship(relationship.destination, relationship.inverse)
                if not inverse.many:
                    continue
                # The inverse's declaring entity: the destination may inherit it.
                other = self.model.declaring(relationship.destination, inverse.name)
                number, across = self.numbers[entity.name], self.numbers[other]
                name = f"Z_{number}{relationship.name.upper()}"
                own = column(f"Z_{number}{inverse.name.upper()}", entity.name)
                is_mutual = inverse is relationship
                far = "REFLEXIVE" if is_mutual else column(f"Z_{across}{relationship.name.upper()}", other)
                own_place = f"Z_FOK_{number}{inverse.name.upper()}" if inverse.ordered else None
                far_place = f"Z_FOK_{across}{relationship.name.upper()}" if relationship.ordered else None
                if far_place and is_mutual:
                    far_place = "FOK_REFLEXIVE"
                self.joins[entity.name, relationship.name] = (name, own, far, far_place, own_place)
                if not is_mutual:
                    self.joins[other, inverse.name] = (name, far, own, own_place, far_place)
                self.columns[name] = {own: "INTEGER", far: "INTEGER"}
                for place in (own_place, far_place):
                    if place:
                        self.columns[name][place] = "INTEGER"

    # Indexes

    def column(self, entity, attribute):
        return self.place[self.model.declaring(entity, attribute.name), attribute.name]["value"]

    def indexes(self):
        """Returns each index's statement by its name: for references, hierarchies, join tables, and requested indexes."""
        found = {}

        def add(name, table, columns, unique=""):
            found.setdefault(name, f"CREATE {unique}INDEX {name} ON {table} ({', '.join(columns)})")

        for (entity, name), parts in self.place.items():
            if "value" in parts and any(one.name == name for one in self.model.entities[entity].relationships):
                one = self.model.relationship(entity, name)
                table = self.table(one.destination if one.many else entity)
                add(f"{table}_{parts['value']}_INDEX", table, [parts["value"]])
        for root in self.model.roots():
            if len(self.model.family(root.name)) > 1:
                table = self.table(root.name)
                add(f"{table}_Z_ENT_INDEX", table, ["Z_ENT"])
        for table, own, far, _, _ in self.joins.values():
            # The second column's index; the other side's entry covers the same table in reverse.
            first, second = list(self.columns[table])[:2]
            if (own, far) == (first, second):
                add(f"{table}_{far}_INDEX", table, [far, own])
        for entity in self.model.entities:
            indexes = [one for one in self.model.indexes(entity) if not one.spatial]
            for one in indexes:
                # An attribute with an ascending index on it alone counts as indexed, too.
                if len(one.attributes) == 1 and one.ascending[0] and any(
                        one.attributes[0] is each for each in self.model.entities[entity].attributes):
                    add(f"Z_{entity}_{one.attributes[0].name}", self.table(entity),
                        [self.column(entity, one.attributes[0]) + " COLLATE BINARY ASC"])
            for one in indexes:
                add(f"Z_{entity}_{one.name}", self.table(entity), [
                    f"{self.column(entity, each)} COLLATE BINARY {'ASC' if is_ascending else 'DESC'}"
                    for each, is_ascending in zip(one.attributes, one.ascending)])
            for one in self.model.constraints(entity):
                add(f"Z_{entity}_UNIQUE_" + "_".join(each.name for each in one), self.table(entity),
                    [self.column(entity, each) + " COLLATE BINARY ASC" for each in one], "UNIQUE ")
        return found

    def spatial(self):
        """Returns each R-tree's base table and columns, by the R-tree's table name."""
        return {
            f"Z_{entity}_{one.name}": (self.table(entity), [self.column(entity, each) for each in one.attributes])
            for entity in self.model.entities for one in self.model.indexes(entity) if one.spatial}

    def uniques(self):
        """Returns each constraint's table and columns."""
        return [
            (self.table(entity), [self.column(entity, each) for each in one])
            for entity in self.model.entities for one in self.model.constraints(entity)]

    def _met(self, entity):
        """Returns the entity's own relationships in the order of a hash table over all of its properties."""
        keys = ["_ent", "_pk", "_opt"]
        for one in self.model.line(entity.name):
            keys += sorted(attribute.name for attribute in one.attributes if not attribute.transient)
            for relationship in sorted(one.relationships, key=lambda one: one.name):
                if not relationship.many:
                    keys.append("_Z" + relationship.name.upper())
                    if self.model.children(relationship.destination):
                        number = self.numbers[relationship.destination]
                        keys.append(f"_Z{number}_{relationship.name.upper()}")
                keys.append(relationship.name)
        size = next(buckets for most, buckets in _SIZES if most >= len(keys))
        buckets = {}
        for key in keys:
            at = _hash(key) % size
            while at in buckets and buckets[at] != key:
                at = (at + 1) % size
            buckets[at] = key
        own = {one.name: one for one in entity.relationships}
        return [own[buckets[at]] for at in sorted(buckets) if buckets[at] in own]
