import FoundationEssentials
import LinuxSystem
import SystemPackage

/// The durable record of a completed relocation.
package struct RelocationReceipt: Codable, Sendable, Equatable {
    package var version = 1
    package var id: TransferIdentifier
    /// The store's name in the group container.
    package var name: StoredPath
    /// The store's former path.
    package var from: StoredPath
    package var at: Date
    package var method: Transfer.Method
    /// Size of the database and the support folder, in bytes.
    package var bytes: Int64
    /// Hash of the published database in rollback mode, as `xxh3-128:HEX`. It is nil after a rename or a reflink, which
    /// read no content.
    package var hash: String?
    /// SQLite's file change counter at the time of publication (https://sqlite.org/fileformat2.html, §1.3.9).
    package var changeCounter: UInt32
    /// Core Data's store UUID; nil if the store isn't Core Data's.
    package var storeUUID: String?
    package var retirement: Transfer.Retirement
    /// True if the store was moved without proof that no process had it open.
    package var assumedClosed: Bool
    /// True if the store replaced the symbolic link that its relocation in the other direction had left. Undoing this
    /// one makes the link again. Nil means false.
    package var replacedLink: Bool?
    /// True if write-ahead logging was on before the relocation. Set only if the request changed the journal mode.
    package var hadWAL: Bool?
    /// The store's model version before and after the migration that was part of the relocation.
    package var modelBefore: String?
    package var modelAfter: String?
    /// The database's file when the relocation was complete. Nobody has written to the store while the file matches. It
    /// is nil in a receipt of an older version.
    package var published: FileStamp?

    /// The properties of a file that reveal a later write.
    package struct FileStamp: Codable, Sendable, Equatable {
        package var file: FileIdentity
        package var size: Int64
        /// Modification time, in nanoseconds since 1970.
        package var modified: Int64

        package init(_ status: FileStatus) {
            file = status.identity
            size = status.size
            modified = status.modified
        }

        /// Returns true if `status` is of this file. Compares only the inode: a reboot may renumber devices.
        package func isSameFile(as status: FileStatus) -> Bool { file.inode == status.identity.inode }

        /// Returns true if `status` is of this file and nobody has written to it.
        package func isUnchanged(in status: FileStatus) -> Bool {
            isSameFile(as: status) && size == status.size && modified == status.modified
        }
    }

    package init(
        id: TransferIdentifier, name: FilePath.Component, from: FilePath, at: Date, method: Transfer.Method,
        bytes: Int64, hash: String?, changeCounter: UInt32, storeUUID: String?, retirement: Transfer.Retirement,
        assumedClosed: Bool
    ) {
        self.id = id
        self.name = StoredPath(FilePath(root: nil, [name]))
        self.from = StoredPath(from)
        self.at = at
        self.method = method
        self.bytes = bytes
        self.hash = hash
        self.changeCounter = changeCounter
        self.storeUUID = storeUUID
        self.retirement = retirement
        self.assumedClosed = assumedClosed
    }
}

extension GroupContainer {
    /// Returns all receipts, oldest first. Omits unreadable ones: a receipt is evidence, and no decision rests on it
    /// alone.
    package func receipts() throws(SystemError) -> [RelocationReceipt] {
        guard let bookkeeping = try existingBookkeeping(), try bookkeeping.status(Self.receiptsName) != nil else {
            return []
        }
        let directory = try bookkeeping.directory(Self.receiptsName)
        // A receipt's time has whole seconds. Of two of the same second, the one that was written later is the later.
        let found = try directory.names().compactMap {
            try? Record.readWithStatus(RelocationReceipt.self, $0, in: directory)
        }
        return found.sorted { one, other in
            (one.value.at, one.status.modified, one.value.id.rawValue)
                < (other.value.at, other.status.modified, other.value.id.rawValue)
        }.map(\.value)
    }

    /// Returns the receipts of one store, oldest first.
    package func receipts(of name: FilePath.Component) throws(SystemError) -> [RelocationReceipt] {
        try receipts().filter { $0.name.path == FilePath(root: nil, [name]) }
    }

    package func write(_ receipt: RelocationReceipt) throws {
        guard let name = FilePath.Component("\(receipt.id).json") else { return }
        try Record.write(receipt, name, in: receiptsDirectory())
    }

    /// Removes the receipt of a relocation that was undone.
    package func removeReceipt(_ id: TransferIdentifier) throws(SystemError) {
        guard let name = FilePath.Component("\(id).json") else { return }
        let directory = try receiptsDirectory()
        try directory.removeFile(name)
        try directory.synchronize()
    }

    private func receiptsDirectory() throws(SystemError) -> Directory {
        try Self.child(Self.receiptsName, of: bookkeeping())
    }
}

extension GroupContainer {
    /// True if `.groupstore` makes the directory a group's. False if it is missing, or holds nothing but unused locks,
    /// empty directories, and receipts of stores that came back: relocated from here before, and returned by a second
    /// relocation. Such a directory is still a program's own. Throws `SystemError`.
    package func isGroup() throws -> Bool {
        guard let bookkeeping = try existingBookkeeping() else { return false }
        for name in try bookkeeping.names() {
            let kind = try bookkeeping.status(name)?.kind
            let isEmpty =
                switch name {
                case Self.lockName where kind == .regular: OpenFileLock.isFree(name, in: bookkeeping)
                case Self.receiptsName where kind == .directory: try hasOnlyReturns(in: bookkeeping.directory(name))
                case Self.claimsName where kind == .directory:
                    try claimRecords().isEmpty && bookkeeping.directory(name).names().allSatisfy(Self.isClaimFile)
                case Self.replicasName where kind == .directory: try hasOnlyFreeLocks(bookkeeping.directory(name))
                default: try kind == .directory && bookkeeping.directory(name).names().isEmpty
                }
            if !isEmpty { return true }
        }
        return false
    }

    /// True if each file in the directory of receipts is the receipt of a store that was relocated from here before.
    private func hasOnlyReturns(in directory: Directory) throws -> Bool {
        let receipts = try receipts()
        guard try directory.names().count == receipts.count else { return false }
        return receipts.allSatisfy { receipt in
            guard let name = receipt.from.path.lastComponent,
                let group = try? GroupContainer(receipt.from.path.removingLastComponent()),
                let earlier = try? group.receipts(of: name)
            else { return false }
            return earlier.contains { $0.from.path == self.directory.path.pushing(receipt.name.path) }
        }
    }

    /// True if the directory holds nothing but the locks that killed followers have left.
    private func hasOnlyFreeLocks(_ directory: Directory) throws -> Bool {
        try directory.names().allSatisfy { $0.extension == "lock" && OpenFileLock.isFree($0, in: directory) }
    }

    private static func isClaimFile(_ name: FilePath.Component) -> Bool {
        name.extension == "lock" || name.string == "holders"
    }
}
