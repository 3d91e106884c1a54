#include <sqlite3.h>

// sqlite3_db_config() is variadic, which Swift can't call.
static inline int gs_keep_log_on_close(sqlite3 *connection) {
    return sqlite3_db_config(connection, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)0);
}
