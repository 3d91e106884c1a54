#include "CXXHash.h"

// Makes all functions of the library static: an app may link another version of it.
#define XXH_INLINE_ALL
#include "xxhash.h"

gs_hash *gs_hash_create(void) {
    XXH3_state_t *state = XXH3_createState();
    if (state != NULL) XXH3_128bits_reset(state);
    return (gs_hash *)state;
}

void gs_hash_free(gs_hash *hash) { XXH3_freeState((XXH3_state_t *)hash); }

void gs_hash_update(gs_hash *hash, const void *bytes, size_t count) {
    XXH3_128bits_update((XXH3_state_t *)hash, bytes, count);
}

gs_hash_digest gs_hash_current(const gs_hash *hash) {
    XXH128_hash_t digest = XXH3_128bits_digest((const XXH3_state_t *)hash);
    return (gs_hash_digest){digest.low64, digest.high64};
}

uint64_t gs_hash_bytes(const void *bytes, size_t count, uint64_t seed) {
    return XXH3_64bits_withSeed(bytes, count, seed);
}
