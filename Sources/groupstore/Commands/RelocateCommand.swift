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
        abstract: "Move a store, with all that belongs to it, into a group container.",
        discussion: """
            Nothing is lost, whatever happens: where it is not certain that the move is right, nothing is changed and \
            the reason is printed. Run it again after a crash: it finishes or undoes what was begun.
            """)

    @Argument(help: "The legacy store's database file.", completion: .file())
    var sourceStore: String

    @Argument(help: "The group container's directory.", completion: .directory)
    var groupDir: String

    @Option(help: "The store's file name in the group container; the support folder follows.")
    var name: String?

    @Flag(help: "Print what would be done, and change nothing.")
    var dryRun = false

    @Option(help: "When both places hold rows of their own: \(list(RelocationRequest.ConflictPolicy.self)).")
    var onConflict: RelocationRequest.ConflictPolicy = .refuse

    @Option(help: "What becomes of the old place: \(list(Transfer.Retirement.self)).")
    var retire: Transfer.Retirement = .delete

    @Option(help: "Seconds to wait for programs that have the store open.")
    var deadline: Double = 30

    @Flag(help: "Move a file that can't be read, an encrypted database for instance, byte by byte.")
    var opaque = false

    @Option(
        help: "A model: a store of an older version of it is migrated on the way, or where it is.", completion: .file())
    var model: String?

    @OptionGroup var modelOptions: MigrationModelOptions

    @Option(
        help:
            "When a store can't be migrated: \(list(RelocationRequest.IncompatiblePolicy.self)) (it is archived, and another one has its place)."
    )
    var onIncompatible: RelocationRequest.IncompatiblePolicy = .refuse

    @Option(help: "The store that is installed then, instead of an empty one of the model.", completion: .file())
    var defaultStore: String?

    @Option(help: "How the store keeps its log where it arrives: wal or delete; as it did, unless given.")
    var journalMode: JournalModeArgument?

    @Flag(help: "Take the store's last relocation back, while nobody has written to it since.")
    var undo = false

    @Flag(help: "Go on where it can't be proved that nobody has the store open.")
    var assumeClosed = false

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        guard !undo || !dryRun else { throw ValidationError("--undo has no --dry-run") }
        guard onIncompatible == .refuse || model != nil else {
            throw ValidationError("--on-incompatible set-aside needs a --model")
        }
        guard defaultStore == nil || onIncompatible == .setAside else {
            throw ValidationError("--default-store needs --on-incompatible set-aside")
        }
        try modelOptions.validate(beside: model)
        guard deadline >= 0, deadline <= 86_400 else { throw ValidationError("--deadline is 0 to 86400 seconds") }
    }

    func run() throws {
        let output = Output(outputOptions)
        let progress = RelocationProgress(output)
        let started = ContinuousClock.now
        do {
            var request = try request()
            let migration = migration()
            Interruption.isNotedFromNowOn(announcing: true)
            let agent = AgentRelocation(
                request, migration, dryRun: dryRun, undo: undo, environment: ProcessVariables.all)
            guard agent == nil || modelOptions.traceSql == nil else { throw Self.traceBesideAgent }
            if let summary = try agent?.run(progress) {
                if !dryRun { tellOfMissingFiles(summary.path("to").flatMap { FilePath(bytes: $0) }, progress) }
                return try reporting(output, changing: !dryRun) { try progress.finish(summary) }
            }
            try reporting(output) {
                let trace = try modelOptions.trace()
                try migration.map {
                    try request.migrate($0, trace: trace, isCancelled: { Interruption.wasAskedFor })
                }
            }
            FileLease.ignoreBreakSignal()
            let engine = Relocation(
                request, isCancelled: { Interruption.wasAskedFor }, report: { progress.report($0) })
            let summary = undo ? try engine.undo() : dryRun ? try engine.dryRun() : try engine.run()
            if !dryRun { tellOfMissingFiles(summary.to, progress) }
            try reporting(output, changing: !dryRun) {
                progress.finish(summary, seconds: started.duration(to: .now).seconds, dryRun: dryRun)
            }
        } catch let error as RelocationFailure {
            let source = ArgumentBytes.path(sourceStore).absolute(in: FilePath(workingDirectory()))
            let failure = error.markedIfInterrupted
            progress.fail(failure, source: source, seconds: started.duration(to: .now).seconds)
            throw ExitCode(failure.exitCode)
        }
    }

    /// A migration has told of them already. What can't be read now is no reason to say that nothing was relocated.
    private func tellOfMissingFiles(_ store: FilePath?, _ progress: RelocationProgress) {
        guard model == nil, !opaque, let store, let name = store.lastComponent.flatMap(StoreName.init),
            let directory = try? Directory(store.removingLastComponent())
        else { return }
        let location = StoreLocation(directory: directory, name: name)
        for missing in (try? ExternalReferences.missing(of: location)) ?? [] {
            progress.report(.note(missing.sentence))
        }
    }

    /// The statements are run in the agent.
    private static let traceBesideAgent = RelocationFailure(
        .busy, code: "agent_serves", "an agent serves this group and does the migration: it can't be traced from here",
        remedy: "leave --trace-sql out, or stop the agent")

    /// Nil without a model.
    private func migration() -> MigrationRequest? {
        guard let model else { return nil }
        var migration = modelOptions.request(model)
        migration.onIncompatible = onIncompatible
        migration.defaultStore = defaultStore.map { modelOptions.path($0) }
        return migration
    }

    private func request() throws(RelocationFailure) -> RelocationRequest {
        let working = FilePath(workingDirectory())
        // Not normalized: what ".." means behind a symbolic link, the kernel says.
        var request = RelocationRequest(
            source: working.pushing(ArgumentBytes.path(sourceStore)),
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
