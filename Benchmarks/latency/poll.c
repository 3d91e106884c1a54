/* The usual way: a connection of its own that asks for data_version every millisecond.
   usage: poll STORE SOCKET */
#include "serve.h"
#include <sqlite3.h>

int main(int argc, char **argv) {
    if (argc != 3) return 64;
    sqlite3 *db;
    sqlite3_stmt *ask;
    if (sqlite3_open(argv[1], &db) != SQLITE_OK) return 1;
    sqlite3_busy_timeout(db, 5000);
    if (sqlite3_prepare_v2(db, "PRAGMA data_version", -1, &ask, NULL) != SQLITE_OK) return 1;
    int s = subscriber(argv[2]);
    int known = -1;
    for (;; usleep(1000)) {
        if (sqlite3_step(ask) == SQLITE_ROW) {
            int found = sqlite3_column_int(ask, 0);
            if (known >= 0 && found != known) tell(s);
            known = found;
        }
        sqlite3_reset(ask);
    }
}
