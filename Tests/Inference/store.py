"""Puts objects into a Core Data store and reads them out, through the oracle's own layout."""

import sqlite3

from models import WHOLE, leaves


def fill(path, model, layout, random):
    """Makes some objects of each entity, linked at random. Returns them as `oracle.expected` takes them."""
    objects, links = {}, {}
    highest = {}
    for entity in model.entities.values():
        if entity.abstract:
            continue
        root = model.root(entity.name)
        for _ in range(random.randint(0, 6)):
            highest[root] = highest.get(root, 0) + random.choice((1, 1, 1, 2, 7))
            values = {key: value(one, random) for key, one in model.stored(entity.name)}
            objects[root, highest[root]] = (entity.name, random.randint(1, 9), values)
    _make_unique(model, layout, objects)
    columns = {identity: {} for identity in objects}
    joins = []
    for entity in model.entities.values():
        for one in entity.relationships:
            if (entity.name, one.name) not in links:
                _link(model, layout, entity, one, objects, links, columns, joins, random)
    with sqlite3.connect(path) as store:
        for (root, key), (entity, counter, values) in objects.items():
            row = {"Z_PK": key, "Z_ENT": layout.numbers[entity], "Z_OPT": counter, **columns[root, key]}
            for name, content in values.items():
                row[layout.place[model.declaring(entity, name.split(".")[0]), name]["value"]] = content
            _insert(store, layout.table(root), row)
        for table, row in joins:
            _insert(store, table, row)
        for root, most in highest.items():
            store.execute("UPDATE Z_PRIMARYKEY SET Z_MAX = ? WHERE Z_ENT = ?", (most + 1, layout.numbers[root]))
    store.close()
    return objects, links


def _make_unique(model, layout, objects):
    """Makes values unique for each constraint, throughout the column that it covers."""
    count = 1000
    for entity in model.entities:
        for constraint in model.constraints(entity):
            seen = set()
            for identity, (member, _, values) in objects.items():
                if not all(model.declaring(entity, each.name) in [one.name for one in model.line(member)]
                           for each in constraint):
                    continue
                found = tuple(values[each.name] for each in constraint)
                if None in found:
                    continue
                while found in seen:
                    count += 1
                    values[constraint[0].name] = fresh(constraint[0], count)
                    found = tuple(values[each.name] for each in constraint)
                seen.add(found)


def fresh(attribute, count):
    if attribute.type == "UUID":
        return count.to_bytes(16, "big")
    return f"unique {count}" if attribute.type == "String" else count


def _insert(store, table, row):
    names = ", ".join(row)
    store.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", list(row.values()))


def value(attribute, random):
    if attribute.optional and random.random() < 0.3:
        return None
    if attribute.type == "Boolean":
        return random.choice((0, 1))
    if attribute.type in WHOLE:
        return random.randint(-300, 300)
    if attribute.type in ("Double", "Float", "Decimal", "Date"):
        return random.choice((0.5, 2.25, -7.0, 1e6 + 0.125))
    if attribute.type in ("String", "URI"):
        return random.choice(("", "a", "it's “so”", "12", "x" * 50))
    if attribute.type == "UUID":
        return random.randbytes(16)
    content = random.randbytes(random.randint(0, 9))
    if not attribute.external:
        return content
    return random.choice((b"\x01" + content, b"\x02" + b"6F9619FF-8B86-D011-B42D-00CF4FC964FF" + b"\0"))


def _link(model, layout, entity, one, objects, links, columns, joins, random):
    back = model.relationship(one.destination, one.inverse)
    declaring = back and model.declaring(one.destination, one.inverse)
    owners = [each for each, (name, _, _) in objects.items() if name in model.family(entity.name)]
    targets = [each for each, (name, _, _) in objects.items() if name in model.family(one.destination)]
    if back is one:
        return _link_mutually(layout, entity, one, owners, objects, links, columns, joins, random)
    found = []
    for _ in range(random.randint(0, 12)) if owners and targets else ():
        pair = (random.choice(owners), random.choice(targets))
        if pair in found or (not one.many and pair[0] in [each for each, _ in found]):
            continue
        if (not back.many if back else one.many) and pair[1] in [each for _, each in found]:
            continue
        found.append(pair)
    links[entity.name, one.name] = found
    if not back:
        parts = layout.place[entity.name, one.name]
        for owner, target in found:
            holder, other = (target, owner) if one.many else (owner, target)
            columns[holder][parts["value"]] = other[1]
            if "entity" in parts:
                columns[holder][parts["entity"]] = layout.numbers[objects[other][0]]
            if "place" in parts:
                columns[holder][parts["place"]] = 2048 + 1024 * found.index((owner, target))
        return
    links[declaring, back.name] = [(target, owner) for owner, target in found]
    # Each object's place among the others' ordered objects: each side has an order of its own.
    order, across = random.sample(found, len(found)), random.sample(found, len(found))
    if one.many and back.many:
        table, own, far, far_place, own_place = layout.joins[entity.name, one.name]
        for pair in found:
            row = {own: pair[0][1], far: pair[1][1]}
            if far_place:
                row[far_place] = 2048 + 1024 * order.index(pair)
            if own_place:
                row[own_place] = 2048 + 1024 * across.index(pair)
            joins.append((table, row))
        if one.ordered:
            links[entity.name, one.name] = order
        if back.ordered:
            links[declaring, back.name] = [(target, owner) for owner, target in across]
        return
    for side, name, ordered, inverse in (
        (one, entity.name, order, [(target, owner) for owner, target in order]),
        (back, declaring, [(target, owner) for owner, target in across], across),
    ):
        if side.many:
            continue
        parts = layout.place[name, side.name]
        for owner, target in ordered:
            columns[owner][parts["value"]] = target[1]
            if "entity" in parts:
                columns[owner][parts["entity"]] = layout.numbers[objects[target][0]]
            if "place" in parts:
                columns[owner][parts["place"]] = 2048 + 1024 * ordered.index((owner, target))
        if "place" in parts:
            other = (declaring, back.name) if side is one else (entity.name, one.name)
            links[other] = inverse


def _link_mutually(layout, entity, one, members, objects, links, columns, joins, random):
    """Links each pair both ways."""
    found = []
    for _ in range(random.randint(0, 6)) if members else ():
        pair = (random.choice(members), random.choice(members))
        linked = {each for link in found for each in link}
        if pair in found or not one.many and (pair[0] in linked or pair[1] in linked):
            continue
        found += [pair] if pair[0] == pair[1] else [pair, pair[::-1]]
    links[entity.name, one.name] = found
    for index, (owner, target) in enumerate(found):
        place = 2048 + 1024 * index
        if one.many:
            table, own, far, far_place, own_place = layout.joins[entity.name, one.name]
            row = {own: owner[1], far: target[1]}
            joins.append((table, row | ({far_place: place, own_place: place} if one.ordered else {})))
            continue
        parts = layout.place[entity.name, one.name]
        columns[owner][parts["value"]] = target[1]
        if "entity" in parts:
            columns[owner][parts["entity"]] = layout.numbers[objects[target][0]]


def read(path, model, layout):
    """Returns the objects, and each relationship's links, in order if it is ordered.

    Reports faults in auxiliary columns.
    """
    store = sqlite3.connect(path)
    store.row_factory = sqlite3.Row
    names = {number: entity for entity, number in layout.numbers.items()}
    objects, links, wrong, rows = {}, {}, [], {}
    for root in model.roots():
        for row in store.execute(f"SELECT * FROM {layout.table(root.name)}"):
            entity = names.get(row["Z_ENT"])
            identity = (root.name, row["Z_PK"])
            if entity is None or model.root(entity) != root.name:
                wrong.append(f"{identity} has the entity number {row['Z_ENT']}")
                continue
            values = {}
            for each in model.entities.values():
                for one in each.attributes:
                    if one.transient or model.root(each.name) != root.name:
                        continue
                    for key, _ in leaves(one):
                        content = row[layout.place[each.name, key]["value"]]
                        if each.name in [member.name for member in model.line(entity)]:
                            values[key] = content
                        elif content is not None:
                            wrong.append(f"{identity}, a {entity}, has {content!r} in {each.name}.{key}")
            objects[identity] = (entity, row["Z_OPT"], values)
            rows[identity] = row
    for entity in model.entities.values():
        for one in entity.relationships:
            if one.many and one.inverse:
                continue
            back = model.relationship(one.destination, one.inverse)
            parts = layout.place[entity.name, one.name]
            placed = []
            # A to-many relationship without an inverse has its column in its targets' table.
            holders, others = (one.destination, entity.name) if one.many else (entity.name, one.destination)
            for identity, row in rows.items():
                if identity[0] != model.root(holders):
                    continue
                if row[parts["value"]] is not None and objects[identity][0] not in model.family(holders):
                    wrong.append(f"{identity}, a {objects[identity][0]}, has {entity.name}.{one.name}")
                if row[parts["value"]] is None:
                    for part in set(parts) - {"value"}:
                        if row[parts[part]] is not None:
                            wrong.append(f"{identity}.{one.name} leads nowhere and has {part} {row[parts[part]]}")
                    continue
                target = (model.root(others), row[parts["value"]])
                if target not in objects or objects[target][0] not in model.family(others):
                    wrong.append(f"{identity}.{one.name} leads to {target}, which is not there")
                    continue
                if "entity" in parts and names.get(row[parts["entity"]]) != objects[target][0]:
                    wrong.append(f"{identity}.{one.name} has the entity number {row[parts['entity']]}")
                if "place" in parts and row[parts["place"]] is None:
                    wrong.append(f"{identity}.{one.name} has no place")
                placed.append((row[parts["place"]] or 0 if "place" in parts else 0, identity, target))
            placed.sort(key=lambda each: each[0])
            links[entity.name, one.name] = [
                (target, owner) if one.many else (owner, target) for _, owner, target in placed]
            if back and back.many:
                declaring = model.declaring(one.destination, one.inverse)
                links[declaring, back.name] = [(target, owner) for _, owner, target in placed]
    for (entity, name), (table, own, far, far_place, _) in layout.joins.items():
        one = model.relationship(entity, name)
        order = far_place or own
        links[entity, name] = [
            ((model.root(entity), row[own]), (model.root(one.destination), row[far]))
            for row in store.execute(f"SELECT * FROM {table} ORDER BY {order}")
        ]
        for pair in links[entity, name]:
            wrong += [f"{table} leads to {each}, which is not there" for each in pair if each not in objects]
    store.close()
    return objects, links, wrong
