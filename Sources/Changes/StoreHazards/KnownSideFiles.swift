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
        /// True if a look has found it in a process.
        let isHeld: Bool
    }

    /// By the path of the store, those seen last at the end.
    private let files = Mutex<[FilePath: [File]]>([:])
    /// The number of each kind that is kept for a store. A program that closes the store after each commit makes others
    /// each time, in which no look finds it.
    private static let capacity = 32

    package init() {}

    package func forget(_ store: FilePath) { files.withLock { $0[store] = nil } }

    /// Records the log and index that are at a store's names now.
    package func record(_ name: StoreName, in directory: Directory) {
        let files: [(FilePath.Component, HeldStore.Side)] = [(name.wal, .log), (name.sharedMemory, .index)]
        for (file, side) in files {
            let identity = (try? directory.status(file))?.identity
            record(identity, side, directory.birth(file), isHeld: false, directory.path.appending(name.database))
        }
    }

    private func record(
        _ identity: FileIdentity?, _ side: HeldStore.Side, _ birth: Int64?, isHeld: Bool, _ store: FilePath
    ) {
        guard let identity, let birth else { return }
        files.withLock { files in
            let former = files[store]?.first { $0.identity == identity && $0.birth == birth }
            let file = File(identity: identity, birth: birth, side: side, isHeld: isHeld || former?.isHeld == true)
            let all = files[store, default: []].filter { $0.identity != identity } + [file]
            files[store] = [false, true].flatMap { isHeld in all.filter { $0.isHeld == isHeld }.suffix(Self.capacity) }
        }
    }

    /// Returns which of a store's files one is that a process has open; nil if it wasn't at the store's names.
    func side(of held: HeldFile, of pid: Int32, _ store: FilePath) -> HeldStore.Side? {
        let known = files.withLock { $0[store]?.first { $0.identity == held.identity } }
        guard let known, held.birth(of: pid) == known.birth else { return nil }
        record(held.identity, known.side, known.birth, isHeld: true, store)
        return known.side
    }
}
