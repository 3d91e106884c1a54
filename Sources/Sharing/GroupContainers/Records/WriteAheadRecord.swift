import Glibc
import LinuxSystem
import SystemPackage

/// A store that used write-ahead logging before a transfer, which could not be turned on again yet.
package struct StoreInRollbackMode: Codable, Sendable, Equatable {
    package var directory: StoredPath
    package var name: StoredPath
    package var file: FileIdentity
    /// Creation time of the database's file, in nanoseconds since 1970; nil if unknown.
    package var birth: Int64?

    package init(directory: FilePath, name: FilePath.Component, file: FileIdentity, birth: Int64?) {
        self.directory = StoredPath(directory)
        self.name = StoredPath(FilePath(root: nil, [name]))
        self.file = file
        self.birth = birth
    }

    /// Returns true if the file with this identity and creation time is the store. Compares only the inode: a reboot
    /// may renumber devices.
    package func isFile(_ identity: FileIdentity, birth: Int64?) -> Bool {
        file.inode == identity.inode && (self.birth == nil || birth == nil || self.birth == birth)
    }
}

/// The file `.groupstore/write-ahead.json`. Only the holder of the group's lock writes it.
private struct WriteAheadRecord: Codable {
    var version = 1
    var stores: [StoreInRollbackMode]
}

extension GroupContainer {
    package static let writeAheadName: FilePath.Component = "write-ahead.json"

    /// Returns the stores whose write-ahead logging has to be turned on again, and the user who says so. Omits a record
    /// that can't be read or that others may write to: nothing depends on it but the mode.
    package func storesInRollbackMode() throws(SystemError) -> (stores: [StoreInRollbackMode], writer: uid_t) {
        guard let bookkeeping = try existingBookkeeping(),
            let read = try? Record.readWithStatus(WriteAheadRecord.self, Self.writeAheadName, in: bookkeeping),
            read.status.permissions & 0o022 == 0
        else { return ([], geteuid()) }
        return (read.value.stores, read.status.owner)
    }

    /// Replaces the record; removes it if there are no stores. Does nothing if it is as before.
    package func setStoresInRollbackMode(_ stores: [StoreInRollbackMode]) throws {
        guard try stores != storesInRollbackMode().stores else { return }
        let bookkeeping = try bookkeeping()
        guard stores.isEmpty else {
            return try Record.write(WriteAheadRecord(stores: stores), Self.writeAheadName, in: bookkeeping)
        }
        try bookkeeping.removeFile(Self.writeAheadName)
        try bookkeeping.synchronize()
    }
}
