import AgentProtocol
import FoundationEssentials
import LinuxSystem
import Synchronization

/// The stores that this process presents, so that a subscriber in it hears of a relocation when it can read the store.
enum PresentedStores {
    private struct Entry {
        weak var presentation: StorePresentation?
    }

    /// Where a store is in its group container.
    struct Place: Equatable {
        let url: URL
        /// Nil in a subdirectory of the group container.
        let address: StoreAddress?
    }

    private struct Reader {
        weak var reader: ChangeReader?
    }

    private static let entries = Mutex<[Entry]>([])
    private static let readers = Mutex<[Reader]>([])

    static func add(_ presentation: StorePresentation) {
        entries.withLock { entries in
            entries.removeAll { $0.presentation == nil }
            entries.append(Entry(presentation: presentation))
        }
    }

    static func remove(_ presentation: StorePresentation) {
        entries.withLock { entries in entries.removeAll { $0.presentation == nil || $0.presentation === presentation } }
    }

    /// Returns the store's place under its current name: other than its own if a presentation of this very object was
    /// moved.
    static func place(of store: SharedStore) -> Place {
        let presented = entries.withLock { $0.compactMap(\.presentation) }.first { $0.isPresentation(of: store) }
        let item = presented?.item ?? store.item
        return Place(url: store.container.url(of: item), address: store.moved(to: item)?.address)
    }

    /// Adds a reader that follows its store when a presentation of it moves.
    static func add(_ reader: ChangeReader) {
        readers.withLock { readers in
            readers.removeAll { $0.reader == nil }
            readers.append(Reader(reader: reader))
        }
    }

    /// Has the readers look for their stores again.
    static func placesChanged() {
        for reader in readers.withLock({ $0.compactMap(\.reader) }) { reader.placeMayHaveChanged() }
    }

    static func presentations(of store: SharedStore) -> [StorePresentation] {
        // Released outside the lock: deinitializers are the app's.
        entries.withLock { $0.compactMap(\.presentation) }.filter { $0.presents(store) }
    }
}
