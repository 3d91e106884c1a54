import LinuxSystem
import Synchronization

/// The stores that this process presents, so that a subscriber in it hears of a relocation when it can read the store.
enum PresentedStores {
    private struct Entry {
        weak var presentation: StorePresentation?
    }

    private static let entries = Mutex<[Entry]>([])

    static func add(_ presentation: StorePresentation) {
        entries.withLock { entries in
            entries.removeAll { $0.presentation == nil }
            entries.append(Entry(presentation: presentation))
        }
    }

    static func remove(_ presentation: StorePresentation) {
        entries.withLock { entries in entries.removeAll { $0.presentation == nil || $0.presentation === presentation } }
    }

    static func presentations(of store: SharedStore) -> [StorePresentation] {
        // Released outside the lock: deinitializers are the app's.
        entries.withLock { $0.compactMap(\.presentation) }.filter { $0.presents(store) }
    }
}
