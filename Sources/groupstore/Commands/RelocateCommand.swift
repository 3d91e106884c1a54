import AgentProtocol
import ArgumentParser
import Glibc
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import SQLiteFormat
import StoreMigration
import StoreRelocation
import SystemPackage

struct RelocateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "relocate",
        abstract: "Move a store and everything that belongs to it into a group container.",
        discussion: """
            No data is lost in any case. If the command can't be certain that the move is right, it changes nothing and \
            prints the reason. After a crash, run it again: it finishes or undoes the interrupted relocation.
            """)

    @Argument(
        help: "The legacy store's database file; flatpak:APP/PATH and snap:NAME/common/PATH are short for one.",
        completion: .file())
    var sourceStore: String

    @Argument(help: "The group container's directory.", completion: .directory)
    var groupDir: String

    @Option(help: "The store's new file name in the group container; its support folder is renamed with it.")
    var name: String?

    @Flag(help: "Print what would be done, and change nothing.")
    var dryRun = false

    @Option(help: "If both stores hold rows: \(list(RelocationRequest.ConflictPolicy.self)).")
    var onConflict: RelocationRequest.ConflictPolicy = .refuse

    @Option(help: "What to leave at the old path: \(list(Transfer.Retirement.self)).")
    var retire: Transfer.Retirement = .delete

    @Option(help: "Seconds to wait for programs that have the store open.")
    var deadline: Double = 30

    @Flag(help: "Move a file that SQLite can't read, such as an encrypted database, byte by byte.")
    var opaque = false

    @Option(
        name: .customLong("model"),
        help: "Migrate the store to this model, on the way or in place. If repeated, the models are merged.",
        completion: .file())
    var models: [String] = []

    @OptionGroup var modelOptions: MigrationModelOptions

    @Option(
        help:
            "If the store can't be migrated: \(list(RelocationRequest.IncompatiblePolicy.self)) (archive it, install another)."
    )
    var onIncompatible: RelocationRequest.IncompatiblePolicy = .refuse

    @Option(help: "Install this store then, instead of an empty one.", completion: .file())
    var defaultStore: String?

    @Option(help: "The destination's journal mode: wal or delete (default: unchanged).")
    var journalMode: JournalModeArgument?

    @Flag(help: "Undo the store's last relocation, if nobody has written to the store since.")
    var undo = false

    @Flag(help: "Continue even if it can't be proved that no program has the store open.")
    var assumeClosed = false

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        guard !undo || !dryRun else { throw ValidationError("--undo and --dry-run exclude each other") }
        guard onIncompatible == .refuse || !models.isEmpty else {
            throw ValidationError("--on-incompatible set-aside needs a --model")
        }
        guard defaultStore == nil || onIncompatible == .setAside else {
            throw ValidationError("--default-store needs --on-incompatible set-aside")
        }
        try modelOptions.validate(beside: models)
        guard deadline >= 0, deadline <= 86_400 else { throw ValidationError("--deadline must be 0 to 86400 seconds") }
    }

    func run() throws {
        let output = Output(outputOptions)
        let progress = RelocationProgressReporter(output)
        let started = ContinuousClock.now
        do {
            var request = try request()
            let migration = migration()
            Interruption.installHandlers(announcing: true)
            let agent = AgentRelocation(
                request, migration, dryRun: dryRun, undo: undo, environment: ProcessVariables.all)
            guard agent == nil || modelOptions.traceSql == nil else { throw Self.traceWithAgent }
            if let summary = try agent?.run(progress) {
                if !dryRun { reportMissingFiles(summary.path("to").flatMap { FilePath(bytes: $0) }, progress) }
                return try reporting(output, changing: !dryRun) { try progress.finish(summary) }
            }
            var trace: StatementTrace?
            try reporting(output) { trace = try modelOptions.trace() }
            try migration.map {
                try request.migrate($0, trace: trace, isCancelled: { Interruption.isRequested })
            }
            FileLease.ignoreBreakSignal()
            let engine = Relocation(
                request, isCancelled: { Interruption.isRequested }, report: { progress.report($0) })
            let summary = undo ? try engine.undo() : dryRun ? try engine.dryRun() : try engine.run()
            if !dryRun { reportMissingFiles(summary.to, progress) }
            try reporting(output, changing: !dryRun) {
                progress.finish(summary, seconds: started.duration(to: .now).seconds, dryRun: dryRun)
            }
        } catch let error as RelocationFailure {
            let working = FilePath(workingDirectory())
            let source =
                ((try? Self.source(sourceStore, in: working)) ?? ArgumentBytes.path(sourceStore)).absolute(in: working)
            let failure = error.markedIfInterrupted
            progress.fail(failure, source: source, seconds: started.duration(to: .now).seconds)
            throw ExitCode(failure.exitCode)
        }
    }

    /// Reports missing external files, except after a migration, which has reported them. Errors are ignored: the
    /// relocation has succeeded.
    private func reportMissingFiles(_ store: FilePath?, _ progress: RelocationProgressReporter) {
        guard models.isEmpty, !opaque, let store, let name = store.lastComponent.flatMap(StoreName.init),
            let directory = try? Directory(store.removingLastComponent())
        else { return }
        let location = StoreLocation(directory: directory, name: name)
        for missing in (try? ExternalReferences.missing(of: location)) ?? [] {
            progress.report(.note(missing.sentence))
        }
    }

    /// The failure for a trace while an agent serves the group: the statements run in the agent.
    private static let traceWithAgent = RelocationFailure(
        .busy, code: "agent_serves",
        "an agent serves this group and performs the migration, so it can't be traced from here",
        remedy: "omit --trace-sql, or stop the agent")

    /// Returns the migration, or nil without `--model`.
    private func migration() -> MigrationRequest? {
        guard var migration = modelOptions.request(models) else { return nil }
        migration.onIncompatible = onIncompatible
        migration.defaultStore = defaultStore.map { modelOptions.path($0) }
        return migration
    }

    /// Returns the legacy store's path. A file that has the name of a short form (`ContainerPath`) takes precedence.
    private static func source(_ text: String, in working: FilePath) throws(RelocationFailure) -> FilePath {
        let path = working.pushing(ArgumentBytes.path(text))
        guard FileStatus(following: path) == nil else { return path }
        do throws(ContainerPath.Failure) {
            return try ContainerPath(text, home: ProcessVariables.all["HOME"])?.path ?? path
        } catch {
            throw RelocationFailure(.badData, code: "bad_name", error.message, remedy: error.remedy)
        }
    }

    private func request() throws(RelocationFailure) -> RelocationRequest {
        let working = FilePath(workingDirectory())
        // Not normalized: only the kernel knows what ".." means after a symbolic link.
        var request = RelocationRequest(
            source: try Self.source(sourceStore, in: working),
            group: working.pushing(ArgumentBytes.path(groupDir)))
        if let name {
            guard let component = FilePath.Component(bytes: ArgumentBytes.path(name).bytes) else {
                throw .badName(FilePath(name))
            }
            request.name = component
        }
        request.onConflict = onConflict
        request.retirement = retire
        request.deadline = .milliseconds(Int64(deadline * 1000))
        request.opaque = opaque
        request.assumeClosed = assumeClosed
        request.journalMode = journalMode?.mode
        return request
    }
}

private func list<Value: CaseIterable & RawRepresentable>(_ type: Value.Type) -> String where Value.RawValue == String {
    type.allCases.map(\.rawValue).joined(separator: ", ")
}

extension RelocationRequest.IncompatiblePolicy: ExpressibleByArgument {}
extension RelocationRequest.ConflictPolicy: ExpressibleByArgument {}
extension Transfer.Retirement: ExpressibleByArgument {}
