import AgentProtocol
import FileCoordination
import FoundationEssentials
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A store in a group container: its location, presentation, changes and relocation.
///
/// The app opens the database at ``url`` with any library.
///
///     let container = try GroupContainer(identifier: "group.com.example.notes")
///     let store = try SharedStore("Notes.sqlite", in: container, legacy: oldURL)
///     let presentation = try await store.present(
///         open: { url in try await database.open(url) }, close: { try await database.close() })
///
/// - Important: An app that keeps the database open should present it
///   (``present(openableModelVersions:open:close:failed:)``). A relocation then asks the app to let go for a moment;
///   otherwise it waits until the app exits.
public final class SharedStore: Sendable {
    /// The group container that the store belongs to.
    public let container: GroupContainer
    /// The database's file name in the group container.
    public let name: String
    /// The store's location before there was a group container; nil if it was never elsewhere.
    public let legacyURL: URL?

    let address: StoreAddress
    let component: FilePath.Component

    /// Creates a store. The file need not exist yet.
    ///
    /// - Parameters:
    ///   - name: The database's file name, without a directory.
    ///   - container: The group container, which must have an identifier.
    ///   - legacy: The location from which the store is to be relocated.
    /// - Throws: ``GroupStoreError`` with `badName` if the name can't be a file name, if it is one that SQLite or Core
    ///   Data gives to another store's files (`-wal`, `-shm`, `-journal`, `.NAME_SUPPORT`), or if the container has no
    ///   identifier.
    public init(_ name: String, in container: GroupContainer, legacy: URL? = nil) throws(GroupStoreError) {
        guard let component = FilePath.Component(bytes: name.utf8), let group = container.identifier,
            let address = StoreAddress(group: group.rawValue, name: component.bytes)
        else {
            throw GroupStoreError(
                .badName, "\(name) can't be a store's name", remedy: "name a file, without a directory")
        }
        guard StoreName(component) != nil else { throw Self.badName(component) }
        self.container = container
        self.name = name
        self.component = component
        self.address = address
        legacyURL = legacy
    }

    /// The location where the store belongs: ``name`` in the group container.
    public var groupURL: URL { container.url(of: item) }

    /// The store's current location: ``legacyURL`` while the store exists only there, else ``groupURL``.
    ///
    /// - Important: The store may move at any time while no process presents it.
    public var url: URL {
        switch location {
        case .group, .absent: groupURL
        case .legacy(let url): url
        case .moving: groupURL
        }
    }

    package var item: ClaimedItem { container.item(component) }

    /// The container at its path: another directory may have replaced the one that was opened.
    var currentContainer: GroupContainer { (try? container.current()) ?? container }

    private init(_ component: FilePath.Component, _ address: StoreAddress, in container: GroupContainer) {
        self.container = container
        name = component.string
        self.component = component
        self.address = address
        legacyURL = nil
    }

    /// Returns the store under its name after a move. Returns nil in a subdirectory of the group container, where
    /// agents and relocations ignore stores.
    package func moved(to item: ClaimedItem) -> SharedStore? {
        if item == self.item { return self }
        guard item.path.components.count == 1, let component = item.path.lastComponent,
            let address = StoreAddress(group: address.group, name: component.bytes)
        else { return nil }
        return SharedStore(component, address, in: container)
    }

    // MARK: Location

    enum Location: Equatable {
        case group
        case legacy(URL)
        /// A relocation is under way or was interrupted: a directory has the store's old name.
        case moving
        /// The store doesn't exist; it may be created in the group container.
        case absent
    }

    var location: Location {
        do {
            if try currentContainer.directory.status(component)?.kind == .regular { return .group }
        } catch {
            // Opening it there reports the error. The file at the legacy place may be an old copy.
            return .group
        }
        guard let legacyURL, let found = FileStatus(following: FilePath(legacyURL.path)) else { return .absent }
        switch found.kind {
        // A symbolic link that was left in retirement leads to the group's store.
        case .regular: return .legacy(legacyURL)
        case .directory: return .moving
        case .symbolicLink, .other: return .absent
        }
    }

    /// Returns the store's location once nobody is moving it. Blocks the calling thread until a relocation under way is
    /// over, and undoes an interrupted one as far as needed. Throws ``GroupStoreError``, and ``FileCoordinationError``
    /// if it is cancelled.
    func settledURL(_ deadline: Deadline, isCancelled: () -> Bool = { false }) throws -> URL {
        do {
            return try awaitSettledURL(deadline, isCancelled: isCancelled)
        } catch {
            throw GroupStoreError.visible(error)
        }
    }

    private func awaitSettledURL(_ deadline: Deadline, isCancelled: () -> Bool) throws -> URL {
        var backoff = Backoff(first: .milliseconds(1), longest: .milliseconds(20))
        while true {
            let container = currentContainer
            let isSettled = try location != .moving && !WithdrawnDatabase.isUnfinished(component, in: container)
            if try isSettled || WithdrawnDatabase.hasPublished(component, in: container) { return url }
            do {
                if let lock = try container.lock() {
                    return try withExtendedLifetime(lock) { _ in try urlAfterInterruption(in: container) }
                }
            } catch let error as SystemError
                where error.errno == .permissionDenied || error.errno == .readOnlyFileSystem
            {
                // A reader can't lock. It waits for processes that can.
                if location != .moving { return url }
            }
            guard !isCancelled() else { throw FileCoordinationError.cancelled }
            guard !deadline.hasPassed else {
                throw GroupStoreError(
                    .busy, "\(name) is being relocated (process \(container.lockHolder()))",
                    remedy: "try again when it is done")
            }
            pause(backoff.next())
        }
    }

    /// Returns the location of the presented item, and a lock under which it may be opened: nobody moves or replaces it
    /// meanwhile. Blocks the calling thread. Throws ``GroupStoreError``, ``FileCoordinationError``.
    func lockedURL(
        for presentation: StorePresentation, _ deadline: Deadline, isCancelled: @escaping @Sendable () -> Bool
    ) throws -> (URL, PresentedClaim) {
        while true {
            let item = presentation.item
            let store = moved(to: item)
            // First without the lock, because a process that completes a relocation claims the store.
            _ = try store?.settledURL(deadline, isCancelled: isCancelled)
            let lock: PresentedClaim
            do throws(FileCoordinationError) {
                lock = try PresentedClaim(
                    item, in: currentContainer, of: presentation, ClaimWait(deadline, isCancelled: isCancelled))
            } catch {
                // Another directory has got the container's path meanwhile.
                guard error.code == .containerReplaced, container.isReplaced, !deadline.hasPassed else { throw error }
                continue
            }
            do {
                if presentation.item == item {
                    try checkFiles(of: item)
                    return (try store?.settledURL(Deadline(after: .zero)) ?? container.url(of: item), lock)
                }
                // The process that was waited for has moved it.
                lock.release()
            } catch let error as GroupStoreError where error.code == .busy && !deadline.hasPassed {
                lock.release()
                // Another store of the group is being relocated, or a relocation has just begun: rare, and soon over.
                pause(.milliseconds(5))
            } catch {
                lock.release()
                throw error
            }
        }
    }

    /// Throws if opening the item as a database would cost another store its files: the item was moved to the name of
    /// one, or another store has the name of one of the item's side files.
    private func checkFiles(of item: ClaimedItem) throws {
        guard let last = item.path.lastComponent else { return }
        guard let name = StoreName(last) else { throw Self.badName(last) }
        let path = FilePath(container.url(of: item).path)
        guard let directory = try? Directory(path.removingLastComponent()) else { return }
        guard let found = try StoreLocation(directory: directory, name: name).databaseInPlaceOfSideFile() else {
            return
        }
        throw GroupStoreError(
            .badName, "\(PrintablePath(found)) is a database, and SQLite would remove it when \(name) is opened",
            remedy: "move it to a name of its own: mv \(found.shellWord) \(found.shellWord).sqlite")
    }

    private static func badName(_ name: FilePath.Component) -> GroupStoreError {
        GroupStoreError(.badName, "\(PrintablePath(name)) can't be a store's name", remedy: StoreName.remedy)
    }

    /// Returns the location after an interrupted relocation. Nobody is relocating now, so the journal describes an
    /// interruption.
    private func urlAfterInterruption(in container: GroupContainer) throws -> URL {
        let wasReturned = try WithdrawnDatabase.returnDatabase(of: component, in: container)
        guard wasReturned, location != .moving else {
            throw GroupStoreError(
                .interrupted, "a relocation of \(name) was interrupted",
                remedy: "start the agent, or run groupstore relocate once more: it finishes or undoes it")
        }
        return url
    }
}
