import AgentProtocol
import Synchronization

/// The running relocations that clients requested, by the ids of their requests.
final class RequestedRelocations: Sendable {
    private struct Entry {
        let connection: UInt64
        let id: JSONValue
        let stop: StopFlag
    }

    private let entries = Mutex<[Entry]>([])

    /// Registers a relocation. Returns the flag that is set when the client cancels it; without an `id` it can't be
    /// cancelled.
    func begin(_ id: JSONValue?, of connection: UInt64) -> StopFlag {
        let stop = StopFlag()
        if let id { entries.withLock { $0.append(Entry(connection: connection, id: id, stop: stop)) } }
        return stop
    }

    func end(_ stop: StopFlag) { entries.withLock { $0.removeAll { $0.stop === stop } } }

    /// Cancels a relocation. Returns false if the connection has none with this id.
    func cancel(_ id: JSONValue, of connection: UInt64) -> Bool {
        let found = entries.withLock { $0.filter { $0.connection == connection && $0.id == id } }
        for entry in found { entry.stop.set() }
        return !found.isEmpty
    }
}
