/* Commits single rows: writer STORE TABLE FIRST COUNT. Prints each number whose COMMIT has returned. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(sqlite3 *store, const char *what) {
    fprintf(stderr, "writer: %s: %s\n", what, sqlite3_errmsg(store));
    return 74;
}

int main(int count, char **words) {
    if (count != 5) return 64;
    sqlite3 *store;
    if (sqlite3_open_v2(words[1], &store, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK) return fail(store, "open");
    sqlite3_busy_timeout(store, 600000);
    if (sqlite3_exec(store, "PRAGMA synchronous = OFF", NULL, NULL, NULL) != SQLITE_OK) return fail(store, "pragma");
    char sql[256];
    snprintf(sql, sizeof sql, "INSERT INTO %s (number, text) VALUES (?, hex(randomblob(60)))", words[2]);
    sqlite3_stmt *insert;
    if (sqlite3_prepare_v2(store, sql, -1, &insert, NULL) != SQLITE_OK) return fail(store, "prepare");
    long first = atol(words[3]), end = first + atol(words[4]);
    for (long number = first; number < end; number++) {
        sqlite3_bind_int64(insert, 1, number);
        if (sqlite3_step(insert) != SQLITE_DONE) return fail(store, "insert");
        sqlite3_reset(insert);
        printf("%ld\n", number);
    }
    sqlite3_finalize(insert);
    return sqlite3_close(store) == SQLITE_OK ? 0 : fail(store, "close");
}
