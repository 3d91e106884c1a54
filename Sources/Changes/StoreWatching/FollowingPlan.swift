import AgentProtocol
import SystemPackage

/// The directories to find stores in, and the stores to follow even without a subscriber.
package struct FollowingPlan: Sendable {
    /// The stores' directories by group.
    package var directories: [String: FilePath]
    /// The stores that are always followed.
    package var stores: Set<StoreAddress>
    /// The stores among them whose changes are needed even without a subscriber. Writes to others raise no event while
    /// they have none.
    package var observedStores: Set<StoreAddress> = []
    /// Directories in which names are reported to the receiver as they come and go.
    package var nameDirectories: Set<FilePath>
    /// Directories in which the receiver learns that names come and go, or that their modes change: some of those of
    /// stores, and others.
    package var destinations: Set<FilePath> = []
    /// True if a store's descriptors are closed while nobody else uses it. An agent needs this not: its relocations
    /// have the feed release the store.
    package var releasesUnusedStores = false

    package init(
        directories: [String: FilePath] = [:], stores: Set<StoreAddress> = [], nameDirectories: Set<FilePath> = []
    ) {
        self.directories = directories
        self.stores = stores
        self.nameDirectories = nameDirectories
    }
}
