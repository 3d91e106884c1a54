"""What a merge of two stores without a model must leave, by the document alone.

An object is (side, index). Matched objects are one `Pair`. Relationships compare by the objects that they lead to.
"""

import itertools
import re
from collections import Counter, defaultdict

import stores
from program import demand
from words import Text, comparable, exact, folded, newer, quoted

GROUP, LEGACY = "group", "legacy"
NULL = ("number", None)
NUMERIC = re.compile(rb"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")


class Column:
    def __init__(self, name, declared="", collation="BINARY", refers=None, generated=None, extra=""):
        self.name, self.declared, self.collation = name, declared, collation
        self.refers, self.generated, self.extra = refers, generated, extra  # refers: (table, column)


class Table:
    """A table as the tester made it. `key` is a list of columns, `*`, or None if it has none."""

    def __init__(self, name, columns, primary=(), number=None, automatic=False, rowid=True, tail=""):
        self.name, self.columns, self.primary = name, columns, list(primary)
        self.number, self.automatic, self.rowid, self.tail = number, automatic, rowid, tail
        self.key = list(primary) or None
        self.flag = False  # whether the key is given by --merge-key

    def column(self, name):
        return next(c for c in self.columns if c.name == name)

    @property
    def stored(self):
        return [c for c in self.columns if not c.generated]

    @property
    def renumbered(self):
        """Whether rows may get new numbers."""
        return self.number is not None and self.key != [self.number]

    def sql(self):
        parts = []
        for column in self.columns:
            text = f"{quoted(column.name)} {column.declared}"
            if column.name == self.number and self.primary == [self.number]:
                text += " PRIMARY KEY" + (" AUTOINCREMENT" if self.automatic else "")
            if column.collation != "BINARY":
                text += f" COLLATE {column.collation}"
            if column.generated:
                text += f" GENERATED ALWAYS AS ({column.generated}) "
            parts.append(text + " " + column.extra)
        if self.primary and self.primary != [self.number]:
            parts.append("PRIMARY KEY (" + ", ".join(quoted(p) for p in self.primary) + ")")
        parts += [
            f"FOREIGN KEY ({quoted(c.name)}) REFERENCES {quoted(c.refers[0])} ({quoted(c.refers[1])}) {c.refers[2]}"
            for c in self.columns
            if c.refers
        ]
        if self.tail:
            parts.append(self.tail)
        return f"CREATE TABLE {quoted(self.name)} ({', '.join(parts)})" + ("" if self.rowid else " WITHOUT ROWID")

    def rows(self, connection):
        """Returns the rows in the order of their numbers, as dictionaries."""
        found = stores.columns(connection, self.name)
        order = f" ORDER BY {quoted(self.number)}" if self.number else ""
        if not self.number and self.rowid:
            free = [n for n in ("rowid", "oid", "_rowid_") if n not in [folded(c) for c in found]]
            order = f" ORDER BY {free[0]}" if free else ""
        return [dict(zip(found, row)) for row in connection.execute(f"SELECT * FROM {quoted(self.name)}{order}")]


class Refusal(Exception):
    """The merge must be refused with one of these codes."""

    def __init__(self, *codes):
        super().__init__(*codes)
        self.codes = codes


class Merge:
    """The merge of the rows of two stores, `rows[side][table name]`."""

    def __init__(self, tables, rows, prefer):
        self.tables, self.rows, self.prefer = tables, rows, prefer
        self.named = {t.name: t for t in tables}
        self.token = {}  # (side, table, index) -> what identifies the object in both stores
        self.pairs, self.lines, self.sources = {}, {}, {}
        self.targets = {}
        self.sequences = {}

    # Matching

    def target(self, side, column, value):
        """Returns the object that a reference leads to, None if there is none."""
        table, name = column.refers[:2]
        index = self.targets.get((side, table, name))
        if index is None:
            index = {comparable(r[name]): i for i, r in enumerate(self.rows[side][table])}
            self.targets[side, table, name] = index
        if isinstance(value, Text) and name == self.named[table].number and NUMERIC.fullmatch(value):
            value = float(value) if set(value) & set(b".eE") else int(value)  # as the parent's affinity has it
        found = index.get(comparable(value))
        return None if value is None or found is None else (side, table, found)

    def identity(self, side, column, value, collated=False):
        """Returns what two values of a column are compared by."""
        # A row whose number is its key is compared by the number.
        if column.refers and value is not None and self.named[column.refers[0]].renumbered:
            found = self.target(side, column, value)
            if found:
                return ("object", self.token.get(found, found))
        return comparable(value, column.collation if collated else "BINARY")

    def order(self):
        """Returns the tables, those that others refer to first."""
        done, left = [], list(self.tables)
        while left:
            ready = [
                t for t in left if all(not c.refers or c.refers[0] in done or c.refers[0] == t.name for c in t.columns)
            ]
            table = ready[0] if ready else left[0]
            left.remove(table)
            done.append(table.name)
        return [self.named[n] for n in done]

    def match(self):
        errors = set()
        for table in self.order():
            try:
                self.match_table(table)
            except Refusal as refusal:  # another table may have another error: either may be reported
                errors.update(refusal.codes)
                self.pairs[table.name] = []
        if errors:
            raise Refusal(*sorted(errors))

    def match_table(self, table):
        group, legacy = self.rows[GROUP][table.name], self.rows[LEGACY][table.name]
        pairs = []
        if table.flag or (group and legacy):
            if table.key is None:
                raise Refusal("no_merge_key")
            pairs = self.matched(table, group, legacy)
        self.pairs[table.name] = pairs
        for number, (g, legacy_index) in enumerate(pairs):
            self.token[GROUP, table.name, g] = self.token[LEGACY, table.name, legacy_index] = (
                "pair",
                table.name,
                number,
            )

    def matched(self, table, group, legacy):
        found = {}
        for side, rows in ((GROUP, group), (LEGACY, legacy)):
            keys, equals = {}, defaultdict(list)
            for index, row in enumerate(rows):
                key = None
                if table.key != "*":
                    parts = [self.identity(side, table.column(c), row[c], True) for c in table.key]
                    key = None if NULL in parts else tuple(parts)
                if key is None:
                    equals[self.equality(side, table, row)].append(index)
                elif key in keys:
                    raise Refusal("merge_key_not_unique")
                else:
                    keys[key] = index
            found[side] = (keys, equals)
        pairs = [(i, found[LEGACY][0][key]) for key, i in found[GROUP][0].items() if key in found[LEGACY][0]]
        for key, indices in found[GROUP][1].items():
            pairs += zip(indices, found[LEGACY][1].get(key, []))
        return pairs

    def equality(self, side, table, row):
        """Returns what is equal for equal objects."""
        parts = []
        for column in table.stored:
            if column.name == table.number and (table.key == "*" or table.number not in (table.key or [])):
                continue
            parts.append(self.identity(side, column, row[column.name]))
        return tuple(parts)

    def decide(self, group, legacy):
        for way in self.prefer:
            if way in (GROUP, LEGACY):
                return way
            name = next((n for n in group if folded(n) == folded(way.removeprefix("newer:"))), None)
            verdict = newer(group[name], legacy[name]) if name is not None else None
            if verdict is not None:
                return GROUP if verdict else LEGACY
        return None

    # The result

    def compute(self):
        """Returns for each table the sources of the rows of the result: (matched group's index, side, index)."""
        self.match()
        undecided = False
        for table in self.tables:
            rows = {side: self.rows[side][table.name] for side in (GROUP, LEGACY)}
            pairs = self.pairs[table.name]
            line = Counter(equal=0, different=0, takes_group=0, takes_legacy=0, undecided=0)
            sources = []
            for g, legacy_index in pairs:
                one, other = rows[GROUP][g], rows[LEGACY][legacy_index]
                if self.equality(GROUP, table, one) == self.equality(LEGACY, table, other):
                    line["equal"] += 1
                    sources.append((g, GROUP, g, legacy_index))
                    continue
                line["different"] += 1
                kept = self.decide(one, other)
                line["undecided" if kept is None else "takes_" + kept] += 1
                undecided |= kept is None
                sources.append((g, kept, legacy_index if kept == LEGACY else g, legacy_index))
            here, there = {g for g, _ in pairs}, {legacy_index for _, legacy_index in pairs}
            only_group = [(g, GROUP, g, None) for g in range(len(rows[GROUP])) if g not in here]
            only_legacy = [
                (None, LEGACY, legacy_index, legacy_index)
                for legacy_index in range(len(rows[LEGACY]))
                if legacy_index not in there
            ]
            line["only_group"], line["only_legacy"] = len(only_group), len(only_legacy)
            self.lines[table.name] = line
            self.sources[table.name] = sources + only_group + only_legacy
        if undecided:
            raise Refusal("merge_undecided")

    def number(self, result):
        """Learns the numbers of the result's rows; `result` has its rows by table."""
        self.numbers, self.dangling = {}, 0  # (table, source) -> number
        for table in self.tables:
            if not table.number:
                continue
            group, legacy = ([r[table.number] for r in self.rows[s][table.name]] for s in (GROUP, LEGACY))
            taken, beyond, fresh = set(group), max([*group, *legacy], default=0), []
            sequence, claimed = self.sequences.get(table.name, 0), self.claimed(table)
            for source in sorted(self.sources[table.name], key=lambda s: s[2]):
                g, side, index, legacy_index = source
                own = self.rows[side][table.name][index][table.number]
                if not table.renumbered:
                    number = own
                elif g is not None:
                    number = group[g]
                elif own in taken or own in claimed or (table.automatic and own <= sequence):
                    fresh.append(source)
                    continue
                else:
                    number = own
                self.numbers[table.name, source] = number
            known = {n for (t, _), n in self.numbers.items() if t == table.name}
            new = sorted(r[table.number] for r in result[table.name] if r[table.number] not in known)
            demand(
                len(new) == len(fresh),
                f"{table.name!r}: {len(fresh)} rows get new numbers, but these are new: {new[:10]}",
            )
            demand(
                not new or new[0] > beyond,
                f"{table.name!r}: the new number {new[:1]} isn't beyond all others ({beyond})",
            )
            for source, number in zip(fresh, new):
                self.numbers[table.name, source] = number
            self.lines[table.name]["renumbered"] = sum(
                self.numbers[table.name, s] != legacy[s[3]] for s in self.sources[table.name] if s[3] is not None
            )

    def claimed(self, table):
        """Returns the numbers that references of the group's store name without leading to a row."""
        return {
            row[column.name]
            for other in self.tables
            for column in other.stored
            if column.refers and column.refers[:2] == (table.name, table.number)
            for row in self.rows[GROUP][other.name]
            if self.target(GROUP, column, row[column.name]) is None
        }

    def leads_nowhere(self):
        """Returns whether a reference of the legacy store leads to no row."""
        return any(
            row[column.name] is not None and self.target(LEGACY, column, row[column.name]) is None
            for table in self.tables
            for column in table.stored
            if column.refers
            for row in self.rows[LEGACY][table.name]
        )

    def expected(self, table, source):
        """Returns the row of the result for a source."""
        g, side, index, _ = source
        row = dict(self.rows[side][table.name][index])
        for column in table.stored:
            if column.refers and row[column.name] is not None and self.named[column.refers[0]].renumbered:
                found = self.target(side, column, row[column.name])
                if found is None:
                    if side == LEGACY:
                        row[column.name] = None
                        self.dangling += 1
                    continue
                row[column.name] = self.referred(found, column)
        if table.number:
            row[table.number] = self.numbers[table.name, source]
        return row

    def referred(self, found, column):
        """Returns the value in the result of the column that a reference names."""
        side, name, index = found
        source = self.by_object(name)[side, index]
        target = self.named[name]
        if column.refers[1] == target.number:
            return self.numbers[name, source]
        return self.rows[source[1]][name][source[2]][column.refers[1]]

    def by_object(self, name):
        """Returns the source of each object of both sides."""
        if ("sources", name) not in self.targets:
            found = {}
            for source in self.sources[name]:
                g, side, index, legacy_index = source
                found[side, index] = source
                if g is not None:
                    found[GROUP, g] = source
                if legacy_index is not None:
                    found[LEGACY, legacy_index] = source
            self.targets["sources", name] = found
        return self.targets["sources", name]

    def compare(self, path):
        """Compares the result's every value with what is expected."""
        connection = stores.connected(path)
        try:
            result = {t.name: t.rows(connection) for t in self.tables}
            problem = connection.execute("PRAGMA integrity_check").fetchone()[0]
            demand(problem == b"ok", f"integrity_check: {problem!r}")
        finally:
            connection.close()
        self.number(result)
        for table in self.tables:
            shown = [c.name for c in table.stored]
            expected = Counter(told(table, shown, self.expected(table, source)) for source in self.sources[table.name])
            found = Counter(told(table, shown, row) for row in result[table.name])
            if expected != found:
                missing = list(itertools.islice((expected - found).elements(), 3))
                more = list(itertools.islice((found - expected).elements(), 3))
                demand(
                    False, f"rows of {table.name!r} {shown}: missing {str(missing)[:700]}, instead {str(more)[:700]}"
                )
        return result

    def judge_plan(self, lines, whole=True):
        """Compares the plan's numbers, of a dry run or a run."""
        given = {line["table"]: line for line in lines if line["type"] == "merge"}
        for table in self.tables:
            line = self.lines[table.name]
            if not any(line.values()):
                continue
            demand(table.name in given, f"the plan has no line for {table.name!r}")
            for member, number in line.items():
                if member == "renumbered" and not whole:
                    continue
                demand(
                    given[table.name][member] == number,
                    f"the plan for {table.name!r} says {member} {given[table.name][member]}, and it is {number}",
                )
        extra = given.keys() - self.named.keys()
        demand(not extra, f"the plan has lines of other tables: {extra}")

    def judge_summary(self, summary):
        sums = Counter()
        for line in self.lines.values():
            sums.update(line)
        sums["dangling"] = self.dangling
        for member, number in sums.items():
            demand(
                summary["merge"].get(member) == number,
                f"the summary says {member} {summary['merge'].get(member)}, and it is {number}",
            )


def told(table, shown, row):
    """Returns a row's exact values; of a key's numbers the value alone, as the group's number may stay."""
    key = [] if table.key in (None, "*") else table.key
    return tuple(comparable(row[c]) if c in key and isinstance(row[c], (int, float)) else exact(row[c]) for c in shown)
