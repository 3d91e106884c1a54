import Glibc
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// The pages that the commits of a log have, by the checksums of its frames.
struct LoggedPages {
    private(set) var commits = 0
    private var pages: Set<UInt32> = []

    /// Reads the log beside a copied database. Without one, there are none.
    init(_ place: StoreLocation) throws {
        guard try place.directory.status(place.name.wal) != nil else { return }
        let log = try place.directory.open(place.name.wal, flags: O_RDONLY)
        var pending: [UInt32] = []
        try WriteAheadLog.forEachFrame(log, path: place.directory.path.appending(place.name.wal)) { page, _, isCommit in
            pending.append(page)
            guard isCommit else { return true }
            commits += 1
            pages.formUnion(pending)
            pending.removeAll(keepingCapacity: true)
            return true
        }
    }

    /// A phrase on a page that another program has freed in the database under the log; nil if there is none.
    ///
    /// A transaction that frees a page, or takes a free one, writes the trunk that lists it. So the trunk of a free
    /// page that the log has is in the log too. If it isn't, a program with another log has written the database since,
    /// and no tree leads to what the log has on that page.
    ///
    /// - Parameter place: The database, once it has the log's pages.
    func hidden(_ place: StoreLocation) throws -> String? {
        guard !pages.isEmpty else { return nil }
        let database = try place.directory.open(place.name.database, flags: O_RDONLY)
        var hidden: [UInt32] = []
        try FreeList.forEachLeaf(database, path: place.path) { leaf, trunk in
            if pages.contains(leaf), !pages.contains(trunk) { hidden.append(leaf) }
        }
        guard let page = hidden.min() else { return nil }
        return "its log has rows on page \(page), which another program has freed in the database"
    }
}
