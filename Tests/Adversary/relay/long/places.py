"""Where a store is in its history."""

import digests


def position(path):
    """Returns the number and the nonce of the last change, in one text."""
    connection = digests.opened(path)
    try:
        return digests.last_change(connection)
    finally:
        connection.close()


def may_have(path, token):
    """Returns whether a store's history has a token's change, or had it before it was purged."""
    _, identifier, number, nonce = token.split(".")
    connection = digests.opened(path)
    try:
        own, trimmed = connection.execute("SELECT identifier, trimmed FROM GS_HISTORY").fetchone()
        found = connection.execute("SELECT printf('%x', nonce) FROM GS_CHANGE WHERE number = ?", (int(number),)).fetchone()
    finally:
        connection.close()
    return digests.text(own) == identifier and (found == (nonce.encode(),) or found is None and int(number) <= trimmed)
