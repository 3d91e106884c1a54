// Applies changes from a local file to a store, with SQLite's C API and nothing else: the baseline of `replica.py`.
// usage: apply STORE FILE
// A line is `C number table operation key nonce time`, `R id title score count` or `D id`, separated by tabs.
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sqlite3 *store;

static void check(int code) {
    if (code == SQLITE_OK || code == SQLITE_DONE) return;
    fprintf(stderr, "%s\n", sqlite3_errmsg(store));
    exit(1);
}

static sqlite3_stmt *prepare(const char *sql) {
    sqlite3_stmt *statement;
    check(sqlite3_prepare_v2(store, sql, -1, &statement, NULL));
    return statement;
}

static void run(sqlite3_stmt *statement) {
    check(sqlite3_step(statement));
    check(sqlite3_reset(statement));
}

int main(int count, char **words) {
    if (count != 3) return 64;
    check(sqlite3_open(words[1], &store));
    sqlite3_db_config(store, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    FILE *file = fopen(words[2], "r");
    if (!file) return 66;
    check(sqlite3_exec(store, "PRAGMA synchronous = FULL; BEGIN IMMEDIATE", NULL, NULL, NULL));
    sqlite3_stmt *change = prepare("INSERT INTO GS_CHANGE (number, table_id, operation, key, nonce, time) VALUES (?, ?, ?, ?, ?, ?)");
    sqlite3_stmt *row = prepare("INSERT OR REPLACE INTO note (id, title, score, count) VALUES (?, ?, ?, ?)");
    sqlite3_stmt *gone = prepare("DELETE FROM note WHERE id = ?");
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    while ((length = getline(&line, &size, file)) > 0) {
        line[length - 1] = 0;
        char *field[8] = {0}, *rest = line;
        for (int index = 0; index < 8 && rest; index++) field[index] = strsep(&rest, "\t");
        if (line[0] == 'C') {
            for (int index = 1; index <= 5; index++) sqlite3_bind_int64(change, index, strtoll(field[index], NULL, 10));
            sqlite3_bind_double(change, 6, strtod(field[6], NULL));
            run(change);
        } else if (line[0] == 'R') {
            sqlite3_bind_int64(row, 1, strtoll(field[1], NULL, 10));
            sqlite3_bind_text(row, 2, field[2], -1, SQLITE_STATIC);
            sqlite3_bind_double(row, 3, strtod(field[3], NULL));
            sqlite3_bind_int64(row, 4, strtoll(field[4], NULL, 10));
            run(row);
        } else {
            sqlite3_bind_int64(gone, 1, strtoll(field[1], NULL, 10));
            run(gone);
        }
    }
    sqlite3_finalize(change);
    sqlite3_finalize(row);
    sqlite3_finalize(gone);
    check(sqlite3_exec(store, "COMMIT", NULL, NULL, NULL));
    return sqlite3_close(store);
}
