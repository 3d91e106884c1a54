// The least that brings a commit to another process through a broker: a message of so many bytes is published, received by
// a subscriber, and a row is committed to a store that syncs. Prints the nanoseconds from the call that publishes until
// COMMIT has returned, a line each. The baseline of `latency.py`.
// usage: bare URL STORE MESSAGES BYTES PAUSE_US
#include <nats/nats.h>
#include <pthread.h>
#include <sqlite3.h>
#include "../latency/clock.h"

static sqlite3 *store;
static sqlite3_stmt *insert;
static volatile int64_t published;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static int received;

static void check(natsStatus status) {
    if (status == NATS_OK) return;
    fprintf(stderr, "bare: %s\n", natsStatus_GetText(status));
    exit(1);
}

static void run(const char *sql) {
    if (sqlite3_exec(store, sql, NULL, NULL, NULL) == SQLITE_OK) return;
    fprintf(stderr, "bare: %s: %s\n", sql, sqlite3_errmsg(store));
    exit(1);
}

static void receive(natsConnection *connection, natsSubscription *subscription, natsMsg *message, void *closure) {
    (void)connection, (void)subscription, (void)closure;
    sqlite3_bind_int(insert, 1, received);
    if (sqlite3_step(insert) != SQLITE_DONE) exit(1);
    sqlite3_reset(insert);
    printf("%lld\n", (long long)(now() - published));
    natsMsg_Destroy(message);
    pthread_mutex_lock(&lock);
    received++;
    pthread_cond_signal(&arrived);
    pthread_mutex_unlock(&lock);
}

int main(int count, char **words) {
    if (count != 6) return 64;
    if (sqlite3_open(words[2], &store) != SQLITE_OK) return 1;
    run("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE note (id INTEGER PRIMARY KEY, text)");
    if (sqlite3_prepare_v2(store, "INSERT INTO note (text) VALUES ('note ' || ?)", -1, &insert, NULL)) return 1;
    natsConnection *here, *there;
    natsSubscription *subscription;
    check(natsConnection_ConnectTo(&there, words[1]));
    check(natsConnection_Subscribe(&subscription, there, "bare", receive, NULL));
    check(natsConnection_Flush(there));
    check(natsConnection_ConnectTo(&here, words[1]));
    int messages = atoi(words[3]), bytes = atoi(words[4]), pause = atoi(words[5]);
    char *body = calloc(1, bytes);
    unsigned seed = 1;
    for (int number = 0; number < messages; number++) {
        // Unevenly, as programs commit.
        struct timespec rest = {0, (long)(pause / 2 + rand_r(&seed) % pause) * 1000};
        nanosleep(&rest, NULL);
        published = now();
        check(natsConnection_Publish(here, "bare", body, bytes));
        check(natsConnection_Flush(here));
        pthread_mutex_lock(&lock);
        while (received <= number) pthread_cond_wait(&arrived, &lock);
        pthread_mutex_unlock(&lock);
    }
    return 0;
}
