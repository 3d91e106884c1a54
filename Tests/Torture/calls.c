#define _GNU_SOURCE
#include "calls.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define READS(name, paths) {SYS_##name, #name, false, paths}
#define CHANGES(name, paths) {SYS_##name, #name, true, paths}

static const struct call known[] = {
#ifdef SYS_open
    CHANGES(open, 1), READS(stat, 1), READS(lstat, 1), READS(access, 1), READS(readlink, 1), CHANGES(unlink, 1),
    CHANGES(rmdir, 1), CHANGES(mkdir, 1), CHANGES(rename, 3), CHANGES(link, 3), CHANGES(symlink, 2),
    CHANGES(chmod, 1), CHANGES(chown, 1), CHANGES(creat, 1),
#endif
#ifdef SYS_newfstatat
    READS(newfstatat, 2),
#endif
#ifdef SYS_renameat
    CHANGES(renameat, 10),
#endif
    CHANGES(openat, 2), READS(close, 0), READS(fstat, 0), READS(statx, 2), READS(fstatfs, 0), READS(statfs, 1),
    READS(readlinkat, 2), READS(faccessat, 2), READS(faccessat2, 2), READS(getdents64, 0), READS(lseek, 0),
    READS(read, 0), READS(pread64, 0), CHANGES(write, 0), CHANGES(pwrite64, 0), CHANGES(writev, 0),
    CHANGES(pwritev, 0), CHANGES(ftruncate, 0), CHANGES(truncate, 1), CHANGES(fallocate, 0), CHANGES(fsync, 0),
    CHANGES(fdatasync, 0), CHANGES(syncfs, 0), CHANGES(sync_file_range, 0), READS(fcntl, 0), CHANGES(ioctl, 0),
    CHANGES(copy_file_range, 0), CHANGES(mkdirat, 2), CHANGES(unlinkat, 2), CHANGES(renameat2, 10),
    CHANGES(linkat, 10), CHANGES(symlinkat, 4), CHANGES(fchmod, 0), CHANGES(fchmodat, 2), CHANGES(fchown, 0),
    CHANGES(fchownat, 2), CHANGES(utimensat, 2), CHANGES(fsetxattr, 0), READS(fgetxattr, 0), READS(flistxattr, 0),
    CHANGES(fremovexattr, 0), CHANGES(setxattr, 1), CHANGES(lsetxattr, 1), READS(lgetxattr, 1), READS(llistxattr, 1),
    READS(openat2, 2), READS(clock_nanosleep, 0), READS(nanosleep, 0),
};

const struct call *call_of(long number) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].number == number) return &known[i];
    return NULL;
}

static bool read_bytes(pid_t id, uint64_t address, void *bytes, size_t size) {
    struct iovec here = {bytes, size}, there = {(void *)(uintptr_t)address, size};
    return process_vm_readv(id, &here, 1, &there, 1, 0) == (ssize_t)size;
}

bool read_text(pid_t id, uint64_t address, char *text, size_t size) {
    if (!address) return false;
    for (size_t i = 0; i + 1 < size; i++) {
        /* To the end of the page at once: the next one may not be there. */
        size_t part = 4096 - (address + i) % 4096;
        if (part > size - 1 - i) part = size - 1 - i;
        if (!read_bytes(id, address + i, text + i, part)) return false;
        if (memchr(text + i, 0, part)) return true;
        i += part - 1;
    }
    text[size - 1] = 0;
    return false;
}

/* A path of the traced program's, as this process can use it. */
static bool path_of(pid_t id, int directory, uint64_t address, char *path, size_t size) {
    char text[PATH_MAX];
    if (!read_text(id, address, text, sizeof text)) return false;
    if (!strncmp(text, "/proc/self/", 11)) return (size_t)snprintf(path, size, "/proc/%d/%s", id, text + 11) < size;
    if (text[0] == '/') return (size_t)snprintf(path, size, "%s", text) < size;
    if (directory == AT_FDCWD) return (size_t)snprintf(path, size, "/proc/%d/cwd/%s", id, text) < size;
    return (size_t)snprintf(path, size, "/proc/%d/fd/%d/%s", id, directory, text) < size;
}

static bool entry_of(pid_t id, int directory, uint64_t address, struct entry *entry, bool *exists) {
    char path[2 * PATH_MAX];
    struct stat found;
    if (!path_of(id, directory, address, path, sizeof path)) return false;
    *exists = lstat(path, &found) == 0;
    char *slash = strrchr(path, '/');
    if (!slash || strlen(slash + 1) >= sizeof entry->name) return false;
    strcpy(entry->name, slash + 1);
    slash[slash == path ? 1 : 0] = 0;
    if (stat(path, &found) != 0) return false;
    entry->directory = (struct file){found.st_dev, found.st_ino};
    return true;
}

static bool file_of(pid_t id, int descriptor, struct stat *found) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", id, descriptor);
    return stat(path, found) == 0;
}

static long long position(pid_t id, int descriptor) {
    char path[64];
    long long value = -1;
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", id, descriptor);
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    if (fscanf(file, "pos: %lld", &value) != 1) value = -1;
    fclose(file);
    return value;
}

void begin_record(struct pending *p, pid_t id, const struct call *call, const uint64_t *a) {
    bool other;
    memcpy(p->arguments, a, sizeof p->arguments);
    p->kind = call->number;
    bool known_entry = true;
    switch (call->number) {
#ifdef SYS_open
    case SYS_open:
    case SYS_mkdir:
    case SYS_unlink:
    case SYS_rmdir: known_entry = entry_of(id, AT_FDCWD, a[0], &p->to, &p->existed); break;
    case SYS_rename:
        known_entry = entry_of(id, AT_FDCWD, a[0], &p->from, &other) && entry_of(id, AT_FDCWD, a[1], &p->to, &other);
        break;
    case SYS_symlink: known_entry = entry_of(id, AT_FDCWD, a[1], &p->to, &p->existed); break;
#endif
    case SYS_openat:
    case SYS_mkdirat:
    case SYS_unlinkat: known_entry = entry_of(id, (int)a[0], a[1], &p->to, &p->existed); break;
    case SYS_symlinkat: known_entry = entry_of(id, (int)a[1], a[2], &p->to, &p->existed); break;
#ifdef SYS_renameat
    case SYS_renameat:
#endif
    case SYS_renameat2:
    case SYS_linkat:
        known_entry = entry_of(id, (int)a[0], a[1], &p->from, &other) && entry_of(id, (int)a[2], a[3], &p->to, &other);
        break;
    case SYS_write: p->offset = position(id, (int)a[0]); break;
    case SYS_pwrite64: p->offset = (long long)a[3]; break;
    case SYS_copy_file_range:
        if (!a[3]) p->offset = position(id, (int)a[2]);
        else if (!read_bytes(id, a[3], &p->offset, sizeof p->offset)) p->offset = -1;
        break;
    default: break;
    }
    if (!known_entry) p->kind = 0;
}

static void put_hex(FILE *output, const void *bytes, size_t size) {
    const unsigned char *byte = bytes;
    if (size == 0) fputc('-', output);
    for (size_t i = 0; i < size; i++) fprintf(output, "%02x", byte[i]);
}

static void put_entry(FILE *output, const struct entry *entry) {
    fprintf(output, " %lu:%lu ", entry->directory.device, entry->directory.inode);
    put_hex(output, entry->name, strlen(entry->name));
}

static void put_created(FILE *output, const char *kind, pid_t id, const struct pending *p, const struct stat *found,
                        uint64_t target) {
    char text[PATH_MAX] = "";
    if (target) read_text(id, target, text, sizeof text);
    fprintf(output, "create %s", kind);
    put_entry(output, &p->to);
    fprintf(output, " %lu:%lu %o ", (unsigned long)found->st_dev, (unsigned long)found->st_ino, found->st_mode & 07777);
    put_hex(output, text, strlen(text));
    fputc('\n', output);
}

/* What a new name stands for now, looked up again: the call has ended, and its thread is stopped. */
static bool look(pid_t id, int directory, uint64_t address, struct stat *found) {
    char path[2 * PATH_MAX];
    return path_of(id, directory, address, path, sizeof path) && lstat(path, found) == 0;
}

static void put_opened(FILE *output, pid_t id, const struct pending *p, uint64_t flags, int descriptor) {
    struct stat found;
    if (!file_of(id, descriptor, &found)) return;
    if (flags & O_CREAT && !p->existed) put_created(output, "file", id, p, &found, 0);
    else if (flags & O_TRUNC)
        fprintf(output, "truncate %lu:%lu 0\n", (unsigned long)found.st_dev, (unsigned long)found.st_ino);
}

static void put_renamed(FILE *output, const struct pending *p, uint64_t flags) {
    fprintf(output, "rename %s", flags & RENAME_EXCHANGE ? "exchange" : "replace");
    put_entry(output, &p->from);
    put_entry(output, &p->to);
    fputc('\n', output);
}

static void put_unlinked(FILE *output, const struct pending *p) {
    fputs("unlink", output);
    put_entry(output, &p->to);
    fputc('\n', output);
}

/* What is at an address of the traced program, or, without one, what the file has now. */
static void put_written(FILE *output, pid_t id, const struct pending *p, int descriptor, uint64_t address,
                        long long length) {
    struct stat found;
    if (!file_of(id, descriptor, &found) || !S_ISREG(found.st_mode)) return;
    unsigned char *bytes = malloc((size_t)length + 1);
    if (!bytes) abort();
    if (address) {
        if (!read_bytes(id, address, bytes, (size_t)length)) abort();
    } else {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", id, descriptor);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0 || pread(file, bytes, (size_t)length, p->offset) != length) abort();
        close(file);
    }
    fprintf(output, "write %lu:%lu %lld ", (unsigned long)found.st_dev, (unsigned long)found.st_ino, p->offset);
    put_hex(output, bytes, (size_t)length);
    fputc('\n', output);
    free(bytes);
}

static void put_on_file(FILE *output, pid_t id, const char *word, const struct pending *p) {
    struct stat found;
    if (!file_of(id, (int)p->arguments[0], &found)) return;
    fprintf(output, "%s %lu:%lu", word, (unsigned long)found.st_dev, (unsigned long)found.st_ino);
    if (p->kind == SYS_ftruncate) fprintf(output, " %lld", (long long)p->arguments[1]);
    fputc('\n', output);
}

static void put_mode(FILE *output, pid_t id, const struct pending *p) {
    struct stat found;
    if (!file_of(id, (int)p->arguments[0], &found)) return;
    fprintf(output, "mode %lu:%lu %o\n", (unsigned long)found.st_dev, (unsigned long)found.st_ino, found.st_mode & 07777);
}

void end_record(const struct pending *p, pid_t id, long long result, FILE *output) {
    const uint64_t *a = p->arguments;
    struct stat found;
    switch (p->kind) {
#ifdef SYS_open
    case SYS_open: put_opened(output, id, p, a[1], (int)result); break;
    case SYS_mkdir:
        if (look(id, AT_FDCWD, a[0], &found)) put_created(output, "directory", id, p, &found, 0);
        break;
    case SYS_symlink:
        if (look(id, AT_FDCWD, a[1], &found)) put_created(output, "link", id, p, &found, a[0]);
        break;
    case SYS_unlink:
    case SYS_rmdir: put_unlinked(output, p); break;
    case SYS_rename: put_renamed(output, p, 0); break;
#endif
    case SYS_openat: put_opened(output, id, p, a[2], (int)result); break;
    case SYS_mkdirat:
        if (look(id, (int)a[0], a[1], &found)) put_created(output, "directory", id, p, &found, 0);
        break;
    case SYS_symlinkat:
        if (look(id, (int)a[1], a[2], &found)) put_created(output, "link", id, p, &found, a[0]);
        break;
    case SYS_unlinkat: put_unlinked(output, p); break;
#ifdef SYS_renameat
    case SYS_renameat: put_renamed(output, p, 0); break;
#endif
    case SYS_renameat2: put_renamed(output, p, a[4]); break;
    case SYS_linkat:
        if (!look(id, (int)a[2], a[3], &found)) break;
        fputs("hardlink", output);
        put_entry(output, &p->to);
        fprintf(output, " %lu:%lu\n", (unsigned long)found.st_dev, (unsigned long)found.st_ino);
        break;
    case SYS_write:
    case SYS_pwrite64: put_written(output, id, p, (int)a[0], a[1], result); break;
    case SYS_copy_file_range:
        if (p->offset < 0) fputs("unknown copy_file_range\n", output);
        else put_written(output, id, p, (int)a[2], 0, result);
        break;
    case SYS_ftruncate: put_on_file(output, id, "truncate", p); break;
    case SYS_fsync:
    case SYS_fdatasync: put_on_file(output, id, "sync", p); break;
    case SYS_fchmod: put_mode(output, id, p); break;
    case SYS_syncfs: fputs("unknown syncfs\n", output); break;
    case SYS_ioctl:
        if (a[1] == FICLONE) fputs("unknown FICLONE\n", output);
        break;
    case SYS_writev:
    case SYS_pwritev: fputs("unknown vectored write\n", output); break;
    default: break;
    }
}
