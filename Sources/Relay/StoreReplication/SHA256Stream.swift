import COpenSSL

/// The SHA-256 of bytes that come piece by piece, by libcrypto, which uses the processor's own instructions: a snapshot
/// of a gigabyte shouldn't wait for its hash. Confined to one thread.
package final class SHA256Stream {
    private var context: OpaquePointer?

    package init() {
        context = EVP_MD_CTX_new()
        EVP_DigestInit_ex(context, EVP_sha256(), nil)
    }

    deinit { EVP_MD_CTX_free(context) }

    package func add(_ bytes: some Collection<UInt8>) {
        let added: Void? = bytes.withContiguousStorageIfAvailable { add(UnsafeRawBufferPointer($0)) }
        if added == nil { Array(bytes).withUnsafeBytes { add($0) } }
    }

    package func add(_ bytes: UnsafeRawBufferPointer) {
        if !bytes.isEmpty { EVP_DigestUpdate(context, bytes.baseAddress, bytes.count) }
    }

    /// Ends the stream and returns 64 hexadecimal digits.
    package func finish() -> String {
        var digest = [UInt8](repeating: 0, count: 32)
        EVP_DigestFinal_ex(context, &digest, nil)
        let digits = Array("0123456789abcdef".utf8)
        return String(decoding: digest.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }

    package static func digest(_ bytes: some Collection<UInt8>) -> String {
        let stream = SHA256Stream()
        stream.add(bytes)
        return stream.finish()
    }
}
