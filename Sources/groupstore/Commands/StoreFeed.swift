import AgentProtocol
import Glibc
import GroupStore
import LinuxSystem
import SystemPackage

/// One event of a watched store.
struct FeedEvent {
    let type: String
    let object: JSONObject

    var token: String? { object.string("token") }

    /// Names a list of tables as far as it is known; nil for other events.
    private var tables: String? {
        guard type == "change" else { return nil }
        let names = tableNames.map { $0.isEmpty || $0.contains { " ,\"".contains($0) } ? "\"\($0)\"" : $0 }
        let isComplete = object.bool("complete") == true
        if names.isEmpty { return isComplete ? "no table" : "unknown tables" }
        return names.joined(separator: ",") + (isComplete ? "" : ",…")
    }

    var tableNames: [String] {
        guard case .array(let values)? = object["tables"] else { return [] }
        return values.compactMap { if case .string(let name) = $0 { name } else { nil } }
    }

    /// Whether the store may hold something else now; the others only tell of what is under way.
    var meansReading: Bool { !["relocating", "abandoned"].contains(type) }

    /// Only says that the subscription has moved on.
    var isBookmark: Bool { type == "bookmark" }

    /// What a person wants to see of it behind its type.
    var words: String {
        let path = object.path("to").flatMap { FilePath(bytes: $0) }.map { "to \(PrintablePath($0))" }
        let words = [object.string("reason"), object.string("outcome"), tables, path, token]
        return words.compactMap { $0 }.joined(separator: "  ")
    }
}

/// A store's events over one connection after another: when the agent goes, it is waited for, and asked for what
/// came after the last token.
final class StoreFeed {
    let address: StoreAddress
    /// Where the agent has the store; `path` itself where it was named by a path.
    private(set) var path: FilePath
    /// Up to where everything was told.
    private(set) var token: String
    private let socket: FilePath
    private var subscription: SubscribeOperation
    private var connection: AgentConnection?

    var name: String {
        "\(address.group)/\(FilePath.Component(bytes: address.name).map { "\(PrintablePath($0))" } ?? "")"
    }

    private static let patience = Duration.seconds(30)
    private static let answerTime = Duration.seconds(40)

    /// Connects and subscribes. `store`: a path, or `GROUP_ID/NAME`. `wish`: of what to be told; without it, of all.
    init(
        _ store: String, since token: String?, _ wish: (inout SubscribeOperation) -> Void = { _ in }
    ) throws(AgentConnectionError) {
        socket = try AgentConnection.standardSocket(environment: ProcessVariables.all)
        let connection = try AgentConnection(socket, bell: Interruption.bell)
        self.connection = connection
        address = try ServedGroups(connection).address(of: ArgumentBytes.path(store))
        var subscription = SubscribeOperation(address, since: token)
        wish(&subscription)
        subscription.wantsBookmarks = true
        self.subscription = subscription
        let reply = try connection.request(.subscribe(subscription), deadline: Deadline(after: Self.answerTime))
        self.token = reply.string("token") ?? ""
        path = reply.path("path").flatMap { FilePath(bytes: $0) } ?? ArgumentBytes.path(store)
    }

    /// The next event; nil when none came in time.
    func next(deadline: Deadline) throws(AgentConnectionError) -> FeedEvent? {
        while true {
            do throws(AgentConnectionError) {
                if connection == nil { connection = try reconnected(deadline) }
                guard let connection else { return nil }
                guard let (type, object) = try connection.event(deadline: deadline) else { return nil }
                guard object.store == address else { continue }
                let event = FeedEvent(type: type, object: object)
                token = event.token ?? token
                return event
            } catch {
                guard case .lost = error else { throw error }
                connection = nil
            }
        }
    }

    /// Nil when the caller's deadline passes first; throws when the agent doesn't come back.
    private func reconnected(_ deadline: Deadline) throws(AgentConnectionError) -> AgentConnection? {
        let giveUp = Deadline(after: Self.patience)
        var interval = Duration.milliseconds(50)
        while true {
            do throws(AgentConnectionError) {
                let new = try AgentConnection(socket, bell: Interruption.bell)
                subscription.since = token
                _ = try new.request(.subscribe(subscription), deadline: Deadline(after: Self.answerTime))
                return new
            } catch {
                if giveUp.hasPassed { throw error == .lost(socket) ? .timedOut(socket) : error }
            }
            if Interruption.wasAskedFor { throw .interrupted }
            if deadline.hasPassed { return nil }
            pause(min(interval, deadline.remaining ?? interval))
            interval = min(interval * 2, .seconds(2))
        }
    }
}

/// The groups that the agent serves, and where their directories are.
struct ServedGroups {
    private var directories: [(group: String, directory: FilePath)] = []

    init(_ connection: AgentConnection) throws(AgentConnectionError) {
        var found: [(String, FilePath)] = []
        _ = try connection.request(.status(group: nil), deadline: Deadline(after: .seconds(10))) { type, row in
            guard type == "group", let group = row.string("group"),
                let directory = row.path("directory").flatMap({ FilePath(bytes: $0) })
            else { return }
            found.append((group, directory))
        }
        directories = found
    }

    /// Symbolic links followed; the path itself when there is nothing by that name yet.
    private static func resolved(_ path: FilePath) -> FilePath {
        guard let real = path.withPlatformString({ realpath($0, nil) }) else { return path }
        defer { free(real) }
        return FilePath(platformString: real)
    }

    /// The group whose directory this is.
    func group(at directory: FilePath) -> String? {
        guard let identity = try? Directory(directory).identity else { return nil }
        return directories.first { (try? Directory($0.directory))?.identity == identity }?.group
    }

    /// What a store is called on the wire. `GROUP_ID/NAME` of a served group comes first, then a path, which may be
    /// a symbolic link that a relocation left.
    func address(of path: FilePath) throws(AgentConnectionError) -> StoreAddress {
        if let address = StoreAddress(bytes: path.bytes), directories.contains(where: { $0.group == address.group }) {
            return address
        }
        let real = Self.resolved(path.absolute(in: FilePath(workingDirectory())))
        if let name = real.lastComponent, let group = group(at: real.removingLastComponent()),
            let address = StoreAddress(group: group, name: name.bytes)
        {
            return address
        }
        throw .refused(
            WireError(
                code: "not_served", "the agent serves no group with the store \(PrintablePath(path))",
                hint: "add its directory to the agent's configuration, or name it GROUP_ID/NAME"))
    }
}
