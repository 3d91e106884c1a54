/* What the agent's telling of many is compared with: waits as baseline.c does, and writes the same bytes to each of N
   subscribers, one after the other, by epoll where a socket is full.
   usage: fan DIRECTORY STORE SOCKET SUBSCRIBERS LINE */
#define _GNU_SOURCE
#include "../latency/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* https://sqlite.org/walformat.html#the_wal_index_header: two copies of 48 bytes. */
static int look(const volatile uint8_t *index, uint8_t *known) {
    uint8_t one[48], two[48];
    memcpy(one, (const void *)index, 48);
    atomic_thread_fence(memory_order_seq_cst);
    memcpy(two, (const void *)(index + 48), 48);
    if (memcmp(one, two, 48) || !memcmp(one, known, 48)) return 0;
    memcpy(known, one, 48);
    return 1;
}

static int accept_all(const char *path, int *sockets, int count, int loop) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 128) < 0)
        fail(path);
    for (int i = 0; i < count; i++) {
        if ((sockets[i] = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) < 0) fail("accept");
        struct epoll_event none = {.events = 0, .data.fd = sockets[i]};
        if (epoll_ctl(loop, EPOLL_CTL_ADD, sockets[i], &none) < 0) fail("epoll_ctl");
    }
    return listener;
}

static void tell(const int *sockets, int count, int loop, const char *line, size_t length) {
    for (int i = 0; i < count; i++) {
        while (send(sockets[i], line, length, MSG_NOSIGNAL) < 0) {
            if (errno != EAGAIN) exit(0);
            struct epoll_event wanted = {.events = EPOLLOUT, .data.fd = sockets[i]}, ready;
            epoll_ctl(loop, EPOLL_CTL_MOD, sockets[i], &wanted);
            epoll_wait(loop, &ready, 1, -1);
            wanted.events = 0;
            epoll_ctl(loop, EPOLL_CTL_MOD, sockets[i], &wanted);
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 6) return 64;
    char path[4096], line[4096];
    snprintf(path, sizeof path, "%s/%s-shm", argv[1], argv[2]);
    int count = atoi(argv[4]), length = snprintf(line, sizeof line, "%s\n", argv[5]);
    int shm = open(path, O_RDONLY | O_CLOEXEC);
    if (shm < 0) fail(path);
    const volatile uint8_t *index = mmap(NULL, 32768, PROT_READ, MAP_SHARED, shm, 0);
    int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (index == MAP_FAILED || inotify_add_watch(watch, argv[1], IN_MODIFY) < 0) fail(argv[1]);
    int loop = epoll_create1(EPOLL_CLOEXEC), *sockets = calloc(count, sizeof *sockets);
    accept_all(argv[3], sockets, count, loop);
    uint8_t known[48] = {0};
    look(index, known);
    tell(sockets, count, loop, "hello\n", 6);
    int64_t event = -1;
    for (;;) {
        struct pollfd wait = {watch, POLLIN, 0};
        /* The header moves after the event: look again for 2 ms, then each millisecond, since the writer may have lost
           its processor in between. */
        poll(&wait, 1, event < 0 ? -1 : now() < event + 2000000 ? 0 : 1);
        char events[4096];
        if (read(watch, events, sizeof events) > 0) event = now();
        if (event >= 0 && now() > event + 1000000000) event = -1;
        if (look(index, known)) {
            event = -1;
            tell(sockets, count, loop, line, length);
        }
    }
}
