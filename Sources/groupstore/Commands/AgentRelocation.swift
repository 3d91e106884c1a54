import AgentProtocol
import Glibc
import GroupStore
import LinuxSystem
import StoreMigration
import StoreRelocation
import SystemPackage

/// A relocation that the agent does, because it serves the group and follows its stores.
struct AgentRelocation {
    private let connection: AgentConnection
    private let operation: RelocateOperation

    /// A copy between slow disks may take long; an agent that dies is noticed at once.
    private static let patience = Duration.seconds(86_400)
    /// An agent that doesn't answer by then puts it back all the same: it sees that the connection has ended.
    private static let untilPutBack = Duration.seconds(60)

    /// Nil when no agent answers, or when it serves neither this group nor the one that the store is in: then the relocation
    /// is the command's own.
    init?(
        _ request: RelocationRequest, _ migration: MigrationRequest?, dryRun: Bool, undo: Bool,
        environment: [String: String]
    ) {
        guard let socket = try? AgentConnection.standardSocket(environment: environment),
            let connection = try? AgentConnection(socket, bell: Interruption.bell),
            let groups = try? ServedGroups(connection),
            [request.group, request.source.removingLastComponent()].contains(where: { groups.group(at: $0) != nil })
        else { return nil }
        self.connection = connection
        var operation = RelocateOperation(request, dryRun: dryRun)
        operation.undo = undo
        if let migration { operation.add(migration) }
        self.operation = operation
    }

    /// The summary's members; nil when the agent can't do it after all, or died on the way. What it had begun, the
    /// next run finds and finishes or undoes. Throws `RelocationFailure` when a signal ends it, and the agent has put
    /// everything back.
    func run(_ progress: RelocationProgress) throws(RelocationFailure) -> JSONObject? {
        do throws(AgentConnectionError) {
            let answer = try connection.request(
                .relocate(operation), deadline: Deadline(after: Self.patience), passing: proof(),
                cancelling: Self.untilPutBack
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

    /// For another user's agent: that this user may read and write the store. Closed as soon as it is sent, since a store that
    /// is open can't be relocated.
    private func proof() -> Descriptor? {
        guard !connection.isOwn, geteuid() != 0, let source = FilePath(bytes: operation.source) else { return nil }
        return try? Descriptor(opening: source, flags: O_RDWR | O_NONBLOCK)
    }
}

extension RelocateOperation {
    init(_ request: RelocationRequest, dryRun: Bool) {
        self.init(source: request.source.bytes, group: request.group.bytes)
        sourceIdentity = FileStatus(following: request.source).map { Identity($0.identity) }
        groupIdentity = FileStatus(following: request.group).map { Identity($0.identity) }
        name = request.name?.bytes
        onConflict = request.onConflict.rawValue
        retire = request.retirement.rawValue
        deadline = request.deadline.seconds
        opaque = request.opaque
        assumeClosed = request.assumeClosed
        self.dryRun = dryRun
        journalMode = request.journalMode?.word
    }

    /// The agent reads the model, the mapping models and the default store itself.
    mutating func add(_ migration: MigrationRequest) {
        model = NamedFile(migration.model)
        modelVersion = migration.version
        mappings = migration.mappings.map { NamedFile($0) }
        renamings = migration.renamings.map(\.description)
        allowsPartialHistory = migration.allowsPartialHistory
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
