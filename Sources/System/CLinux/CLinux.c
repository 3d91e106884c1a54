#define _GNU_SOURCE
#include "CLinux.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <linux/fs.h>
#include <linux/kcmp.h>
#include <linux/openat2.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

const int gs_o_path = O_PATH;
const int gs_o_tmpfile = O_TMPFILE;
const int gs_seek_data = SEEK_DATA;
const int gs_seek_hole = SEEK_HOLE;

static char **arguments;

// glibc passes main's parameters to each constructor (elf/dl-init.c), also without /proc.
__attribute__((constructor)) static void keep_arguments(int count, char **values) {
    (void)count;
    arguments = values;
}

char *const *gs_arguments(void) { return arguments; }

int gs_share_description(pid_t first, int first_descriptor, pid_t second, int second_descriptor) {
    long order = syscall(SYS_kcmp, first, second, KCMP_FILE, (unsigned long)first_descriptor,
                         (unsigned long)second_descriptor);
    return order < 0 ? -1 : order == 0;
}

bool gs_contains(const void *bytes, size_t count, const char *text) {
    return memmem(bytes, count, text, strlen(text)) != NULL;
}

int gs_openat(int directory, const char *path, int flags, mode_t mode) {
    return openat(directory, path, flags | O_CLOEXEC, mode);
}

int gs_openat_no_links(int directory, const char *path, int flags) {
    struct open_how how = {.flags = (unsigned)(flags | O_CLOEXEC), .resolve = RESOLVE_NO_SYMLINKS};
    return (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
}

static bool is_journal(const char *path) {
    size_t length = strlen(path);
    return length > 8 && strcmp(path + length - 8, "-journal") == 0;
}

int gs_open_careful(const char *path, int flags, int mode) {
    int descriptor = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, mode);
    // Somebody holds a lease on it. The kernel bounds the wait.
    if (descriptor < 0 && errno == EWOULDBLOCK) descriptor = open(path, flags | O_CLOEXEC | O_NOCTTY, mode);
    struct stat found;
    if (descriptor < 0 || fstat(descriptor, &found) != 0) return descriptor;
    int refusal = 0;
    if (S_ISFIFO(found.st_mode)) refusal = ENXIO;
    bool writes = (flags & O_ACCMODE) != O_RDONLY;
    // A journal may have a second link that groupstore made before SQLite rolls it back.
    if (writes && S_ISREG(found.st_mode) && found.st_nlink > 1 && !is_journal(path)) refusal = EMLINK;
    if (refusal == 0) return descriptor;
    close(descriptor);
    errno = refusal;
    return -1;
}

const unsigned int gs_rename_noreplace = RENAME_NOREPLACE;
const unsigned int gs_rename_exchange = RENAME_EXCHANGE;

int gs_renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned int flags) {
    return renameat2(from_directory, from, to_directory, to, flags);
}

int gs_reflink(int destination, int source) { return ioctl(destination, FICLONE, source); }

ssize_t gs_copy_file_range(int source, int destination, off_t offset, size_t length) {
    off_t destination_offset = offset;
    return copy_file_range(source, &offset, destination, &destination_offset, length, 0);
}

void gs_begin_writeback(int descriptor, off_t start, off_t length) {
    (void)sync_file_range(descriptor, start, length, SYNC_FILE_RANGE_WRITE);
}

int gs_syncfs(int descriptor) { return syncfs(descriptor); }

int gs_statfs(int descriptor, struct gs_filesystem *result) {
    struct statfs s;
    if (fstatfs(descriptor, &s) != 0) return -1;
    result->type = (uint64_t)s.f_type & 0xffffffffu;
    result->block_size = (uint64_t)s.f_bsize;
    result->available_blocks = (uint64_t)s.f_bavail;
    result->mount_flags = (uint64_t)s.f_flags;
    result->inodes = (uint64_t)s.f_files;
    result->free_inodes = (uint64_t)s.f_ffree;
    memcpy(&result->fsid, &s.f_fsid, sizeof result->fsid);
    return 0;
}

const int gs_lease_write = F_WRLCK;
const int gs_lease_read = F_RDLCK;
const int gs_lease_none = F_UNLCK;

int gs_set_lease(int descriptor, int type) { return fcntl(descriptor, F_SETLEASE, type); }

int gs_get_lease(int descriptor) { return fcntl(descriptor, F_GETLEASE); }

static int ofd(int descriptor, int command, struct flock *lock) {
    lock->l_whence = SEEK_SET;
    lock->l_pid = 0;
    return fcntl(descriptor, command, lock);
}

int gs_ofd_lock(int descriptor, short type, off_t start, off_t length) {
    struct flock lock = {.l_type = type, .l_start = start, .l_len = length};
    return ofd(descriptor, F_OFD_SETLK, &lock);
}

int gs_ofd_conflict(int descriptor, short type, off_t start, off_t length) {
    struct flock lock = {.l_type = type, .l_start = start, .l_len = length};
    if (ofd(descriptor, F_OFD_GETLK, &lock) != 0) return -1;
    return lock.l_type != F_UNLCK;
}

int gs_socket_stream(void) { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); }

int gs_socket_datagram(void) { return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

int gs_socket_accept(int listener) { return accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK); }

int gs_socket_peer(int descriptor, struct gs_credentials *result) {
    struct ucred peer;
    socklen_t length = sizeof peer;
    if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return -1;
    *result = (struct gs_credentials){.pid = peer.pid, .uid = peer.uid, .gid = peer.gid};
    return 0;
}

static int address(const char *path, struct sockaddr_un *result, socklen_t *length) {
    size_t count = strlen(path);
    if (count == 0 || count >= sizeof result->sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memset(result, 0, sizeof *result);
    result->sun_family = AF_UNIX;
    memcpy(result->sun_path, path, count);
    if (path[0] == '@') result->sun_path[0] = '\0';
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + count + (path[0] == '@' ? 0 : 1));
    return 0;
}

int gs_socket_unread(int descriptor) {
    int bytes = 0;
    return ioctl(descriptor, SIOCOUTQ, &bytes) == 0 ? bytes : -1;
}

int gs_socket_bind(int descriptor, const char *path) {
    struct sockaddr_un to;
    socklen_t length;
    if (address(path, &to, &length) != 0) return -1;
    return bind(descriptor, (struct sockaddr *)&to, length);
}

int gs_socket_connect(int descriptor, const char *path) {
    struct sockaddr_un to;
    socklen_t length;
    if (address(path, &to, &length) != 0) return -1;
    return connect(descriptor, (struct sockaddr *)&to, length);
}

ssize_t gs_socket_send(int descriptor, const void *bytes, size_t length) {
    return send(descriptor, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t gs_socket_receive(int descriptor, void *bytes, size_t length) {
    return recv(descriptor, bytes, length, 0);
}

int gs_socket_groups(int descriptor, gid_t *groups, int capacity) {
    socklen_t length = (socklen_t)((size_t)capacity * sizeof *groups);
    if (getsockopt(descriptor, SOL_SOCKET, SO_PEERGROUPS, groups, &length) != 0) return -1;
    return (int)(length / sizeof *groups);
}

ssize_t gs_socket_receive_passed(int descriptor, void *bytes, size_t length, int *passed, int capacity, int *count) {
    union {
        char bytes[CMSG_SPACE(sizeof(int) * 16)];
        struct cmsghdr aligned;
    } control;
    struct iovec part = {.iov_base = bytes, .iov_len = length};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    *count = 0;
    ssize_t received = recvmsg(descriptor, &message, MSG_CMSG_CLOEXEC);
    if (received < 0) return received;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        size_t found = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < found; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
            if (*count < capacity) passed[(*count)++] = fd;
            else close(fd);
        }
    }
    return received;
}

ssize_t gs_socket_send_passing(int descriptor, const void *bytes, size_t length, int passed) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control;
    memset(&control, 0, sizeof control);
    struct iovec part = {.iov_base = (void *)bytes, .iov_len = length};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof passed);
    memcpy(CMSG_DATA(header), &passed, sizeof passed);
    return sendmsg(descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static int ask(struct gs_access_question *question) {
    int found = open(question->path, O_PATH | O_CLOEXEC);
    if (found < 0) return errno;
    struct stat status;
    int error = fstat(found, &status) == 0 ? 0 : errno;
    if (error == 0) {
        question->device = status.st_dev;
        question->inode = status.st_ino;
        // Checks the opened file, whatever its name stands for now. A kernel before 5.8 supports names only.
        if (syscall(SYS_faccessat2, found, "", question->mode, AT_EMPTY_PATH) != 0) error = errno;
        if (error == ENOSYS || error == EINVAL || error == EPERM)
            error = access(question->path, question->mode) == 0 ? 0 : errno;
    }
    close(found);
    return error;
}

// The most interruptions of one wait: a filter may answer each call with EINTR.
enum { interruptions = 20000 };

// Makes only calls that are safe in a child of a multithreaded process (signal-safety(7)). They are raw system calls:
// glibc's wrappers would try to change all threads, and the child has only one.
static _Noreturn void ask_as(uid_t user, gid_t group, const gid_t *groups, int group_count,
                             struct gs_access_question *answers, int count) {
    if (syscall(SYS_setgroups, (size_t)group_count, groups) != 0 || syscall(SYS_setresgid, group, group, group) != 0 ||
        syscall(SYS_setresuid, user, user, user) != 0 || getuid() != user || geteuid() != user)
        _exit(1);
    for (int i = 0; i < count; i++) answers[i].error = ask(&answers[i]);
    _exit(0);
}

// Abandoned children, to be reaped once they end. In a file system that doesn't answer, not even SIGKILL ends them. Each
// occupies a slot here, which limits their number.
static pthread_mutex_t abandoned_lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t abandoned[32];

// Reaps ended children. Returns true with a reserved slot if there is one.
static bool reap_abandoned(size_t *slot) {
    bool found = false;
    pthread_mutex_lock(&abandoned_lock);
    for (size_t i = 0; i < sizeof abandoned / sizeof *abandoned; i++) {
        if (abandoned[i] > 0 && waitpid(abandoned[i], NULL, WNOHANG) != 0) abandoned[i] = 0;
        if (found || abandoned[i] != 0) continue;
        found = true;
        abandoned[i] = -1;
        *slot = i;
    }
    pthread_mutex_unlock(&abandoned_lock);
    return found;
}

static void set_abandoned(size_t slot, pid_t child) {
    pthread_mutex_lock(&abandoned_lock);
    abandoned[slot] = child;
    pthread_mutex_unlock(&abandoned_lock);
}

static int milliseconds_since(const struct timespec *start) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int)((now.tv_sec - start->tv_sec) * 1000 + (now.tv_nsec - start->tv_nsec) / 1000000);
}

// Returns the child's status, or -1 if it hasn't ended in time.
static int wait_for(pid_t child, int timeout_ms) {
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    int pidfd = (int)syscall(SYS_pidfd_open, child, 0U);
    int status = -1;
    while (true) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child) break;
        int left = timeout_ms - milliseconds_since(&start);
        // If SIGCHLD is ignored, the child is reaped automatically and its id may be another process's.
        if (ended < 0 && errno != EINTR) {
            status = 1;
            break;
        }
        if (left <= 0) {
            status = -1;
            break;
        }
        // A kernel before 5.3 has no pidfd, so the end is polled for.
        struct pollfd request = {.fd = pidfd, .events = POLLIN};
        if (pidfd >= 0) (void)poll(&request, 1, left);
        else (void)poll(NULL, 0, 1);
    }
    if (pidfd >= 0) close(pidfd);
    return status;
}

int gs_access_as(uid_t user, gid_t group, const gid_t *groups, int group_count, struct gs_access_question *questions,
                 int count, int timeout_ms) {
    size_t slot;
    if (!reap_abandoned(&slot)) {
        errno = ETIMEDOUT;
        return -1;
    }
    size_t length = (size_t)count * sizeof *questions;
    struct gs_access_question *answers =
        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (answers == MAP_FAILED) {
        set_abandoned(slot, 0);
        return -1;
    }
    memcpy(answers, questions, length);
    pid_t child = fork();
    if (child == 0) ask_as(user, group, groups, group_count, answers, count);
    int error = errno;
    int status = child > 0 ? wait_for(child, timeout_ms) : 1;
    if (status == 0) memcpy(questions, answers, length);
    munmap(answers, length);
    if (child > 0 && status == -1) {
        kill(child, SIGKILL);
        error = ETIMEDOUT;
    } else if (child > 0) {
        error = EPERM;
    }
    set_abandoned(slot, child > 0 && status == -1 ? child : 0);
    errno = error;
    return status == 0 ? 0 : -1;
}

int gs_epoll_create(void) { return epoll_create1(EPOLL_CLOEXEC); }

const int gs_epoll_add = EPOLL_CTL_ADD;
const int gs_epoll_modify = EPOLL_CTL_MOD;
const int gs_epoll_delete = EPOLL_CTL_DEL;
const uint32_t gs_epoll_in = EPOLLIN | EPOLLRDHUP;
const uint32_t gs_epoll_out = EPOLLOUT;
const uint32_t gs_epoll_priority = EPOLLPRI | EPOLLET;
const uint32_t gs_epoll_hangup = EPOLLHUP | EPOLLERR;

int gs_epoll_set(int epoll, int operation, int descriptor, uint32_t events, uint64_t token) {
    struct epoll_event event = {.events = events, .data.u64 = token};
    return epoll_ctl(epoll, operation, descriptor, &event);
}

int gs_epoll_wait(int epoll, struct gs_epoll_event *events, int capacity, int timeout_ms) {
    struct epoll_event found[64];
    if (capacity > 64) capacity = 64;
    int count = epoll_wait(epoll, found, capacity, timeout_ms);
    for (int i = 0; i < count; i++)
        events[i] = (struct gs_epoll_event){.events = found[i].events, .token = found[i].data.u64};
    return count;
}

int gs_wait_readable(int first, int second, int64_t nanoseconds) {
    struct pollfd both[2] = {{.fd = first, .events = POLLIN}, {.fd = second, .events = POLLIN}};
    struct timespec limit = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
    if (ppoll(both, 2, nanoseconds < 0 ? NULL : &limit, NULL) < 0) return -1;
    return (both[0].revents != 0) | (both[1].revents != 0) << 1;
}

int gs_semaphore_wait(sem_t *semaphore, int64_t nanoseconds) {
    struct timespec end;
    if (clock_gettime(CLOCK_MONOTONIC, &end) != 0) return 0;
    end.tv_sec += nanoseconds / 1000000000;
    end.tv_nsec += nanoseconds % 1000000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec += 1;
        end.tv_nsec -= 1000000000;
    }
    while (sem_clockwait(semaphore, CLOCK_MONOTONIC, &end) != 0) {
        struct timespec now;
        if (errno != EINTR || clock_gettime(CLOCK_MONOTONIC, &now) != 0) return 0;
        if (now.tv_sec > end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec >= end.tv_nsec)) return 0;
    }
    return 1;
}

int gs_eventfd(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }

int gs_signalfd(const int *signals, int count) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < count; i++) sigaddset(&set, signals[i]);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int gs_signalfd_read(int descriptor) {
    struct signalfd_siginfo info;
    return read(descriptor, &info, sizeof info) == (ssize_t)sizeof info ? (int)info.ssi_signo : -1;
}

void gs_name_thread(const char *name) { (void)prctl(PR_SET_NAME, name); }

void gs_cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void gs_timer_slack(unsigned long nanoseconds) { (void)prctl(PR_SET_TIMERSLACK, nanoseconds, 0, 0, 0); }

// As in linux/sched/types.h, which contradicts the headers of some C libraries.
struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

void gs_time_slice(uint64_t nanoseconds) {
    struct scheduling now = {0};
    if (syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) != 0) return;
    if (now.policy != SCHED_OTHER && now.policy != SCHED_BATCH) return;
    now.size = sizeof now;
    now.runtime = nanoseconds;
    (void)syscall(SYS_sched_setattr, 0, &now, 0);
}

ssize_t gs_list_attributes(int descriptor, char *names, size_t size) { return flistxattr(descriptor, names, size); }

ssize_t gs_get_attribute(int descriptor, const char *name, void *value, size_t size) {
    return fgetxattr(descriptor, name, value, size);
}

ssize_t gs_get_path_attribute(const char *path, const char *name, void *value, size_t size) {
    return getxattr(path, name, value, size);
}

int gs_remove_attribute(int descriptor, const char *name) { return fremovexattr(descriptor, name); }

int gs_set_attribute(int descriptor, const char *name, const void *value, size_t size) {
    return fsetxattr(descriptor, name, value, size, 0);
}

// Makes only calls that are safe in a child of a multithreaded process (signal-safety(7)).
static _Noreturn void close_when_alone(int descriptor, int parent) {
    // The grandchild is orphaned, so nobody has to wait for it.
    pid_t child = fork();
    if (child != 0) _exit(child < 0);
    // It must keep nothing else of its parent: no lock, and no pipe that somebody reads to its end.
    if (dup2(descriptor, 0) != 0 || dup2(parent, 1) != 1 || syscall(SYS_close_range, 2U, ~0U, 0U) != 0 || chdir("/") != 0)
        _exit(1);
    char nothing;
    for (int left = interruptions; read(1, &nothing, 1) < 0 && errno == EINTR && left > 0; left--) {}
    _exit(0);
}

int gs_close_elsewhere(int descriptor) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    // The child's dup2 calls need both descriptors above 1.
    pid_t child = descriptor > 1 && ends[0] > 1 ? fork() : -1;
    if (child == 0) close_when_alone(descriptor, ends[0]);
    close(ends[0]);
    int status = 1;
    for (int left = interruptions; child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR && left > 0; left--) {}
    if (status == 0) close(descriptor);
    // From here on the other process alone has the descriptor. Closing the pipe lets it end.
    close(ends[1]);
    if (status == 0) return 0;
    errno = EAGAIN;
    return -1;
}

#ifndef STATX_ATTR_MOUNT_ROOT
#define STATX_ATTR_MOUNT_ROOT 0x00002000
#endif

int gs_is_mount_point(int directory, const char *name) {
    struct statx found, parent;
    int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;
    if (statx(directory, name, flags, STATX_TYPE, &found) != 0) return -1;
    if (found.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) return (found.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
    // Before Linux 5.8, compares devices. The files of an overlay may have other devices than its directories.
    if (!S_ISDIR(found.stx_mode)) return 0;
    if (statx(directory, "", AT_EMPTY_PATH, STATX_TYPE, &parent) != 0) return -1;
    return found.stx_dev_major != parent.stx_dev_major || found.stx_dev_minor != parent.stx_dev_minor;
}

int gs_is_immutable(int directory, const char *name) {
    struct statx found;
    if (statx(directory, name, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &found) != 0) return -1;
    return (found.stx_attributes & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND)) != 0;
}

int64_t gs_birth_time(int directory, const char *name) {
    struct statx found;
    if (statx(directory, name, AT_SYMLINK_NOFOLLOW, STATX_BTIME, &found) != 0) return -1;
    if (!(found.stx_mask & STATX_BTIME)) return -1;
    return (int64_t)found.stx_btime.tv_sec * 1000000000 + found.stx_btime.tv_nsec;
}

int64_t gs_descriptor_birth_time(int descriptor) {
    struct statx found;
    if (statx(descriptor, "", AT_EMPTY_PATH, STATX_BTIME, &found) != 0) return -1;
    if (!(found.stx_mask & STATX_BTIME)) return -1;
    return (int64_t)found.stx_btime.tv_sec * 1000000000 + found.stx_btime.tv_nsec;
}

static bool is_side_file(const char *name) {
    static const char *const endings[] = {"-wal", "-shm", "-journal"};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t ending = strlen(endings[i]);
        if (length > ending && strcmp(name + length - ending, endings[i]) == 0) return true;
    }
    return false;
}

int gs_stable_name(int directory, const char *avoided, char *name, size_t length) {
    int own = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (own < 0) return -1;
    DIR *names = fdopendir(own);
    if (names == NULL) {
        close(own);
        return -1;
    }
    int found = 0;
    struct dirent *entry;
    while ((entry = readdir(names)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        int may_go = is_side_file(entry->d_name) || (avoided != NULL && strcmp(entry->d_name, avoided) == 0);
        if (found && may_go) continue;
        snprintf(name, length, "%s", entry->d_name);
        found = 1;
        if (!may_go) break;
    }
    closedir(names);
    return found;
}

static int release_segments(struct dl_phdr_info *object, size_t size, void *unused) {
    (void)size;
    (void)unused;
    /* The kernel's own pages are no file's. */
    if (object->dlpi_addr == getauxval(AT_SYSINFO_EHDR)) return 0;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        /* A writable segment has content that no file has. */
        if (segment->p_type != PT_LOAD || segment->p_flags & PF_W) continue;
        uintptr_t start = (object->dlpi_addr + segment->p_vaddr + page - 1) & ~(page - 1);
        uintptr_t end = (object->dlpi_addr + segment->p_vaddr + segment->p_filesz) & ~(page - 1);
        if (start < end) madvise((void *)start, end - start, MADV_DONTNEED);
    }
    return 0;
}

void gs_release_memory(void) {
    malloc_trim(0);
    dl_iterate_phdr(release_segments, NULL);
}

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

int gs_unshare_descriptors(int keep) {
    unsigned first = (unsigned)keep + 1;
    /* Seccomp filters of containers often refuse unshare(2). Kernels before 5.9 lack close_range(2). */
    if (syscall(SYS_close_range, first, ~0U, CLOSE_RANGE_UNSHARE) != 0) {
        if (unshare(CLONE_FILES) != 0) return -1;
        long limit = sysconf(_SC_OPEN_MAX);
        for (long other = first; other < limit; other++) close((int)other);
    }
    for (int other = 0; other < keep; other++) close(other);
    /* Nothing else may get the numbers of the standard streams. */
    int null;
    do null = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (null >= 0 && null < 3);
    if (null > 2) close(null);
    return 0;
}
