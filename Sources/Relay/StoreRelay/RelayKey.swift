import COpenSSL
import NATSStreams
import SystemPackage

/// The key that a home shares with its followers, so that neither the broker nor anybody else who can publish can forge
/// or alter messages.
///
/// The digests are HMAC-SHA-256 (RFC 2104), through OpenSSL, which libnats links anyway and which uses the processor's
/// own instructions.
package struct RelayKey: Sendable {
    private let keyed: KeyedMAC

    /// Reads the key: the file's bytes without a newline at the end, at least 16. Throws `NATSError` if the file can't
    /// be read or everybody can read it, and `RelayError.badKey`.
    package init(file: FilePath) throws {
        var content = try SecretFile.read(file)
        if content.last == UInt8(ascii: "\n") { content.removeLast() }
        if content.last == UInt8(ascii: "\r") { content.removeLast() }
        guard content.count >= 16 else { throw RelayError.badKey(file) }
        self.init(bytes: content)
    }

    init(bytes: [UInt8]) { keyed = KeyedMAC(bytes) }

    /// Returns the digest, in lower-case hexadecimal, of the fields, each with a newline after it, and the body.
    func digest(of fields: [String], _ body: [UInt8]) throws(RelayError) -> String {
        guard let context = keyed.copy() else { throw .cryptography("EVP_MAC_init") }
        defer { EVP_MAC_CTX_free(context) }
        let head = fields.flatMap { Array($0.utf8) + [UInt8(ascii: "\n")] }
        guard EVP_MAC_update(context, head, head.count) == 1, EVP_MAC_update(context, body, body.count) == 1 else {
            throw .cryptography("EVP_MAC_update")
        }
        var result = [UInt8](repeating: 0, count: 32)
        var count = 0
        guard EVP_MAC_final(context, &result, &count, result.count) == 1, count == result.count else {
            throw .cryptography("EVP_MAC_final")
        }
        return result.hexadecimal
    }

    /// Returns the header with the digest; no header without a key.
    static func header(
        _ key: RelayKey?, of fields: [String], _ body: [UInt8]
    ) throws(RelayError) -> [(name: String, value: String)] {
        guard let key else { return [] }
        return [(name: RelayHeader.mac, value: try key.digest(of: fields, body))]
    }

    /// Returns true if the digest is the right one. The comparison takes constant time, so that its duration reveals
    /// nothing of the right digest.
    func accepts(_ digest: String?, of fields: [String], _ body: [UInt8]) throws(RelayError) -> Bool {
        guard let digest else { return false }
        let (given, right) = (Array(digest.utf8), Array(try self.digest(of: fields, body).utf8))
        return given.count == right.count && CRYPTO_memcmp(given, right, right.count) == 0
    }
}

/// An HMAC that has its key and no data yet, from which each digest begins. So OpenSSL looks the algorithms up once,
/// and not for each message in several threads at once.
///
/// @unchecked: the context is set once and only copied afterwards, which changes nothing in it (EVP_MAC_CTX_dup(3)).
private final class KeyedMAC: @unchecked Sendable {
    private let context: OpaquePointer?

    init(_ key: [UInt8]) { context = Self.begin(key) }

    private static func begin(_ key: [UInt8]) -> OpaquePointer? {
        guard let algorithm = EVP_MAC_fetch(nil, "HMAC", nil) else { return nil }
        defer { EVP_MAC_free(algorithm) }
        guard let context = EVP_MAC_CTX_new(algorithm) else { return nil }
        // A parameter keeps the pointer to its name, so both must outlast the call that makes it.
        var digest = Array("SHA256".utf8CString)
        let isBegun = OSSL_MAC_PARAM_DIGEST.withCString { name in
            digest.withUnsafeMutableBufferPointer { digest in
                var parameters = [
                    OSSL_PARAM_construct_utf8_string(name, digest.baseAddress, 0), OSSL_PARAM_construct_end(),
                ]
                return EVP_MAC_init(context, key, key.count, &parameters) == 1
            }
        }
        if isBegun { return context }
        EVP_MAC_CTX_free(context)
        return nil
    }

    deinit { EVP_MAC_CTX_free(context) }

    func copy() -> OpaquePointer? { context.flatMap { EVP_MAC_CTX_dup($0) } }
}

extension [UInt8] {
    /// The bytes in lower-case hexadecimal.
    fileprivate var hexadecimal: String {
        let digits = Array<UInt8>("0123456789abcdef".utf8)
        return String(decoding: flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }
}

/// The names of the messages' headers.
enum RelayHeader {
    static let from = "Gs-From"
    static let upto = "Gs-Upto"
    static let part = "Gs-Part"
    static let schema = "Gs-Schema"
    static let previous = "Gs-Prev"
    static let mac = "Gs-Mac"
    static let error = "Gs-Error"
}
