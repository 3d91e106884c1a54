import AgentProtocol
import ArgumentParser
import CommandSupport
import Glibc
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import SystemPackage

struct DoctorCommand: ProcIndependentCommand {
    static let configuration = CommandConfiguration(
        commandName: "doctor",
        abstract: "Check whether stores can be relocated and watched on this machine, and suggest remedies.",
        discussion: """
            Checks inotify's limits, file leases, the agent's socket, the libraries, and each named directory, where \
            stores are or will be. A file stands for its directory. Without arguments, checks the directories of the \
            configuration, else this user's group containers. Exits with 0 if it finds no problem; a \
            warning is none. --quiet prints the problems alone, on standard error.

            Example:
              groupstore doctor group.com.example.notes
            """)

    @Argument(
        help: ArgumentHelp("Directories, stores or groups to check.", valueName: "place"),
        completion: .groupsAndStores)
    var paths: [String] = []

    @Option(help: "Use this configuration instead of the agent's standard one.", completion: .file())
    var config: String?

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = Output(outputOptions)
        FileLease.ignoreBreakSignal()
        let (configuration, configurationFindings) = configuration()
        let findings =
            SystemDiagnosis.findings() + InotifyDiagnosis().findings + configurationFindings + [socket(configuration)]
            + agent(configuration)
            + missingStores + directories(configuration).flatMap(Self.findings) + ownCopies(configuration)
        for finding in findings { print(finding, output) }
        summarize(findings, output)
        let statuses = findings.compactMap(\.status)
        // A hazard counts more than what keeps this process from writing.
        if let status = statuses.first(where: { $0 == .badData }) ?? statuses.first { throw status.code }
    }

    private static func findings(_ directory: FilePath) -> [Finding] {
        DirectoryDiagnosis(directory).findings() + OwnerDiagnosis(directory).findings()
            + HolderDiagnosis(directory).findings() + HazardDiagnosis(directory).findings()
            + BranchDiagnosis(directory).findings() + CopyDiagnosis(group: directory).findings()
            + AppDiagnosis(directory).findings()
    }

    /// The findings about this user's own copies of stores that are gone.
    private func ownCopies(_ configuration: Configuration?) -> [Finding] {
        guard let state = try? DirectRows.stateDirectory() else { return [] }
        let named = paths.isEmpty ? nil : directories(configuration)
        return CopyDiagnosis(stateDirectory: state, in: named).findings()
    }

    private func configuration() -> (Configuration?, [Finding]) {
        let environment = ProcessVariables.all
        do throws(ConfigurationError) {
            guard let loaded = try loaded(environment) else {
                return (nil, [Finding("configuration", .fine, "no configuration file; defaults are used")])
            }
            let stores = loaded.groups.reduce(0) { $0 + $1.stores.count }
            let files = loaded.files.map { "\(PrintablePath($0))" }.joined(separator: ", ")
            let message = "\(files.isEmpty ? "no file" : files): groups: \(loaded.groups.count), stores: \(stores)"
            return (loaded, [Finding("configuration", .fine, message)] + loaded.problems.map(Self.finding))
        } catch {
            return (nil, [Self.finding(error)])
        }
    }

    private func loaded(_ environment: [String: String]) throws(ConfigurationError) -> Configuration? {
        guard let config else { return try Configuration.standard(environment: environment) }
        return try ConfigurationLoader(file: ArgumentBytes.path(config), environment: environment).load()
    }

    private static func finding(_ error: ConfigurationError) -> Finding {
        Finding(
            "configuration", .problem(error.kind == .notPermitted ? .notPermitted : .configuration), "\(error)",
            remedy: error.remedy)
    }

    /// Returns the directories of the arguments, else of the configuration, else the default containers; each once.
    private func directories(_ configuration: Configuration?) -> [FilePath] {
        var found: [FilePath] = []
        func add(_ directory: FilePath) { if !found.contains(directory) { found.append(directory) } }
        let working = FilePath(workingDirectory())
        for text in paths {
            let path = Self.group(text) ?? ArgumentBytes.path(text).absolute(in: working)
            let isFile = Self.exists(path) ? !Self.isDirectory(path) : MissingSource(path)?.isStore == true
            add(isFile ? path.removingLastComponent() : path)
            // Programs have the file open by its own name.
            let (parent, target) = (path.removingLastComponent().resolvingLinks, path.resolvingLinks)
            if isFile, target.removingLastComponent() != parent { add(target.removingLastComponent()) }
        }
        if !paths.isEmpty { return found }
        for group in configuration?.groups ?? [] {
            add(group.directory)
            for legacy in group.stores.flatMap(\.legacy) { add(legacy.removingLastComponent()) }
        }
        if found.isEmpty { Self.containers.forEach(add) }
        return found
    }

    /// A finding for each argument that can only be a store, and isn't there. Others may be directories of which the
    /// agent waits.
    private var missingStores: [Finding] {
        paths.compactMap { text in
            guard Self.group(text) == nil else { return nil }
            let path = ArgumentBytes.path(text).absolute(in: FilePath(workingDirectory()))
            guard let missing = MissingSource(path), missing.isStore else { return nil }
            return Finding(
                "store", .problem(.inputOutput), "\(missing.fact)\(missing.suggestion)",
                remedy: missing.nearest.map { "name it: \($0.shellWord)" } ?? "check the path")
        }
    }

    /// The directory of all default containers, and each container in it.
    private static var containers: [FilePath] {
        guard let all = GroupIdentifier.defaultDirectories(environment: ProcessVariables.all) else { return [] }
        let names = (try? Directory(all).names()) ?? []
        return [all] + names.filter { !$0.string.hasPrefix(".") }.map(all.appending).filter(isDirectory)
    }

    /// Returns the directory of a group's identifier, which may not exist, or of GROUP_ID/NAME; nil if a file has that
    /// name.
    private static func group(_ text: String) -> FilePath? {
        guard !exists(ArgumentBytes.path(text).absolute(in: FilePath(workingDirectory()))) else { return nil }
        if let location = try? StoreArgument(text).location() { return location.directory.path }
        return try? GroupIdentifier(text)?.standardDirectory(environment: ProcessVariables.all)
    }

    private static func exists(_ path: FilePath) -> Bool { path.withPlatformString { access($0, F_OK) } == 0 }

    /// True also for a directory that this user can't read.
    private static func isDirectory(_ path: FilePath) -> Bool { FileStatus(following: path)?.kind == .directory }

    private static func socket(_ configuration: Configuration?) -> FilePath? {
        configuration?.socket ?? AgentSocket.clientPath(environment: ProcessVariables.all)
    }

    private func socket(_ configuration: Configuration?) -> Finding {
        guard let path = Self.socket(configuration) else {
            return Finding(
                "socket", .warning, "neither GROUPSTORE_SOCKET nor XDG_RUNTIME_DIR is set: no agent can be found",
                remedy: "log in through systemd, or set GROUPSTORE_SOCKET to the agent's socket")
        }
        return SocketDiagnosis(path).finding()
    }

    /// Returns the agent's own findings, limited to the named directories if there are any. Empty without an agent,
    /// which another check reports.
    private func agent(_ configuration: Configuration?) -> [Finding] {
        guard let path = Self.socket(configuration), let status = try? AgentStatus(socket: path) else { return [] }
        return status.findings(in: paths.isEmpty ? nil : Set(directories(configuration)))
    }

    private func print(_ finding: Finding, _ output: Output) {
        let padding = String(repeating: " ", count: 9 - finding.word.count)
        let line = finding.word + padding + finding.message + (finding.remedy.map { " (\($0))" } ?? "")
        if output.quiet, !output.json {
            if finding.status != nil { Output.write(line, to: STDERR_FILENO) }
            return
        }
        var object: JSONObject = ["type": "check", "check": .string(finding.check), "verdict": .string(finding.word)]
        object["message"] = .string(finding.message)
        object["code"] = finding.code.map { .string($0) }
        object["remedy"] = finding.remedy.map { .string($0) }
        if !finding.holders.isEmpty { object["holders"] = .array(finding.holders.map { .object($0.record) }) }
        output.record(object, line)
    }

    private func summarize(_ findings: [Finding], _ output: Output) {
        let problems = findings.filter { $0.status != nil }.count
        let warnings = findings.filter { $0.verdict == .warning }.count
        output.record(
            [
                "type": "summary", "outcome": problems > 0 ? "problems" : warnings > 0 ? "warnings" : "ok",
                "problems": .integer(Int64(problems)), "warnings": .integer(Int64(warnings)),
            ], "\(Counted(problems, "problem")), \(Counted(warnings, "warning"))")
    }
}

extension Finding {
    fileprivate var word: String {
        switch verdict {
        case .fine: "ok"
        case .warning: "warning"
        case .problem: "problem"
        }
    }

    /// The exit status of a problem; nil for other findings.
    fileprivate var status: ExitStatus? {
        guard case .problem(let cause) = verdict else { return nil }
        return switch cause {
        case .inputOutput: .inputOutput
        case .notPermitted: .notPermitted
        case .configuration: .configuration
        case .conflict: .conflict
        case .badData: .badData
        }
    }
}

extension StoreHolder {
    fileprivate var record: JSONObject {
        [
            "pid": .integer(Int64(process.pid)), "program": .string(process.program), "writes": .bool(canWrite),
            "sqlite": version.map { .string($0.description) } ?? .null,
        ]
    }
}
