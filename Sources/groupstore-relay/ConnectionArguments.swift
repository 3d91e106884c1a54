import ArgumentParser
import LinuxSystem
import NATSStreams
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

    func validate() throws {
        guard !server.isEmpty else { throw ValidationError("--server is missing") }
        if (tlsCert == nil) != (tlsKey == nil) { throw ValidationError("--tls-cert and --tls-key belong together") }
    }

    /// Throws `NATSError`.
    func options(name: String) throws -> ConnectionOptions {
        var options = ConnectionOptions(servers: try server.map { try ServerAddress($0) }, name: name)
        options.authorities = tlsCa.map { FilePath($0) }
        options.credentials = creds.map { FilePath($0) }
        if let tlsCert, let tlsKey { options.certificate = (FilePath(tlsCert), FilePath(tlsKey)) }
        return options
    }

    /// Throws `RelayError.badName`.
    func relayStream() throws -> RelayStream { try RelayStream(stream) }

    /// Throws `NATSError`, `RelayError.badKey`.
    func relayKey() throws -> RelayKey? { try key.map { try RelayKey(file: FilePath($0)) } }
}
