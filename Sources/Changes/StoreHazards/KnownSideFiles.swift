import LinuxSystem
import SQLiteFormat
import Synchronization
import SystemPackage

/// The logs and indexes that were seen at the names of stores. A file that is renamed keeps its identity, and a process
/// that has SQLite connections may not open it to read its first bytes.
///
/// A file counts by its device, inode and birth: the number of a removed file is given to another one.
package final class KnownSideFiles: Sendable {
    private struct File {
        let identity: FileIdentity
        let birth: Int64
        let side: HeldStore.Side
    }

    /// By the path of the store, those seen last at the end.
    private let files = Mutex<[FilePath: [File]]>([:])
    /// The number that is kept for a store. A program that closes the store after each commit makes others each time.
    private static let capacity = 16

    package init() {}

    package func forget(_ store: FilePath) { files.withLock { $0[store] = nil } }

    /// Records the log and index that are at a store's names now.
    package func record(_ name: StoreName, in directory: Directory) {
        let files: [(FilePath.Component, HeldStore.Side)] = [(name.wal, .log), (name.sharedMemory, .index)]
        for (file, side) in files {
            let identity = (try? directory.status(file))?.identity
            record(identity, side, directory.birth(file), directory.path.appending(name.database))
        }
    }

    private func record(_ identity: FileIdentity?, _ side: HeldStore.Side, _ birth: Int64?, _ store: FilePath) {
        guard let identity, let birth else { return }
        files.withLock { files in
            let others = files[store, default: []].filter { $0.identity != identity }
            files[store] = (others + [File(identity: identity, birth: birth, side: side)]).suffix(Self.capacity)
        }
    }

    /// Returns which of a store's files one is that a process has open; nil if it wasn't at the store's names.
    func side(of held: HeldFile, of pid: Int32, _ store: FilePath) -> HeldStore.Side? {
        let known = files.withLock { $0[store]?.first { $0.identity == held.identity } }
        guard let known, held.birth(of: pid) == known.birth else { return nil }
        // As long as it is open it isn't forgotten.
        record(held.identity, known.side, known.birth, store)
        return known.side
    }
}
