import LinuxSystem

/// The address of a broker: `nats://HOST:PORT` or `tls://HOST:PORT`.
///
/// A user or password in the address is rejected: command lines and logs are no place for secrets.
package struct ServerAddress: Sendable, Equatable, CustomStringConvertible {
    package let host: String
    package let port: UInt16
    /// True for `tls://`.
    package let demandsTLS: Bool

    /// Parses an address. Without a scheme it is `nats`, without a port 4222. Throws `NATSError`.
    package init(_ text: String) throws(NATSError) {
        func bad(_ reason: String) -> NATSError {
            NATSError(.badAddress, "the server \"\(PrintableText(text))\" \(reason)")
        }
        var rest = Substring(text)
        var demandsTLS = false
        if let end = text.range(of: "://") {
            switch text[..<end.lowerBound] {
            case "nats": break
            case "tls": demandsTLS = true
            default: throw bad("has another scheme")
            }
            rest = text[end.upperBound...]
        }
        guard !rest.contains("@") else {
            throw NATSError(
                .badAddress, "the server's address contains a user or password", remedy: "put them into a --creds file")
        }
        if rest.hasSuffix("/") { rest.removeLast() }
        self.demandsTLS = demandsTLS
        let port: Substring?
        if rest.hasPrefix("[") {
            guard let end = rest.firstIndex(of: "]") else { throw bad("lacks a closing bracket") }
            host = String(rest[rest.index(after: rest.startIndex)..<end])
            let tail = rest[rest.index(after: end)...]
            guard tail.isEmpty || tail.hasPrefix(":") else { throw bad("is not HOST:PORT") }
            port = tail.isEmpty ? nil : tail.dropFirst()
        } else {
            let parts = rest.split(separator: ":", omittingEmptySubsequences: false)
            guard parts.count <= 2 else { throw bad("is not HOST:PORT; put an IPv6 address in brackets") }
            host = String(parts[0])
            port = parts.count == 2 ? parts[1] : nil
        }
        guard !host.isEmpty, host.utf8.allSatisfy(Self.isOfHost) else { throw bad("has no valid host") }
        guard let number = port.map({ UInt16($0) }) ?? 4222, number > 0 else { throw bad("has no valid port") }
        self.port = number
    }

    private static func isOfHost(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"),
            UInt8(ascii: ":"), UInt8(ascii: "%"):
            true
        default: false
        }
    }

    /// True if no other machine can read what is sent there.
    package var isLoopback: Bool {
        if host == "localhost" || host == "::1" { return true }
        let parts = host.split(separator: ".", omittingEmptySubsequences: false)
        return parts.count == 4 && parts[0] == "127" && parts.allSatisfy { UInt8($0) != nil }
    }

    package var description: String {
        "\(demandsTLS ? "tls" : "nats")://\(host.contains(":") ? "[\(host)]" : host):\(port)"
    }
}

extension String {
    /// Returns the range of the first occurrence of a text; `Foundation` has the same, but isn't linked.
    fileprivate func range(of text: String) -> Range<String.Index>? {
        var start = startIndex
        while start < endIndex {
            if self[start...].hasPrefix(text) { return start..<index(start, offsetBy: text.count) }
            start = index(after: start)
        }
        return nil
    }
}
