import AgentProtocol
import StoreHazards
import Synchronization
import SystemPackage

/// The state of following one store.
package enum FollowingState: String, Sendable {
    case following
    /// Nobody listens: commits go unnoticed until somebody does. One look then tells whether there were any.
    case idle
    /// No file has that name; the agent waits for it.
    case absent
    /// A program uses it in exclusive mode, or the agent may not read it.
    case unreadable
    /// Its directory can't be watched, because of a limit or a missing permission: commits go unnoticed. Retried.
    case unwatched
    /// Released for the time of a relocation.
    case released
}

/// The states of all followed stores, readable from any thread.
package final class FollowingStates: Sendable {
    private let states = Mutex<[StoreAddress: FollowingState]>([:])
    /// The reasons why stores are not followed, with the remedies.
    private let details = Mutex<[StoreAddress: String]>([:])
    /// The reasons why directories can't be watched.
    private let directories = Mutex<[FilePath: String]>([:])

    /// The hazards to stores.
    private let hazards = Mutex<[StoreAddress: [StoreHazard]]>([:])

    package init() {}

    package subscript(store: StoreAddress) -> FollowingState? { states.withLock { $0[store] } }

    package func detail(_ store: StoreAddress) -> String? { details.withLock { $0[store] } }

    /// Returns the hazards to the store: states in which commits to it can be lost.
    package func hazards(_ store: StoreAddress) -> [StoreHazard] { hazards.withLock { $0[store] ?? [] } }

    func setHazards(_ found: [StoreHazard], of store: StoreAddress) {
        hazards.withLock { $0[store] = found.isEmpty ? nil : found }
    }

    /// Returns why the directory can't be watched; nil if it is watched, or needn't be.
    package func unwatchable(_ directory: FilePath) -> String? { directories.withLock { $0[directory] } }

    package func setUnwatchable(_ reason: String?, _ directory: FilePath) {
        directories.withLock { if $0[directory] != reason { $0[directory] = reason } }
    }

    package func set(_ state: FollowingState?, of store: StoreAddress, because detail: String? = nil) {
        states.withLock { $0[store] = state }
        details.withLock { if $0[store] != detail { $0[store] = detail } }
    }
}
