/* One subscriber on a Unix socket, for the programs that groupstore is compared with. */
#pragma once
#include "clock.h"
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static inline int subscriber(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 1) < 0)
        fail(path);
    int s = accept(listener, NULL, NULL);
    if (s < 0) fail("accept");
    return s;
}

static inline void tell(int s) {
    static const char line[] = "{\"type\":\"change\"}\n";
    if (write(s, line, sizeof line - 1) < 0) exit(0);
}
