import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

/// A legacy directory and a group container, for transfers that a test begins by hand.
struct TransferRig {
    private let root: TemporaryDirectory
    let container: GroupContainer
    let legacy: StoreLocation

    init() throws {
        root = try TemporaryDirectory()
        let top = try Directory(root.path)
        for name: FilePath.Component in ["legacy", "group"] { try top.makeDirectory(name, mode: 0o755) }
        container = GroupContainer(directory: try top.directory("group"))
        legacy = StoreLocation(
            directory: try top.directory("legacy"), name: try #require(StoreName("Notes.sqlite")))
    }
}
