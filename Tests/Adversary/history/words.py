"""Names and values that are legal in SQLite and awkward for SQL generators."""

TABLE_NAMES = [
    "t", "tt", "t_", "T2", "note", "order", "select", "a b", 'a"b', "a'b", "a`b", "[x]", "tábla", "表", "t%", "GS_x", "gs_mine",
    "GS_CHANGES", "new", "old", "main", "temp", "values", "GS_1", "x.y", "-", "a;b", "1", "excluded", "rowid", "", "GSx",
]

COLUMN_NAMES = [
    "a", "b", "c", "d", "e", "f", "key", "columns", "number", "nonce", "time", "author", "name", "table_id", "operation", "old",
    "new", "order", "a b", 'a"b', "it's", "naïve", "rowid", "oid", "_rowid_", "excluded", "[z]", "GS_CHANGE", "GS_REPLACED",
    "value", "A_", "x,y", "1", "-", "",
]

VALUES = {
    "plain": ["NULL", "0", "1", "2", "3", "4", "5", "6", "'a'", "'b'", "'c'"],
    "numbers": ["1.0", "2.5", "3.0", "'1'", "'2'", "'3.0'", "'0x1'", "-1", "-0.0", "0.1", "1e20", "'1e0'", "'01'", "' 1'", "TRUE"],
    "case": ["'A'", "'B'", "'a '", "'A '", "'é'", "'É'", "''"],
    "blobs": ["X'61'", "X'31'", "X''", "X'6100'", "zeroblob(3)"],
    "nul": ["'a'||char(0)||'b'", "'a'||char(0)||'c'", "'a'||char(0)", "char(0)"],
    "extremes": ["4611686018427387905", "-9223372036854775808", "9007199254740993", "1e300", "9e999", "-9e999", "5e-324",
                 "9223372036854775807.0", "4611686018427387904.0"],
    "quotes": ["'it''s'", "'q\"'", "','", "'a,b'", "'''a'',''b'''", "'nl'||char(10)", "'NULL'", "X'27'"],
    "json": ["'{\"e\":1}'", "'{\"e\":2}'", "'{}'", "'{'", "1"],
    "long": ["hex(zeroblob(900))", "zeroblob(5000)", "hex(zeroblob(899))||'1'"],
}

TYPES = ["", "INTEGER", "INT", "TEXT", "REAL", "BLOB", "NUMERIC", "VARCHAR(9)", "BOOLEAN", "DATE"]
STRICT_TYPES = ["INT", "INTEGER", "REAL", "TEXT", "BLOB", "ANY"]
COLLATIONS = ["BINARY", "NOCASE", "RTRIM"]
CONFLICTS = ["ABORT", "FAIL", "IGNORE", "REPLACE", "ROLLBACK"]


def identifier(name):
    return '"' + name.replace('"', '""') + '"'
