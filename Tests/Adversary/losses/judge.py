"""Holds the losses that were counted against those that the program reports."""

from round import *


def removes_of(lines, kind="summary"):
    x = [l for l in lines if l.get("type") == kind]
    return sorted((json.dumps(y, sort_keys=True) for y in (x[-1].get("removes") or [])), key=str) if x else []


def judge_losses(r, d, rem, notes, one_step, group, name):
    """Holds the losses that were counted against those that the program tells."""
    rem = [json.loads(x) for x in rem]
    says = collections.Counter()
    for x in rem:
        for k in ("objects", "values", "links", "changes"):
            if k in x:
                says[k] += x[k]
                says[k, x["entity"], x.get("property")] += x[k]
    size = lambda t: sum(len(v) for v in t.values())
    lost = {"objects": size(d.gone), "values": size(d.values), "changes": size(d.changes), "links": size(d.links)}
    for k, n in lost.items():
        r.count("lost " + k, n)
    # A mapping model makes a new store without the rows of unknown entities, and says so.
    if d.mapped:
        lost["objects"] += len(d.old.strangers)
    if d.over:
        r.count("values that a derivation replaced", size(d.over))
    mine = collections.Counter()
    for e, o in d.gone.items():
        mine["objects", e, None] += len(o)
    for (e, p), o in d.values.items():
        mine["values", e, p] += len(o)
    for (e, p), o in d.changes.items():
        mine["changes", e, p] += len(o)
    sample = lambda t: "; ".join(f"{k[0]}.{k[1]}: {v[0][:3]}"[:140] for k, v in list(t.items())[:3])
    if one_step:
        for k in set(mine) | {k for k in says if isinstance(k, tuple) and k[0] != "links"}:
            n, m = says[k], mine[k]
            if n == m:
                continue
            # The positions of an order that is given up count as changes, wherever their links are kept.
            if k[0] == "changes" and m == 0 and n <= positions(d, k[1], k[2]):
                continue
            o = len(d.over.get(k[1:], ())) if k[0] in ("values", "changes") else 0
            if o and m <= n <= m + o:
                continue
            r.problem(
                "miscounted " + k[0],
                f"{k[1]}.{k[2]}: {m} lost, {n} told: {(d.values.get(k[1:]) or d.changes.get(k[1:]) or [''])[0]}",
            )
    else:
        a, b = sum(lost[k] for k in ("objects", "values", "changes")), sum(
            says[k] for k in ("objects", "values", "changes")
        )
        if a and not b or lost["objects"] != says["objects"] or b < a:
            r.problem("miscounted in steps", f"lost {lost}, told {dict(says)}; {sample(d.values)}; {sample(d.changes)}")
    if one_step:
        for k in d.inv:  # by relationship; told under its own name or its inverse's
            low, high = len(d.links.get(k, ())), len(d.ends.get(k, ())) + len(d.with_objects.get(k, ()))
            told = sum(says[("links", *x)] for x in d.inv[k])
            if told < low:
                r.problem(
                    "links lost, not told", f"{k[0]}.{k[1]}: {low} lost, {told} told: {d.links[k][:3]}; removes {rem}"
                )
            elif told > high:
                r.problem(
                    "links told, not lost",
                    f"{k[0]}.{k[1]}: {told} told, {low} lost ({high} ends and links to removed objects)",
                )
    elif lost["links"] > says["links"]:
        r.problem(
            "links lost, not told", f"{lost['links']} lost, {says['links']} told: {sample(d.links)}; removes {rem}"
        )
    if d.over and not (rem or notes):
        r.problem("silent derivation", f"values replaced by a derivation, nothing told: {sample(d.over)}")
    if any(lost.values()) or d.over or rem:
        r.count("rounds with losses")
        return True


def positions(d, entity, name):
    """Returns how many positions the older store has in a relationship's order."""
    return sum(len(targets) for targets in d.old.order.get((entity, name), {}).values())
