/* The system calls that a relocation can make, and what each of them changes on a file system. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct call {
    long number;
    const char *name;
    bool changes;    /* may change what is on a file system */
    unsigned paths;  /* a bit for each argument that is a path */
};

/* Nil for a call that has nothing to do with files: it isn't counted. */
const struct call *call_of(long number);

/* A text of the traced program's; false when it can't be read. */
bool read_text(pid_t id, uint64_t address, char *text, size_t size);

struct file {
    unsigned long device, inode;
};

/* A name in a directory. */
struct entry {
    struct file directory;
    char name[256];
};

/* A call that was begun, with what can only be known before it. */
struct pending {
    long kind; /* the call's number; 0: none */
    uint64_t arguments[6];
    struct entry from, to;
    bool existed;
    long long offset;
};

void begin_record(struct pending *pending, pid_t id, const struct call *call, const uint64_t *arguments);

/* Writes what the call did, a line of words; names and bytes in hexadecimal, files as DEVICE:INODE. */
void end_record(const struct pending *pending, pid_t id, long long result, FILE *output);
