"""Makes changes from one version of a model to the next: each can be inferred."""

from models import NUMERIC, SPATIAL, TYPES, Attribute, Entity, Index, Model, Relationship

_WORDS = (
    "title text Text date size flag page pages tag Tag owner users member items kind state url body name Name color "
    "count note Note zone alpha Beta ABC aB SContact scheduled item2 item extremelyLongPropertyNameOfMoreThan23"
).split()


class Author:
    """Makes a model and changes it, driven by its random numbers."""

    def __init__(self, random):
        self.random = random
        self.serial = 0

    def fresh(self, taken, capital=False, tables=False):
        """Returns a name unused now or before: another name in capitals, unless a table uses it."""
        for _ in range(50):
            word = self.random.choice(_WORDS)
            if self.random.random() < 0.4:
                self.serial += 1
                word += str(self.serial)
            word = word[0].upper() + word[1:] if capital else word
            lower = {one.lower() for one in taken} if capital or tables else taken
            if (word.lower() if capital or tables else word) not in lower:
                return word
        self.serial += 1
        return ("Own" if capital else "own") + str(self.serial)

    # The first version

    def model(self):
        model = Model()
        self.used = set()
        for _ in range(self.random.randint(2, 6)):
            self.entity(model, self.random.choice([None, *model.entities]) if model.entities else None)
        for entity in list(model.entities.values()):
            for _ in range(self.random.choice((0, 1, 2, 3, 5, 12))):
                self.attribute(model, entity)
        for _ in range(self.random.choice((1, 2, 4, 7))):
            self.pair(model)
        for _ in range(self.random.choice((0, 0, 1, 2))):
            self.add_composite(model)
        for _ in range(self.random.choice((0, 1, 2, 4))):
            self.add_index(model)
        for _ in range(self.random.choice((0, 0, 1, 2))):
            self.add_constraint(model)
        return model

    def entity(self, model, parent):
        name = self.fresh(self.used | {one.identifier for one in model.entities.values()}, capital=True)
        self.used.add(name)
        entity = model.add(Entity(name, parent))
        entity.abstract = self.random.random() < 0.15
        return entity

    def attribute(self, model, entity):
        attribute = Attribute(self.fresh(model.names(entity.name)), self.random.choice(TYPES))
        attribute.external = attribute.type in ("Binary", "Transformable") and self.random.random() < 0.3
        attribute.transient = self.random.random() < 0.1
        attribute.preserved = not attribute.transient and self.random.random() < 0.15
        self.default(attribute)
        entity.attributes.append(attribute)
        return attribute

    def default(self, attribute):
        values = {
            "Boolean": ("YES", "NO"), "Double": ("1.5", "0"), "Float": ("0.25", "3"), "Decimal": ("12.25", "7"),
            "String": ("", "it's", "x"), "URI": ("http://example.com/",), "Date": ("600000000", "1.5"),
            "UUID": ("0102030405060708090A0B0C0D0E0F10",), "Binary": (), "Transformable": (),
        }.get(attribute.type, ("0", "7", "-3"))
        if attribute.type == "UUID":
            values = ("01020304-0506-0708-090A-0B0C0D0E0F10",)
        attribute.default = self.random.choice(values) if values and self.random.random() < 0.5 else None
        attribute.optional = attribute.default is None or self.random.random() < 0.5

    def pair(self, model):
        one, other = (self.random.choice(list(model.entities.values())) for _ in range(2))
        if self.random.random() < 0.15:
            return self.mutual(model, one)
        there = self.fresh(model.names(one.name) | model.names(other.name), tables=True)
        back = self.fresh(model.names(one.name) | model.names(other.name) | {there}, tables=True)
        first, second = Relationship(there, other.name, back), Relationship(back, one.name, there)
        for each in (first, second):
            each.many = self.random.random() < 0.6
            each.ordered = each.many and self.random.random() < 0.4
        one.relationships.append(first)
        if self.random.random() < 0.2:
            first.inverse = None
            return
        other.relationships.append(second)

    def mutual(self, model, entity):
        """Makes a relationship that is its own inverse."""
        name = self.fresh(model.names(entity.name), tables=True)
        one = Relationship(name, entity.name, name)
        one.many = self.random.random() < 0.7
        one.ordered = one.many and self.random.random() < 0.3
        entity.relationships.append(one)

    def add_composite(self, model):
        entity = self.random.choice(list(model.entities.values()))
        one = Attribute(self.fresh(model.names(entity.name)), "Composite")
        for index in range(self.random.randint(1, 3)):
            # An element may share its name with another attribute or another composite's element.
            kind = self.random.choice(("String", "Double", "Integer 32", "Date", "UUID"))
            one.elements.append(Attribute(self.random.choice(("title", "lat", "part")) + "ABC"[index], kind))
        entity.attributes.append(one)
        return f"{entity.name}.{one.name}"

    def add_index(self, model):
        """Adds an index on one attribute or several, the entity's own or inherited."""
        entity = self.random.choice(list(model.entities.values()))
        is_spatial = self.random.random() < 0.3
        there = [one for one in model.attributes(entity.name) if not one.transient and (
            one.type in SPATIAL if is_spatial else one.type != "Composite")]
        if not there:
            return None
        chosen = self.random.sample(there, min(len(there), self.random.choice((1, 1, 2, 3))))
        self.serial += 1
        index = Index(f"by{self.serial}", chosen, is_spatial)
        if not is_spatial:
            index.ascending = [self.random.random() < 0.7 for _ in chosen]
        entity.indexes.append(index)
        entity.modifier = f"{index.name} added"
        return f"{entity.name}.{index.name} of {[one.name for one in chosen]} spatial {is_spatial}"

    def remove_index(self, model):
        entity, one = self.pick(model, "indexes")
        if one:
            entity.indexes.remove(one)
            entity.modifier = f"{one.name} removed"
            return f"{entity.name}.{one.name}"

    def add_constraint(self, model):
        entity = self.random.choice(list(model.entities.values()))
        there = [one for one in model.attributes(entity.name) if not one.transient and one.type in (
            "String", "Integer 16", "Integer 32", "Integer 64", "UUID")]
        if there:
            chosen = self.random.sample(there, min(len(there), self.random.choice((1, 1, 2))))
            entity.unique.append(chosen)
            return f"{entity.name} {[one.name for one in chosen]}"

    def remove_constraint(self, model):
        entity, one = self.pick(model, "unique")
        if one:
            entity.unique = [each for each in entity.unique if each is not one]
            return f"{entity.name} {[each.name for each in one]}"

    # The next version

    def next(self, old):
        model = old.copy()
        self.did = []
        for _ in range(self.random.choice((1, 1, 2, 3, 5, 8))):
            change = self.random.choice(self.CHANGES)
            before = model.copy()
            said = change(self, model)
            if said:
                self.did.append(f"{change.__name__} {said}")
            else:
                model = before
        return model

    def pick(self, model, kind="attributes"):
        all = [(entity, one) for entity in model.entities.values() for one in getattr(entity, kind)]
        return self.random.choice(all) if all else (None, None)

    def add_attribute(self, model):
        entity = self.random.choice(list(model.entities.values()))
        return f"{entity.name}.{self.attribute(model, entity).name}"

    def remove_attribute(self, model):
        entity, one = self.pick(model)
        if one:
            entity.attributes.remove(one)
            return f"{entity.name}.{one.name}"

    def rename_attribute(self, model):
        entity, one = self.pick(model)
        if one:
            was, one.name = one.name, self.fresh(model.names(entity.name))
            return f"{entity.name}.{was} to {one.name}"

    def exchange_names(self, model):
        entity, one = self.pick(model)
        others = [each for each in entity.attributes if each is not one] if one else []
        if others:
            other = self.random.choice(others)
            one.name, other.name = other.name, one.name
            return f"{entity.name}.{one.name} and {other.name}"

    def change_type(self, model):
        entity, one = self.pick(model)
        if one and one.type in NUMERIC:
            one.type = self.random.choice([kind for kind in NUMERIC if kind != one.type])
            self.default(one)
            return f"{entity.name}.{one.name} to {one.type}"

    def change_default(self, model):
        entity, one = self.pick(model)
        if one:
            self.default(one)
            return f"{entity.name}.{one.name} {one.default} {one.optional}"

    def make_external(self, model):
        entity, one = self.pick(model)
        if one and one.type in ("Binary", "Transformable"):
            one.external = True
            return f"{entity.name}.{one.name}"

    def toggle_transient(self, model):
        entity, one = self.pick(model)
        if one:
            one.transient = not one.transient
            return f"{entity.name}.{one.name}"

    def pull_up(self, model):
        """Moves a property from an entity to its parent, and from all siblings that have one of that name."""
        entity, one = self.pick(model)
        if not one or not entity.parent:
            return None
        parent = model.entities[entity.parent]
        entity.attributes.remove(one)
        if {one.name, one.identifier} & model.names(parent.name):
            return None
        parent.attributes.append(one)
        return f"{one.name} from {entity.name}"

    def push_down(self, model):
        entity, one = self.pick(model)
        children = model.children(entity.name) if one else []
        if children:
            entity.attributes.remove(one)
            chosen = self.random.sample(children, self.random.randint(1, len(children)))
            for child in chosen:
                copied = Attribute(one.name, one.type)
                copied.__dict__.update(one.__dict__)
                child.attributes.append(copied)
            return f"{one.name} to {[child.name for child in chosen]}"

    def add_entity(self, model):
        entity = self.entity(model, self.random.choice([None, *model.entities]))
        self.attribute(model, entity)
        return f"{entity.name} of {entity.parent}"

    def add_parent(self, model):
        """Inserts a parent between an entity and its former parent."""
        below = self.random.choice(list(model.entities.values()))
        entity = self.entity(model, below.parent)
        below.parent = entity.name
        return f"{entity.name} over {below.name}"

    def remove_entity(self, model):
        """Removes an entity with its relationships; its children then inherit from its parent."""
        if len(model.entities) < 2:
            return None
        entity = self.random.choice(list(model.entities.values()))
        for one in entity.relationships:
            if not one.inverse:
                continue
            other = model.entities[model.declaring(one.destination, one.inverse)]
            other.relationships = [each for each in other.relationships if each.name != one.inverse]
        for other in model.entities.values():
            other.relationships = [
                each for each in other.relationships if each.destination != entity.name or other is entity]
        for other in list(model.entities.values()):
            # Removes relationships that led to an ancestor's relationship through this entity.
            for one in list(other.relationships):
                if one.inverse and not model.declaring(one.destination, one.inverse) and other is not entity:
                    other.relationships.remove(one)
        for child in model.children(entity.name):
            child.parent = entity.parent
        del model.entities[entity.name]
        self._repair(model)
        return entity.name

    @staticmethod
    def _repair(model):
        """Removes relationships whose other side is gone."""
        while True:
            gone = [
                (entity, one) for entity in model.entities.values() for one in entity.relationships
                if one.destination not in model.entities or one.inverse and not any(
                    each.name == one.inverse and each.destination == entity.name and each.inverse == one.name
                    for each in model.relationships(one.destination))]
            if not gone:
                return
            for entity, one in gone:
                entity.relationships.remove(one)

    def rename_entity(self, model):
        entity = self.random.choice(list(model.entities.values()))
        was = entity.name
        name = self.fresh(self.used | {one.identifier for one in model.entities.values()}, capital=True)
        self.used.add(name)
        all = list(model.entities.values())
        entity.name = name
        model.entities = {one.name: one for one in all}
        for one in all:
            one.parent = name if one.parent == was else one.parent
            for each in one.relationships:
                each.destination = name if each.destination == was else each.destination
        return f"{was} to {name}"

    def move_entity(self, model):
        """Moves an entity to another place of its hierarchy, or out of it."""
        entity = self.random.choice(list(model.entities.values()))
        if not entity.parent:
            return None
        inside = set(model.family(entity.name))
        root = model.root(entity.name)
        places = [None] + [one for one in model.family(root) if one not in inside and one != entity.parent]
        entity.parent = self.random.choice(places)
        self._repair(model)
        for member in model.family(entity.name):
            names = [one.name for one in model.attributes(member) + model.relationships(member)]
            known = [one.identifier for one in model.attributes(member) + model.relationships(member)]
            if len(set(names)) < len(names) or len(set(known)) < len(known):
                return None
        return f"{entity.name} to {entity.parent}"

    def toggle_abstract(self, model):
        # Only an entity without objects may become abstract; an abstract entity may always get some later.
        entity = self.random.choice(list(model.entities.values()))
        if entity.abstract:
            entity.abstract = False
            return entity.name

    def add_pair(self, model):
        self.pair(model)
        return "a relationship and its inverse"

    def remove_pair(self, model):
        entity, one = self.pick(model, "relationships")
        if one:
            entity.relationships.remove(one)
            self._repair(model)
            return f"{entity.name}.{one.name}"

    def rename_relationship(self, model):
        entity, one = self.pick(model, "relationships")
        if one:
            other = model.relationship(one.destination, one.inverse)
            was, one.name = one.name, self.fresh(model.names(entity.name), tables=True)
            if other:
                other.inverse = one.name
            return f"{entity.name}.{was} to {one.name}"

    def widen(self, model):
        entity, one = self.pick(model, "relationships")
        # Without an inverse, an object can have only one owner: links would be lost, which is recorded.
        if one and not one.many and one.inverse:
            one.many, one.ordered = True, self.random.random() < 0.3
            return f"{entity.name}.{one.name} ordered {one.ordered}"

    def toggle_order(self, model):
        entity, one = self.pick(model, "relationships")
        if one and one.many:
            one.ordered = not one.ordered
            return f"{entity.name}.{one.name} {one.ordered}"

    def move_relationship(self, model):
        """Moves a relationship up to the parent."""
        entity, one = self.pick(model, "relationships")
        if not one or not entity.parent:
            return None
        place = entity.relationships.index(one)
        entity.relationships.remove(one)
        is_taken = {one.name, one.identifier} & model.names(entity.parent)
        entity.relationships.insert(place, one)
        return None if is_taken else self._give(model, entity, one, model.entities[entity.parent])

    def lower_relationship(self, model):
        entity, one = self.pick(model, "relationships")
        children = model.children(entity.name) if one else []
        return self._give(model, entity, one, self.random.choice(children)) if children else None

    def _give(self, model, entity, one, owner):
        """Moves a relationship to another entity of the hierarchy; its inverse then leads to that entity."""
        other = model.relationship(one.destination, one.inverse)
        entity.relationships.remove(one)
        owner.relationships.append(one)
        if other:
            other.destination = owner.name
        return f"{entity.name}.{one.name} to {owner.name}"

    def change_destination(self, model):
        """Changes the destination to an ancestor, if the relationship has no inverse."""
        entity, one = self.pick(model, "relationships")
        if one and not one.inverse and model.entities[one.destination].parent:
            one.destination = model.entities[one.destination].parent
            return f"{entity.name}.{one.name} to {one.destination}"

    def keep_after_deletion(self, model):
        entity, one = self.pick(model)
        if one and not one.transient and one.type != "Composite":
            one.preserved = not one.preserved
            return f"{entity.name}.{one.name}"

    # Changes that can't be inferred

    def break_a_rule(self, model):
        if self.random.random() < 0.2:
            return None
        entity, one = self.pick(model)
        kind = self.random.choice(("type", "external", "to-one", "merge"))
        if kind == "type" and one:
            one.type, one.default, one.optional = self.random.choice(TYPES), None, True
            one.external = False
        elif kind == "external" and one:
            one.external = False
        elif kind == "to-one":
            entity, one = self.pick(model, "relationships")
            if not one or not one.many:
                return None
            one.many = one.ordered = False
        elif kind == "merge" and len(model.roots()) > 1:
            first, second = self.random.sample(model.roots(), 2)
            first.parent = second.name
            taken = [each for member in model.family(first.name)
                     for each in model.attributes(member) + model.relationships(member)]
            if any({each.name, each.identifier} & {other.name, other.identifier} for each in model.attributes(
                    second.name) + model.relationships(second.name) for other in taken if other is not each):
                return None
        return kind

    CHANGES = (
        break_a_rule, change_destination, keep_after_deletion,
        add_attribute, add_attribute, remove_attribute, remove_attribute, rename_attribute, exchange_names, change_type,
        change_default, make_external, toggle_transient, pull_up, pull_up, push_down, push_down, add_entity, add_entity,
        add_parent, add_parent, remove_entity, rename_entity, rename_entity, move_entity, move_entity, toggle_abstract,
        add_pair, remove_pair, rename_relationship, rename_relationship, widen, widen, toggle_order, toggle_order,
        move_relationship, move_relationship, lower_relationship, lower_relationship,
        add_composite, add_index, add_index, remove_index, add_constraint, remove_constraint,
    )
