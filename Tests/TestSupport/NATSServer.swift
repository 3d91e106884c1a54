import Glibc
import LinuxSystem
import SystemPackage

/// A broker with JetStream on a loopback port, with its messages in a directory of its own. Confined to one thread.
package final class NATSServer {
    /// The programs to test with: Debian's in `$GROUPSTORE_DEBIAN_NATS_SERVER` or installed, and a current one in
    /// `$GROUPSTORE_NATS_SERVER`. Those that are missing are left out.
    package static let programs: [FilePath] = {
        func named(_ variable: String) -> [FilePath] { getenv(variable).map { [FilePath(String(cString: $0))] } ?? [] }
        let debian = named("GROUPSTORE_DEBIAN_NATS_SERVER") + ["/usr/sbin/nats-server", "/usr/bin/nats-server"]
        return debian.filter { access($0.string, X_OK) == 0 }.prefix(1) + named("GROUPSTORE_NATS_SERVER")
    }()

    private let program: FilePath
    private let configuration: String
    private let scratch = Result { try TemporaryDirectory() }
    private var process: RunningProcess?
    /// The port that the broker got when it was first started.
    package private(set) var port = 0

    /// Starts a broker.
    ///
    /// - Parameters:
    ///   - configuration: More lines of its configuration file. `%DIRECTORY%` stands for its directory.
    ///   - prepare: A shell script that is run in that directory before.
    package init(_ program: FilePath, configuration: String = "", prepare: String = "") throws {
        self.program = program
        self.configuration = configuration
        let done = try run("sh", ["-c", Word("set -e; cd \"$0\"\n" + prepare), Word(directory)])
        guard done.status == 0 else { throw Unexpected(done.errors) }
        try start()
    }

    package var url: String { "nats://127.0.0.1:\(port)" }

    /// The broker's directory, removed with it.
    package var directory: FilePath { get throws { try scratch.get().path } }

    /// Starts the broker again, on the same port. Returns once it accepts connections.
    package func start() throws {
        let directory = try self.directory
        let file = directory.appending("nats.conf")
        let lines = """
            listen: "127.0.0.1:\(port == 0 ? -1 : port)"
            jetstream { store_dir: "\(directory)/data" }
            \(configuration.split(separator: "%DIRECTORY%", omittingEmptySubsequences: false)
                .joined(separator: directory.string))
            """
        let written = try Descriptor(opening: file, flags: O_WRONLY | O_CREAT | O_TRUNC, mode: 0o600)
        try written.write(Array(lines.utf8), at: 0)
        let process = try RunningProcess(Word(program), ["-c", Word(file)])
        self.process = process
        try process.line(.errors) { line in
            if port == 0, line.contains("Listening for client connections on"),
                let found = line.split(separator: ":").last
            {
                port = Int(found) ?? 0
            }
            return line.hasSuffix("Server is ready")
        }
        guard port > 0 else { throw Unexpected("the broker reports no port") }
    }

    /// Suspends the broker: connections stay, and nothing is answered.
    package func suspend() throws { try process?.suspend() }
    package func resume() { process?.signal(SIGCONT) }

    /// Kills the broker.
    package func kill() throws {
        try process?.killAtOnce()
        process = nil
    }

    /// Ends the broker in an orderly way: everything that it acknowledged is on the disk. Returns its log.
    @discardableResult
    package func stop() throws -> String {
        process?.signal(SIGTERM)
        defer { process = nil }
        return try process?.wait().errors ?? ""
    }

    /// Copies the messages aside. The broker must not run.
    package func saveMessages() throws { try copy("data", to: "saved") }

    /// Sets the broker back to the messages saved before. The broker must not run.
    package func restoreMessages() throws { try copy("saved", to: "data") }

    private func copy(_ source: String, to destination: String) throws {
        let directory = try self.directory
        let script = "rm -rf \"$0/\(destination)\" && cp -a \"$0/\(source)\" \"$0/\(destination)\""
        let done = try run("sh", ["-c", Word(stringLiteral: script), Word(directory)])
        guard done.status == 0 else { throw Unexpected(done.errors) }
    }
}
