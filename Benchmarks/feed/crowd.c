/* Many subscribers in one process: prints the time at which the last of them had read each line.
   usage: crowd SOCKET SUBSCRIBERS [REQUEST]      Each reads its greeting first and, with a request, sends it and reads its
   answer. */
#include "../latency/clock.h"
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int subscribe(const char *path, const char *request) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0 || connect(s, (struct sockaddr *)&address, sizeof address) < 0) fail(path);
    if (request) {
        char line[4096];
        int length = snprintf(line, sizeof line, "%s\n", request);
        if (write(s, line, length) != length) fail("write");
    }
    return s;
}

static void skip(int s, int lines) {
    char byte;
    while (lines > 0) {
        if (read(s, &byte, 1) != 1) fail("read");
        lines -= byte == '\n';
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return 64;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    int count = atoi(argv[2]), loop = epoll_create1(EPOLL_CLOEXEC), *sockets = calloc(count, sizeof *sockets);
    for (int i = 0; i < count; i++) sockets[i] = subscribe(argv[1], argc > 3 ? argv[3] : NULL);
    for (int i = 0; i < count; i++) {
        skip(sockets[i], argc > 3 ? 2 : 1);
        struct epoll_event readable = {.events = EPOLLIN, .data.fd = sockets[i]};
        if (epoll_ctl(loop, EPOLL_CTL_ADD, sockets[i], &readable) < 0) fail("epoll_ctl");
    }
    fprintf(stderr, "ready\n");
    for (long lines = 0;;) {
        struct epoll_event ready[64];
        int found = epoll_wait(loop, ready, 64, -1);
        for (int i = 0; i < found; i++) {
            char bytes[4096];
            ssize_t length = read(ready[i].data.fd, bytes, sizeof bytes);
            if (length <= 0) return 0;
            for (ssize_t at = 0; at < length; at++) {
                if (bytes[at] != '\n' || ++lines % count) continue;
                printf("%lld\n", (long long)now());
                fflush(stdout);
            }
        }
    }
}
