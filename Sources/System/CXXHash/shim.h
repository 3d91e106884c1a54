#include <xxhash.h>

// Uses the processor's widest vectors if the library was built with run-time dispatch.
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

static inline XXH_errorcode gs_hash_update(XXH3_state_t *state, const void *bytes, size_t count) {
    return XXH3_128bits_update(state, bytes, count);
}
