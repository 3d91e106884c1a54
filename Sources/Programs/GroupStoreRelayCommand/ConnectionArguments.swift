import ArgumentParser
import LinuxSystem
import NATSStreams
import RelayStatus
import StoreRelay
import SystemPackage

/// The options that name a broker and a stream.
struct ConnectionArguments: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The broker, nats://HOST:PORT; several are tried in order. TLS is required unless it is a loopback address.",
            valueName: "url"))
    var server: [String]

    @Option(help: ArgumentHelp("The stream's name: it is GS_NAME at the broker.", valueName: "name"))
    var stream: String

    @Option(
        help: ArgumentHelp(
            "A file with the credentials: one that nsc has written, or one line USER:PASSWORD.", valueName: "file"),
        completion: .file())
    var creds: String?

    @Option(
        help: ArgumentHelp("The certificate of the authority that the broker's is signed by.", valueName: "file"),
        completion: .file())
    var tlsCa: String?

    @Option(help: ArgumentHelp("This program's certificate, with --tls-key.", valueName: "file"), completion: .file())
    var tlsCert: String?

    @Option(help: ArgumentHelp("The certificate's private key.", valueName: "file"), completion: .file())
    var tlsKey: String?

    @Option(
        help: ArgumentHelp(
            "A file with the key that home and followers share. Messages without its digest are left out.",
            valueName: "file"), completion: .file())
    var key: String?

    @Option(
        help: ArgumentHelp(
            "Where these files are, as far as they are needed: key, which must be there, creds, ca.pem, cert.pem, cert.key. "
                + "A directory, or the beginning of their paths.", valueName: "prefix"), completion: .directory)
    var secrets: String?

    func validate() throws {
        guard !server.isEmpty else { throw ValidationError("--server is missing") }
        if (tlsCert == nil) != (tlsKey == nil) { throw ValidationError("--tls-cert and --tls-key belong together") }
    }

    /// Returns the configuration that publishing and following share. Throws `NATSError`, `RelayError`.
    ///
    /// - Parameters:
    ///   - role: The command. The broker shows it as a part of the connection's name.
    ///   - follower: The follower's name.
    func options(role: String, as follower: String? = nil, watchdog: Watchdog) throws -> RelayOptions {
        let stream = try RelayStream(stream)
        let words = ["groupstore-relay", role, stream.name] + [follower].compactMap(\.self)
        var connection = ConnectionOptions(
            servers: try server.map { try ServerAddress($0) }, name: words.joined(separator: " "))
        connection.authorities = path(tlsCa, or: "ca.pem")
        connection.credentials = path(creds, or: "creds")
        if let certificate = path(tlsCert, or: "cert.pem"), let key = path(tlsKey, or: "cert.key") {
            connection.certificate = (certificate, key)
        }
        connection.watchdog = watchdog
        var options = RelayOptions(stream, connection)
        options.key = try relayKey()
        options.status = RelayRecord.ownDirectory(environment: Environment.all)
        return options
    }

    /// Returns the key; nil if none is named. Where the other secrets are, it must be too: without one, messages of
    /// anybody would be believed. Throws `NATSError`, `RelayError.badKey`.
    private func relayKey() throws -> RelayKey? {
        try (key.map { FilePath($0) } ?? secret("key")).map { try RelayKey(file: $0) }
    }

    /// Returns the path of the option, or of the file among the secrets if it exists.
    private func path(_ option: String?, or name: String) -> FilePath? {
        option.map { FilePath($0) } ?? secret(name).flatMap { FileStatus(following: $0) == nil ? nil : $0 }
    }

    private func secret(_ name: String) -> FilePath? {
        secrets.map { prefix in
            FileStatus(following: FilePath(prefix))?.kind == .directory
                ? FilePath(prefix).appending(name) : FilePath(prefix + name)
        }
    }
}
