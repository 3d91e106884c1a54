/* Commits single rows to many stores in turn, at an uneven pace. All stores stay open, so that nothing but the commits
   happens between its two lines.
   usage: paced COMMITS MEAN_MICROSECONDS STORE...      Prints a line once all stores are open, commits after a line on
   standard input, prints a line afterwards, and ends with its input. */
#include "../latency/clock.h"
#include <sqlite3.h>
#include <unistd.h>

static void check(sqlite3 *db, int code, int wanted) {
    if (code == wanted) return;
    fprintf(stderr, "paced: %s\n", sqlite3_errmsg(db));
    exit(1);
}

static void say(const char *line) {
    puts(line);
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc < 4) return 64;
    int commits = atoi(argv[1]), mean = atoi(argv[2]), count = argc - 3;
    sqlite3 **stores = calloc(count, sizeof *stores);
    sqlite3_stmt **inserts = calloc(count, sizeof *inserts);
    const char *insert = "INSERT INTO note (text) VALUES ('a note of some thirty characters')";
    for (int i = 0; i < count; i++) {
        check(stores[i], sqlite3_open(argv[3 + i], &stores[i]), SQLITE_OK);
        sqlite3_busy_timeout(stores[i], 5000);
        check(stores[i], sqlite3_exec(stores[i], "PRAGMA synchronous = NORMAL", NULL, NULL, NULL), SQLITE_OK);
        check(stores[i], sqlite3_prepare_v2(stores[i], insert, -1, &inserts[i], NULL), SQLITE_OK);
        /* The first commit of a connection creates the log and its index. */
        check(stores[i], sqlite3_step(inserts[i]), SQLITE_DONE);
        sqlite3_reset(inserts[i]);
    }
    say("open");
    if (getchar() == EOF) return 0;
    srandom(1);
    for (int i = 0; i < commits; i++) {
        usleep(mean / 2 + random() % mean);
        sqlite3_stmt *next = inserts[i % count];
        check(stores[i % count], sqlite3_step(next), SQLITE_DONE);
        sqlite3_reset(next);
    }
    say("done");
    while (getchar() != EOF) {
    }
    return 0;
}
