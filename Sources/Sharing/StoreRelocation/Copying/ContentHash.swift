import CXXHash

/// A running 128-bit XXH3 hash (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md). It detects errors of a
/// disk or a copy loop. It is no defence against forged content.
package struct ContentHash: ~Copyable {
    private let hash = gs_hash_create()

    deinit { gs_hash_free(hash) }

    package init() {}

    package mutating func update(_ bytes: UnsafeRawBufferPointer) {
        gs_hash_update(hash, bytes.baseAddress, bytes.count)
    }

    /// Returns `xxh3-128:` and 32 hexadecimal digits.
    package func text() -> String {
        let digest = gs_hash_current(hash)
        return "xxh3-128:" + Self.digits(digest.high64) + Self.digits(digest.low64)
    }

    private static func digits(_ value: UInt64) -> String {
        let text = String(value, radix: 16)
        return String(repeating: "0", count: 16 - text.count) + text
    }
}
