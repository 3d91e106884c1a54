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
