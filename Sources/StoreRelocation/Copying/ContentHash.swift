import CXXHash

/// A running XXH3 hash of 128 bits (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md): it finds
/// what a disk or a copy loop got wrong. It is no defence against somebody who forges content.
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

    /// `xxh3-128:` and 32 hexadecimal digits.
    func text() -> String {
        let digest = XXH3_128bits_digest(state)
        return "xxh3-128:" + Self.digits(digest.high64) + Self.digits(digest.low64)
    }

    private static func digits(_ value: UInt64) -> String {
        let text = String(value, radix: 16)
        return String(repeating: "0", count: 16 - text.count) + text
    }
}
