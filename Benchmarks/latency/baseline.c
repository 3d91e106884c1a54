/* The least that can be done: wait on inotify, read the wal-index header in shared memory, write one line.
   No configuration, no rollback mode, no replaced or checkpointed store, one store, one subscriber.
   usage: baseline DIRECTORY STORE SOCKET      "-" instead of a socket: a line once it watches and the changes, on
   standard output. */
#include "serve.h"
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/inotify.h>
#include <sys/mman.h>

/* https://sqlite.org/walformat.html#the_wal_index_header: two copies of 48 bytes; mxFrame at 16, aFrameCksum at 24. */
struct state { uint32_t frames, checksum[2]; };

static int look(const volatile uint8_t *index, struct state *found) {
    uint8_t one[48], two[48];
    memcpy(one, (const void *)index, 48);
    atomic_thread_fence(memory_order_seq_cst);
    memcpy(two, (const void *)(index + 48), 48);
    if (memcmp(one, two, 48)) return 0;
    memcpy(&found->frames, one + 16, 4);
    memcpy(found->checksum, one + 24, 8);
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 4) return 64;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s-shm", argv[1], argv[2]);
    int shm = open(path, O_RDONLY | O_CLOEXEC);
    if (shm < 0) fail(path);
    const volatile uint8_t *index = mmap(NULL, 32768, PROT_READ, MAP_SHARED, shm, 0);
    int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (index == MAP_FAILED || inotify_add_watch(watch, argv[1], IN_MODIFY) < 0) fail(argv[1]);
    int s = strcmp(argv[3], "-") ? subscriber(argv[3]) : STDOUT_FILENO;

    struct state known = {0}, found;
    look(index, &known);
    if (s == STDOUT_FILENO) tell(s);
    int64_t look_until = 0;
    for (;;) {
        struct pollfd wait = {watch, POLLIN, 0};
        /* The header moves after the event: look again for 2 ms, then wait for the next event. */
        poll(&wait, 1, now() < look_until ? 0 : -1);
        char events[4096];
        if (read(watch, events, sizeof events) > 0) look_until = now() + 2000000;
        if (look(index, &found) && memcmp(&found, &known, sizeof known)) {
            known = found;
            look_until = 0;
            if (known.frames) tell(s);
        }
    }
}
