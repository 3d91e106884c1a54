import FoundationEssentials
import LinuxSystem
import SystemPackage

/// The durable record of a relocation done.
package struct RelocationReceipt: Codable, Sendable, Equatable {
    package var version = 1
    package var id: TransferIdentifier
    /// The store's name in the group container.
    package var name: StoredPath
    /// Where it was.
    package var from: StoredPath
    package var at: Date
    package var method: Transfer.Method
    /// Bytes of the database and the support folder.
    package var bytes: Int64
    /// What was published, as `xxh3-128:HEX` of the database's bytes in rollback mode; nil after a rename or a
    /// reflink, which reads nothing.
    package var hash: String?
    /// SQLite's file change counter when it was published (https://sqlite.org/fileformat2.html, §1.3.9).
    package var changeCounter: UInt32
    /// Core Data's store UUID, when it is such a store.
    package var storeUUID: String?
    package var retirement: Transfer.Retirement
    /// The move was made without proof that nobody had the store open.
    package var assumedClosed: Bool
    /// Whether write-ahead logging was on, where it was asked to be otherwise from then on.
    package var hadWAL: Bool?
    /// The version of the model that the store was of, and that it was migrated to on the way.
    package var modelBefore: String?
    package var modelAfter: String?
    /// The database's file when all was done; nil in a receipt of an older version. While it is still the same,
    /// nobody has written to it.
    package var published: FileMark?

    /// By what a file is known again that nobody has written to since.
    package struct FileMark: Codable, Sendable, Equatable {
        package var file: FileIdentity
        package var size: Int64
        /// Nanoseconds since 1970.
        package var modified: Int64

        package init(_ status: FileStatus) {
            file = status.identity
            size = status.size
            modified = status.modified
        }

        /// Whether it is this file. Its device may have got another number since, with a boot.
        package func isOf(_ status: FileStatus) -> Bool { file.inode == status.identity.inode }

        /// Whether it is this file, and nobody has written to it.
        package func isUnchanged(in status: FileStatus) -> Bool {
            isOf(status) && size == status.size && modified == status.modified
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
    /// All receipts, the oldest first. One that can't be read is left out: it is evidence, not authority.
    package func receipts() throws(SystemError) -> [RelocationReceipt] {
        guard let bookkeeping = try existingBookkeeping(), try bookkeeping.status(Self.receiptsName) != nil else {
            return []
        }
        let directory = try bookkeeping.directory(Self.receiptsName)
        return try directory.names().compactMap { try? Record.read(RelocationReceipt.self, $0, in: directory) }
            .sorted { ($0.at, $0.id.rawValue) < ($1.at, $1.id.rawValue) }
    }

    /// The receipts of one store, the oldest first.
    package func receipts(of name: FilePath.Component) throws(SystemError) -> [RelocationReceipt] {
        try receipts().filter { $0.name.path == FilePath(root: nil, [name]) }
    }

    package func write(_ receipt: RelocationReceipt) throws {
        guard let name = FilePath.Component("\(receipt.id).json") else { return }
        try Record.write(receipt, name, in: receiptsDirectory())
    }

    /// Takes the receipt of a relocation that was undone away.
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
