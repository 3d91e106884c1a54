/* A program that knows nothing of groupstore: it opens a store, writes a row, notes it once COMMIT has returned, and
 * closes the store, again and again.
 *
 * usage: opener STORE LOG NUMBER [--create] [--forbidden PATH]
 *
 * LOG gets a line for each row acknowledged. Rows have the numbers NUMBER + 1000 * n. --create makes the store where
 * it isn't there. It ends with 3 when the file that it wrote to has the name PATH by then, and on SIGTERM with 0.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t ended;

static void end(int signal) { (void)signal, ended = 1; }

/* Whether one of this process's descriptors leads to that path now: the kernel follows a rename. */
static int holds(const char *path) {
    DIR *directory = opendir("/proc/self/fd");
    struct dirent *entry;
    int found = 0;
    while (directory && (entry = readdir(directory))) {
        char link[300], target[PATH_MAX];
        snprintf(link, sizeof link, "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(link, target, sizeof target - 1);
        if (length < 0) continue;
        target[length] = 0;
        found |= strcmp(target, path) == 0;
    }
    if (directory) closedir(directory);
    return found;
}

static int write_row(sqlite3 *store, long number, int create) {
    char sql[200];
    if (create
        && sqlite3_exec(store, "CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, text TEXT)", NULL, NULL, NULL))
        return 0;
    snprintf(sql, sizeof sql, "INSERT INTO note VALUES (%ld, 'note %ld')", number, number);
    return sqlite3_exec(store, sql, NULL, NULL, NULL) == SQLITE_OK;
}

int main(int argc, char **words) {
    int create = 0;
    const char *forbidden = NULL;
    for (int i = 4; i < argc; i++) {
        if (!strcmp(words[i], "--create")) create = 1;
        if (!strcmp(words[i], "--forbidden") && i + 1 < argc) forbidden = words[++i];
    }
    if (argc < 4) return 64;
    FILE *log = fopen(words[2], "we");
    if (!log) return 74;
    signal(SIGTERM, end);
    unsigned seed = (unsigned)atoi(words[3]) * 7919u + (unsigned)time(NULL);
    int flags = SQLITE_OPEN_READWRITE | (create ? SQLITE_OPEN_CREATE : 0);
    for (long number = atol(words[3]); !ended; number += 1000) {
        sqlite3 *store = NULL;
        if (sqlite3_open_v2(words[1], &store, flags, NULL) == SQLITE_OK) {
            sqlite3_busy_timeout(store, 2000);
            if (write_row(store, number, create)) {
                fprintf(log, "%ld\n", number);
                fflush(log);
                if (forbidden && holds(forbidden)) return 3;
            }
        }
        sqlite3_close(store);
        struct timespec pause = {.tv_nsec = rand_r(&seed) % 30000000};
        nanosleep(&pause, NULL);
    }
    fclose(log);
    return 0;
}
