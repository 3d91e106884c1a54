"""Minimises a script that shows a problem, as long as it still shows the same problem."""

import re
import time


def shrink_list(items, fails, deadline):
    """Drops ever smaller runs of items."""
    size = max(1, len(items) // 2)
    while size >= 1:
        at = 0
        while at < len(items):
            if time.monotonic() > deadline:
                return items
            candidate = items[:at] + items[at + size:]
            if fails(candidate):
                items = candidate
            else:
                at += size
        size = size // 2 if size > 1 else 0
    return items


TOKEN = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\w+|\s+|.", re.S)


def shrink_statement(sql, fails, deadline):
    """Drops words, lists and brackets of one statement."""
    tokens = TOKEN.findall(sql)
    for size in (24, 12, 8, 5, 4, 3, 2, 1):
        at = 0
        while at < len(tokens):
            if time.monotonic() > deadline:
                return "".join(tokens)
            if tokens[at].isspace():
                at += 1
                continue
            candidate = tokens[:at] + tokens[at + size:]
            if len(candidate) < len(tokens) and fails("".join(candidate)):
                tokens = candidate
            else:
                at += 1
    return "".join(tokens)


def minimise(setup, body, kind, attempt, seconds):
    """Minimises a script. `attempt(setup, body)` returns the class of the problem that it shows, or None."""
    deadline = time.monotonic() + seconds
    same = lambda s, b: attempt(s, b) == kind
    if not same(setup, body):
        return setup, body, False
    body = shrink_list(body, lambda b: same(setup, b), deadline)
    setup = shrink_list(setup, lambda s: same(s, body), deadline)
    flat = [line for step in body for line in step.split("\n")]
    if same(setup, flat):
        body = shrink_list(flat, lambda b: same(setup, b), deadline)
    for _ in range(2):
        for i in range(len(setup)):
            small = shrink_statement(setup[i], lambda s: same(setup[:i] + [s] + setup[i + 1:], body), deadline)
            setup = setup[:i] + [small] + setup[i + 1:]
        for i in range(len(body)):
            if not body[i].startswith("!"):
                small = shrink_statement(body[i], lambda s: same(setup, body[:i] + [s] + body[i + 1:]), deadline)
                body = body[:i] + [small] + body[i + 1:]
    return setup, body, True
