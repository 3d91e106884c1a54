import AgentProtocol
import ArgumentParser
import CommandSupport
import FileCoordination
import GroupContainers
import GroupStore
import GroupStoreAgent
import LinuxSystem
import SQLiteFormat
import StoreRelocation
import SystemPackage

struct ArchiveRestoreCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "restore",
        abstract: "Restore an archived store with its external data, to where it was or to another place.",
        discussion: """
            Overwrites nothing: if a file of a store exists at the destination, changes nothing. The archive keeps the \
            store; --move takes it out, which needs no space on the same file system. SQLite checks the store first, \
            and a copy is compared row by row before it gets its name. After a crash, run the command again, or \
            'groupstore recover': the restoration is finished or undone.

            Example:
              groupstore archive restore group.com.example.notes Notes.sqlite --to /tmp/Notes.sqlite
            """)

    @OptionGroup var group: ArchiveGroupArgument

    @Argument(
        help: "The archive's identifier or the beginning of it, or the store's name if only one has it.",
        completion: .archives)
    var archive: String

    @Option(
        help: ArgumentHelp(
            "The database's new path, or a directory for it, instead of where it was.", valueName: "path"),
        completion: .file())
    var to: String?

    @Flag(help: "Take the store out of the archive instead of copying it.")
    var move = false

    @Flag(help: "Print what would be done, and change nothing.")
    var dryRun = false

    @Flag(help: "Restore files as they are, even if they are damaged, incomplete, or unreadable for SQLite.")
    var opaque = false

    @Option(
        help: ArgumentHelp(
            "The longest wait for programs that have the store open (default: 30s).", valueName: "time"),
        transform: DurationArgument.init)
    var deadline = DurationArgument(seconds: 30)

    @Flag(help: "Continue even if it can't be proved that no program has the archived store open.")
    var assumeClosed = false

    @OptionGroup var outputOptions: OutputOptions

    func validate() throws { try deadline.validate("--deadline", in: 0...86_400) }

    func run() throws {
        let output = Output(outputOptions)
        let progress = RelocationProgressReporter(output)
        let started = ContinuousClock.now
        try reporting(output, changing: !dryRun) {
            let container = try group.container()
            let set = try find(in: container)
            var request = RelocationRequest(source: set.path, group: container.directory.path)
            request.deadline = deadline.duration
            request.opaque = opaque
            request.assumeClosed = assumeClosed
            let working = FilePath(workingDirectory())
            let destination = to.map { working.pushing(ArgumentBytes.path($0)) }
            try checkAgent(destination ?? set.note?.from.path)
            FileLease.ignoreBreakSignal()
            Interruption.installHandlers(announcing: true)
            let registry = Self.registry(of: container, &request)
            let engine = Relocation(
                request, registry: registry, isCancelled: { Interruption.isRequested },
                report: { progress.report($0) })
            let wanted = ArchiveRestoration(set.id, to: destination, moves: move)
            do {
                let summary = dryRun ? try engine.restoreDryRun(wanted) : try engine.restore(wanted)
                progress.finish(
                    summary, seconds: started.duration(to: .now).seconds, dryRun: dryRun,
                    ["id": .string(set.id.rawValue), "kept": .bool(!move)])
            } catch let error as RelocationFailure {
                let failure = error.markedIfInterrupted
                progress.fail(failure, source: set.path, seconds: started.duration(to: .now).seconds)
                throw ExitCode(failure.exitCode)
            }
        }
    }

    /// Returns the set. A restoration that was interrupted at its end may have emptied and removed it already; its
    /// identifier then names it.
    private func find(in container: GroupContainer) throws -> (
        id: TransferIdentifier, path: FilePath, note: ArchiveNote?
    ) {
        do {
            let found = try ArchiveArgument(archive).find(among: ArchivedStore.all(in: container), in: container)
            return (found.id, found.path, found.entry.note)
        } catch let error as RelocationFailure {
            guard let id = TransferIdentifier(archive), try !container.journals().isEmpty else { throw error }
            return (id, container.archivePath(id), nil)
        }
    }

    /// Throws `CommandFailure` if an agent would relocate the restored store at once.
    private func checkAgent(_ destination: FilePath?) throws {
        guard let destination, let name = destination.lastComponent,
            let directory = try? Directory(resolving: destination.removingLastComponent()),
            let status = try? AgentStatus(environment: ProcessVariables.all)
        else { return }
        let isServed = status.rows.contains { row in
            guard row.type == "legacy", let path = row.object.path("path").flatMap({ FilePath(bytes: $0) }),
                path.lastComponent == name
            else { return false }
            return (try? Directory(resolving: path.removingLastComponent()))?.identity == directory.identity
        }
        guard isServed else { return }
        throw CommandFailure(
            .busy, code: "agent_serves",
            "\(PrintablePath(destination)) is a legacy path of the agent's configuration: the agent would relocate the "
                + "store from there at once",
            remedy: "restore it to another place: --to PATH")
    }

    /// Returns the registry of the group's presenters: the agent's, if one serves the group.
    static func registry(
        of container: GroupContainer, _ request: inout RelocationRequest
    ) -> any PresenterRegistry {
        guard let socket = try? AgentConnection.standardSocket(environment: ProcessVariables.all),
            let connection = try? AgentConnection(socket, interrupt: Interruption.descriptor),
            let groups = try? ServedGroups(connection),
            let identifier = groups.group(at: container.directory.path).flatMap({ GroupIdentifier($0) })
        else { return InProcessRegistry() }
        request.identifier = identifier
        return GroupContainer(directory: container.directory, identifier: identifier).presenterRegistry
    }
}
