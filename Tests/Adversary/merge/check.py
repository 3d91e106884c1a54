"""Runs a merge of two stores without a model, and judges all of it."""

import schemas
import stores
from oracle import GROUP, LEGACY, Merge, Refusal
from program import demand
from words import folded


def merged(stage, tables, rows, sequences, prefer, allowed=()):
    """Runs a dry run, then the run. `allowed` are refusals that may happen, too. Returns the merge, None if refused."""
    merge = Merge(tables, rows, prefer)
    merge.sequences = sequences.get(GROUP, {})
    more = schemas.flags(tables, prefer)
    if merge.leads_nowhere():  # where it can't become NULL, it can't be in the result
        allowed = (*allowed, "merge_foreign_key")
    if any(
        type(value) is int and value >= 2**63 - 100
        for side in (GROUP, LEGACY)
        for found in rows[side].values()
        for row in found
        for value in row.values()
    ):  # no numbers may be left beyond those of rows and of references
        allowed = (*allowed, "merge_unsupported")
    if not all(any(rows[side].values()) for side in (GROUP, LEGACY)) or stage.legacy["rows"] == stage.original["rows"]:
        return no_conflict(stage, more)
    known = {folded(c.name) for t in tables for c in t.columns}
    try:
        if any(p.startswith("newer:") and folded(p[6:]) not in known for p in prefer):
            raise Refusal("unknown_attribute")
        merge.compute()
    except Refusal as refusal:
        stage.refused((*refusal.codes, *allowed), *more)
        return None
    dry = stage.dry_run(*more)
    if dry.error in allowed and dry.code != 0:
        stage.refused(dry.error, *more)
        return None
    demand(dry.code == 0, f"the dry run was refused: {dry} {more}")
    merge.judge_plan(dry.plan(), whole=False)
    run = stage.run(*more)
    demand(run.code == 0, f"the run was refused, not the dry run: {run} {more}")
    demand(run.summary["outcome"] == "merged" == dry.summary["outcome"], f"the outcome isn't merged: {run}")
    demand(run.plan() == dry.plan(), "the dry run's plan isn't the run's")
    merge.compare(stage.group_store)
    merge.judge_plan(run.plan())
    merge.judge_summary(run.summary)
    merge.judge_summary(dry.summary)
    judge_rest(stage, tables, sequences, merge)
    stage.archived(run)
    return merge


def no_conflict(stage, more):
    """One side has no rows, or both have the same: nothing is merged, and nothing is lost."""
    outcome = stage.run(*more)
    demand(outcome.code == 0, f"a relocation without a conflict failed: {outcome}")
    demand(outcome.summary["outcome"] != "merged", f"merged although there was no conflict: {outcome}")
    now = stores.content(stage.group_store)["rows"]
    kept = [side["rows"] for side in (stage.original, stage.legacy) if any(side["rows"].values())]
    demand(not kept or now in kept, "the result is neither store")


def judge_rest(stage, tables, sequences, merge):
    """The schema, the settings and the counters of the result."""
    now = stores.content(stage.group_store)
    demand(now["schema"] == stage.original["schema"], "the schema isn't the group's")
    demand(now["settings"] == stage.original["settings"], "user_version, application_id or the encoding changed")
    counters = {name[1].decode(): number[1] for name, number in now["rows"].get("sqlite_sequence", [])}
    for table in tables:
        if not table.automatic:
            continue
        highest = max([number for (name, _), number in merge.numbers.items() if name == table.name], default=0)
        due = max(highest, *(sequences.get(side, {}).get(table.name, 0) for side in (GROUP, LEGACY)))
        demand(
            counters.get(table.name, 0) == due,
            f"AUTOINCREMENT of {table.name!r}: {counters.get(table.name)}, not {due}",
        )
