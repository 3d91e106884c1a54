// Writes rows into a store and prints what one took of the processor, in microseconds: other programs disturb that less
// than the time on the clock.
// usage: rows STORE single|insert|update|delete COUNT
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SENTENCE "Some words of a note, as somebody types them. "
#define WORDS "'" SENTENCE SENTENCE SENTENCE SENTENCE "'"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void check(int code, sqlite3 *db) {
    if (code == SQLITE_OK || code == SQLITE_DONE) return;
    fprintf(stderr, "rows: %s\n", sqlite3_errmsg(db));
    exit(1);
}

int main(int count, char **words) {
    if (count != 4) return 64;
    sqlite3 *db;
    check(sqlite3_open(words[1], &db), db);
    check(sqlite3_exec(db, "PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=0", 0, 0, 0), db);
    int single = !strcmp(words[2], "single");
    const char *sql = single || !strcmp(words[2], "insert")
                          ? "INSERT INTO note (title, body, modified) VALUES ('A title', " WORDS ", ?1)"
                      : !strcmp(words[2], "update") ? "UPDATE note SET title = 'Another title' WHERE id = ?1"
                                                    : "DELETE FROM note WHERE id = ?1";
    sqlite3_stmt *statement;
    check(sqlite3_prepare_v2(db, sql, -1, &statement, 0), db);
    int rows = atoi(words[3]);
    double start = now();
    if (!single) check(sqlite3_exec(db, "BEGIN", 0, 0, 0), db);
    for (int row = 1; row <= rows; row++) {
        sqlite3_bind_int(statement, 1, row);
        check(sqlite3_step(statement), db);
        check(sqlite3_reset(statement), db);
    }
    if (!single) check(sqlite3_exec(db, "COMMIT", 0, 0, 0), db);
    printf("%.3f\n", (now() - start) / rows);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return 0;
}
