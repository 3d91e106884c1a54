import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import StoreReplication
import SystemPackage

/// The lock on a replica: one program at a time follows or promotes it.
///
/// It is acquired before the replica is looked at, which need not exist yet. Its file is in the group's
/// `.groupstore/replicas`, so that all paths of the directory lead to the same lock. It is released with this object or
/// when the process ends.
package final class ReplicaLock {
    private let lock: OpenFileLock
    private let directory: Directory
    private let name: FilePath.Component

    /// Acquires the lock. Waits for a moment: a program that was killed may not have ended yet. Throws
    /// `ReplicationError.inUse` if another program keeps it, and `SystemError`.
    package convenience init(_ location: StoreLocation, within patience: Duration = .seconds(1)) throws {
        try self.init(
            location, in: GroupContainer(directory: location.directory).replicas(), deadline: Deadline(after: patience))
    }

    /// Acquires the lock of a store that may be a replica. Returns nil, and creates nothing, if no replica was ever
    /// followed in its directory. Throws like the other initializer.
    package static func ifFollowed(
        _ location: StoreLocation, within patience: Duration = .seconds(1)
    ) throws -> ReplicaLock? {
        guard let directory = try GroupContainer(directory: location.directory).existingReplicas() else { return nil }
        return try ReplicaLock(location, in: directory, deadline: Deadline(after: patience))
    }

    private init(_ location: StoreLocation, in directory: Directory, deadline: Deadline) throws {
        guard let name = location.name.database.appending(".lock") else {
            throw SystemError("open", .fileNameTooLong, path: location.path)
        }
        (self.directory, self.name) = (directory, name)
        lock = try Self.acquire(name, in: directory, of: location, deadline)
        // Only a message lacks it, as on a full disk.
        try? lock.write(note: Array("\(getpid())".utf8))
    }

    deinit { try? directory.removeFile(name) }

    private static func acquire(
        _ name: FilePath.Component, in directory: Directory, of location: StoreLocation, _ deadline: Deadline
    ) throws -> OpenFileLock {
        let mode = try GroupContainer.fileMode(in: directory)
        while true {
            if let lock = try OpenFileLock(name, in: directory, mode: mode) { return lock }
            guard !deadline.hasPassed else {
                let holder = String(decoding: OpenFileLock.note(name, in: directory), as: UTF8.self)
                throw ReplicationError.inUse(by: holder, location.path)
            }
            pause(.milliseconds(10))
        }
    }
}
