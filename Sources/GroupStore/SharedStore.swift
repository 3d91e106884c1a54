import AgentProtocol
import FileCoordination
import FoundationEssentials
import GroupContainers
import LinuxSystem
import SystemPackage

/// A store of a group container: where it is, who presents it, what changes in it, and how it is brought there.
///
/// The app opens the database at `url` with whatever it likes. An app that keeps it open presents it (`present`): then
/// a relocation asks it to let go for a moment instead of waiting until it ends.
public final class SharedStore: Sendable {
    public let container: GroupContainer
    /// The database's file name in the group container.
    public let name: String
    /// Where the store was before there was a group container; nil where it never was elsewhere.
    public let legacyURL: URL?

    let address: StoreAddress
    let component: FilePath.Component

    /// Throws `GroupStoreError` when the name is none or the container has no identifier.
    public init(_ name: String, in container: GroupContainer, legacy: URL? = nil) throws(GroupStoreError) {
        guard let component = FilePath.Component(bytes: name.utf8), let group = container.identifier,
            let address = StoreAddress(group: group.rawValue, name: component.bytes)
        else {
            throw GroupStoreError(
                .badName, "\(name) can't be a store's name", remedy: "name a file, without a directory")
        }
        self.container = container
        self.name = name
        self.component = component
        self.address = address
        legacyURL = legacy
    }

    /// Where the store belongs: `name` in the group container.
    public var groupURL: URL { container.url(of: item) }

    /// Where the store is now: at `legacyURL` for as long as it is only there, else at `groupURL`. It may move when
    /// nobody presents it.
    public var url: URL {
        switch whereabouts {
        case .group, .absent: groupURL
        case .legacy(let url): url
        case .moving: groupURL
        }
    }

    package var item: ClaimedItem { container.item(component) }

    private init(_ component: FilePath.Component, _ address: StoreAddress, in container: GroupContainer) {
        self.container = container
        name = component.string
        self.component = component
        self.address = address
        legacyURL = nil
    }

    /// The store under the name that it was moved to. Nil in a directory of the group container: no agent knows it there,
    /// and nobody relocates it.
    package func moved(to item: ClaimedItem) -> SharedStore? {
        if item == self.item { return self }
        guard item.path.components.count == 1, let component = item.path.lastComponent,
            let address = StoreAddress(group: address.group, name: component.bytes)
        else { return nil }
        return SharedStore(component, address, in: container)
    }

    // MARK: Where it is

    enum Whereabouts: Equatable {
        case group
        case legacy(URL)
        /// A relocation is under way, or was interrupted: at its old name is a directory.
        case moving
        /// Nowhere: it may be made in the group container.
        case absent
    }

    var whereabouts: Whereabouts {
        do {
            if try container.directory.status(component)?.kind == .regular { return .group }
        } catch {
            // Whoever opens it there hears why that can't be; what lies at the legacy place may be an old copy.
            return .group
        }
        guard let legacyURL, let found = FileStatus(following: FilePath(legacyURL.path)) else { return .absent }
        switch found.kind {
        // What is retired as a symbolic link leads to the group's.
        case .regular: return .legacy(legacyURL)
        case .directory: return .moving
        case .symbolicLink, .other: return .absent
        }
    }

    /// Where it is when nobody is moving it. Waits, on the calling thread, until a relocation under way is over; one
    /// that was interrupted is undone as far as it is needed. Throws `GroupStoreError`; `FileCoordinationError` when it
    /// is cancelled.
    func settledURL(_ deadline: Deadline, isCancelled: () -> Bool = { false }) throws -> URL {
        do {
            return try awaitSettledURL(deadline, isCancelled: isCancelled)
        } catch {
            throw GroupStoreError.visible(error)
        }
    }

    private func awaitSettledURL(_ deadline: Deadline, isCancelled: () -> Bool) throws -> URL {
        var wait = Duration.milliseconds(1)
        while true {
            let isQuiet = try whereabouts != .moving && !WithdrawnDatabase.isUnfinished(component, in: container)
            if try isQuiet || WithdrawnDatabase.hasPublished(component, in: container) { return url }
            do {
                if let lock = try container.lock() {
                    return try withExtendedLifetime(lock) { _ in try urlAfterInterruption() }
                }
            } catch let error as SystemError
                where error.errno == .permissionDenied || error.errno == .readOnlyFileSystem
            {
                // A reader can't lock; it waits for those who can.
                if whereabouts != .moving { return url }
            }
            guard !isCancelled() else { throw FileCoordinationError.cancelled }
            guard !deadline.hasPassed else {
                throw GroupStoreError(
                    .busy, "\(name) is being relocated (process \(container.lockHolder()))",
                    remedy: "try again when it is done")
            }
            pause(wait)
            wait = min(wait * 2, .milliseconds(20))
        }
    }

    /// Where what `presentation` presents is, and a lock under which it may be opened there: nobody moves or replaces it
    /// meanwhile. Waits, on the calling thread. Throws `GroupStoreError`, `FileCoordinationError`.
    func lockedURL(
        for presentation: StorePresentation, _ deadline: Deadline, isCancelled: @escaping @Sendable () -> Bool
    ) throws -> (URL, PresentedClaim) {
        while true {
            let item = presentation.item
            let store = moved(to: item)
            // First without the lock: whoever finishes a relocation claims the store.
            _ = try store?.settledURL(deadline, isCancelled: isCancelled)
            let lock = try PresentedClaim(
                item, in: container, of: presentation, ClaimWait(deadline, isCancelled: isCancelled))
            do {
                if presentation.item == item {
                    return (try store?.settledURL(Deadline(after: .zero)) ?? container.url(of: item), lock)
                }
                // Whoever was waited for has moved it.
                lock.leave()
            } catch let error as GroupStoreError where error.code == .busy && !deadline.hasPassed {
                lock.leave()
                // Somebody is at work on another store of the group, or has just begun: seldom, and soon over.
                pause(.milliseconds(5))
            } catch {
                lock.leave()
                throw error
            }
        }
    }

    /// Nobody relocates now: what the journal tells of has ended in the middle.
    private func urlAfterInterruption() throws -> URL {
        let isReturned = try WithdrawnDatabase.returnDatabase(of: component, in: container)
        guard isReturned, whereabouts != .moving else {
            throw GroupStoreError(
                .interrupted, "a relocation of \(name) was interrupted",
                remedy: "start the agent, or run groupstore relocate once more: it finishes or undoes it")
        }
        return url
    }
}
