import AgentProtocol
import Synchronization

/// The relocations that clients have asked for and that are not over, by what their clients call them.
final class RequestedRelocations: Sendable {
    private struct Entry {
        let connection: UInt64
        let id: JSONValue
        let stop: StopFlag
    }

    private let entries = Mutex<[Entry]>([])

    /// What is set when the client cancels it. Without an `id` there is nothing to call it by.
    func begin(_ id: JSONValue?, of connection: UInt64) -> StopFlag {
        let stop = StopFlag()
        if let id { entries.withLock { $0.append(Entry(connection: connection, id: id, stop: stop)) } }
        return stop
    }

    func end(_ stop: StopFlag) { entries.withLock { $0.removeAll { $0.stop === stop } } }

    /// False when the connection has none of that name under way.
    func cancel(_ id: JSONValue, of connection: UInt64) -> Bool {
        let found = entries.withLock { $0.filter { $0.connection == connection && $0.id == id } }
        for entry in found { entry.stop.set() }
        return !found.isEmpty
    }
}
