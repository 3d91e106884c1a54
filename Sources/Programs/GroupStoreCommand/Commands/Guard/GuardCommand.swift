import AgentProtocol
import ArgumentParser
import CommandSupport
import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import StoreRescue
import SystemPackage

struct GuardCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "guard",
        abstract: "Archive a copy of a store, run a command, and report what the command did to the store.",
        discussion: """
            The copy is of one moment, also while programs write, and goes into the archive of the store's directory. \
            After the command, each table's rows are compared by primary key, the schema is compared, and SQLite checks \
            the store (integrity_check). Exits with the command's exit code (128 and the signal's number if a signal \
            ended it), or with 65 if the store is damaged or a table of --fail-on-loss has lost rows or columns.

            Example:
              groupstore guard Notes.sqlite --fail-on-loss note -- python3 manage.py migrate
            """)

    @Argument(help: "The store: its database file, or GROUP_ID/NAME.", completion: .stores)
    var store: String

    @Option(
        parsing: .upToNextOption,
        help: ArgumentHelp(
            "Exit with 65 if one of these tables, or rows or columns of it, are gone afterwards.", valueName: "table"))
    var failOnLoss: [String] = []

    @Option(
        help: ArgumentHelp(
            """
            Afterwards keep only this many of the copies of the store that 'guard' made (default: all). A copy that has \
            what its command has lost is kept longer.
            """,
            valueName: "number"))
    var keep: Int?

    @OptionGroup var outputOptions: OutputOptions

    @Argument(parsing: .postTerminator, help: "The command and its arguments, after --.")
    var command: [String] = []

    func validate() throws {
        guard !command.isEmpty else { throw ValidationError("name a command after --") }
        if let keep, keep < 1 { throw ValidationError("--keep must be at least 1") }
    }

    func run() throws {
        let output = Output(outputOptions)
        var status: Int32 = 0
        try reporting(output, changing: true) {
            // Not ignored, which the command would inherit.
            _ = signal(SIGIO) { _ in }
            let (location, engine, held) = try beforeCommand(archive)
            let copy = held.copy
            output.record(copy.json, "archived a copy as \(copy.id) (\(ByteCount(copy.bytes)))")
            let exit = GuardedProcess.run(
                command.map { ArgumentBytes.path($0).bytes },
                output: output.json || output.quiet ? .descriptor(STDERR_FILENO) : .inherited)
            _ = signal(SIGPIPE, SIG_IGN)
            status = try report(exit, location, held, engine, output)
        }
        if status != 0 { throw ExitCode(status) }
    }

    /// Archives a copy of the store.
    private func archive() throws -> (StoreLocation, Relocation, HeldArchive) {
        let location = try StoreArgument(store).location()
        // The command reads what SQLite reads with that log: a copy without it would be another store's.
        try location.checkLog()
        try checkTables(of: location)
        let engine = Relocation(
            RelocationRequest(source: location.path, group: location.directory.path), isCancelled: { false },
            report: { _ in })
        let words = command.joined(separator: " ")
        let copy = try engine.archiveCopy(of: location, reason: "a copy of the store before: \(words.prefix(200))")
        // Another guard, or a purge, must not remove it before the command has done its work, also if this process is
        // killed meanwhile.
        try copy.shareWithChildren()
        return (location, engine, copy)
    }

    /// Does what precedes the command. A failure hasn't the exit code that tells what a command has done.
    private func beforeCommand<Result>(_ body: () throws -> Result) throws -> Result {
        do { return try body() } catch let error as any ActionableError {
            let failure = CommandFailure(error)
            guard failure.status == .badData else { throw failure }
            throw CommandFailure(
                .inputOutput, code: failure.errorCode, failure.message, reasons: failure.reasons,
                remedy: failure.remedy, underlying: failure.underlyingError)
        }
    }

    /// Throws `CommandFailure` if the store doesn't have one of the guarded tables: a misspelt name guards nothing.
    private func checkTables(of location: StoreLocation) throws {
        let tables = failOnLoss.map { ($0, DatabaseSchema.key(of: $0)) }
        let (missing, uncounted) = try StoreReader.read(location) { reader in
            let known = try StoreContent(reader).tables
            let missing = tables.first { name in !known.contains { DatabaseSchema.key(of: $0.name) == name.1 } }?.0
            let uncounted = try known.first { table in
                try tables.contains { $0.1 == DatabaseSchema.key(of: table.name) } && reader.count(table) == nil
            }
            return (missing, uncounted)
        }
        if let uncounted {
            throw CommandFailure(
                .usage, code: "no_module",
                "SQLite can't count the rows of the virtual table \(uncounted.name) here: it may lack its module",
                remedy: "name the tables that keep its rows: groupstore inspect \(location.path.shellWord)")
        }
        guard let missing else { return }
        throw CommandFailure(
            .usage, code: "no_table", "\(PrintablePath(location.path)) has no table \(missing)",
            remedy: "see which there are: groupstore inspect \(location.path.shellWord)")
    }

    /// Reports what has become of the store. Returns the exit code.
    private func report(
        _ exit: Int32, _ location: StoreLocation, _ held: HeldArchive, _ engine: Relocation, _ output: Output
    ) throws -> Int32 {
        let copy = held.copy
        guard let archived = copy.location else { return exit }
        // The command may have put another directory at the path, or none: the copy is where the first one is now.
        let present = try? StoreArgument(store).location()
        let place = Self.path(of: location.directory) ?? location.directory.path
        let suffixes = [".before"] + (2...).prefix(1000).map { ".before-\($0)" }
        let free = suffixes.map { location.path.appending(suffix: $0) }.first { FileStatus(following: $0) == nil }
        let remedy =
            "groupstore archive restore \(place.shellWord) \(copy.id) --to "
            + (free ?? location.path.appending(suffix: ".before")).shellWord
        let report: GuardReport
        do {
            guard let present else { throw StoreError.missing(location.path) }
            report = try GuardReport(present, since: archived, guarding: failOnLoss)
        } catch let error as StoreError {
            throw CommandFailure(
                .badData, code: error.errorCode, "after the command (exit code \(exit)): \(error.message)",
                remedy: "put the copy beside it: \(remedy)", underlying: error)
        }
        if output.json { for record in report.records { output.record(record) } }
        let isLoss = !report.losses.isEmpty || !report.damage.isEmpty
        let status = isLoss ? ExitStatus.badData.rawValue : exit
        var summary: JSONObject = [
            "type": "summary", "outcome": .string(report.outcome), "exit": .integer(Int64(exit)),
            "archive": .string(copy.id.rawValue), "restore": .string(remedy),
            "integrity": .array(report.damage.map { .string($0) }),
        ]
        if let message = report.unchecked { summary["unchecked"] = .string(message) }
        if !report.losses.isEmpty { summary["lost"] = .array(report.losses.map { .string($0) }) }
        // Without the record, the copy is compared before it is removed. A program that the command has left may go on.
        let mayLose = (try? held.isHeldByOthers) ?? true
        try? engine.noteLoss(!report.hasAll || isLoss || mayLose, after: copy)
        // After a loss, an older copy may be the better one.
        let keepsAll = status == ExitStatus.badData.rawValue
        let former = keepsAll ? [] : removeOldCopies(of: location, keeping: copy.id, engine)
        let (removed, kept) = (former.filter { $0.reason == nil }, former.filter { $0.reason != nil })
        if !removed.isEmpty { summary["removed"] = .array(removed.map { .string($0.id.rawValue) }) }
        if !kept.isEmpty { summary["kept"] = .array(kept.map { .string($0.id.rawValue) }) }
        let loss = report.losses.isEmpty ? [] : ["lost: " + report.losses.joined(separator: ", ")]
        output.record(
            summary,
            lines: ["the command's exit code: \(exit)"] + report.lines + loss + former.map(\.line)
                + ["the store as it was: \(remedy)"])
        return status
    }

    /// The path that a directory has now; nil if it was removed.
    private static func path(of directory: Directory) -> FilePath? {
        let link = "/proc/self/fd/\(directory.raw)"
        guard let path = try? FileManager.default.destinationOfSymbolicLink(atPath: link) else { return nil }
        let isThere = FileStatus(following: FilePath(path))?.identity == (try? directory.status().identity)
        return isThere ? FilePath(path) : nil
    }

    /// An older copy that `--keep` doesn't count.
    private struct FormerCopy {
        let id: TransferIdentifier
        /// A sentence on why it is kept; nil if it is removed.
        let reason: String?

        var line: String { reason ?? "removed the older copy \(id)" }
    }

    /// Removes older copies that this command made of the store, if `--keep` limits their number. Keeps a copy with
    /// rows that its command has lost, unless the store has them again, or the proof of `archive purge` holds.
    private func removeOldCopies(
        of location: StoreLocation, keeping newest: TransferIdentifier, _ engine: Relocation
    ) -> [FormerCopy] {
        guard let keep else { return [] }
        do {
            let sets = try ArchivedStore.all(in: GroupContainer(directory: location.directory))
            let copies = sets.filter { set in
                set.id != newest && set.entry.note?.isGuard == true && set.entry.name == location.name.database
            }
            return try copies.prefix(max(0, copies.count - (keep - 1))).map { copy in
                let force = copy.entry.note?.hasLoss == false || Self.has(location, copy)
                var purge = ArchivePurge(ids: [copy.id], age: nil, force: force)
                // The command of another guard may run.
                purge.sparesOpen = true
                do throws(RelocationFailure) {
                    _ = try engine.purge(purge, dryRun: false)
                    return FormerCopy(id: copy.id, reason: nil)
                } catch {
                    guard !force || error.code == "in_use" else { throw error }
                    let reason = force ? "" : "; its command may have lost rows"
                    return FormerCopy(id: copy.id, reason: error.message + reason)
                }
            }
        } catch {
            Output.write("groupstore: older copies are kept: \(error)", to: STDERR_FILENO)
            return []
        }
    }

    /// True if the store has each row of a copy, with its values.
    private static func has(_ store: StoreLocation, _ copy: ArchivedStore) -> Bool {
        guard let archived = copy.location, let now = try? GuardReport(store, since: archived, guarding: []) else {
            return false
        }
        return now.isComplete
    }
}
