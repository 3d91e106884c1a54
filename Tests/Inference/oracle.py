"""Works out what an inferred migration must leave, as objects and not as tables: which objects, values and links."""

from models import NUMERIC, WHOLE, leaves


def pairs(old, new):
    """Returns the older entity's name by the newer entity's."""
    known = {one.identifier: one.name for one in old.entities.values()}
    return {one.name: known[one.identifier] for one in new.entities.values() if one.identifier in known}


def counterpart(properties, one):
    return next((each for each in properties if each.identifier == one.identifier), None)


def refusals(old, new):
    """Returns why Core Data infers no mapping; none if it does."""
    found = []
    was = pairs(old, new)
    for model in (old, new):
        identifiers = [one.identifier for one in model.entities.values()]
        if len(set(identifiers)) < len(identifiers):
            found.append("two entities with one identifier")
        for entity in model.entities:
            all = model.attributes(entity) + model.relationships(entity)
            if len({one.identifier for one in all}) < len(all):
                found.append(f"{entity}: two properties with one identifier")
    roots = {}
    for entity, before in was.items():
        roots.setdefault(new.root(entity), set()).add(old.root(before))
    found += [f"{root}: merged" for root, sources in roots.items() if len(sources) > 1]
    for entity, before in was.items():
        for one in new.attributes(entity):
            other = counterpart(old.attributes(before), one)
            if not other or one.transient or other.transient:
                continue
            if one.type != other.type and not (one.type in NUMERIC and other.type in NUMERIC):
                found.append(f"{entity}.{one.name}: {other.type} to {one.type}")
            elif other.external and not one.external:
                found.append(f"{entity}.{one.name}: external data moves inside")
        for one in new.relationships(entity):
            other = counterpart(old.relationships(before), one)
            if other and other.many and not one.many:
                found.append(f"{entity}.{one.name}: to-many to to-one")
    return found


def literal(attribute):
    """Returns a default value as it is stored."""
    text = attribute.default
    if text is None:
        return None
    if attribute.type == "Boolean":
        return 1 if text == "YES" else 0
    if attribute.type in WHOLE:
        return int(text)
    if attribute.type in ("Double", "Float", "Decimal", "Date"):
        return float(text)
    if attribute.type == "UUID":
        return bytes.fromhex(text.replace("-", ""))
    return text


def converted(value, old, new):
    if value is None:
        return literal(new) if not new.optional else None
    if new.external and not old.external:
        return b"\x01" + value
    if new.type in WHOLE and old.type not in WHOLE and isinstance(value, float):
        return int(value)
    return value


def expected(old, new, objects, links):
    """Returns the newer version's objects and links: `objects` is {(root table's entity, key): (entity, values)}, `links`
    is {(entity that declares it, relationship): ordered list of (owner, target)}; owners and targets are keys of
    objects."""
    was = pairs(old, new)
    became = {before: entity for entity, before in was.items()}
    identities, found = {}, {}
    for identity, (entity, counter, values) in objects.items():
        if entity not in became:
            continue
        after = became[entity]
        kept = {}
        for one in new.attributes(after):
            if one.transient:
                continue
            other = counterpart(old.attributes(entity), one)
            if one.type == "Composite":
                # Its elements never change here.
                was_there = other is not None and not other.transient and other.type == "Composite"
                for (key, _), (before, _) in zip(leaves(one), leaves(other if was_there else one)):
                    kept[key] = values[before] if was_there else None
            elif other is None or other.transient:
                kept[one.name] = literal(one)
            else:
                kept[one.name] = converted(values[other.name], other, one)
        identities[identity] = (new.root(after), identity[1])
        found[identities[identity]] = (after, counter, kept)
    return found, _links(old, new, objects, links, became, identities)


def collisions(model, found):
    """Returns constraints that the objects `found` violate: a unique index covers a whole column, whichever entity has it."""
    wrong = []
    for entity in model.entities:
        for constraint in model.constraints(entity):
            owners = [model.declaring(entity, one.name) for one in constraint]
            seen = set()
            for identity, (member, _, values) in found.items():
                line = [one.name for one in model.line(member)]
                if model.root(member) != model.root(entity):
                    continue
                key = tuple(values[one.name] if owner in line else None for one, owner in zip(constraint, owners))
                if None in key:
                    continue
                if key in seen:
                    wrong.append(f"{entity}: {[one.name for one in constraint]} of {identity}")
                seen.add(key)
    return wrong


def _links(old, new, objects, links, became, identities):
    found = {}
    for entity in new.entities.values():
        for one in entity.relationships:
            back = new.relationship(one.destination, one.inverse)
            mine = _moved(old, new, one, entity.name)
            theirs = _moved(old, new, back, one.destination) if back else set()
            if mine and theirs and not _same(old, mine, theirs):
                # Two relationships that weren't mutual inverses: no document says which links stay.
                found[entity.name, one.name] = None
                continue
            pairs_there = []
            for declaring, name in mine:
                pairs_there += links[declaring, name]
            if not mine:
                for declaring, name in theirs:
                    pairs_there += [(target, owner) for owner, target in links[declaring, name]]
            kept = []
            for owner, target in pairs_there:
                if owner in identities and target in identities:
                    if entity.name in [each.name for each in new.line(became[objects[owner][0]])] and one.destination in [
                        each.name for each in new.line(became[objects[target][0]])
                    ]:
                        kept.append((identities[owner], identities[target]))
            found[entity.name, one.name] = kept
    return found


def _moved(old, new, relationship, entity):
    """Returns the older relationships, as (entity that declares it, name), that became this one in some entity that has it."""
    was = pairs(old, new)
    found = set()
    for member in new.family(entity):
        if member in was:
            other = counterpart(old.relationships(was[member]), relationship)
            if other:
                found.add((old.declaring(was[member], other.name), other.name))
    return found


def _same(old, mine, theirs):
    """Returns whether the other side's relationships are these relationships' inverses."""
    inverses = set()
    for entity, name in mine:
        one = old.relationship(entity, name)
        if not one.inverse:
            return False
        inverses.add((old.declaring(one.destination, one.inverse), one.inverse))
    return inverses == theirs or theirs <= inverses or inverses <= theirs
