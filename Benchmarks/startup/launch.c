/* Starts a program and prints the nanoseconds until the first line of its standard output, or until its end if it prints
   none. Then it ends the program.
   usage: launch COMMAND [ARGUMENT...] */
#include "../latency/clock.h"
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv) {
    if (argc < 2) return 64;
    int ends[2];
    if (pipe(ends) < 0) fail("pipe");
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    pid_t child;
    int64_t began = now();
    if (posix_spawnp(&child, argv[1], &actions, NULL, argv + 1, environ)) fail(argv[1]);
    close(ends[1]);
    char bytes[4096];
    ssize_t count;
    while ((count = read(ends[0], bytes, sizeof bytes)) > 0 && !memchr(bytes, '\n', count)) {
    }
    int64_t ended = now();
    /* A program that printed nothing has ended by itself. */
    if (count > 0) kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status)) {
        fprintf(stderr, "launch: %s: exit status %d\n", argv[1], WEXITSTATUS(status));
        return 1;
    }
    printf("%lld\n", (long long)(ended - began));
    return 0;
}
