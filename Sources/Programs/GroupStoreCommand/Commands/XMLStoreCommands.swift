import AgentProtocol
import CommandSupport
import Glibc
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import ManagedObjectModels
import SQLiteFormat
import SQLiteStore
import StoreMigration
import StoreRelocation
import SystemPackage

/// The parts of `migrate` and `relocate` for a Core Data XML store.
struct XMLStoreJob {
    let migration: XMLStoreMigration
    let target: ModelVersion

    /// Reads the file, and finds its version in the model. Throws `XMLStoreError`, `MigrationError`, and the errors of
    /// models.
    init(
        _ path: FilePath, models: [String], options: MigrationModelOptions, output: Output
    ) throws {
        let argument = try ModelArgument(models, configuration: options.configuration)
        guard let bundle = argument.bundle else {
            throw CommandFailure(
                .usage, code: "usage",
                "an XML store carries no model, and the model of another store has only one version",
                remedy: "name the model: --model NAME.xcdatamodeld")
        }
        var (transform, target) = try options.migration(to: argument, output)
        transform.trace = try options.trace()
        self.target = target
        migration = try XMLStoreMigration(
            try XMLStoreFile(reading: path), versions: bundle.versions, transform)
    }

    var file: XMLStoreFile { migration.file }

    /// The members that both summaries have.
    func members(_ result: XMLStoreMigration.Result?) -> JSONObject {
        var record: JSONObject = [
            "from_model": .string(migration.source.name), "to_model": .string(target.name),
            "objects": .integer(Int64(file.objectCount)),
        ]
        if let result {
            record["steps"] = .array(result.steps.map { .string($0) })
            if !result.losses.isEmpty { record["removes"] = result.losses.json }
        }
        return record
    }

    private var sentence: String {
        let steps = migration.source.name == target.name ? "" : ", then migrated to \(target.name)"
        let count = Counted(Int64(file.objectCount), "object")
        return "a Core Data XML store of \(migration.source.name) with \(count)\(steps)"
    }

    // MARK: migrate

    /// Converts the store to a new one. The XML store stays as it is.
    func migrate(
        to path: FilePath, dryRun: Bool, writeAhead: Bool, reporter: MigrationReporter, output: Output
    ) throws {
        let started = ContinuousClock.now
        guard let last = path.lastComponent, let name = StoreName(last) else {
            throw RelocationFailure.badName(path)
        }
        let result: XMLStoreMigration.Result
        if dryRun {
            result = try migration.rehearse()
        } else {
            let parent = path.removingLastComponent()
            let directory = try Directory(parent.isEmpty ? "." : parent)
            let new = try NewStore(at: StoreLocation(directory: directory, name: name))
            result = try migration.run(
                into: new.staged, isCancelled: { Interruption.isRequested }, progress: reporter.report)
            reporter.finish()
            let mode = FileStatus(following: file.path)?.permissions ?? 0o644
            try new.publish(mode: mode, writeAhead: writeAhead)
        }
        print(result.losses.sentences + result.notes, output)
        var record: JSONObject = ["type": "summary", "outcome": dryRun ? "would_convert" : "converted"]
        for member in members(result).members { record[member.key] = member.value }
        record.setPath("store", bytes: file.path.bytes)
        record.setPath("to", bytes: path.bytes)
        record["seconds"] = .number(started.duration(to: .now).seconds)
        output.record(
            record,
            "\(PrintablePath(file.path)): \(dryRun ? "would be" : "is") converted to \(PrintablePath(path)), \(sentence)"
        )
    }

    // MARK: relocate

    /// Converts the store on its way to a group container. The original goes to the group's archive.
    func relocate(
        into group: FilePath, as name: StoreName, deadline: Duration, dryRun: Bool, reporter: MigrationReporter,
        output: Output
    ) throws {
        let started = ContinuousClock.now
        let relocation = XMLStoreRelocation(
            migration, into: try GroupContainer(group), as: name, deadline: deadline,
            isCancelled: { Interruption.isRequested })
        let done = dryRun ? try relocation.dryRun() : try relocation.run(progress: reporter.report)
        reporter.finish()
        print((done.result.map { $0.losses.sentences + $0.notes } ?? []) + done.notes, output)
        var record: JSONObject = ["type": "summary", "outcome": "relocated"]
        if dryRun { record["dry_run"] = true }
        record.setPath("from", bytes: done.from.bytes)
        record.setPath("to", bytes: done.to.bytes)
        record["method"] = "convert"
        record["bytes"] = .integer(done.bytes)
        for member in members(done.result).members { record[member.key] = member.value }
        if let archive = done.archive { record.setPath("archive", bytes: archive.bytes) }
        record["seconds"] = .number(started.duration(to: .now).seconds)
        let kept = done.archive.map { "; the original is in \(PrintablePath($0))" } ?? ""
        output.record(
            record,
            "\(dryRun ? "would be " : "")converted from \(PrintablePath(done.from)) to \(PrintablePath(done.to)), "
                + "\(sentence)\(kept)")
    }

    private func print(_ notes: [String], _ output: Output) {
        for note in notes { output.record(["type": "note", "text": .string(note)], "note: \(note)") }
    }
}
