import AgentProtocol
import ArgumentParser
import CommandSupport
import CoreDataStore
import Glibc
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreMigration
import StoreRelocation
import SystemPackage

struct MigrateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "migrate",
        abstract: "Migrate a Core Data store to another version of its model.",
        discussion: """
            Migrates a copy, which then replaces the store. If the command is killed at any time, the store is either \
            unchanged or migrated, or nobody can open it until the command, or `groupstore recover` with its \
            directory, has put it back. With --to, the copy gets another name and the store stays unchanged; a \
            store that has the version already is only copied. A Core Data XML store is converted to a new SQLite \
            store, which --to names.

            Example:
              groupstore migrate Notes.sqlite --model Notes.xcdatamodeld --dry-run
            """)

    @Argument(help: "The store: its database file, or GROUP_ID/NAME.", completion: .stores)
    var store: String

    @Option(
        name: .customLong("model"),
        help: """
            The model: an .xcdatamodeld (its current version), .xcdatamodel, .momd or .mom, or a store with that model. \
            If repeated, the models are merged.
            """,
        completion: .file())
    var models: [String]

    @OptionGroup var modelOptions: MigrationModelOptions

    @Option(
        help: ArgumentHelp("Leave the store unchanged, and create the migrated one here.", valueName: "path"),
        completion: .file())
    var to: String?

    @Option(
        help: ArgumentHelp(
            "The migrated store's journal mode, if not as before: a write-ahead log, or a rollback journal.",
            valueName: "mode"))
    var journalMode: JournalModeArgument?

    @Flag(help: "Print what would be done, and change nothing.")
    var dryRun = false

    @Option(
        help: ArgumentHelp(
            "The longest wait for programs that have the store open (default: 30s).", valueName: "time"),
        transform: DurationArgument.init)
    var deadline = DurationArgument(seconds: 30)

    @Flag(help: "Continue even if it can't be proved that no program has the store open.")
    var assumeClosed = false

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        try ModelListOptions.requireModel(models)
        try modelOptions.validate(beside: models)
        try deadline.validate("--deadline", in: 0...86_400)
    }

    func run() throws {
        try reporting(outputOptions, changing: !dryRun) { output in
            let path = ArgumentBytes.path(store)
            if try XMLStoreFile.isXMLStore(path) { return try convert(path, output) }
            let location = try StoreArgument(store).location()
            let started = ContinuousClock.now
            if !dryRun { try finishInterrupted(location) }
            // A migration in place sets the log aside, and says so.
            if dryRun || to != nil { output.noteForeignLog(beside: location) }
            let job = try MigrationJob(
                location, models: models, options: modelOptions, isDryRun: dryRun, output: output)
            var done = Done(notes: job.notes + archiveNotes(job), losses: job.losses)
            if to != nil || !job.plan.steps.isEmpty, !dryRun {
                done = try migrate(job, MigrationReporter(output))
            }
            for note in done.notes {
                output.record(["type": "note", "text": .string(note)], "note: \(note)")
            }
            output.record(
                summary(job, done, seconds: started.duration(to: .now).seconds),
                done.isNeeded
                    ? job.sentence + (isCopied(job) ? (dryRun ? ": it would be copied" : ": it is copied") : "")
                    : "nothing to do: another process has migrated the store to \(job.target.name)")
        }
    }

    /// Converts a Core Data XML store.
    private func convert(_ path: FilePath, _ output: Output) throws {
        guard let to else {
            throw CommandFailure(
                .usage, code: "usage",
                "\(PrintablePath(path)): a Core Data XML store isn't migrated in place, but converted to a SQLite store",
                remedy: "name the new store: --to NEW.sqlite")
        }
        Interruption.installHandlers(announcing: true)
        try XMLStoreJob(path, models: models, options: modelOptions, output: output).migrate(
            to: ArgumentBytes.path(to), dryRun: dryRun, writeAhead: journalMode != .delete,
            reporter: MigrationReporter(output), output: output)
    }

    /// The result of a migration, or its forecast.
    private struct Done {
        var notes: [String]
        var losses: RemovedContent
        /// The path of the archived original.
        var archive: FilePath?
        /// False if another process migrated the store meanwhile.
        var isNeeded = true
    }

    /// Returns notes on the archiving of a store in place, if the migration removes something from it.
    private func archiveNotes(_ job: MigrationJob) -> [String] {
        guard to == nil, !job.losses.isEmpty else { return [] }
        let archive = GroupContainer(directory: job.location.directory).archivePath
        let bytes = (try? job.location.bytesToArchive()) ?? 0
        return [
            "\(PrintablePath(job.location.path)) would be kept in \(PrintablePath(archive)) as it is, since the migration "
                + "changes or removes some of it; that takes \(ByteCount(bytes))"
        ]
    }

    /// Completes an earlier migration first: one that was killed may have left the store under another name.
    private func finishInterrupted(_ location: StoreLocation) throws {
        var request = RelocationRequest(source: location.path, group: location.directory.path)
        request.deadline = deadline.duration
        FileLease.ignoreBreakSignal()
        try Relocation(request).finishInterrupted(of: location.name)
    }

    private func migrate(_ job: MigrationJob, _ reporter: MigrationReporter) throws -> Done {
        guard let to else { return try migrateInPlace(job, reporter) }
        let path = ArgumentBytes.path(to)
        guard let last = path.lastComponent, let name = StoreName(last) else {
            throw RelocationFailure.badName(path)
        }
        let parent = path.removingLastComponent()
        let directory = try Directory(parent.isEmpty ? "." : parent)
        let new = try NewStore(at: StoreLocation(directory: directory, name: name))
        let writeAhead = try StoreReader.read(job.location) { reader in
            try reader.copy(to: new.path, isTemporary: job.plan.replacesCopy)
            return reader.header?.journalMode == .writeAhead
        }
        try new.copySupport(of: job.location)
        var manager = try modelOptions.transform(job).manager(job.plan)
        manager.store = job.location.path
        manager.mayReplaceFile = true
        manager.progress = reporter.report
        let outcome = try RecordedMigration(manager, of: new.staged).run()
        reporter.finish()
        let mode = try job.location.directory.status(job.location.name.database)?.permissions ?? 0o644
        try new.publish(mode: mode, writeAhead: journalMode.map { $0 == .wal } ?? writeAhead)
        return Done(notes: outcome.notes, losses: outcome.losses)
    }

    /// Migrates the store by a relocation whose destination is its own name.
    private func migrateInPlace(_ job: MigrationJob, _ reporter: MigrationReporter) throws -> Done {
        var request = RelocationRequest(source: job.location.path, group: job.location.directory.path)
        request.deadline = deadline.duration
        request.assumeClosed = assumeClosed
        request.journalMode = journalMode?.mode
        request.transform = try modelOptions.transform(job)
        FileLease.ignoreBreakSignal()
        Interruption.installHandlers(announcing: true)
        let engine = Relocation(
            request, isCancelled: { Interruption.isRequested },
            report: { event in
                switch event {
                case .transforming(let fraction, let doing): reporter.report(fraction, doing)
                case .waiting(let holders): reporter.reportWaiting(for: holders)
                case .recovered(let text), .note(let text): reporter.say(text)
                case .plan, .copied, .published, .merging: break
                }
            })
        defer { reporter.finish() }
        do throws(RelocationFailure) {
            let summary = try engine.transform()
            return Done(
                notes: summary.notes, losses: summary.losses, archive: summary.archive,
                isNeeded: summary.outcome != .nothingToDo)
        } catch {
            throw error.markedIfInterrupted
        }
    }

    /// True if the store is only copied: `--to` creates a store even if no step is needed.
    private func isCopied(_ job: MigrationJob) -> Bool { to != nil && job.plan.steps.isEmpty }

    private func outcome(_ job: MigrationJob, _ done: Done) -> String {
        guard done.isNeeded else { return "nothing_to_do" }
        if isCopied(job) { return dryRun ? "would_copy" : "copied" }
        return job.plan.steps.isEmpty ? "nothing_to_do" : dryRun ? "would_migrate" : "migrated"
    }

    private func summary(_ job: MigrationJob, _ done: Done, seconds: Double) -> JSONObject {
        var record: JSONObject = [
            "type": "summary", "outcome": .string(outcome(job, done)), "to_model": .string(job.target.name),
            "steps": .array(job.plan.steps.map { .string($0.destinationName) }), "seconds": .number(seconds),
        ]
        let mappings = job.plan.steps.map(\.mappingName)
        if mappings.contains(where: { $0 != nil }) {
            record["mapping_models"] = .array(mappings.map { $0.map { .string($0) } ?? .null })
        }
        record["from_model"] = job.plan.sourceName.map { .string($0) }
        record.setPath("store", bytes: job.location.path.bytes)
        if !done.losses.isEmpty { record["removes"] = done.losses.json }
        if let archive = done.archive { record.setPath("archive", bytes: archive.bytes) }
        if let to { record.setPath("to", bytes: ArgumentBytes.path(to).bytes) }
        return record
    }
}

/// Reports the progress of a migration: JSON lines, or a bar if standard error is a terminal.
final class MigrationReporter {
    private let output: Output
    private let isTerminal = isatty(STDERR_FILENO) == 1
    private var bar = ProgressBar()
    private var lastReported = -1.0
    private var lastHolders: [FileHolder] = []

    init(_ output: Output) { self.output = output }

    func report(_ fraction: Double, _ doing: String) {
        if output.json {
            guard fraction >= lastReported + 0.01 else { return }
            lastReported = fraction
            output.record(["type": "progress", "fraction": .number(fraction), "doing": .string(doing)], "")
        } else if isTerminal, !output.quiet {
            bar.draw(fraction, "\(Int(fraction * 100)) % \(PrintableText(doing))")
        }
    }

    /// Prints a line for people beside the progress.
    func say(_ text: String) {
        finish()
        if output.json {
            output.record(["type": "note", "text": .string(text)], "")
        } else if !output.quiet {
            Output.write(text, to: STDERR_FILENO)
        }
    }

    /// Reports the processes that are waited for, once each, although each stage of the relocation waits.
    func reportWaiting(for holders: [FileHolder]) {
        guard holders != lastHolders else { return }
        lastHolders = holders
        say("waiting for \(holders.names)")
    }

    func finish() { bar.clear() }
}
