import AgentProtocol
import Glibc
import GroupStore
import LinuxSystem
import SystemPackage

/// An event of a watched store.
struct FeedEvent {
    let type: String
    let object: JSONObject

    var token: String? { object.string("token") }

    /// The names of the changed tables, as far as they are known; nil for other events.
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

    /// True if the store's content may have changed; the other events only report progress.
    var requiresReading: Bool { !["relocating", "abandoned"].contains(type) }

    /// True for a bookmark, which only advances the subscription's position.
    var isBookmark: Bool { type == "bookmark" }

    /// The text that follows the event's type for people.
    var words: String {
        let path = object.path("to").flatMap { FilePath(bytes: $0) }.map { "to \(PrintablePath($0))" }
        let words = [object.string("reason"), object.string("outcome"), tables, path, token]
        return words.compactMap { $0 }.joined(separator: "  ")
    }
}

/// A store's events across connections: if the agent goes away, the feed waits for it and requests the events after the
/// last token.
final class StoreFeed {
    let address: StoreAddress
    /// The store's path at the agent, or the command line's own path.
    private(set) var path: FilePath
    /// The position up to which all events were received.
    private(set) var token: String
    private let socket: FilePath
    private var subscription: SubscribeOperation
    private var connection: AgentConnection?

    var name: String {
        "\(address.group)/\(FilePath.Component(bytes: address.name).map { "\(PrintablePath($0))" } ?? "")"
    }

    private static let reconnectTimeout = Duration.seconds(30)
    private static let replyTimeout = Duration.seconds(40)

    /// Connects and subscribes.
    ///
    /// - Parameters:
    ///   - store: A path, or `GROUP_ID/NAME`.
    ///   - configure: Sets filters; without it, all events are received.
    init(
        _ store: String, since token: String?, _ configure: (inout SubscribeOperation) -> Void = { _ in }
    ) throws(AgentConnectionError) {
        socket = try AgentConnection.standardSocket(environment: ProcessVariables.all)
        let connection = try AgentConnection(socket, interrupt: Interruption.descriptor)
        self.connection = connection
        address = try ServedGroups(connection).address(of: ArgumentBytes.path(store))
        var subscription = SubscribeOperation(address, since: token)
        configure(&subscription)
        subscription.wantsBookmarks = true
        self.subscription = subscription
        let reply = try connection.request(.subscribe(subscription), deadline: Deadline(after: Self.replyTimeout))
        self.token = reply.string("token") ?? ""
        path = reply.path("path").flatMap { FilePath(bytes: $0) } ?? ArgumentBytes.path(store)
    }

    /// Returns the next event, or nil if none came before the deadline.
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

    /// Reconnects. Returns nil if the caller's deadline passes first, and throws if the agent doesn't come back.
    private func reconnected(_ deadline: Deadline) throws(AgentConnectionError) -> AgentConnection? {
        let giveUp = Deadline(after: Self.reconnectTimeout)
        var backoff = Backoff(first: .milliseconds(50), longest: .seconds(2))
        while true {
            do throws(AgentConnectionError) {
                let newConnection = try AgentConnection(socket, interrupt: Interruption.descriptor)
                subscription.since = token
                _ = try newConnection.request(.subscribe(subscription), deadline: Deadline(after: Self.replyTimeout))
                return newConnection
            } catch {
                if giveUp.hasPassed { throw error == .lost(socket) ? .timedOut(socket) : error }
            }
            if Interruption.isRequested { throw .interrupted }
            if deadline.hasPassed { return nil }
            let delay = backoff.next()
            pause(min(delay, deadline.remaining ?? delay))
        }
    }
}

/// The groups that the agent serves, and their directories.
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

    /// Returns the path with symbolic links resolved, or the path itself if nothing exists there yet.
    private static func resolved(_ path: FilePath) -> FilePath {
        guard let real = path.withPlatformString({ realpath($0, nil) }) else { return path }
        defer { free(real) }
        return FilePath(platformString: real)
    }

    /// Returns the group with this directory.
    func group(at directory: FilePath) -> String? {
        guard let identity = try? Directory(directory).identity else { return nil }
        return directories.first { (try? Directory($0.directory))?.identity == identity }?.group
    }

    /// Returns a store's wire name. `GROUP_ID/NAME` of a served group takes precedence over a path, which may be a
    /// symbolic link that a relocation left.
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
                code: "not_served", "the agent doesn't serve a group with the store \(PrintablePath(path))",
                hint: "add its directory to the agent's configuration, or name it GROUP_ID/NAME"))
    }
}
