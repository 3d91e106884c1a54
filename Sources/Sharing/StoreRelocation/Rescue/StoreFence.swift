import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Keeps programs from the log at a store's name, while a program that has the database open by a lost log can't be
/// kept from the database.
///
/// A write lease on the database proves that nobody has it open. It can't be had here: the program with the lost log
/// holds the same file. What others need is the index at the store's name: a program in WAL mode has a shared lock on
/// its last lock byte for as long as it has the store open (unixLockSharedMemory in os_unix.c). An exclusive lock on
/// it proves that no program follows the log at the name, and none can begin to.
package struct StoreFence {
    private let store: StoreLocation
    private let holders: Set<Int32>
    /// Nil if a holder of a branch has the index at the store's name.
    private let locks: RangeLocks?
    /// The lock bytes of a wal-index (https://sqlite.org/walformat.html, §2.1).
    private static let lockBytes: Range<Int64> = 120..<129

    /// Acquires the fence. Throws `StoreTransfer.RetryReason.held` if another program has the store open.
    ///
    /// - Parameters:
    ///   - holders: The processes whose branches are being joined; they keep their files.
    ///   - index: The index at the store's name if it is a branch's, which its holder has locked.
    package init(_ store: StoreLocation, holders: Set<Int32>, branchIndex index: FileIdentity?) throws {
        (self.store, self.holders) = (store, holders)
        let found = try store.directory.identity(store.name.sharedMemory)
        if found != nil, found == index {
            locks = nil
        } else {
            let database = try store.directory.status(store.name.database)
            let file = try store.directory.open(
                store.name.sharedMemory, flags: O_RDWR | O_CREAT, mode: database?.permissions ?? 0o600)
            if found == nil, let database {
                try keepOwner(database, of: file.raw, path: store.directory.path.appending(store.name.sharedMemory))
            }
            let locks = try RangeLocks(file)
            guard try locks.lock(.exclusive, Self.lockBytes) else {
                throw StoreTransfer.RetryReason.held(locks.identity)
            }
            self.locks = locks
        }
        try check()
    }

    /// Throws `StoreTransfer.RetryReason.held` if a process other than the holders has one of the store's files open
    /// for writing, as far as this process may see, or if the index at the name is no longer the locked one.
    package func check() throws {
        if let locks, try store.directory.identity(store.name.sharedMemory) != locks.identity {
            throw StoreTransfer.RetryReason.changed
        }
        for name in [store.name.database, store.name.wal, store.name.sharedMemory] {
            guard let identity = try store.directory.identity(name) else { continue }
            // An observer that only reads commits nothing.
            let isWritten = FileHolder.of(identity).contains { holder in
                !holders.contains(holder.pid)
                    && HeldFile.of(holder.pid, only: [identity]).contains(where: \.canWrite)
            }
            if isWritten { throw StoreTransfer.RetryReason.held(identity) }
        }
    }
}

extension BranchJoin {
    /// Replaces the database that a branch's holder has open by a copy of what others see at the store's name, its log
    /// included. From then on the holder has a former file of the store, and the store can be proved closed.
    ///
    /// The log at the name stays: it holds the same pages as the copy, so that replaying it changes nothing. One rename
    /// does it, and the store is the same before and after.
    ///
    /// - Parameter copy: A copy of the store, made while the fence stood. It takes the database's attributes.
    package func detach(_ copy: StoreLocation, from held: FileIdentity, behind fence: StoreFence) throws {
        let original = try store.directory.open(store.name.database, flags: O_RDONLY)
        let status = try original.status(path: store.path)
        guard status.identity == held, status.links == 1 else { throw StoreTransfer.RetryReason.changed }
        let file = try copy.directory.open(copy.name.database, flags: O_RDWR)
        // The copy was put in rollback mode, which counts as a change. Its journal mode and counters must be those that
        // the log continues, or the log is taken for another database's.
        let header = try header(original)
        for range in [18..<20, 24..<28, 92..<100] where header.count >= range.upperBound {
            try file.write(Array(header[range]), at: Int64(range.lowerBound), path: copy.path)
        }
        try file.copyAttributes(of: original, status, path: copy.path)
        try file.synchronize(path: copy.path)
        try fence.check()
        try copy.directory.rename(copy.name.database, to: store.name.database, in: store.directory, .replace)
        try store.directory.synchronize()
    }

    /// Returns the header that the log's last commit of page 1 has, or the database's.
    private func header(_ database: borrowing Descriptor) throws -> [UInt8] {
        var header = try database.read(count: DatabaseHeader.length, at: 0, path: store.path)
        guard try store.directory.status(store.name.wal) != nil else { return header }
        let log = try store.directory.open(store.name.wal, flags: O_RDONLY)
        var written: [UInt8]?
        try WriteAheadLog.forEachFrame(log, path: store.directory.path.appending(store.name.wal)) {
            if $0 == 1 { written = Array($1.prefix(DatabaseHeader.length)) }
            if $2, let written { header = written }
            return true
        }
        return header
    }
}

extension Descriptor {
    /// Gives the file another one's owner, mode, access control list and other attributes.
    package borrowing func copyAttributes(
        of original: borrowing Descriptor, _ status: FileStatus, path: FilePath
    ) throws {
        try keepOwner(status, of: raw, path: path)
        try ExtendedAttributes.removeInheritedLists(of: raw, path: path)
        try ExtendedAttributes.copy(from: original.raw, to: raw, mode: status.permissions, path: path)
    }
}
