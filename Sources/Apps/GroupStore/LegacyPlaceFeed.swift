import AgentProtocol
import CLinux
import Glibc
import LinuxSystem
import StoreWatching
import Synchronization
import SystemPackage

/// The changes of a store that isn't in its group container yet. No agent follows a store at its legacy place, so this
/// process watches it there. Used by one reader's thread.
final class LegacyPlaceFeed {
    private let store: SharedStore
    private let tables: TableFilter?
    private let namesTables: Bool
    private let wake: @Sendable () -> Void
    private var subscription: DirectSubscription?
    private var arrivals: Arrivals?

    /// The time that a start takes at most. What happens before its end comes as a reset.
    private static let startTimeout = Duration.seconds(10)

    /// Returns nil for a store that was never elsewhere.
    ///
    /// - Parameter wake: Called on another thread when a change may have come.
    init?(_ source: ChangeSource, wake: @escaping @Sendable () -> Void) {
        guard let store = source.store, store.legacyURL != nil else { return nil }
        self.store = store
        tables = source.tables
        namesTables = source.namesTables
        self.wake = wake
    }

    /// Returns the next change at the legacy place; nil if there is none, or if the store is in the group container.
    ///
    /// - Parameter isCovered: True if the consumer is about to read the store anyway.
    /// - Throws: ``GroupStoreError`` with `system` if the store is at its legacy place and can't be watched.
    func next(isCovered: Bool) throws(GroupStoreError) -> StoreChange? {
        guard let legacy = store.legacyURL, store.location != .group else {
            end()
            return nil
        }
        do throws(GroupStoreError) {
            if let subscription { return try current(subscription.next(within: .zero)) }
            let arrivals = try Arrivals(waking: wake)
            self.arrivals = arrivals
            let new = try DirectSubscription(
                FilePath(legacy.path), since: nil, tables: tables, namesTables: namesTables
            ) { arrivals.signal() }
            subscription = new
            let first = try new.next(within: Self.startTimeout)
            return isCovered ? nil : current(first)
        } catch {
            end()
            guard case .legacy = store.location else { return nil }
            throw error
        }
    }

    /// Returns the event's change unless it is a relocation's work: its end is announced by itself.
    private func current(_ found: (event: StoreEvent, token: DirectToken)?) -> StoreChange? {
        switch store.location {
        case .legacy, .absent: found.map { StoreChange($0.event, token: $0.token.description) }
        case .group, .moving: nil
        }
    }

    func end() {
        subscription?.end()
        arrivals?.end()
        (subscription, arrivals) = (nil, nil)
    }
}

/// Passes the arrival of changes on to a reader. The watching thread can't wake it through a descriptor, because it has
/// a table of descriptors of its own.
private final class Arrivals: Sendable {
    private let arrived = MonotonicSemaphore()
    private let isEnded = Atomic(false)

    init(waking wake: @escaping @Sendable () -> Void) throws(GroupStoreError) {
        do {
            _ = try SystemThread(name: "gs-legacy") { [arrived, self] in
                while true {
                    arrived.wait()
                    if isEnded.load(ordering: .relaxed) { return }
                    wake()
                }
            }
        } catch {
            throw GroupStoreError(error)
        }
    }

    func signal() { arrived.signal() }

    func end() {
        isEnded.store(true, ordering: .relaxed)
        arrived.signal()
    }
}

/// Wakes a thread that waits for a socket, or for a semaphore of its own.
final class WakeDescriptor: Sendable {
    private let descriptor: Descriptor

    /// Throws `SystemError`.
    init() throws(SystemError) { descriptor = Descriptor(owning: try retrying("eventfd") { gs_eventfd() }) }

    /// Ends the present wait, or the next one.
    func signal() {
        var one: UInt64 = 1
        _ = write(descriptor.raw, &one, 8)
    }

    /// Waits until the socket can be read. Returns false if it was woken instead.
    func waitUntilReadable(_ socket: CInt) -> Bool {
        let wakerRaw = descriptor.raw
        // An error of the socket is found when it is read.
        guard let ready = try? retrying("ppoll", { gs_wait_readable(socket, wakerRaw, -1) }), ready & 2 != 0 else {
            return true
        }
        var count: UInt64 = 0
        _ = read(wakerRaw, &count, 8)
        return false
    }
}
