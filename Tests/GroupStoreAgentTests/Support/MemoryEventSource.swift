import DirectoryWatching
import Dispatch
import LinuxSystem
import Synchronization
import SystemPackage

/// An event source whose notices a test provides.
final class MemoryEventSource: EventSource, Sendable {
    private struct State {
        var notices: [Notice] = []
        var watched: [FilePath: DirectoryEvent.Kinds] = [:]
        var refused: Set<FilePath> = []
        var isFull = false
    }

    private let state = Mutex(State())
    private let arrived = DispatchSemaphore(value: 0)

    struct Refused: Error {}

    var watched: [FilePath: DirectoryEvent.Kinds] { state.withLock { $0.watched } }

    func refuse(_ directory: FilePath) { _ = state.withLock { $0.refused.insert(directory) } }

    /// No further directory can be watched, as when the limit of inotify is reached.
    func setFull(_ isFull: Bool) { state.withLock { $0.isFull = isFull } }

    func allow(_ directory: FilePath) { _ = state.withLock { $0.refused.remove(directory) } }

    func emit(_ notices: Notice...) {
        state.withLock { $0.notices += notices }
        arrived.signal()
    }

    func watch(_ directory: FilePath, for kinds: DirectoryEvent.Kinds) throws {
        try state.withLock { state in
            if state.refused.contains(directory) { throw Refused() }
            if state.isFull, state.watched[directory] == nil {
                throw SystemError("inotify_add_watch", .noSpace, path: directory)
            }
            state.watched[directory, default: []].formUnion(kinds)
            state.notices.append(.directoryAppeared(directory))
        }
        arrived.signal()
    }

    func setKinds(_ kinds: DirectoryEvent.Kinds, of directory: FilePath) {
        state.withLock { $0.watched[directory] = kinds }
    }

    func unwatch(_ directory: FilePath) { state.withLock { $0.watched[directory] = nil } }

    func recheckPaths() {}

    func watchFile(_ name: FilePath.Component, in directory: FilePath, enabled: Bool) throws {
        guard enabled, state.withLock({ $0.isFull }) else { return }
        throw SystemError("inotify_add_watch", .noSpace, path: directory.appending(name))
    }

    func watchOpenFile(_ file: borrowing Descriptor, as name: FilePath.Component, in directory: FilePath) {}

    func setFastPath(_ name: FilePath.Component, in directory: FilePath, index: Int?) {}

    func next(timeout: Duration?, onReadable: (() -> Void)?, onFastPath: ((Int) -> Void)?) throws -> [Notice] {
        let limit = timeout.map { DispatchTime.now() + .nanoseconds(Int($0.nanoseconds)) } ?? .distantFuture
        _ = arrived.wait(timeout: limit)
        return state.withLock { state in
            defer { state.notices = [] }
            return state.notices
        }
    }

    func withModifyEventsSuspended(except files: [FilePath: [FilePath.Component]], _ body: () throws -> Void) throws {
        try body()
    }

    func wake() { emit(.woken) }
}
