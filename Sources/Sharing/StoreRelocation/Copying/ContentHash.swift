import CXXHash

/// A running 128-bit XXH3 hash (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md). It detects errors of a
/// disk or a copy loop. It is no defence against forged content.
struct ContentHash: ~Copyable {
    private let state: OpaquePointer?

    init() {
        state = XXH3_createState()
        XXH3_128bits_reset(state)
    }

    deinit { XXH3_freeState(state) }

    mutating func update(_ bytes: UnsafeRawBufferPointer) {
        gs_hash_update(state, bytes.baseAddress, bytes.count)
    }

    /// Returns `xxh3-128:` and 32 hexadecimal digits.
    func text() -> String {
        let digest = XXH3_128bits_digest(state)
        return "xxh3-128:" + Self.digits(digest.high64) + Self.digits(digest.low64)
    }

    private static func digits(_ value: UInt64) -> String {
        let text = String(value, radix: 16)
        return String(repeating: "0", count: 16 - text.count) + text
    }
}
