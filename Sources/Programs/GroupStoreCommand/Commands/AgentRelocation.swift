import AgentProtocol
import Glibc
import GroupStore
import LinuxSystem
import StoreMerging
import StoreMigration
import StoreRelocation
import SystemPackage

/// A relocation that the agent performs, because it serves the group and follows its stores.
struct AgentRelocation {
    private let connection: AgentConnection
    private let operation: RelocateOperation

    /// The time limit for the reply. A copy between slow disks may take long; the end of an agent is noticed at once.
    private static let replyTimeout = Duration.seconds(86_400)
    /// The time limit for cancelling. An agent that hasn't replied by then rolls back all the same, because it sees
    /// that the connection has ended.
    private static let rollBackTimeout = Duration.seconds(60)

    /// Returns nil if no agent answers, or if it serves neither this group nor the one that contains the store. The
    /// command then relocates the store itself.
    init?(
        _ request: RelocationRequest, _ migration: MigrationRequest?, _ merge: MergeOptions?, dryRun: Bool, undo: Bool,
        environment: [String: String]
    ) {
        guard let socket = try? AgentConnection.standardSocket(environment: environment),
            let connection = try? AgentConnection(socket, interrupt: Interruption.descriptor),
            let groups = try? ServedGroups(connection),
            [request.group, request.source.removingLastComponent()].contains(where: { groups.group(at: $0) != nil })
        else { return nil }
        self.connection = connection
        var operation = RelocateOperation(request, merge, dryRun: dryRun)
        operation.undo = undo
        if let migration { operation.add(migration) }
        self.operation = operation
    }

    /// Returns the members of the summary, or nil if the agent can't do it after all or died. The next run finds what
    /// it had begun, and finishes or undoes it. Throws `RelocationFailure` if a signal interrupts it and the agent has
    /// put everything back.
    func run(_ progress: RelocationProgressReporter) throws(RelocationFailure) -> JSONObject? {
        do throws(AgentConnectionError) {
            let answer = try connection.request(
                .relocate(operation), deadline: Deadline(after: Self.replyTimeout), passing: proof(),
                cancellationTimeout: Self.rollBackTimeout
            ) { progress.relay($0, $1) }
            guard answer.object("error")?.string("code") == "cancelled" else { return answer }
        } catch {
            switch error {
            case .interrupted: break
            case .refused(let error) where error.code == "cancelled": break
            default: return nil
            }
        }
        throw .cancelled(FilePath(bytes: operation.source) ?? "")
    }

    /// Returns a descriptor that proves to another user's agent that this user may read and write the store. It is
    /// closed as soon as it is sent, because an open store can't be relocated.
    private func proof() -> Descriptor? {
        guard !connection.belongsToSameUser, geteuid() != 0, let source = FilePath(bytes: operation.source) else {
            return nil
        }
        return try? Descriptor(opening: source, flags: O_RDWR | O_NONBLOCK)
    }
}

extension RelocateOperation {
    init(_ request: RelocationRequest, _ merge: MergeOptions?, dryRun: Bool) {
        self.init(source: request.source.bytes, group: request.group.bytes)
        sourceIdentity = FileStatus(following: request.source).map { Identity($0.identity) }
        groupIdentity = FileStatus(following: request.group).map { Identity($0.identity) }
        name = request.name?.bytes
        onConflict = request.onConflict.rawValue
        retire = request.retirement?.rawValue
        deadline = request.deadline.seconds
        opaque = request.opaque
        assumeClosed = request.assumeClosed
        self.dryRun = dryRun
        mergeKeys = merge?.keys.map(\.text) ?? []
        mergeReferences = merge?.references.map(\.text) ?? []
        preferences = merge?.preferences.map(\.text) ?? []
        journalMode = request.journalMode?.word
    }

    /// Adds a migration. The agent reads the model, the mapping models and the default store itself.
    mutating func add(_ migration: MigrationRequest) {
        model = NamedFile(migration.model)
        mergedModels = migration.mergedModels.map { NamedFile($0) }
        configuration = migration.configuration
        modelVersion = migration.version
        mappings = migration.mappings.map { NamedFile($0) }
        renamings = migration.renamings.map(\.description)
        allowsPartialHistory = migration.options.allowsPartialHistory
        validation = migration.options.validation == .none ? nil : migration.options.validation.rawValue
        onIncompatible = migration.onIncompatible.rawValue
        defaultStore = migration.defaultStore.map { NamedFile($0) }
    }
}

extension RelocateOperation.NamedFile {
    init(_ path: FilePath) {
        self.init(
            path: path.bytes, identity: FileStatus(following: path).map { RelocateOperation.Identity($0.identity) })
    }
}

extension RelocateOperation.Identity {
    fileprivate init(_ identity: FileIdentity) { self.init(device: identity.device, inode: identity.inode) }
}
