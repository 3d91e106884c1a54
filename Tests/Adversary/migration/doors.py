"""Requests one migration in several ways, which must all give the same answer (Guarantees, "Models")."""

import os
import re
import shutil

from oracle import verify
from program import difference, dump, snapshot


def archives(directory):
    """Returns the stores in the archive (Formats, `.groupstore/`)."""
    place = os.path.join(directory, ".groupstore", "archive")
    return [os.path.join(p, f) for p, _, files in os.walk(place) for f in files if f != "about.json"]


def copy_store(round, name):
    """Returns a copy of the round's store, with its support folder, in a directory of its own."""
    place = round.path(name)
    os.makedirs(place)
    for part in os.listdir(round.directory):
        if part.startswith("S.sqlite"):
            shutil.copy2(round.path(part), os.path.join(place, part))
    if os.path.isdir(round.path(".S_SUPPORT")):
        shutil.copytree(round.path(".S_SUPPORT"), os.path.join(place, ".S_SUPPORT"))
    return os.path.join(place, "S.sqlite")


def try_doors(
    round, model, expected=None, options=(), foreign=(), must=None, place=None, check=True, to_store="T.sqlite"
):
    """Asks through each door; returns the answer of `migrate --to`.

    `must` is True if the migration has to succeed, False if it has to be refused, None if it may do either. `place` opens
    the doors that change a store in place; they are slower, so a round opens them only now and then.
    """
    store, target = round.path("S.sqlite"), round.path(to_store)
    before = snapshot(round.directory)
    asked = round.run("model", "check", store, model, *[o for o in options if o != "--allow-partial-history"])
    dry = round.run("migrate", store, "--model", model, "--dry-run", *options)
    if difference(before, snapshot(round.directory)):
        # "Reading a store to describe or compare it leaves no trace"; "--dry-run: … change nothing"
        round.problem("dry-run-changes", difference(before, snapshot(round.directory)))
    answer = round.run("migrate", store, "--model", model, "--to", target, *options)
    made = {os.path.basename(target)} | {
        k for k in snapshot(round.directory) if k.startswith("." + os.path.splitext(to_store)[0] + "_SUPPORT")
    }
    changed = [k for k in difference(before, snapshot(round.directory)) if k not in made]
    if changed:  # "--to: Leave the store alone"
        round.problem("source-changed", changed)
    _agreement(round, asked if check else None, dry, answer, must)
    if answer.code == 0 and not os.path.exists(target):
        round.problem("nothing-made", answer.out[-300:])
    elif answer.code and os.path.exists(target):
        round.problem("refused-and-made", answer.error[:300])
    elif answer.code == 0 and expected is not None:
        verify(round, target, expected, foreign)
        _check_notes(round, expected, dry, answer)
        _external(round, target)
    if place if place is not None else round.rng.random() < 0.35:
        _in_place(round, model, options, answer, expected, target)
    return answer


def _agreement(round, asked, dry, answer, must):
    def brief(a):
        return f"{a.code} ({(a.error or a.out)[:260]})"

    if asked and (asked.code == 0) != (answer.code == 0):  # "`model check` refuses a store that `migrate` then refuses"
        round.problem("check-disagrees", f"check {brief(asked)}, migrate {brief(answer)}")
    if (dry.code == 0) != (answer.code == 0):  # the dry run's value is the run's (DESIGN, law 9)
        round.problem("dry-run-disagrees", f"dry run {brief(dry)}, migrate {brief(answer)}")
    if must is True and answer.code:
        round.problem("refused", brief(answer))
    if must is False and answer.code == 0:
        round.problem("accepted", "must be refused (section 4.2)")
    if answer.code and (
        answer.code not in (65, 73)
        or re.search(
            r"SQL logic error|no such (table|column)|already exists|syntax error|duplicate column|SQLite error 1\b",
            answer.error,
        )
    ):
        round.problem("raw-error", f"not a refusal that says why: {brief(answer)}")


def _check_notes(round, expected, dry, answer):
    """Checks that each loss is named with its number, in the dry run as in the run."""
    # The place of the original depends on the result's place, which differs between the two.
    notes, predicted = ([n for n in one.notes if "kept in" not in n] for one in (answer, dry))
    if sorted(predicted) != sorted(notes):
        only = [n for n in notes if n not in predicted]
        round.problem("dry-run-notes", f"the dry run didn't say: {only or dry.notes}")
    for what, name, number in expected.lost:
        naming = [n for n in answer.notes if name in n]
        if not naming:
            round.problem("drop-unsaid", f"{number} {what} of {name}; notes: {answer.notes}")
        elif not any(re.search(r"\b[0-9]+\b", n.replace(name, "")) for n in naming):
            round.problem("drop-uncounted", f"{number} {what} of {name}: {naming[0]}")

    for (entity, name), (before, after) in expected.cut.items():
        # "one that is lost is named by the migration" (Guarantees, "Models"), by its name in the older version
        former = expected.before(expected.former[entity])[name].name
        if not any(name in n or former in n for n in answer.notes):
            round.problem("cut-unsaid", f"{entity}.{name}: {before!r} became {after!r}; notes {answer.notes}")


def _external(round, target):
    """Checks that files that the new store's values refer to came along (section 1.7)."""
    source, stem = round.path(".S_SUPPORT"), os.path.splitext(os.path.basename(target))[0]
    with open(target, "rb") as file:
        data = file.read()
    for place, _, files in os.walk(source):
        for name in files:
            there = os.path.join(place.replace("/.S_SUPPORT", f"/.{stem}_SUPPORT"), name)
            if b"\2" + name.encode() + b"\0" in data and not os.path.exists(there):
                round.problem("external-lost", name)


def _in_place(round, model, options, answer, expected, target):
    store = copy_store(round, "in-place")
    folder = os.path.dirname(store)
    before = snapshot(folder)
    placed = round.run("migrate", store, "--model", model, *options)
    if (placed.code == 0) != (answer.code == 0):
        round.problem(
            "in-place-disagrees",
            f"in place {placed.code} {placed.error[:200]}, --to {answer.code} " f"{answer.error[:200]}",
        )
    elif placed.code:
        left = difference(before, snapshot(folder))
        left = [k for k in left if not k.startswith(".groupstore")]
        if left:  # "refused ... byte for byte as they were"
            round.problem("refusal-changed", left)
        if archives(folder):
            round.problem("refusal-archived", archives(folder))
    else:
        if dump(store) != dump(target):
            a, b = dump(store), dump(target)
            round.problem("in-place-differs", [k for k in a.keys() | b.keys() if a.get(k) != b.get(k)])
        if expected is not None and expected.lost and not archives(folder):
            round.problem("drop-not-archived", f"{expected.lost} dropped in place, and no original in the archive")
    legacy = os.path.dirname(copy_store(round, "legacy"))
    group = round.path("group")
    os.makedirs(group)
    before = snapshot(legacy)
    moved = round.run("relocate", os.path.join(legacy, "S.sqlite"), group, "--model", model, *options)
    if (moved.code == 0) != (answer.code == 0):
        round.problem(
            "relocate-disagrees",
            f"relocate {moved.code} {moved.error[:200]}, migrate {answer.code} " f"{answer.error[:200]}",
        )
    elif moved.code:
        left = difference(before, snapshot(legacy))
        left += [k for k in snapshot(group) if not k.startswith(".groupstore")]
        if left:
            round.problem("refusal-changed", left)
    elif dump(os.path.join(group, "S.sqlite")) != dump(target):
        a, b = dump(os.path.join(group, "S.sqlite")), dump(target)
        round.problem("relocate-differs", [k for k in a.keys() | b.keys() if a.get(k) != b.get(k)])
