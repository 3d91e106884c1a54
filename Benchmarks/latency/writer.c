/* Commits single-row transactions at an uneven pace, and notes when each COMMIT was called and when it returned.
   usage: writer STORE COMMITS MEAN_MICROSECONDS > BEGAN_AND_RETURNED */
#include "clock.h"
#include <sqlite3.h>
#include <unistd.h>

static void run(sqlite3 *db, const char *sql) {
    char *message = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK) {
        fprintf(stderr, "writer: %s: %s\n", sql, message);
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 4) return 64;
    int commits = atoi(argv[2]);
    int mean = atoi(argv[3]);
    sqlite3 *db;
    if (sqlite3_open(argv[1], &db) != SQLITE_OK) return 1;
    sqlite3_busy_timeout(db, 5000);
    /* What an app that shares a store in WAL mode would use; FULL adds the disk's time before COMMIT returns. */
    run(db, "PRAGMA synchronous = NORMAL");
    int64_t *times = calloc(commits, 2 * sizeof *times);
    srandom(1);
    for (int i = 0; i < commits; i++) {
        /* Uneven, so that no poll falls into step with it. */
        usleep(mean / 2 + random() % mean);
        run(db, "BEGIN IMMEDIATE; INSERT INTO note (text) VALUES ('a note of some thirty characters')");
        times[2 * i] = now();
        run(db, "COMMIT");
        times[2 * i + 1] = now();
    }
    for (int i = 0; i < commits; i++) printf("%lld %lld\n", (long long)times[2 * i], (long long)times[2 * i + 1]);
    sqlite3_close(db);
    return 0;
}
