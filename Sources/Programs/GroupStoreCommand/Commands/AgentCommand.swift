import AgentProtocol
import ArgumentParser
import CommandSupport
import DirectoryWatching
import Glibc
import GroupContainers
import GroupStoreAgent
import InotifyToolsWatching
import LinuxSystem
import Logging
import SQLiteFormat
import SystemPackage

struct AgentCommand: ProcIndependentCommand {
    static let configuration = CommandConfiguration(
        commandName: "agent",
        abstract:
            "Run the agent: relocate legacy stores and apps' directories when they appear, and publish changes to subscribers.",
        discussion: """
            The agent runs in the foreground. It serves the socket that systemd passes, if any. SIGHUP reloads the configuration; SIGTERM and SIGINT stop the agent. \
            The standard configuration is the drop-ins groups.d/*.yaml under /usr/share/groupstore, /etc/groupstore and \
            $XDG_CONFIG_HOME/groupstore, and the files config.yaml of the latter two; a later one overrides an earlier \
            one, by group and store. Without a config.yaml, the groups under app-groups/ are served too.

            Example:
              groupstore agent --group group.com.example.notes=/srv/notes --legacy /srv/old/Notes.sqlite
            """)

    @Flag(help: "Read the configuration, print what would be served, and exit.")
    var check = false

    @Option(help: "Read this configuration file and no other.", completion: .file())
    var config: String?

    @Option(help: ArgumentHelp("Serve this group in this directory. May be repeated.", valueName: "id=dir"))
    var group: [String] = []

    @Option(
        help: ArgumentHelp(
            "Relocate this legacy store into the group under its own name; ID=FILE with several groups. May be repeated.",
            valueName: "file"))
    var legacy: [String] = []

    /// The directory of an agent that serves one process alone. The agent ends when its standard input does, and
    /// removes the directory. Set by `groupstore watch`.
    @Option(help: .hidden)
    var `private`: String?

    @Option(
        help: ArgumentHelp(
            "Log messages of this level and above; by default info, under --quiet warning.",
            valueName: "level"))
    var logLevel: Logger.Level?

    @Option(
        help: ArgumentHelp(
            "The log's format; by default journal if standard error leads to systemd's journal, else text.",
            valueName: "format"))
    var logFormat: LogFormat?

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        if config != nil, !group.isEmpty { throw ValidationError("--config and --group exclude each other") }
        if !legacy.isEmpty, group.isEmpty { throw ValidationError("--legacy needs --group") }
    }

    var needsProc: Bool { !check }

    func run() throws {
        let output = Output(outputOptions)
        let environment = ProcessVariables.all
        guard !check else { return try printCheck(output, environment) }
        let format = logFormat ?? .standard(for: STDERR_FILENO, environment: environment)
        let lines = StandardErrorLog(to: STDERR_FILENO, format: format)
        defer { lines.flush(within: .seconds(1)) }
        let log = log(lines, format, output)
        do {
            try serve(output, log, environment)
            try Output.checkDelivered()
        } catch {
            let failure =
                (error as? any ActionableError).map { CommandFailure($0) }
                ?? CommandFailure(
                    .inputOutput, code: "agent_failed", "\(error)", remedy: "see what is missing: groupstore doctor")
            // A log that programs read gets every line in its format, the last one too.
            if format == .text {
                output.fail(failure)
            } else {
                log.critical(
                    "\(([failure.message] + failure.reasons).joined(separator: "; ")) (\(failure.remedy))",
                    metadata: ["code": "\(failure.errorCode)"])
                output.failSummary(failure)
            }
            throw failure.status.code
        }
    }

    private func serve(_ output: Output, _ log: Logger, _ environment: [String: String]) throws {
        let loader = loader(environment)
        let configuration = try loader?.load() ?? commandLine(environment)
        let privateDirectory = `private`.map(ArgumentBytes.path)
        defer { if let privateDirectory { Self.remove(privateDirectory) } }
        if privateDirectory != nil { try Self.stopAtEndOfInput() }
        // A private agent is no service of systemd's, even if its client is.
        let environment = privateDirectory == nil ? environment : [:]
        let activation = try ActivationSocket(
            environment: environment, configured: Self.namedSocket(configuration, environment))
        // Not for the programs that this one starts.
        for variable in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] { unsetenv(variable) }
        let socket =
            try privateDirectory?.appending(PrivateAgent.socketName) ?? activation?.path
            ?? Self.socket(configuration, environment)
        try Agent(
            configuration: configuration, socket: socket, activation: activation,
            parts: Agent.Parts(
                source: { try InotifySource(privateDirectory: $0) },
                scheduler: { environment, configuration, log in
                    RelocationScheduler(configuration, environment: environment, logger: log)
                },
                reload: loader.map { loader in { try loader.load() } },
                program: "/proc/self/exe"),
            notification: ServiceNotification(environment: environment), log: log
        ).run()
        if output.json { output.record(["type": "summary", "outcome": "stopped"], "") }
    }

    /// Stops the agent once nobody can write to its standard input any more.
    private static func stopAtEndOfInput() throws {
        _ = try SystemThread(name: "gs-input") {
            // The signal is for the thread that waits for it.
            var all = sigset_t()
            sigfillset(&all)
            pthread_sigmask(SIG_BLOCK, &all, nil)
            var byte: UInt8 = 0
            while let count = try? retrying("read", { read(STDIN_FILENO, &byte, 1) }), count > 0 {}
            kill(getpid(), SIGTERM)
        }
    }

    private static func remove(_ directory: FilePath) {
        guard let name = directory.lastComponent else { return }
        try? Directory(directory.removingLastComponent()).removeTree(name)
    }

    /// Returns the socket's path if the configuration or the user has named one.
    private static func namedSocket(_ configuration: Configuration, _ environment: [String: String]) -> FilePath? {
        configuration.socket
            ?? environment["GROUPSTORE_SOCKET"].flatMap { $0.hasPrefix("/") ? FilePath($0) : nil }
    }

    private func log(_ lines: StandardErrorLog, _ format: LogFormat, _ output: Output) -> Logger {
        var log = Logger(label: "groupstore") { format.handler(label: $0, to: lines) }
        log.logLevel = logLevel ?? (output.quiet ? .warning : .info)
        return log
    }

    private static func socket(
        _ configuration: Configuration, _ environment: [String: String]
    ) throws -> FilePath {
        guard let socket = configuration.socket ?? AgentSocket.path(environment: environment) else {
            throw CommandFailure(
                .configuration, code: "no_socket_path",
                "the socket path is unknown: neither GROUPSTORE_SOCKET nor XDG_RUNTIME_DIR is set, and there is no "
                    + "/run/user/\(geteuid())",
                remedy: "set GROUPSTORE_SOCKET, or socket: path in the configuration")
        }
        return socket
    }

    /// Returns the loader of the configuration's files; nil if the command line is the configuration.
    private func loader(_ environment: [String: String]) -> ConfigurationLoader? {
        guard group.isEmpty else { return nil }
        let file = config.map { ArgumentBytes.path($0).absolute(in: FilePath(workingDirectory())) }
        return ConfigurationLoader(file: file, environment: environment)
    }

    /// Prints what the agent would serve. Exits with the code of a bad configuration if anything is left out.
    private func printCheck(_ output: Output, _ environment: [String: String]) throws {
        try reporting(output) {
            let configuration = try loader(environment)?.load() ?? commandLine(environment)
            let report = ConfigurationReportRows(configuration, socket: try Self.socket(configuration, environment))
            for row in report.rows { output.record(row.object, lines: row.lines) }
            guard configuration.problems.isEmpty else { throw ExitStatus.configuration.code }
        }
    }
}

// MARK: - The command line as a configuration

extension AgentCommand {
    private func commandLine(_ environment: [String: String]) throws -> Configuration {
        let working = FilePath(workingDirectory())
        var builder = ConfigurationBuilder(nil)
        for argument in group {
            let (name, directory) = Self.split(argument)
            guard let identifier = GroupIdentifier(name) else {
                throw Self.usage("\(name) isn't a group identifier", "use letters, digits, '.', '-' and '_'")
            }
            guard let place = directory?.absolute(in: working) ?? identifier.defaultDirectory(environment: environment)
            else { throw Self.usage("\(name) has no directory, and HOME is not set", "--group \(name)=DIR") }
            try builder.add(identifier, directory: place, isExplicit: directory != nil, line: nil)
            for path in legacyPaths(of: name) {
                let path = try expanded(path, environment) ?? path.absolute(in: working)
                guard let file = path.lastComponent.flatMap(StoreName.init) else {
                    throw Self.usage("\(PrintablePath(path)) names no file", "name the store's database file")
                }
                try builder.add(Configuration.Store(name: file), line: nil)
                try builder.add(legacy: path, line: nil)
            }
        }
        let known = Set(group.map { Self.split($0).0 })
        if group.count > 1, let stray = legacy.first(where: { !known.contains(Self.split($0).0) }) {
            throw Self.usage("\(stray) belongs to no group", "with several groups write --legacy ID=FILE")
        }
        return try builder.finished()
    }

    /// Returns the path of a short form such as `flatpak:APP/PATH`; nil for any other path.
    private func expanded(_ path: FilePath, _ environment: [String: String]) throws -> FilePath? {
        do throws(ContainerPath.Failure) {
            return try path.utf8.flatMap { text throws(ContainerPath.Failure) in
                try ContainerPath(text, home: environment["HOME"])
            }?.path
        } catch {
            throw Self.usage(error.message, error.remedy)
        }
    }

    private func legacyPaths(of group: String) -> [FilePath] {
        guard self.group.count > 1 else { return legacy.map { ArgumentBytes.path($0) } }
        return legacy.map { Self.split($0) }.filter { $0.0 == group }.compactMap(\.1)
    }

    /// Returns the text before the first `=`, and after it the path with its original bytes.
    private static func split(_ argument: String) -> (String, FilePath?) {
        let bytes = ArgumentBytes.path(argument).bytes
        guard let equals = bytes.firstIndex(of: UInt8(ascii: "=")) else { return (argument, nil) }
        let path = FilePath(bytes: bytes[(equals + 1)...])
        return (String(decoding: bytes[..<equals], as: UTF8.self), path?.isEmpty == true ? nil : path)
    }

    private static func usage(_ message: String, _ remedy: String) -> CommandFailure {
        CommandFailure(.usage, code: "usage", message, remedy: remedy)
    }
}

extension LogFormat: ExpressibleByArgument {}
extension Logger.Level: @retroactive ExpressibleByArgument {}
