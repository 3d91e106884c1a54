// XXH3 of xxHash, with 128 and with 64 bits. The library is compiled in, so that an app that uses GroupStoreGRDB needs
// no system library but SQLite. xxhash.h is version 0.8.2 of https://github.com/Cyan4973/xxHash, unchanged.
#ifndef GROUPSTORE_CXXHASH_H
#define GROUPSTORE_CXXHASH_H

#include <stddef.h>
#include <stdint.h>

// A running hash.
typedef struct gs_hash gs_hash;

typedef struct {
    uint64_t low64;
    uint64_t high64;
} gs_hash_digest;

// Returns a hash of no bytes, or NULL if there is no memory. `gs_hash_free` frees it.
gs_hash *gs_hash_create(void);
void gs_hash_free(gs_hash *hash);
void gs_hash_update(gs_hash *hash, const void *bytes, size_t count);
// Returns the hash of the bytes so far, which more may follow.
gs_hash_digest gs_hash_current(const gs_hash *hash);

// Returns the 64-bit hash of bytes. Another seed gives another hash.
uint64_t gs_hash_bytes(const void *bytes, size_t count, uint64_t seed);

#endif
