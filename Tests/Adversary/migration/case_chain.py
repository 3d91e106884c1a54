"""Class chain: migrates through several versions, in steps and at once.

Section 4.1: a renaming identifier is a canonical name that every later version keeps. 4.5: the path goes straight from
the store's version to the current version; groupstore takes several steps if it can't infer one (CoreData.md).
"""

import case_hierarchy
import case_names
import oracle
from doors import try_doors
from model import Attribute, Entity, Layout, Model, mixes_forms
from pairs import make_store
from program import snapshot
from store import fill, read


def versions(rng):
    """Returns three to five versions, each a few changes after the one before."""
    while True:
        model = case_hierarchy.random_model(rng) if rng.random() < 0.6 else case_names.random_pair(rng)[0]
        if model.fault() or model.has_unhashed():
            continue
        chain = [model]
        for _ in range(rng.randint(2, 4)):
            for _ in range(30):
                new = chain[-1].copy()
                if rng.random() < 0.5:
                    try:
                        case_hierarchy.step(rng, new)
                    except StopIteration:
                        continue
                else:
                    new = case_names.changed(rng, new, case_hierarchy.ATTRIBUTES + ["a", "ab", "a_b"])
                if new.entities and new.fault() is None and new.hashes() != chain[-1].hashes():
                    break
            else:
                break
            if rng.random() < 0.2:  # a chain of names that drops the canonical name loses values: 4.1
                for a in [a for e in new.entities.values() for a in e.attributes()]:
                    a.ident = None if rng.random() < 0.5 else a.ident
            chain.append(new)
        if len(chain) > 2 and all(m.fault() is None for m in chain) and not mixes_forms(*chain):
            return chain


def through(state, chain, steps):
    """Returns what migrations from the first of `chain` through the numbers in `steps` leave; None if a step must fail."""
    previous, expected = 0, None
    for i in steps:
        if chain[previous].hashes() == chain[i].hashes():
            previous = i
            continue
        if oracle.refusals(chain[previous], chain[i]):
            return None
        expected = oracle.Expected(state, chain[previous], chain[i])
        if expected.certain or expected.doubtful:
            return None
        state, previous = oracle.after(expected), i
    return expected


def run(round):
    rng = round.rng
    what = ["at-once", "at-once", "stepwise", "refilled", "unreadable", "twins"][round.number % 6]
    chain = versions(rng)
    round.title = f"{what}, {len(chain)} versions"
    round.described = "\n\n".join(m.xml() for m in chain)
    if what == "twins":
        return twins(round)
    state = make_store(round, chain[0])
    if state is None or state.faults:
        return
    names = [f"V{i + 1}" for i in range(len(chain))]
    if what == "unreadable":
        return unreadable(round, chain, names, state)
    bundle = round.write_bundle("M", dict(zip(names, chain)))
    last = len(chain) - 1
    if what == "at-once":
        at_once(round, bundle, chain, names, state, last)
    else:
        stepwise(round, chain, state, what == "refilled")


def at_once(round, bundle, chain, names, state, last):
    """Migrates from the bundle's first version to the current one: the steps announced are the steps taken."""
    answer = try_doors(round, bundle, None)
    if answer.code:
        direct = through(state, chain, [last])
        if direct is not None:
            round.problem("refused", f"V1 to V{last + 1} can be inferred: {answer.error[:300]}")
        return
    if chain[0].hashes() == chain[last].hashes():
        return
    steps = [names.index(n) for n in answer.summary.get("steps", []) if n in names] or [last]
    if not oracle.refusals(chain[0], chain[last]) and steps != [last]:
        round.problem("not-direct", f"{answer.summary.get('steps')}, though one step can be inferred")
    before = 0
    for i in steps:
        if oracle.refusals(chain[before], chain[i]):
            round.problem(
                "step-not-inferable", f"V{before + 1} to V{i + 1}: {oracle.refusals(chain[before], chain[i])[:2]}"
            )
            return
        before = i
    expected = through(state, chain, steps)
    if expected is not None:
        oracle.verify(round, round.path("T.sqlite"), expected)


def stepwise(round, chain, state, refilled):
    """Migrates version by version in place, with new rows in between if `refilled`; judges each step by itself."""
    store = round.path("S.sqlite")
    for i in range(1, len(chain)):
        if chain[i - 1].hashes() == chain[i].hashes():
            continue
        why = oracle.refusals(chain[i - 1], chain[i])
        expected = None if why else oracle.Expected(state, chain[i - 1], chain[i])
        model = round.write_model(f"V{i + 1}", chain[i])
        before = snapshot(round.directory)
        answer = round.run("migrate", store, "--model", model)
        if why or expected.certain or (answer.code and expected.doubtful):
            if answer.code == 0:
                round.problem("accepted", f"step {i}: {why or expected.certain}")
            elif [
                k
                for k in snapshot(round.directory)
                if before.get(k) != snapshot(round.directory)[k] and not k.startswith(".groupstore")
            ]:
                round.problem("refusal-changed", f"step {i}")
            return
        if answer.code:
            round.problem("refused", f"step {i}: {answer.error[:300]}")
            return
        oracle.verify(round, store, expected, prefix=f"step{i}-" if not refilled else "refilled-")
        if round.problems:
            return
        if refilled:
            fill(store, chain[i], Layout(chain[i]), round.rng, 2)
        state = read(store, chain[i], Layout(chain[i]))
        if state.faults:
            return


def unreadable(round, chain, names, state):
    """Makes a version in the middle unreadable: the other versions still work, or all doors refuse."""
    garbage = round.rng.choice(
        [
            b"",
            b"<model",
            b"\0\1\2",
            chain[1].xml().encode()[:200],
            b"<?xml version='1.0'?><model/>",
            b"<!DOCTYPE x [<!ENTITY a 'b'>]><model>&a;</model>",
        ]
    )
    parts = dict(zip(names, chain))
    parts[names[1]] = garbage
    bundle, last = round.write_bundle("M", parts), len(chain) - 1
    direct = through(state, chain, [last])
    answer = try_doors(round, bundle, None)
    if answer.code == 0 and direct is not None and chain[0].hashes() != chain[last].hashes():
        oracle.verify(round, round.path("T.sqlite"), direct)


def twins(round):
    """Tests two versions of equal hashes whose renaming identifiers differ: a value is lost only with a notice. The store
    identifies its version only by its model cache (1.2), so either may be taken, but then losses are named."""
    rng = round.rng
    first = Model(Entity("Item", Attribute("a"), Attribute("n", "Integer 32")))
    plain_ = Model(Entity("Item", Attribute("b"), Attribute("n", "Integer 32")))
    named = Model(Entity("Item", Attribute("b", ident="a"), Attribute("n", "Integer 32")))
    later = Model(
        Entity("Item", Attribute("c", ident=rng.choice(["a", "b"])), Attribute("n", "Integer 32"), Attribute("z"))
    )
    middle = rng.sample([plain_, named], 2)
    own = rng.choice([plain_, named])
    state = make_store(round, own)
    if state is None:
        return
    round.title = f"twins: store of b({own['Item'].properties[0].ident}), then c({later['Item'].properties[0].ident})"
    bundle = round.write_bundle("M", {"V1": first, "V2": middle[0], "V2b": middle[1], "V3": later})
    answer = try_doors(round, bundle, None)
    if answer.code:
        round.problem("refused", answer.error[:300])
        return
    after = read(round.path("T.sqlite"), later, Layout(later))
    lost = [
        k for k, (_, _, v) in state.objects.items() if v[("b",)] is not None and after.objects[k][2][("c",)] is None
    ]
    if lost and not any("b" in n for n in answer.notes):
        round.problem("lost-unsaid", f"{len(lost)} values of b; notes {answer.notes}")
