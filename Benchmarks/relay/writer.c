// Commits single rows at an uneven pace, and prints when each COMMIT had returned (CLOCK_MONOTONIC, in nanoseconds).
// usage: writer STORE COMMITS PAUSE_US
#include <sqlite3.h>
#include "../latency/clock.h"

int main(int count, char **words) {
    if (count != 4) return 64;
    sqlite3 *store;
    sqlite3_stmt *insert;
    if (sqlite3_open(words[1], &store) != SQLITE_OK) return 1;
    sqlite3_busy_timeout(store, 10000);
    if (sqlite3_exec(store, "PRAGMA synchronous = NORMAL", NULL, NULL, NULL) ||
        sqlite3_prepare_v2(store, "INSERT INTO note (text) VALUES ('note ' || ?)", -1, &insert, NULL))
        return 1;
    int commits = atoi(words[2]), pause = atoi(words[3]);
    unsigned seed = 1;
    for (int number = 0; number < commits; number++) {
        struct timespec rest = {0, (long)(pause / 2 + rand_r(&seed) % pause) * 1000};
        nanosleep(&rest, NULL);
        sqlite3_bind_int(insert, 1, number);
        if (sqlite3_step(insert) != SQLITE_DONE) return 1;
        int64_t committed = now();
        sqlite3_reset(insert);
        printf("%lld\n", (long long)committed);
        fflush(stdout);
    }
    return 0;
}
