// Linux calls and constants that Swift's Glibc module does not export.
// Each wrapper returns the call's result and leaves errno as the call set it.
#ifndef GROUPSTORE_CLINUX_H
#define GROUPSTORE_CLINUX_H

#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// Memory.
// memmem(3), as a question.
bool gs_contains(const void *bytes, size_t count, const char *text);

// Files.
extern const int gs_o_path;
extern const int gs_o_tmpfile;
extern const int gs_seek_data;
extern const int gs_seek_hole;
int gs_openat(int directory, const char *path, int flags, mode_t mode);
// Opens without following any symbolic link, on the way or at the end. Fails with ELOOP if there is one, with ENOSYS on a
// kernel without openat2(2), and with EPERM or ENOSYS under a system call filter that doesn't know it.
int gs_openat_no_links(int directory, const char *path, int flags);
// open(2) for a library that may encounter any file. Refuses a FIFO with ENXIO instead of waiting for it. Refuses to open
// a file with another hard link, which may be somebody else's, for writing with EMLINK, except a `-journal`.
int gs_open_careful(const char *path, int flags, int mode);
// Returns a file's creation time in nanoseconds since 1970, or -1 if it is unknown.
int64_t gs_birth_time(int directory, const char *name);
// The same for an open file.
int64_t gs_descriptor_birth_time(int descriptor);
// Copies a name in a directory, which may be open with O_PATH. Prefers names other than those of SQLite's side files, which
// come and go, and than `avoided`, unless that is NULL. Returns 1, 0 if the directory is empty, or -1 if it can't be read.
int gs_stable_name(int directory, const char *avoided, char *name, size_t length);
// Returns 1 if the name is a mount point, without following a link, 0 if not, or -1 with errno.
int gs_is_mount_point(int directory, const char *name);
// Returns 1 if the file is immutable or append-only (chattr(1)), without following a link, 0 if not, or -1 with errno.
int gs_is_immutable(int directory, const char *name);
int gs_renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned int flags);
extern const unsigned int gs_rename_noreplace;
extern const unsigned int gs_rename_exchange;
int gs_reflink(int destination, int source);
// Copies from an offset of the source to the same offset of the destination.
ssize_t gs_copy_file_range(int source, int destination, off_t offset, size_t length);
// Closes a descriptor in a separate process that nobody waits for. Returns 0, or -1 with errno if no process can be
// created; the descriptor is still open then. It must hold no lock that anybody waits for.
int gs_close_elsewhere(int descriptor);
// Starts writing this range to the disk, without waiting.
void gs_begin_writeback(int descriptor, off_t start, off_t length);
int gs_syncfs(int descriptor);

struct gs_filesystem {
    uint64_t type;
    uint64_t block_size;
    uint64_t available_blocks;
    uint64_t mount_flags;
    uint64_t fsid;
    // 0 where the file system has no fixed number of inodes.
    uint64_t inodes;
    uint64_t free_inodes;
};
int gs_statfs(int descriptor, struct gs_filesystem *result);

// Leases, fcntl(2).
int gs_set_lease(int descriptor, int type);
int gs_get_lease(int descriptor);
extern const int gs_lease_write;
extern const int gs_lease_read;
extern const int gs_lease_none;

// Open file description locks, fcntl(2). The type is F_RDLCK, F_WRLCK or F_UNLCK. Length 0 extends to the end.
int gs_ofd_lock(int descriptor, short type, off_t start, off_t length);
// Returns 1 if a lock of another open file description conflicts with `type`, 0 if none does, -1 on error.
int gs_ofd_conflict(int descriptor, short type, off_t start, off_t length);

// Sockets.
struct gs_credentials {
    pid_t pid;
    uid_t uid;
    gid_t gid;
};
int gs_socket_stream(void);
int gs_socket_datagram(void);
int gs_socket_accept(int listener);
int gs_socket_peer(int descriptor, struct gs_credentials *result);
// Returns the kernel memory used by bytes that the peer has not received yet (SIOCOUTQ, unix(7)), or -1 with errno.
int gs_socket_unread(int descriptor);
// The path may begin with '@' for the abstract namespace. Returns -1 with ENAMETOOLONG if the path doesn't fit.
int gs_socket_bind(int descriptor, const char *path);
int gs_socket_connect(int descriptor, const char *path);
ssize_t gs_socket_send(int descriptor, const void *bytes, size_t length);
ssize_t gs_socket_receive(int descriptor, void *bytes, size_t length);
// Gets the peer's supplementary groups (SO_PEERGROUPS) as of when the connection was made. Returns their number, or -1
// with errno, which is ERANGE if `capacity` is too small.
int gs_socket_groups(int descriptor, gid_t *groups, int capacity);
// Like gs_socket_receive, with the descriptors that came with the bytes (SCM_RIGHTS): at most `capacity`, the others are
// closed. Sets `count` to their number.
ssize_t gs_socket_receive_passed(int descriptor, void *bytes, size_t length, int *passed, int capacity, int *count);
// Like gs_socket_send. A copy of the descriptor `passed` is sent with the first byte.
ssize_t gs_socket_send_passing(int descriptor, const void *bytes, size_t length, int passed);

// A user's access to a path, as decided by the kernel (R_OK, W_OK and X_OK of access(2)).
struct gs_access_question {
    const char *path;
    int mode;
    // The answer: 0 or an errno. `device` and `inode` identify the file if it could be reached.
    int error;
    uint64_t device;
    uint64_t inode;
};
// Asks in a child process that becomes that user with exactly these groups. The caller must be root. Returns 0, or -1
// with errno if no such process can be created; nothing is answered then. ETIMEDOUT means that the child didn't answer in
// time. It is killed, and reaped when it has ended.
int gs_access_as(uid_t user, gid_t group, const gid_t *groups, int group_count, struct gs_access_question *questions,
                 int count, int timeout_ms);

// Returns 1 if two processes' descriptors share one open file description, as after fork(2), 0 if not, or -1 with errno
// if the kernel doesn't tell (kcmp(2)).
int gs_share_description(pid_t first, int first_descriptor, pid_t second, int second_descriptor);

// The arguments of main, ended by NULL. They must not be changed.
char *const *gs_arguments(void);

// Waiting.
int gs_epoll_create(void);
int gs_epoll_set(int epoll, int operation, int descriptor, uint32_t events, uint64_t token);
extern const int gs_epoll_add;
extern const int gs_epoll_modify;
extern const int gs_epoll_delete;
extern const uint32_t gs_epoll_in;
extern const uint32_t gs_epoll_out;
extern const uint32_t gs_epoll_priority;
extern const uint32_t gs_epoll_hangup;
struct gs_epoll_event {
    uint32_t events;
    uint64_t token;
};
int gs_epoll_wait(int epoll, struct gs_epoll_event *events, int capacity, int timeout_ms);
// Waits until one of two descriptors can be read, for at most that many nanoseconds, or without a limit if that is
// negative. Returns bit 0 for the first one and bit 1 for the second, or -1 with errno. Unlike epoll_wait(2), it can wait
// for less than a millisecond.
int gs_wait_readable(int first, int second, int64_t nanoseconds);
int gs_eventfd(void);
// sem_clockwait(3) by CLOCK_MONOTONIC, `nanoseconds` from now at most. Returns 1 once a signal was taken, else 0.
int gs_semaphore_wait(sem_t *semaphore, int64_t nanoseconds);

/* Gives the calling thread a table of descriptors of its own, in which only `keep` and /dev/null are open. Returns 0, or
 * -1 with errno. Record locks (fcntl(2), F_SETLK) belong to a table: what this thread closes releases no lock of the
 * process's other threads. Threads that it creates share its table. */
int gs_unshare_descriptors(int keep);
// Blocks the signals in the calling thread and those it creates later. Returns a descriptor that reads them.
int gs_signalfd(const int *signals, int count);
int gs_signalfd_read(int descriptor);

// Unmaps the program's and its libraries' code from memory until it is used again, and gives free heap back. What start
// needed, and later work doesn't, stays out. The kernel maps a page of the file again when the program comes to it.
void gs_release_memory(void);

// Names the calling thread. At most 15 bytes are used.
void gs_name_thread(const char *name);

void gs_cpu_relax(void);
// Sets how late the calling thread may wake from a sleep, in nanoseconds (PR_SET_TIMERSLACK of prctl(2)).
void gs_timer_slack(unsigned long nanoseconds);
// Sets for how long the calling thread, and those that it starts, run before a thread that has woken has its turn, in
// nanoseconds (sched_runtime of sched_setattr(2)). Linux before 6.12 ignores it; so does a thread with another policy.
void gs_time_slice(uint64_t nanoseconds);

// Extended attributes of an open file: xattr(7).
ssize_t gs_list_attributes(int descriptor, char *names, size_t size);
ssize_t gs_get_attribute(int descriptor, const char *name, void *value, size_t size);
// The same for a path.
ssize_t gs_get_path_attribute(const char *path, const char *name, void *value, size_t size);
int gs_remove_attribute(int descriptor, const char *name);
int gs_set_attribute(int descriptor, const char *name, const void *value, size_t size);

#endif
