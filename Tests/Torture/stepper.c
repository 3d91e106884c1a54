/* Runs a program and counts its system calls, in all of its threads, from the first one that names MARKER on.
 * At one of them the program is killed, or the call fails; or each change to a file system is written down.
 *
 * usage: stepper --marker TEXT [--trace FILE] [--kill N | --fail N ERRNO [--for-good]] [--record FILE]
 *                [--changes-only] -- PROGRAM ARGUMENT...
 *
 * A call is killed or failed before the kernel does it: a process that is killed while it is stopped at a call's
 * entry never runs the call (ptrace(2)). Its exit status is the program's; 137 when it was killed.
 */
#define _GNU_SOURCE
#include "calls.h"

#include <errno.h>
#include <elf.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

struct thread {
    pid_t id;
    int injected; /* the errno that the call under way ends with; 0: its own result */
    struct pending pending;
};

static struct thread threads[256];
static pid_t child;
static const char *marker;
static bool counting, changes_only, for_good;
static long count, kill_at = -1, fail_at = -1;
static int fail_with;
static long failing_call = -1;
static FILE *trace, *record;

static void die(const char *what) {
    perror(what);
    if (child > 0) kill(child, SIGKILL);
    exit(125);
}

static struct thread *thread_of(pid_t id) {
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++)
        if (threads[i].id == id) return &threads[i];
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++)
        if (threads[i].id == 0) {
            threads[i] = (struct thread){.id = id};
            return &threads[i];
        }
    errno = EAGAIN;
    die("threads");
    return NULL;
}

/* Puts a call number that doesn't exist in place of the one that is about to run. */
static void skip_call(pid_t id) {
#if defined(__x86_64__)
    if (ptrace(PTRACE_POKEUSER, id, offsetof(struct user_regs_struct, orig_rax), -1L) != 0) die("skip");
#elif defined(__aarch64__)
    int none = -1;
    struct iovec part = {&none, sizeof none};
    if (ptrace(PTRACE_SETREGSET, id, NT_ARM_SYSTEM_CALL, &part) != 0) die("skip");
#else
#error "only x86-64 and arm64 are known here"
#endif
}

static void set_result(pid_t id, long value) {
#if defined(__x86_64__)
    if (ptrace(PTRACE_POKEUSER, id, offsetof(struct user_regs_struct, rax), value) != 0) die("result");
#elif defined(__aarch64__)
    struct user_pt_regs registers;
    struct iovec part = {&registers, sizeof registers};
    if (ptrace(PTRACE_GETREGSET, id, NT_PRSTATUS, &part) != 0) die("result");
    registers.regs[0] = (unsigned long)value;
    if (ptrace(PTRACE_SETREGSET, id, NT_PRSTATUS, &part) != 0) die("result");
#endif
}

static bool names_marker(pid_t id, const struct call *call, const uint64_t *arguments) {
    for (int i = 0; i < 4; i++) {
        if (!(call->paths & 1 << i)) continue;
        char path[4096];
        if (read_text(id, arguments[i], path, sizeof path) && strstr(path, marker)) return true;
    }
    return false;
}

/* The same call on the same kind of thing goes on failing, as on a disk that is gone or full. */
static bool fails_now(const struct call *call) {
    if (fail_at < 0) return false;
    if (count == fail_at) failing_call = call->number;
    return count == fail_at || (for_good && count > fail_at && (long)call->number == failing_call);
}

static void entered(struct thread *thread, const struct __ptrace_syscall_info *info) {
    const struct call *call = call_of((long)info->entry.nr);
    thread->injected = 0;
    thread->pending.kind = 0;
    if (!call) return;
    if (!counting) counting = names_marker(thread->id, call, (const uint64_t *)info->entry.args);
    if (!counting || (changes_only && !call->changes)) return;
    count++;
    if (trace) fprintf(trace, "%ld\t%s\t%d\n", count, call->name, call->changes);
    if (count == kill_at) {
        kill(child, SIGKILL);
        return;
    }
    if (fails_now(call)) {
        skip_call(thread->id);
        thread->injected = fail_with;
    } else if (record) {
        begin_record(&thread->pending, thread->id, call, (const uint64_t *)info->entry.args);
    }
}

static void left(struct thread *thread, const struct __ptrace_syscall_info *info) {
    if (thread->injected) set_result(thread->id, -thread->injected);
    else if (record && thread->pending.kind && !info->exit.is_error)
        end_record(&thread->pending, thread->id, info->exit.rval, record);
    thread->injected = 0;
    thread->pending.kind = 0;
}

static void stopped(pid_t id, int status) {
    int signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80)) {
        struct __ptrace_syscall_info info;
        if (ptrace(PTRACE_GET_SYSCALL_INFO, id, sizeof info, &info) > 0) {
            if (info.op == PTRACE_SYSCALL_INFO_ENTRY) entered(thread_of(id), &info);
            if (info.op == PTRACE_SYSCALL_INFO_EXIT) left(thread_of(id), &info);
        }
        signal = 0;
    } else if (status >> 16 != 0 || signal == SIGSTOP) {
        signal = 0; /* a new thread, or exec */
    }
    /* ESRCH: it was killed meanwhile. */
    if (ptrace(PTRACE_SYSCALL, id, 0, signal) != 0 && errno != ESRCH) die("continue");
}

static void forward(int signal) { kill(child, signal); }

static void start(char **arguments) {
    child = fork();
    if (child < 0) die("fork");
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        execvp(arguments[0], arguments);
        _exit(127);
    }
    int status;
    if (waitpid(child, &status, 0) != child) die("waitpid");
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK
                   | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, child, 0, options) != 0) die("ptrace");
    struct sigaction action = {.sa_handler = forward};
    sigaction(SIGTERM, &action, NULL);
    ptrace(PTRACE_SYSCALL, child, 0, 0);
}

static FILE *make(const char *path) {
    FILE *file = fopen(path, "we");
    if (!file) die(path);
    return file;
}

static char **parse(char **word) {
    for (word++; *word; word++) {
        if (!strcmp(*word, "--")) return word + 1;
        if (!strcmp(*word, "--changes-only")) changes_only = true;
        else if (!strcmp(*word, "--for-good")) for_good = true;
        else if (!word[1]) break;
        else if (!strcmp(*word, "--marker")) marker = *++word;
        else if (!strcmp(*word, "--trace")) trace = make(*++word);
        else if (!strcmp(*word, "--record")) record = make(*++word);
        else if (!strcmp(*word, "--kill")) kill_at = atol(*++word);
        else if (!strcmp(*word, "--fail") && word[2]) {
            fail_at = atol(*++word);
            fail_with = atoi(*++word);
        } else break;
    }
    return NULL;
}

int main(int argc, char **words) {
    char **arguments = argc > 1 ? parse(words) : NULL;
    if (!arguments || !arguments[0] || !marker) {
        fprintf(stderr, "usage: stepper --marker TEXT [--trace FILE] [--kill N | --fail N ERRNO [--for-good]] "
                        "[--record FILE] [--changes-only] -- PROGRAM ARGUMENT...\n");
        return 64;
    }
    start(arguments);
    int result = 125;
    while (1) {
        int status;
        pid_t id = waitpid(-1, &status, __WALL);
        if (id < 0 && errno == EINTR) continue;
        if (id < 0) break;
        if (WIFSTOPPED(status)) {
            stopped(id, status);
            continue;
        }
        if (id == child) result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        thread_of(id)->id = 0;
    }
    if (trace) fclose(trace);
    if (record) fclose(record);
    return result;
}
