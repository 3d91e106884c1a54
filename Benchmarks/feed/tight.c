/* Commits single rows, as fast as it goes or one every so many microseconds, and prints how many nanoseconds that took.
   It doesn't sleep in between.
   usage: tight STORE COMMITS [MICROSECONDS] */
#include "../latency/clock.h"
#include <sqlite3.h>

static void run(sqlite3 *db, const char *sql) {
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK) return;
    fprintf(stderr, "tight: %s: %s\n", sql, sqlite3_errmsg(db));
    exit(1);
}

int main(int argc, char **argv) {
    if (argc < 3 || argc > 4) return 64;
    sqlite3 *db;
    if (sqlite3_open(argv[1], &db) != SQLITE_OK) return 1;
    sqlite3_busy_timeout(db, 5000);
    run(db, "PRAGMA synchronous = NORMAL");
    sqlite3_stmt *insert;
    if (sqlite3_prepare_v2(db, "INSERT INTO note (text) VALUES ('a note of some thirty characters')", -1, &insert, NULL))
        return 1;
    int commits = atoi(argv[2]);
    int64_t pause = argc > 3 ? atoi(argv[3]) * 1000LL : 0, began = now();
    for (int i = 0; i < commits; i++) {
        while (now() < began + i * pause) {
        }
        if (sqlite3_step(insert) != SQLITE_DONE) return 1;
        sqlite3_reset(insert);
    }
    printf("%lld\n", (long long)(now() - began));
    sqlite3_finalize(insert);
    sqlite3_close(db);
    return 0;
}
