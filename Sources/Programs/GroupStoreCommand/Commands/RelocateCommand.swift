import AgentProtocol
import AppRelocation
import ArgumentParser
import CommandSupport
import Glibc
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import SQLiteFormat
import StoreMerging
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

            Afterwards programs open the store in the group container. A program that can't be changed still opens the \
            old path: a link there leads it to the new place. There is none if a program has registered as the store's \
            presenter, which follows by itself, or if the store was relocated to the old path and no link leads there; \
            --retire decides otherwise.

            With --model, a Core Data XML store becomes a SQLite store on the way; the original goes to the group's \
            archive.

            Example:
              groupstore relocate ~/old/Notes.sqlite group.com.example.notes --dry-run
            """)

    @Argument(
        help: """
            The store to move: its database file, or GROUP_ID/NAME. flatpak:APP/PATH and snap:NAME/common/PATH are \
            short for a file of a Flatpak or snap app.
            """,
        completion: .stores)
    var sourceStore: String

    @Argument(
        help: "The group container to move it into: its directory, or the group's identifier.", completion: .containers)
    var groupDir: String

    @Flag(help: "Print what would be done, and change nothing.")
    var dryRun = false

    @Flag(
        help: """
            Undo the store's last relocation, if nobody has written to the store since. Give the same store and group \
            as the relocation.
            """)
    var undo = false

    @Option(
        help: ArgumentHelp(
            """
            What to leave of the store at the old path: a link to the new place, nothing, or nothing but a copy in the \
            group's archive. By default a link, unless those who open the store know the new place.
            """, valueName: "how"))
    var retire: Transfer.Retirement?

    @Option(
        help: ArgumentHelp(
            """
            If both places hold rows: change nothing, archive the old place's store, archive the group's, or merge both \
            and archive both.
            """, valueName: "policy"))
    var onConflict: RelocationRequest.ConflictPolicy = .refuse

    @Option(help: "The store's new file name in the group container; its support folder is renamed with it.")
    var name: String?

    @Option(
        help: ArgumentHelp(
            "The longest wait for programs that have the store open (default: 30s).", valueName: "time"),
        transform: DurationArgument.init)
    var deadline = DurationArgument(seconds: 30)

    @Option(
        name: .customLong("model"),
        help: """
            Migrate the store to this Core Data model, on the way or in place. If repeated, the models are merged.
            """,
        completion: .file())
    var models: [String] = []

    @OptionGroup var modelOptions: MigrationModelOptions

    @Option(
        help: ArgumentHelp(
            "If the store can't be migrated: change nothing, or archive it and install another one.",
            valueName: "policy"))
    var onIncompatible: RelocationRequest.IncompatiblePolicy = .refuse

    @Option(
        help: ArgumentHelp(
            "Install this store after setting the other one aside, not an empty one.", valueName: "store"),
        completion: .file())
    var defaultStore: String?

    @Option(
        help: ArgumentHelp(
            "The store's journal mode from now on, if not as before: a write-ahead log, or a rollback journal.",
            valueName: "mode"))
    var journalMode: JournalModeArgument?

    @Flag(help: "Move a file that SQLite can't read, such as an encrypted database, byte by byte.")
    var opaque = false

    @Flag(help: "Continue even if it can't be proved that no program has the store open.")
    var assumeClosed = false

    @OptionGroup var mergeArguments: MergeArguments

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        guard !undo || !dryRun else { throw ValidationError("--undo and --dry-run exclude each other") }
        guard onIncompatible == .refuse || !models.isEmpty else {
            throw ValidationError("--on-incompatible set-aside needs a --model")
        }
        guard defaultStore == nil || onIncompatible == .setAside else {
            throw ValidationError("--default-store needs --on-incompatible set-aside")
        }
        try mergeArguments.validate(for: onConflict)
        guard onConflict != .merge || (!undo && !opaque && onIncompatible == .refuse) else {
            throw ValidationError("--on-conflict merge excludes --undo, --opaque and --on-incompatible set-aside")
        }
        try modelOptions.validate(beside: models)
        try deadline.validate("--deadline", in: 0...86_400)
    }

    func run() throws {
        let output = Output(outputOptions)
        let progress = RelocationProgressReporter(output)
        let started = ContinuousClock.now
        do {
            var request = try request()
            if !undo { try Self.checkSandbox(request) }
            if !undo, !models.isEmpty, try XMLStoreFile.isXMLStore(request.source) {
                return try reporting(output, changing: !dryRun) { try convert(request, output) }
            }
            let migration = migration()
            Interruption.installHandlers(announcing: true)
            let merge = onConflict == .merge ? mergeArguments.options : nil
            // The plan of a merge is longer than a line of the protocol, and needs only to be read.
            let agent =
                dryRun && merge != nil
                ? nil
                : AgentRelocation(
                    request, migration, merge, dryRun: dryRun, undo: undo, environment: ProcessVariables.all)
            guard agent == nil || modelOptions.traceSql == nil else { throw Self.traceWithAgent }
            if let summary = try agent?.run(progress) {
                try progress.checkStoreExists(summary)
                if !dryRun { reportMissingFiles(summary.path("to").flatMap { FilePath(bytes: $0) }, progress) }
                return try reporting(output, changing: !dryRun) { try progress.finish(summary) }
            }
            var trace: StatementTrace?
            try reporting(output) { trace = try modelOptions.trace() }
            try migration.map {
                try request.migrate(
                    $0, trace: trace, isCancelled: { Interruption.isRequested },
                    faultHandler: FaultPrinter(output).print)
            }
            if let merge { request.merge(merge, isCancelled: { Interruption.isRequested }) }
            FileLease.ignoreBreakSignal()
            let engine = Relocation(
                request, isCancelled: { Interruption.isRequested }, report: { progress.report($0) })
            if !undo, !dryRun { try engine.refuseBeforeFirstRecord() }
            let summary = undo ? try engine.undo() : dryRun ? try engine.dryRun() : try engine.run()
            try progress.checkStoreExists(summary.members(seconds: 0, dryRun: dryRun))
            if !dryRun { reportMissingFiles(summary.to, progress) }
            try reporting(output, changing: !dryRun) {
                progress.finish(summary, seconds: started.duration(to: .now).seconds, dryRun: dryRun)
            }
        } catch let error where error is RelocationFailure || error is SystemError {
            let working = FilePath(workingDirectory())
            let source =
                ((try? Self.source(sourceStore, in: working)) ?? ArgumentBytes.path(sourceStore)).absolute(in: working)
            let failure = RelocationFailure(error, RelocationRequest(source: source, group: source)).markedIfInterrupted
            progress.fail(failure, source: source, seconds: started.duration(to: .now).seconds)
            throw ExitCode(failure.exitCode)
        }
    }

    /// Converts a Core Data XML store on its way to the group container.
    private func convert(_ request: RelocationRequest, _ output: Output) throws {
        guard retire != .symlink, onConflict == .refuse, !opaque, onIncompatible == .refuse else {
            throw CommandFailure(
                .usage, code: "usage",
                "an XML store is converted and its original archived: --retire symlink, --on-conflict, --opaque and "
                    + "--on-incompatible don't apply", remedy: "leave them out")
        }
        let stem = request.source.lastComponent?.stem ?? "Store"
        guard let name = (request.name ?? FilePath.Component(stem + ".sqlite")).flatMap(StoreName.init) else {
            throw RelocationFailure.badName(request.source)
        }
        Interruption.installHandlers(announcing: true)
        try XMLStoreJob(request.source, models: models, options: modelOptions, output: output).relocate(
            into: request.group, as: name, deadline: request.deadline, dryRun: dryRun,
            reporter: MigrationReporter(output), output: output)
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

    /// Throws `RelocationFailure` if the store is a Flatpak app's, and the app's sandbox doesn't reach the group.
    private static func checkSandbox(_ request: RelocationRequest) throws(RelocationFailure) {
        guard let name = request.source.lastComponent,
            let directory = try? Directory(request.source.removingLastComponent()),
            (try? directory.status(name))?.kind == .regular, let group = try? Directory(request.group)
        else { return }
        try FlatpakAccess.check(from: directory.path.appending(name), to: group.path)
    }

    /// Returns the migration, or nil without `--model`.
    private func migration() -> MigrationRequest? {
        guard var migration = modelOptions.request(models) else { return nil }
        migration.onIncompatible = onIncompatible
        migration.defaultStore = defaultStore.map { modelOptions.path($0) }
        return migration
    }

    /// Returns the legacy store's path. A file that has the name of a short form (`ContainerPath`), or a directory that
    /// has a group's, takes precedence.
    private static func source(_ text: String, in working: FilePath) throws(RelocationFailure) -> FilePath {
        let path = working.pushing(ArgumentBytes.path(text))
        guard FileStatus(following: path) == nil else { return path }
        do throws(ContainerPath.Failure) {
            if let short = try ContainerPath(text, home: ProcessVariables.all["HOME"]) { return short.path }
        } catch {
            throw RelocationFailure(.badData, code: "bad_name", error.message, remedy: error.remedy)
        }
        guard FileStatus(following: path.removingLastComponent()) == nil else { return path }
        return try GroupDirectory.store(text) ?? path
    }

    private func request() throws(RelocationFailure) -> RelocationRequest {
        let working = FilePath(workingDirectory())
        // Not normalized: only the kernel knows what ".." means after a symbolic link.
        var request = RelocationRequest(
            source: try Self.source(sourceStore, in: working),
            group: try GroupDirectory.path(groupDir))
        if let name {
            guard let component = FilePath.Component(bytes: ArgumentBytes.path(name).bytes) else {
                throw .badName(FilePath(name))
            }
            request.name = component
        }
        request.onConflict = onConflict
        request.retirement = retire
        request.deadline = deadline.duration
        request.opaque = opaque
        request.assumeClosed = assumeClosed
        request.journalMode = journalMode?.mode
        return request
    }
}

extension RelocationRequest.IncompatiblePolicy: ExpressibleByArgument {}
extension RelocationRequest.ConflictPolicy: ExpressibleByArgument {}
extension Transfer.Retirement: ExpressibleByArgument {}
