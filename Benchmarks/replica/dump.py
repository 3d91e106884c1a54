"""The input of `apply.c`."""


def dump(store, path):
    """Writes a store's changes and rows as apply.c reads them."""
    with open(path, "w", encoding="utf-8") as out:
        for number, table, operation, key, nonce, when in store.execute(
                "SELECT number, table_id, operation, key, nonce, time FROM GS_CHANGE WHERE operation < 3"):
            out.write(f"C\t{number}\t{table}\t{operation}\t{key}\t{nonce}\t{when!r}\n")
            if operation == 2:
                out.write(f"D\t{key}\n")
        for row in store.execute("SELECT n.* FROM note n JOIN GS_CHANGE c ON c.key = n.id WHERE c.operation < 2"):
            out.write("R\t{}\t{}\t{!r}\t{}\n".format(*row))
