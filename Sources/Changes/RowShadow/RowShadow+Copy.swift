import ChangeFeed
import Glibc
import LinuxSystem
import RowChanges
import SQLiteFormat
import SystemPackage

extension RowShadow {
    /// Opens the shadow in a slot. Returns nil if there is none that counts, or it is damaged.
    static func known(_ slot: ShadowPlace.Slot) throws -> (RowShadow, TreeMap?)? {
        do {
            guard let known = try RowShadow(slot) else { return nil }
            return (known, try known.map())
        } catch RowShadowError.damaged { return nil }
    }

    /// Copies the store once it can be read. The copy isn't of one state yet.
    static func copy(
        _ path: FilePath, _ name: StoreName, _ slot: ShadowPlace.Slot, limit: Int64, hasExactTimes: Bool,
        _ deadline: Deadline
    ) throws -> (RowShadow, StoreFiles?) {
        while true {
            let files = try StoreFiles.current(path.removingLastComponent(), name, unless: nil)
            do {
                _ = try files?.refreshIndex(finalRead: {}, changed: { _ in })
                let view = try files.flatMap { try StoreView($0, path: path, hasExactTimes: hasExactTimes) }
                if files == nil || view != nil {
                    return (try RowShadow(slot, of: files, at: path, limit: limit), files)
                }
            } catch is Disturbed {} catch let error as SystemError where error.isPassing {}
            guard !deadline.hasPassed else { throw RowShadowError.busy(path) }
            pause(.milliseconds(2))
        }
    }

    /// Reads the map of the pages; nil if they contradict each other.
    ///
    /// Throws `RowShadowError.damaged` and `SystemError`.
    func map() throws -> TreeMap? {
        do { return try TreeMap(pages) } catch is Contradiction { return nil }
    }
}

extension SystemError {
    /// True for a relocation's lease, or a file that was removed just now.
    var isPassing: Bool { [.resourceTemporarilyUnavailable, .noSuchFileOrDirectory].contains(errno) }
}
