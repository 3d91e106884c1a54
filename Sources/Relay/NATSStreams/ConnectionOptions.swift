import CNATS
import Glibc
import LinuxSystem
import SystemPackage

/// The way to connect to a broker. Secrets come from files.
package struct ConnectionOptions: Sendable {
    /// The broker's addresses, tried in this order.
    package var servers: [ServerAddress]
    /// The name that the broker shows for the connection.
    package var name: String
    /// A file with certificates of authorities; nil for the system's.
    package var authorities: FilePath?
    /// A client certificate and its private key.
    package var certificate: (chain: FilePath, key: FilePath)?
    /// A file with a user's JWT and seed as `nsc` writes it, or with one line `USER:PASSWORD`.
    package var credentials: FilePath?
    /// The beginning of the subjects on which this program receives answers, without a dot at its end. One of its own
    /// lets a broker's permissions keep others from reading and from answering there.
    package var inboxPrefix = "_INBOX"
    /// The stream that an account without JetStream may have imported from another account, with the prefix of the
    /// API's subjects there; nil if this account has JetStream itself. Without such an import, its own is used.
    package var streamAPI: (prefix: String, stream: String)?
    /// The limit for connecting, and for each request.
    package var timeout = Duration.seconds(5)
    /// Watches the library's calls; nil for nobody.
    package var watchdog: Watchdog?

    package init(servers: [ServerAddress], name: String) {
        self.servers = servers
        self.name = name
    }

    /// Moves a server behind the others, if its connection was of no use: a server of a cluster may accept connections
    /// while cut off from the others.
    ///
    /// - Parameter worked: True if the connection was of use before the error.
    package mutating func note(_ error: any ActionableError, of server: ServerAddress, worked: Bool) {
        guard !worked || (error as? NATSError)?.concernsOneServer ?? false,
            let place = servers.firstIndex(of: server)
        else { return }
        servers.append(servers.remove(at: place))
    }

    /// Throws `NATSError` for a file that is missing, can't be read or is a secret that everybody can read.
    package func checkFiles() throws(NATSError) {
        for path in [authorities, certificate?.chain].compactMap(\.self) { _ = try Self.read(path) }
        for path in [certificate?.key, credentials].compactMap(\.self) { _ = try SecretFile.read(path) }
    }

    /// Returns the file's bytes, with the status of the very file that was read.
    fileprivate static func read(_ path: FilePath) throws(NATSError) -> (bytes: [UInt8], status: FileStatus) {
        do {
            // A FIFO without a writer isn't waited for.
            let descriptor = try Descriptor(opening: path, flags: O_RDONLY | O_NONBLOCK)
            return (
                try descriptor.read(count: SecretFile.limit, at: 0, path: path), try descriptor.status(path: path)
            )
        } catch {
            throw NATSError(.badFile, error.message, remedy: error.remedy, path: path)
        }
    }
}

/// A file with a secret.
package enum SecretFile {
    fileprivate static let limit = 1 << 20

    /// Reads the file, at most a mebibyte. Throws `NATSError` if it can't be read, or if everybody can read it.
    package static func read(_ path: FilePath) throws(NATSError) -> [UInt8] {
        guard FileStatus(following: path) != nil else {
            throw NATSError(.badFile, "there is no file \(PrintablePath(path))", path: path)
        }
        let (bytes, status) = try ConnectionOptions.read(path)
        // systemd grants a service access to its credentials by an ACL, which shows as permissions of the group.
        guard status.permissions & 0o007 == 0 else {
            throw NATSError(
                .badFile, "every user can access the secret in \(PrintablePath(path))", remedy: "chmod 600 the file",
                path: path)
        }
        return bytes
    }
}

extension ConnectionOptions {
    /// Creates the library's options for one server. The caller destroys them.
    func make(for server: ServerAddress) throws(NATSError) -> OpaquePointer {
        var options: OpaquePointer?
        try check(natsOptions_Create(&options), "natsOptions_Create")
        guard let options else { throw NATSError(.rejected, "natsOptions_Create returned nothing") }
        do throws(NATSError) {
            try configure(options, server)
        } catch {
            natsOptions_Destroy(options)
            throw error
        }
        return options
    }

    private func configure(_ options: OpaquePointer, _ server: ServerAddress) throws(NATSError) {
        func set(_ status: natsStatus) throws(NATSError) { try check(status, "connect", at: server) }
        let milliseconds = max(1, timeout.nanoseconds / 1_000_000)
        try set(natsOptions_SetURL(options, server.description))
        try set(natsOptions_SetName(options, name))
        try set(natsOptions_SetTimeout(options, milliseconds))
        // A connection that is lost is made by its owner, who then reads the stream's state again.
        try set(natsOptions_SetAllowReconnect(options, false))
        // A message is written at once, and the link may be slow.
        try set(natsOptions_SetWriteDeadline(options, milliseconds * 6))
        // Otherwise, a thread of the library waits a millisecond for more before it sends what was published.
        try set(natsOptions_SetSendAsap(options, true))
        try set(natsOptions_SetCustomInboxPrefix(options, inboxPrefix))
        try set(natsOptions_SetPingInterval(options, 10_000))
        try set(natsOptions_SetMaxPingsOut(options, 2))
        if server.demandsTLS || !server.isLoopback || authorities != nil || certificate != nil {
            try set(natsOptions_SetSecure(options, true))
            // Without it, the library accepts the certificate of any host.
            try set(natsOptions_SetExpectedHostname(options, server.host))
            if let authorities {
                try set(natsOptions_LoadCATrustedCertificates(options, authorities.string))
            }
            if let certificate {
                try set(natsOptions_LoadCertificatesChain(options, certificate.chain.string, certificate.key.string))
            }
        }
        guard let credentials else { return }
        let content = try SecretFile.read(credentials)
        if content.starts(with: "-----BEGIN".utf8) {
            return try set(natsOptions_SetUserCredentialsFromFiles(options, credentials.string, nil))
        }
        let line = content.prefix { $0 != UInt8(ascii: "\n") && $0 != UInt8(ascii: "\r") }
        guard let colon = line.firstIndex(of: UInt8(ascii: ":")), let text = String(validating: line, as: UTF8.self),
            !text.contains("\0")
        else {
            throw NATSError(
                .badFile, "\(PrintablePath(credentials)) contains no credentials",
                remedy: "write one line USER:PASSWORD, or use a file that nsc has written", path: credentials)
        }
        let user = String(decoding: line[..<colon], as: UTF8.self)
        let password = String(decoding: line[(colon + 1)...], as: UTF8.self)
        try set(natsOptions_SetUserInfo(options, user, password))
    }
}
