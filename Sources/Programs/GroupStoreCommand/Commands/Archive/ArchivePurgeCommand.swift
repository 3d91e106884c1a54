import AgentProtocol
import ArgumentParser
import CommandSupport
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import StoreRelocation
import SystemPackage

struct ArchivePurgeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "purge",
        abstract: "Remove archived stores for good, by name or by age.",
        discussion: """
            An archive is removed if its content is elsewhere, which is compared then: in the store that came from it, \
            intact and with rows wherever the archive has some; at the place that it was restored to; or in a store with \
            the same rows and external data. What such a store has fewer of is listed. What seems to be the only copy, \
            what a program has open, and what undoing a migration takes, is kept unless --force is given. An archive that \
            is named and must be kept is an error, and nothing is removed; by age, it is passed over. An archive that an \
            unfinished relocation uses is always kept.

            Example:
              groupstore archive purge group.com.example.notes --older-than 30d --dry-run
            """)

    @OptionGroup var group: ArchiveGroupArgument

    @Argument(
        help: "Identifiers or the beginnings of them, or names of stores that only one archive has.",
        completion: .archives)
    var archives: [String] = []

    @Option(
        help: ArgumentHelp("Remove archives older than this, such as 12h or 30d.", valueName: "age"),
        transform: DurationArgument.age)
    var olderThan: DurationArgument?

    @Flag(help: "Remove also what seems to be the only copy, or what undoing a migration takes.")
    var force = false

    @Flag(help: "Print what would be removed, and change nothing.")
    var dryRun = false

    @Option(
        help: ArgumentHelp(
            "The longest wait for a relocation of the group (default: 30s).", valueName: "time"),
        transform: DurationArgument.init)
    var deadline = DurationArgument(seconds: 30)

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        guard !archives.isEmpty || olderThan != nil else {
            throw ValidationError("say what to remove: archives, or --older-than AGE")
        }
        try deadline.validate("--deadline", in: 0...86_400)
    }

    func run() throws {
        let output = Output(outputOptions)
        try reporting(output, changing: !dryRun) {
            let container = try group.container()
            var request = RelocationRequest(source: container.archivePath, group: container.directory.path)
            request.deadline = deadline.duration
            Interruption.installHandlers(announcing: true)
            let engine = Relocation(
                request, isCancelled: { Interruption.isRequested },
                report: { if case .note(let text) = $0 { output.record([:], text) } })
            if !dryRun { try engine.returnWithdrawnArchives() }
            let sets = try ArchivedStore.all(in: container)
            let named = try archives.map { try ArchiveArgument($0).find(among: sets, in: container).id }
            let age = olderThan?.duration
            let decided: [PurgedArchive]
            do throws(RelocationFailure) {
                decided = try engine.purge(
                    ArchivePurge(ids: archives.isEmpty ? nil : named, age: age, force: force), dryRun: dryRun)
            } catch {
                throw error.markedIfInterrupted
            }
            for archive in decided { show(archive, output) }
            summarize(decided, container, output)
        }
    }

    private func show(_ archive: PurgedArchive, _ output: Output) {
        var row = archive.set.json
        row["purged"] = .bool(archive.isPurged)
        row["value"] = .string(archive.value.word)
        row["why"] = .string(archive.value.reason)
        let assessment = archive.assessment
        if let counterpart = assessment.counterpart { row.setPath("elsewhere", bytes: counterpart.bytes) }
        var lines: [String] = []
        for table in assessment.fewer {
            lines.append(
                "    it has lost \(table.missing) and changed \(table.changed) of \(table.rows) rows in \(table.name)"
                    + (table.isHistory ? ", of Core Data's history" : ""))
        }
        if !assessment.fewer.isEmpty {
            row["fewer"] = .array(
                assessment.fewer.map { table in
                    var line: JSONObject = [
                        "table": .string(table.name), "rows": .integer(table.rows), "missing": .integer(table.missing),
                        "changed": .integer(table.changed),
                    ]
                    if table.isHistory { line["history"] = true }
                    return .object(line)
                })
        }
        if assessment.fewerFiles > 0 {
            row["fewer_files"] = .integer(Int64(assessment.fewerFiles))
            lines.append("    it has lost \(Counted(assessment.fewerFiles, "external file"))")
        }
        let word = archive.isPurged ? dryRun ? "would purge" : "purged" : dryRun ? "would keep" : "kept"
        output.record(row, lines: ["\(word) \(archive.set.line): \(archive.value.reason)"] + lines)
    }

    private func summarize(_ decided: [PurgedArchive], _ container: GroupContainer, _ output: Output) {
        let purged = decided.filter(\.isPurged)
        let bytes = purged.reduce(0) { $0 + $1.set.bytes }
        var summary: JSONObject = [
            "type": "summary", "outcome": purged.isEmpty ? "nothing_to_do" : "purged",
            "purged": .integer(Int64(purged.count)), "kept": .integer(Int64(decided.count - purged.count)),
            "bytes": .integer(bytes),
        ]
        if dryRun { summary["dry_run"] = true }
        summary.setPath("directory", bytes: container.directory.path.bytes)
        let kept = decided.count - purged.count
        let would = dryRun ? "would be " : ""
        let forced = force ? "" : " (--force removes what seems to be the only copy)"
        let hint = kept == 0 ? "" : ", \(kept) \(would)kept\(forced)"
        let freed = dryRun ? "would free" : "freed"
        output.record(
            summary,
            purged.isEmpty
                ? "nothing to purge\(hint)"
                : "\(purged.count) \(would)purged, \(freed) \(ByteCount(bytes))\(hint)")
    }
}
