import AgentProtocol
import ArgumentParser
import CommandSupport
import FoundationEssentials
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreMerging
import StoreRelocation
import StoreRescue
import SystemPackage

struct RescueCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "rescue",
        abstract: "Join what a program has committed to lost files of a store into the store.",
        discussion: """
            If a program's log, index or database was removed, renamed or replaced while it had the store open, nobody \
            else sees what it commits, and it is lost when the program ends. This command copies the lost files from \
            the running program, archives them, and merges their rows into the store at its name. The program may go \
            on; restart it afterwards, so that it opens the store again.

            If a row differs on both sides, and no --prefer decides, nothing is changed, and the command exits with 65. \
            A row that only one side has is in the result, also if the other side has deleted it.

            With --three-way, what one side alone has deleted or changed since the split is deleted or changed. The base \
            is the database that the logs share. If times or contents contradict it, the command exits with 65; that \
            nobody has put back a former log or database, only you can know. Look first: --three-way --dry-run.

            Example:
              groupstore rescue Notes.sqlite --dry-run
            """)

    @Argument(help: "The store: its database file, or GROUP_ID/NAME.", completion: .stores)
    var store: String

    @Flag(help: "Print the branches and the plan of the merge, and change nothing.")
    var dryRun = false

    @Flag(
        help: """
            Join with the database that the logs share as the common base: rows that one side has deleted are deleted.
            """)
    var threeWay = false

    @Flag(
        help: """
            Copy the branches to .groupstore/rescue, where the next rescue finds them, also if their programs have \
            ended meanwhile. Join nothing.
            """)
    var copyOnly = false

    @Option(help: .hidden)
    var maximumBytes: Int64?

    @Flag(help: .hidden)
    var noLinks = false

    @Option(
        name: .customLong("prefer"),
        help: ArgumentHelp(
            """
            Which of two rows that differ is kept: store (at the name), branch (the program's), or newer:COLUMN. \
            Repeatable: the first that decides.
            """, valueName: "side"),
        completion: .list(["store", "branch", "newer:"]))
    var preferences: [String] = []

    @Option(
        name: .customLong("merge-key"),
        help: ArgumentHelp(
            """
            Match the objects of an entity, or the rows of a table, by these attributes or columns: Note=uuid, or \
            Log=* to match only what is equal in everything. Repeatable.
            """, valueName: "name=attributes"))
    var keys: [String] = []

    @Option(
        help: ArgumentHelp(
            "The longest wait for other programs that have the store open (default: 30s).", valueName: "time"),
        transform: DurationArgument.init)
    var deadline = DurationArgument(seconds: 30)

    @OptionGroup var outputOptions: OutputOptions

    private static func preference(_ text: String) -> MergePreference? {
        switch text {
        case "store": .group
        case "branch": .legacy
        case let text where text.hasPrefix("newer:"): MergePreference(text)
        default: nil
        }
    }

    func validate() throws {
        guard !copyOnly || !dryRun else { throw ValidationError("--copy-only and --dry-run exclude each other") }
        guard !copyOnly || preferences.isEmpty && keys.isEmpty && !threeWay else {
            throw ValidationError("--copy-only joins nothing: leave out --prefer, --merge-key and --three-way")
        }
        for text in preferences where Self.preference(text) == nil {
            throw ValidationError("--prefer \(text): write store, branch or newer:COLUMN")
        }
        for text in keys where MergeKey(text) == nil {
            throw ValidationError("--merge-key \(text): write NAME=ATTRIBUTE, NAME=A,B or NAME=*")
        }
        let names = keys.compactMap(MergeKey.init).map { Array($0.name.utf8) }
        guard Set(names).count == names.count else { throw ValidationError("--merge-key names one entity twice") }
        try deadline.validate("--deadline", in: 0...86_400)
    }

    func run() throws {
        let output = Output(outputOptions)
        let progress = RelocationProgressReporter(output)
        let started = ContinuousClock.now
        try reporting(output, changing: !dryRun) {
            let location = try noLinks ? namedLocation() : location()
            FileLease.ignoreBreakSignal()
            Interruption.installHandlers(announcing: true)
            var options = MergeOptions()
            options.keys = keys.compactMap(MergeKey.init)
            options.preferences = preferences.compactMap(Self.preference)
            var request = RelocationRequest(source: location.path, group: location.directory.path)
            request.deadline = deadline.duration
            let registry = ArchiveRestoreCommand.registry(
                of: GroupContainer(directory: location.directory), &request)
            // A rehearsal comes before the merge.
            var (shown, said): ([MergeReport], [String]) = ([], [])
            let rescue = StoreRescue(
                location, options, request, registry: registry, baseMargin: threeWay ? BaseContradiction.margin : nil,
                isCancelled: { Interruption.isRequested },
                report: { event in
                    switch event {
                    case .merging(let report):
                        guard !shown.contains(report) else { return }
                        shown.append(report)
                        if output.json { return progress.report(event) }
                        for line in report.sentences { progress.report(.note(RescueWords.renamed(line))) }
                    case .note(let text):
                        guard !said.contains(text) else { return }
                        said.append(text)
                        progress.report(event)
                    case .transforming(let fraction, let doing):
                        progress.report(.transforming(fraction: fraction, activity: RescueWords.renamed(doing)))
                    default: progress.report(event)
                    }
                })
            do {
                let report =
                    try copyOnly
                    ? rescue.copyBranches(limit: maximumBytes) : dryRun ? rescue.dryRun() : rescue.run()
                RescuePrinter(output, location, dryRun: dryRun).print(report)
            } catch let error where error is RelocationFailure || error is SystemError {
                var failure = RelocationFailure(
                    error, RelocationRequest(source: location.path, group: location.directory.path)
                ).markedIfInterrupted.renamedForRescue
                if !dryRun { RescuePrinter(output, location, dryRun: dryRun).printKept(rescue.kept()) }
                if failure.code == "no_common_base" { failure.remedy = Self.remedyWithoutBase }
                progress.fail(failure, source: location.path, seconds: started.duration(to: .now).seconds)
                throw ExitCode(failure.exitCode)
            }
        }
    }

    /// The same command without the flag.
    private static var remedyWithoutBase: String {
        let words = ProgramArguments.bytes.dropFirst().map(ShellText.word)
        return "join without a base, by which deleted rows may come back: groupstore "
            + words.filter { $0 != "--three-way" }.joined(separator: " ")
    }

    /// Returns the store's location as an agent names it: a link that another user has put there is not followed.
    private func namedLocation() throws -> StoreLocation {
        let path = ArgumentBytes.path(store)
        guard let name = path.lastComponent.flatMap(StoreName.existing) else { throw StoreError.notAFile(path) }
        return StoreLocation(directory: try Directory(path.removingLastComponent()), name: name)
    }

    /// Completes the exchange of a rescue that was killed: a directory stands for the store meanwhile. Returns nil if
    /// it is another directory.
    private func exchangedLocation(_ location: StoreLocation) throws -> StoreLocation? {
        let directory = location.directory.path
        let engine = Relocation(RelocationRequest(source: location.path, group: directory))
        guard try !engine.interrupted().isEmpty else { return nil }
        guard !dryRun, !copyOnly else {
            throw CommandFailure(
                .busy, code: "unfinished",
                "a directory stands for \(PrintablePath(location.path)): a rescue was interrupted",
                remedy: "run: groupstore recover \(directory.shellWord)")
        }
        try engine.finishInterrupted(of: location.name)
        return try location.directory.status(location.name.database)?.kind == .regular ? location : nil
    }

    /// Returns the store's location. There need not be a file at the name: it may be what was removed.
    private func location() throws -> StoreLocation {
        if let link = StoreArgument(store).link, !OrphanedBranch.find(link).isEmpty { return link }
        do {
            let location = try StoreArgument(store).location()
            guard try location.directory.status(location.name.database)?.kind == .regular else {
                throw StoreError.notAFile(location.path)
            }
            return location
        } catch {
            let path = ArgumentBytes.path(store).absolute(in: FilePath(workingDirectory()))
            let kind = FileStatus(following: path)?.kind
            guard kind != .regular, let name = path.lastComponent.flatMap(StoreName.existing),
                let directory = try? Directory(resolving: path.removingLastComponent())
            else { throw error }
            let location = StoreLocation(directory: directory, name: name)
            if kind == .directory, let exchanged = try exchangedLocation(location) { return exchanged }
            let isUnfinished = try kind == nil && StoreRescue.isUnfinished(location)
            guard isUnfinished || !OrphanedBranch.find(location).isEmpty else { throw error }
            return location
        }
    }
}
