"""Core Data stores: every kind of relationship, inheritance, uniqueness constraints, external data."""

import os
import shutil
import tempfile
from collections import Counter, defaultdict

import models
import objects
import schemas
import stores
from oracle import GROUP, LEGACY, Refusal
from program import demand
from words import Text, comparable, exact, newer


def text(chance, *choices):
    return chance.choice([*map(lambda c: Text(c.encode()), choices), None])


class Pair:
    """Two stores of one model, and what their merge must leave."""

    def __init__(self, stage, chance):
        self.stage, self.chance = stage, chance
        self.event_key = chance.choice(["*", "mark", "about,mark", "item,mark"])
        self.names, self.renamed, self.model = models.random_model(chance)
        path = self.model.write(stage.directory)
        self.paths = {GROUP: stage.group_store, LEGACY: stage.legacy_store}
        for store in self.paths.values():
            outcome = stage.program.run("create", store, "--model", path, "--journal-mode", "delete", "--json")
            demand(outcome.code == 0, f"create failed: {outcome}")
        connection = stores.connected(stage.group_store)
        self.layout = objects.Layout(self.model, self.names, self.renamed, connection)
        connection.close()
        self.history = chance.random() < 0.3
        for side, store in self.paths.items():
            if self.history and (side == GROUP or chance.random() < 0.5):
                objects.enable_history(store)
        self.fill()

    def values(self, entity, mark, key):
        """Returns random attributes; `key` makes those of the constraint."""
        chance, values = self.chance, {"mark": Text(mark.encode())}
        for name, kind in self.model.attributes(entity).items():
            if name == "mark":
                continue
            values[name] = {
                "UUID": lambda: None if key is None else key.to_bytes(16, "big"),
                "String": lambda: text(chance, "a", "A", "ä", "it's", "", "x" * 300, "a b"),
                "Date": lambda: chance.choice([None, 0, 1.5, 700000000, 700000000.25, -1e9]),
                "Binary": lambda: chance.choice([None, b"", b"abc", b"\0" * 1000, chance.randbytes(3000)]),
                "Boolean": lambda: chance.choice([0, 1, None]),
                "Integer 64": lambda: chance.choice([None, 0, -1, 2**63 - 1, 2**53 + 1]),
                "Decimal": lambda: chance.choice([None, 0.1, 3, 2**53]),
            }.get(kind, lambda: chance.choice([None, 0.0, 0.5, 1e300]))()
        if entity in (self.names["Tag"], self.names["Folder"]):
            values["name"] = None if key is None else Text(f"name {key}".encode())
        if "color" in values:
            values["color"] = Text(f"color {key}".encode()) if key is not None and chance.random() < 0.7 else None
        if "code" in values:
            values["code"] = key
        return values

    def fill(self):
        chance, names = self.chance, self.names
        most = chance.choice([2, 4, 12])
        logical = defaultdict(list)  # entity -> marks
        sides = {GROUP: {}, LEGACY: {}}
        for role in ("Folder", "Tag", "Note", "Item", "Photo", "Movie", "Event"):
            entity = names[role]
            for i in range(chance.randint(1, most)):
                mark = f"{role}{i}"
                key = {"Item": 0, "Photo": 1000, "Movie": 2000}.get(role, 0) + i
                # NULL only where what is matched before doesn't matter: without to-one relationships
                key = None if role in ("Tag", "Item", "Movie") and chance.random() < 0.2 else key
                logical[entity].append(mark)
                where = chance.choice([(GROUP,), (LEGACY,), (GROUP, LEGACY), (GROUP, LEGACY)])
                first = self.values(entity, mark, key)
                for side in where:
                    own = dict(first)
                    if side == LEGACY and len(where) == 2 and chance.random() < 0.4:
                        other = self.values(entity, mark, key)
                        name = chance.choice(
                            [n for n in other if n not in ("mark", "uuid", "name", "code", "color")] or ["mark"]
                        )
                        own[name] = other[name]
                    sides[side][mark] = [entity, own, {}]
        common = {mark: chance.random() for mark in sides[GROUP].keys() & sides[LEGACY].keys()}
        for side, made in sides.items():
            covers = [m for m in made if made[m][0] == names["Photo"]]
            chance.shuffle(covers)
            for mark, (entity, _, links) in made.items():
                for name, (destination, _) in self.model.one(entity).items():
                    below = self.model.below(destination)
                    there = [m for m in made if made[m][0] in below]
                    if name == self.renamed("cover"):
                        links[name] = covers.pop() if covers and chance.random() < 0.5 else None
                    elif name == self.renamed("note"):
                        links.setdefault(name, None)
                    else:
                        links[name] = chance.choice([*there, None])
            for mark, (entity, _, links) in made.items():
                if entity == names["Note"] and links[self.renamed("cover")]:
                    made[links[self.renamed("cover")]][2][self.renamed("note")] = mark
        for mark, luck in common.items():  # most of the common ones have the same relationships
            for name, target in sides[GROUP][mark][2].items():
                if (
                    luck < 0.8
                    and name not in (self.renamed("cover"), self.renamed("note"))
                    and (target is None or target in sides[LEGACY])
                ):
                    sides[LEGACY][mark][2][name] = target
        for side, path in self.paths.items():
            order = list(sides[side])
            chance.shuffle(order)
            connection, numbers = objects.write(chance, path, self.layout, sides[side], order)
            for table, ends in self.layout.ends.items():
                one, other = ([numbers[m] for m in order if sides[side][m][0] == entity] for entity in ends.values())
                pairs = (
                    [(chance.choice(one), chance.choice(other)) for _ in range(chance.randint(0, 2 * most))]
                    if one and other
                    else []
                )
                objects.link(connection, self.layout, table, pairs)
            connection.execute("COMMIT")
            state = stores.finish(connection, chance)
            if not isinstance(state, str):
                stores.leave(connection, path)
        self.stage.remember()
        self.read = {side: self.private(path) for side, path in self.paths.items()}

    def private(self, path):
        """Reads a private copy of a store, with its support folder."""
        with tempfile.TemporaryDirectory() as directory:
            copy = stores.copied(path, os.path.join(directory, os.path.basename(path)))
            if os.path.isdir(stores.support_folder(path)):
                shutil.copytree(stores.support_folder(path), stores.support_folder(copy))
            return objects.read(copy, self.layout)

    # What is due

    def keys(self, entity):
        if entity == self.names["Event"]:
            return [] if self.event_key == "*" else [(entity, self.event_key.split(","))]
        if entity == self.names["Folder"]:
            return [(entity, ["name"])]
        return [(e.name, c) for e in self.model.line(entity) for c in e.unique]

    def match(self):
        """Returns pairs of (table, number) of both sides."""
        self.token, self.pairs = {}, []
        self.match_some(["Folder", "Tag", "Item", "Photo", "Movie", "Note"])
        self.match_some(["Event"])

    def match_some(self, roles):
        entities = [self.names[role] for role in roles]
        found = {side: defaultdict(list) for side in (GROUP, LEGACY)}
        for side in found:
            for key, thing in self.read[side][0].items():
                for scope, constraint in self.keys(thing.entity) if thing.entity in entities else []:
                    parts = tuple(self.part(side, thing, c) for c in constraint)
                    if ("number", None) not in parts:
                        found[side][scope, tuple(constraint), parts].append(key)
        for keys in [*found[GROUP].values(), *found[LEGACY].values()]:
            if len(keys) > 1:
                raise Refusal("merge_key_not_unique", "merge_ambiguous")
        forth, back = defaultdict(set), defaultdict(set)
        for key, (group,) in found[GROUP].items():
            for legacy in found[LEGACY].get(key, []):
                forth[group].add(legacy)
                back[legacy].add(group)
        if any(len(partners) > 1 for partners in [*forth.values(), *back.values()]):
            raise Refusal("merge_ambiguous")
        for group, (legacy,) in forth.items():
            if self.read[GROUP][0][group].entity != self.read[LEGACY][0][legacy].entity:
                raise Refusal("merge_ambiguous")
            self.pair(group, legacy)
        for entity in entities:  # those without a key, by all their values
            loose = {GROUP: defaultdict(list), LEGACY: defaultdict(list)}
            for side in loose:
                for key, thing in self.read[side][0].items():
                    if thing.entity == entity and (side, key) not in self.token and self.unkeyed(side, thing):
                        loose[side][self.equality(side, thing)].append(key)
            for value, groups in loose[GROUP].items():
                for group, legacy in zip(groups, loose[LEGACY].get(value, [])):
                    self.pair(group, legacy)

    def part(self, side, thing, name):
        """Returns what a part of a key is compared by."""
        if name in thing.values:
            return comparable(thing.values[name])
        target = thing.links[name]
        return ("number", None) if target is None else self.token.get((side, target), (side, target))

    def unkeyed(self, side, thing):
        """Returns whether a part of each of an object's keys is NULL."""
        return all(
            any(self.part(side, thing, c) == ("number", None) for c in key) for _, key in self.keys(thing.entity)
        )

    def pair(self, group, legacy):
        self.token[GROUP, group] = self.token[LEGACY, legacy] = ("pair", len(self.pairs))
        self.pairs.append((group, legacy))

    def equality(self, side, thing):
        named = [
            (n, None if t is None else self.token.get((side, t), (side, t))) for n, t in sorted(thing.links.items())
        ]
        return (objects.alike(thing.values), tuple(named))

    def decide(self, one, other):
        for way in self.prefer:
            if way in (GROUP, LEGACY):
                return way
            name = way.removeprefix("newer:")
            verdict = newer(one.values[name], other.values[name]) if name in one.values else None
            if verdict is not None:
                return GROUP if verdict else LEGACY
        return None

    def compute(self, prefer):
        self.prefer = prefer
        self.match()
        self.lines = defaultdict(Counter)
        self.kept = {}  # token or (side, key) -> (side, object)
        for number, (group, legacy) in enumerate(self.pairs):
            one, other = self.read[GROUP][0][group], self.read[LEGACY][0][legacy]
            line, side = self.lines[one.entity], GROUP
            if self.equality(GROUP, one) == self.equality(LEGACY, other):
                line["equal"] += 1
            else:
                line["different"] += 1
                side = self.decide(one, other)
                line["undecided" if side is None else "takes_" + side] += 1
            self.kept["pair", number] = (side, one if side == GROUP else other)
        for side in (GROUP, LEGACY):
            for key, thing in self.read[side][0].items():
                if (side, key) not in self.token:
                    self.lines[thing.entity]["only_" + side] += 1
                    self.kept[side, key] = (side, thing)
        if any(line["undecided"] for line in self.lines.values()):
            raise Refusal("merge_undecided")

    def compare(self):
        found, joined, most, (identity, sound) = objects.read(self.stage.group_store, self.layout)
        _, _, before, (was, _) = self.read[GROUP]
        demand(sound == b"ok", f"integrity_check: {sound}")
        demand(identity == was, "the metadata aren't the group's")
        self.final = {}  # (side, key) -> key in the result
        for number, (group, legacy) in enumerate(self.pairs):
            self.final[GROUP, group] = self.final[LEGACY, legacy] = self.final["pair", number] = group
        for token, (side, _) in self.kept.items():
            if token[0] == GROUP:
                self.final[token] = token[1]
        left = defaultdict(list)
        for key, thing in found.items():
            if key not in self.final.values():
                left[thing.entity, thing.values["mark"]].append(key)
        for token in sorted((t for t in self.kept if t[0] == LEGACY), key=lambda t: t[1]):
            thing = self.kept[token][1]
            mine = left[thing.entity, thing.values["mark"]]
            demand(mine, f"an object of the legacy store is lost: {thing}")
            self.final[token] = mine.pop(0)
            demand(
                self.final[token][1] > before[token[1][0]],
                f"{thing} has the number {self.final[token]}, Z_MAX was {before[token[1][0]]}",
            )
        more = [k for keys in left.values() for k in keys]
        demand(not more, f"objects of neither side: {[found[k] for k in more][:3]}")
        demand(len(found) == len(self.kept), f"{len(found)} objects, {len(self.kept)} are due")
        self.compare_objects(found, joined)
        for key in found:
            demand(key[1] <= most[key[0]], f"Z_MAX of {key[0]} is {most[key[0]]}, but there is {key[1]}")
        self.links = {}
        for table in self.layout.ends:
            sides = [
                {tuple(self.final[side, end] for end in pair) for pair in self.read[side][1][table]}
                for side in (GROUP, LEGACY)
            ]
            due, now = sides[0] | sides[1], Counter(joined[table])
            demand(now == Counter(due), f"links of {table}: {due ^ set(now)} differ, or come twice")
            self.links[table] = {
                "only_group": len(sides[0] - sides[1]),
                "only_legacy": len(sides[1] - sides[0]),
                "equal": len(sides[0] & sides[1]),
            }
        self.compare_order(found)

    def members(self, things, joined):
        """Returns what the to-many relationships of each object hold."""
        held = defaultdict(set)
        for key, thing in things.items():
            for name, target in thing.links.items():
                if target and name not in (self.renamed("cover"), self.renamed("note")):
                    held[target].add((thing.entity, name, key))
        for table, pairs in joined.items():
            for one, other in pairs:
                held[one].add((table, 0, other))
                held[other].add((table, 1, one))
        return held

    def compare_objects(self, found, joined):
        cover, note = self.renamed("cover"), self.renamed("note")
        before, after = self.members(*self.read[GROUP][:2]), self.members(found, joined)
        self.cleared, self.updated = 0, set()
        for token, (side, thing) in self.kept.items():
            now = found[self.final[token]]
            demand(now.entity == thing.entity, f"{thing} became {now}")
            demand(
                objects.shown(now.values) == objects.shown(thing.values),
                f"values of {thing}: {differing(now.values, thing.values)}",
            )
            if token[0] != LEGACY:
                key = self.final[token]
                was = self.read[GROUP][0][key]
                changed = side == LEGACY or before[key] != after[key] or now.links != was.links
                if changed:
                    self.updated.add(key)
                due = was.row["Z_OPT"] + changed
                demand(now.row["Z_OPT"] == due, f"Z_OPT of {thing} is {now.row['Z_OPT']}, not {due}")
            for name, target in self.due(side, thing).items():
                if now.links[name] != target:
                    demand(
                        name in (cover, note) and now.links[name] is None,
                        f"{name} of {thing} leads to {now.links[name]}, not {target}",
                    )
                    self.cleared += 1
                    other = found[target].links.get(note if name == cover else cover)
                    demand(other != self.final[token], f"{name} of {thing} was cleared, but {target} names it")
                column = self.layout.entity_column(thing.entity, name)
                if column and now.links[name]:
                    demand(now.row[column] == found[now.links[name]].row["Z_ENT"], f"{column} of {thing}")
        for key, now in found.items():
            for name, other in ((cover, note), (note, cover)):
                target = now.links.get(name)
                if target:
                    demand(
                        found[target].links[other] == key,
                        f"{name} of {now} leads to {found[target]}, which leads to {found[target].links[other]}",
                    )

    def due(self, side, thing):
        return {n: None if t is None else self.final[side, t] for n, t in thing.links.items()}

    def compare_order(self, found):
        folder = self.renamed("folder")
        column = self.layout.order_column(folder)
        if not column:
            return
        lists = {}
        for side in (GROUP, LEGACY):
            for key, thing in sorted(
                self.read[side][0].items(), key=lambda item: (item[1].row.get(column) or 0, item[0])
            ):
                if thing.entity == self.layout.note and thing.links[folder]:
                    lists.setdefault((side, self.final[side, thing.links[folder]]), []).append(self.final[side, key])
        members = defaultdict(list)
        for key, thing in sorted(found.items(), key=lambda item: (item[1].row.get(column) or 0, item[0])):
            if thing.entity == self.layout.note and thing.links[folder]:
                demand(thing.row[column] is not None, f"no order in {thing}")
                members[thing.links[folder]].append(key)
        for key, now in members.items():
            demand(len({found[m].row[column] for m in now}) == len(now), f"the same order twice in {key}")
            group, legacy = ([m for m in lists.get((side, key), []) if m in now] for side in (GROUP, LEGACY))
            first, then = (legacy, group) if self.prefer == [LEGACY] else (group, legacy)
            allowed = [first + [m for m in then if m not in first]]
            allowed += [side for side in (group, legacy) if len(side) == len(now)]
            demand(
                now in allowed,
                f"the order of {key} is {now}; the group's {group}, the legacy store's {legacy}, {self.prefer}",
            )

    def compare_history(self):
        """The group's history stays, and has one transaction more, with all that came from the legacy store."""
        if not self.history:
            return
        authors, made, most = objects.changes(self.stage.group_store)
        demand(
            made[:2] == [(1, 0, 1, 1), (1, 0, 1, 2)] and authors.get(1) == b"app",
            f"the history before: {made[:2]}, {authors}",
        )
        due = Counter()
        for token, (side, thing) in self.kept.items():
            if token[0] == LEGACY or self.final[token] in self.updated:
                due[0 if token[0] == LEGACY else 1, self.layout.number[thing.entity], self.final[token][1]] += 1
        now = Counter(change[1:] for change in made[2:])
        demand(now == due, f"the history has {now - due} too much, {due - now} too little")
        demand(len(authors) <= 2 and set(authors.values()) <= {b"app", b"groupstore"}, f"transactions of {authors}")
        demand(most[16001] >= len(made) and most[16002] >= len(authors), f"Z_MAX of the history: {most}")

    def judge(self, outcome, whole):
        given = {line["entity"]: line for line in outcome.lines if line["type"] == "merge"}
        for entity, line in self.lines.items():
            demand(entity in given, f"the plan has no line for {entity}")
            for member in (
                "only_group",
                "only_legacy",
                "equal",
                "different",
                "takes_group",
                "takes_legacy",
                "undecided",
            ):
                demand(
                    given[entity][member] == line[member],
                    f"{entity}: {member} is said to be {given[entity][member]}, and is {line[member]}",
                )
            if whole:
                due = sum(
                    self.final[s, k] != k
                    for s, k in self.final
                    if s == LEGACY and self.read[LEGACY][0][k].entity == entity
                )
                demand(
                    given[entity]["renumbered"] == due,
                    f"{entity}: renumbered is said to be {given[entity]['renumbered']}, and is {due}",
                )
        for line in outcome.lines:
            if whole and line["type"] == "merge_links":
                due = self.links[line["table"]]
                demand({m: line[m] for m in due} == due, f"links: {line}, and it is {due}")


def differing(one, other):
    return {n: (str(one[n])[:80], str(other[n])[:80]) for n in one if exact(one[n]) != exact(other[n])}


def run(stage, chance):
    pair = Pair(stage, chance)
    prefer = chance.choice(
        [
            [GROUP],
            [LEGACY],
            ["newer:modifiedAt", GROUP],
            ["newer:modifiedAt", LEGACY],
            ["newer:" + pair.renamed("title"), GROUP],
            [GROUP],
            [LEGACY],
            [],
        ]
    )
    more = ["--merge-key", pair.names["Folder"] + "=name", "--merge-key", pair.names["Event"] + "=" + pair.event_key]
    more += schemas.flags([], prefer)
    if stage.legacy["rows"] == stage.original["rows"]:
        return
    try:
        pair.compute(prefer)
    except Refusal as refusal:
        stage.refused(refusal.codes, *more)
        return
    dry = stage.dry_run(*more)
    demand(dry.code == 0, f"the dry run was refused: {dry} {more}")
    pair.judge(dry, False)
    outcome = stage.run(*more)
    demand(outcome.code == 0, f"the run was refused: {outcome} {more}")
    demand(outcome.plan() == dry.plan(), "the dry run's plan isn't the run's")
    pair.compare()
    pair.compare_history()
    pair.judge(outcome, True)
    cleared = outcome.summary["merge"]["links_cleared"]
    demand(cleared == pair.cleared, f"links_cleared is said to be {cleared}, and is {pair.cleared}")
    stage.archived(outcome)
