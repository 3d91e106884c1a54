/* A subscriber: reads lines from a Unix socket, or from standard input, and notes when each that holds WORD was read.
   usage: reader WORD > TIMES                        lines come on standard input
          reader WORD SOCKET [LINE_TO_SEND] > TIMES
   Says "ready" on standard error once it is connected and, where it sent a line, once that was answered. Ends with
   its input, or at SIGTERM. */
#include "clock.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static volatile sig_atomic_t stopped;
static void stop(int signal) { (void)signal; stopped = 1; }

static int connected(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0 || connect(s, (struct sockaddr *)&address, sizeof address) < 0) fail(path);
    return s;
}

int main(int argc, char **argv) {
    if (argc < 2) return 64;
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    int in = argc > 2 ? connected(argv[2]) : STDIN_FILENO;
    if (argc > 3) dprintf(in, "%s\n", argv[3]);
    int is_ready = argc <= 3;
    if (is_ready) fputs("ready\n", stderr);

    static int64_t times[1 << 20];
    int count = 0, capacity = sizeof times / sizeof *times;
    static char buffer[1 << 17];
    size_t held = 0;
    while (!stopped) {
        ssize_t got = read(in, buffer + held, sizeof buffer - held - 1);
        int64_t at = now();
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        held += got;
        char *start = buffer, *end;
        while ((end = memchr(start, '\n', buffer + held - start))) {
            *end = 0;
            if (!is_ready && strstr(start, "\"ok\"")) {
                is_ready = 1;
                fputs(strstr(start, "\"ok\":true") ? "ready\n" : start, stderr);
            } else if (strstr(start, argv[1]) && count < capacity) {
                times[count++] = at;
            }
            start = end + 1;
        }
        held = buffer + held - start;
        memmove(buffer, start, held);
    }
    for (int i = 0; i < count; i++) printf("%lld\n", (long long)times[i]);
    return 0;
}
