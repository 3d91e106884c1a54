"""Random tables without references: names, keys, collations and values of every kind."""

import schemas
from check import merged


def run(stage, chance):
    tables = [schemas.random_table(chance, n) for n in schemas.distinct(chance, chance.randint(1, 4))]
    rows, sequences = schemas.made(chance, stage, tables, chance.choice([3, 8, 30]))
    merged(stage, tables, rows, sequences, schemas.preferences(chance, tables))
