import LinuxSystem
import RowShadow
import SystemPackage

/// Finds copies of stores' pages that nobody uses and whose stores are gone. They keep values that were deleted.
package struct CopyDiagnosis {
    private let copies: [KeptShadows]

    /// Those of an agent in a group's directory, if this user may see them.
    package init(group directory: FilePath) { copies = (try? KeptShadows.all(inGroup: directory)) ?? [] }

    /// Those in the user's state directory, of stores in some directories; nil for all.
    package init(stateDirectory: FilePath, in directories: [FilePath]?) {
        let all = (try? KeptShadows.all(stateDirectory: stateDirectory)) ?? []
        copies = all.filter { copy in
            directories.map { $0.contains { $0 == copy.store?.removingLastComponent() } } ?? true
                || copy.error != nil
        }
    }

    /// The copies, by store.
    package var orphans: [KeptShadows] { copies.filter { $0.isOrphaned && !$0.isUsed } }

    /// Returns one finding per store, and per place that can't be read.
    package func findings() -> [Finding] {
        let unread = copies.compactMap(\.error).map { error in
            Finding(
                "copies", .warning, "copies of a store's pages can't be read: \(error.message)", remedy: error.remedy,
                code: error.errorCode)
        }
        return unread
            + orphans.map { copy in
                Finding(
                    "copies", .warning,
                    "\(PrintablePath(copy.store ?? copy.place)) is gone, and left a copy of its pages and the log of its rows "
                        + "(\(ByteCount(copy.size)))",
                    remedy: copy.removal, code: "orphaned_copy")
            }
    }
}
