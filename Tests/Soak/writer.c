/* Commits single rows: writer STORE TABLE FIRST COUNT AUTHOR. Prints what it did when COMMIT has returned: insert 5.
   What it does at which step, writers.py says. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(sqlite3 *store, const char *what) {
    fprintf(stderr, "writer: %s: %s\n", what, sqlite3_errmsg(store));
    return 74;
}

static const char *const steps[][2] = {
    {"insert", "INSERT INTO %s (text, number) VALUES (hex(randomblob(60)), ?)"},
    {"update", "UPDATE %s SET text = hex(randomblob(60)) WHERE number = ?"},
    {"delete", "DELETE FROM %s WHERE number = ?"},
};

static int run(sqlite3 *store, const char *sql) { return sqlite3_exec(store, sql, NULL, NULL, NULL) == SQLITE_OK; }

int main(int count, char **words) {
    if (count != 6) return 64;
    sqlite3 *store;
    if (sqlite3_open_v2(words[1], &store, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK) return fail(store, "open");
    sqlite3_busy_timeout(store, 600000);
    if (!run(store, "PRAGMA synchronous = OFF")) return fail(store, "pragma");
    char sql[256];
    sqlite3_stmt *statements[3];
    for (int kind = 0; kind < 3; kind++) {
        snprintf(sql, sizeof sql, steps[kind][1], words[2]);
        if (sqlite3_prepare_v2(store, sql, -1, &statements[kind], NULL) != SQLITE_OK) return fail(store, "prepare");
    }
    int has_author = words[5][0] != 0;
    snprintf(sql, sizeof sql, "BEGIN IMMEDIATE; UPDATE GS_AUTHOR SET name = '%s'", words[5]);
    long first = atol(words[3]), end = first + atol(words[4]);
    for (long step = first; step < end; step++) {
        int kind = step % 10 == 7 ? 1 : step % 10 == 9 ? 2 : 0;
        long row = kind == 0 ? step : step - 4;
        if (has_author && !run(store, sql)) return fail(store, "begin");
        sqlite3_bind_int64(statements[kind], 1, row);
        if (sqlite3_step(statements[kind]) != SQLITE_DONE) return fail(store, steps[kind][0]);
        sqlite3_reset(statements[kind]);
        if (sqlite3_changes(store) != 1) return fail(store, "the row isn't there");
        if (has_author && !run(store, "UPDATE GS_AUTHOR SET name = NULL; COMMIT")) return fail(store, "commit");
        printf("%s %ld\n", steps[kind][0], row);
    }
    for (int kind = 0; kind < 3; kind++) sqlite3_finalize(statements[kind]);
    return sqlite3_close(store) == SQLITE_OK ? 0 : fail(store, "close");
}
