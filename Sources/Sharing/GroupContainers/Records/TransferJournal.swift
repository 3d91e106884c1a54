import FoundationEssentials
import Glibc
import LinuxSystem
import SystemPackage

/// One set of files in transfer, with the facts that are needed to finish or undo the transfer after a crash.
package struct Transfer: Codable, Sendable, Equatable {
    /// The destination of the set.
    package enum Purpose: Codable, Sendable, Equatable {
        /// To the group container, under this name.
        case publish(as: StoredPath)
        /// To the archive. The reason goes into the archive's note.
        case archive(reason: String)
        /// Nowhere: the group container already holds the same content.
        case discard
        /// Back to its former place: from the archive `taken`, or, if the relocation with the receipt `taken` is being
        /// undone, to the legacy place.
        case restore(to: StoredPath, as: StoredPath, taken: TransferIdentifier)
    }

    package enum Method: String, Codable, Sendable {
        case rename, reflink, copy
        /// A copy whose content was changed.
        case migrate
        /// Another store, created because this one couldn't be changed; this one is in the archive.
        case replace
        /// A copy that got another store's rows.
        case merge
    }

    package enum Retirement: String, Codable, Sendable, CaseIterable {
        case delete, archive, symlink
    }

    package var id: TransferIdentifier
    package var purpose: Purpose
    /// The set's directory, and the database's name in it.
    package var directory: StoredPath
    package var name: StoredPath
    package var database: FileIdentity
    /// Creation time of the database's file, in nanoseconds since 1970; nil if unknown.
    package var databaseBirth: Int64?
    /// The support folder beside the database, if there is one.
    package var support: FileIdentity?
    /// The folder that moves, if its owner may not write to it. The owner gets the right to write for the duration of
    /// the move. Whichever process ends the transfer removes that right again.
    package var closedSupport: FileIdentity?
    /// The directories that the set leaves and enters. While these are the same directories, inode numbers identify the
    /// files. Nil in a journal that doesn't record them.
    package var sourceDirectory: FileIdentity?
    package var destinationDirectory: FileIdentity?
    /// False if the set is renamed within one file system. True if it is copied and the old set is then removed.
    package var copies: Bool
    package var retirement: Retirement
    /// The name of the store in the group that replaces this one, if this one isn't published itself.
    package var successor: StoredPath?
    /// True if write-ahead logging was on; it is then turned on again.
    package var hadWAL: Bool
    /// True if write-ahead logging is to be on at the destination; nil: as before.
    package var arrivesInWAL: Bool?
    /// True if the copied set stays at its old place too, as an archive does that is restored. Nil means false.
    package var keepsSource: Bool?

    package init(
        id: TransferIdentifier, purpose: Purpose, directory: FilePath, name: FilePath.Component,
        database: FileIdentity, support: FileIdentity?, copies: Bool, retirement: Retirement, hadWAL: Bool
    ) {
        self.id = id
        self.purpose = purpose
        self.directory = StoredPath(directory)
        self.name = StoredPath(FilePath(root: nil, [name]))
        self.database = database
        self.support = support
        self.copies = copies
        self.retirement = retirement
        self.hadWAL = hadWAL
    }
}

/// The progress of a transfer. It bounds what may have been done; the disk shows what was done.
package enum TransferState: Codable, Sendable, Equatable {
    /// The set has its name. Staged copies may exist.
    case intended
    /// The old name may belong to an empty directory of ours, and the database may have its hidden name. Recovery
    /// undoes everything up to `committing`.
    case withdrawn
    /// The set is being moved to its destination. The database's arrival there is the commit point: recovery undoes a
    /// transfer before it and finishes one after it. `database` and `support` are the arriving files.
    case committing(database: FileIdentity, support: FileIdentity?, receipt: RelocationReceipt?)
}

/// The file `.groupstore/journal.json`. Only the holder of the group's lock reads or writes it.
package struct TransferJournal: OwnedRecord, Codable, Sendable, Equatable {
    package var version = 1
    package var transfer: Transfer
    package var state: TransferState
    package var writer = geteuid()

    private enum CodingKeys: CodingKey {
        case version, transfer, state
    }

    package init(transfer: Transfer, state: TransferState) {
        self.transfer = transfer
        self.state = state
    }

    /// Replaces the device numbers in the journal by the current ones. Files keep their inodes across a reboot, but the
    /// kernel may renumber their devices (btrfs, device mapper).
    package mutating func renumberDevices(source: FileIdentity, destination: FileIdentity?) {
        var numbers: [UInt64: UInt64] = [:]
        for (known, now) in [(transfer.sourceDirectory, source), (transfer.destinationDirectory, destination)] {
            if let known, let now, known.inode == now.inode { numbers[known.device] = now.device }
        }
        let renumbered = { (file: FileIdentity) in
            FileIdentity(device: numbers[file.device] ?? file.device, inode: file.inode)
        }
        transfer.database = renumbered(transfer.database)
        transfer.support = transfer.support.map(renumbered)
        transfer.closedSupport = transfer.closedSupport.map(renumbered)
        transfer.sourceDirectory = transfer.sourceDirectory.map(renumbered)
        transfer.destinationDirectory = transfer.destinationDirectory.map(renumbered)
        if case .committing(let database, let support, let receipt) = state {
            state = .committing(
                database: renumbered(database), support: support.map(renumbered), receipt: receipt)
        }
    }
}

/// A record that is trusted as far as its file's owner is.
package protocol OwnedRecord: Decodable {
    /// The owner of the file.
    var writer: uid_t { get set }
}

extension OwnedRecord {
    /// Opens a directory that the record names.
    ///
    /// Anybody who may write to a group container could leave a journal there that makes the next user move and remove
    /// files elsewhere. A journal is therefore trusted only for directories of its own writer, unless root or this user
    /// wrote it. Throws `UntrustedJournal`.
    package func directory(_ path: FilePath) throws -> Directory {
        let directory = try Directory(path)
        let owner = try directory.status().owner
        guard [0, geteuid(), owner].contains(writer) else {
            throw UntrustedJournal(directory: path, writer: writer)
        }
        return directory
    }
}

/// A journal that names a directory of a user other than its writer.
package struct UntrustedJournal: ActionableError {
    package let directory: FilePath
    package let writer: uid_t

    package var errorCode: String { "untrusted_journal" }
    package var message: String {
        "user \(writer), who left an interrupted relocation, does not own \(PrintablePath(directory))"
    }
    package var remedy: String { "run groupstore recover as user \(writer)" }
    package var errorPath: FilePath? { directory }
}

/// One of our records that can't be read because it is damaged or of a newer version.
package struct UnreadableRecord: ActionableError {
    package let path: FilePath
    package let reason: String

    package var errorCode: String { "unreadable_record" }
    package var message: String { "\(PrintablePath(path)): \(reason)" }
    package var remedy: String {
        "a newer groupstore wrote it, or it is damaged; use that version, or move the file aside: "
            + "mv \(path.shellWord) \(path.appending(suffix: ".unreadable").shellWord)"
    }
    package var errorPath: FilePath? { path }
}

extension GroupContainer {
    /// Returns the transfer in progress, or nil if there is none.
    package func journal() throws -> TransferJournal? {
        try existingBookkeeping().flatMap { try Self.journal(Self.journalName, in: $0) }
    }

    /// Reads one journal. Returns nil if the file doesn't exist.
    static func journal(_ name: FilePath.Component, in directory: Directory) throws -> TransferJournal? {
        try Record.readOwned(TransferJournal.self, name, in: directory)
    }

    package func write(_ journal: TransferJournal) throws {
        try Record.write(journal, Self.journalName, in: bookkeeping())
    }

    package func removeJournal() throws {
        if let bookkeeping = try existingBookkeeping() { try Record.remove(Self.journalName, in: bookkeeping) }
    }
}

enum Record {
    private struct Version: Decodable {
        let version: Int
    }

    static func read<Value: Decodable>(
        _ type: Value.Type, _ name: FilePath.Component, in directory: Directory
    ) throws -> Value? { try readWithStatus(type, name, in: directory)?.value }

    /// Reads a record that only its owner may write, and returns the owner too. Throws `UnreadableRecord` if others
    /// may: any of them could have written this content.
    static func readWithOwner<Value: Decodable>(
        _ type: Value.Type, _ name: FilePath.Component, in directory: Directory
    ) throws -> (value: Value, owner: uid_t)? {
        guard let (record, status) = try readWithStatus(type, name, in: directory) else { return nil }
        guard status.permissions & 0o022 == 0 else {
            throw UnreadableRecord(
                path: directory.path.appending(name), reason: "users other than its owner may write to it")
        }
        return (record, status.owner)
    }

    /// Reads a record like `readWithOwner`, and sets its `writer`.
    static func readOwned<Value: OwnedRecord>(
        _ type: Value.Type, _ name: FilePath.Component, in directory: Directory
    ) throws -> Value? {
        guard let (found, owner) = try readWithOwner(type, name, in: directory) else { return nil }
        var record = found
        record.writer = owner
        return record
    }

    /// True for the first bytes of a record, or all of them. A crash may leave zeros for bytes that weren't synced.
    static func isBeginning(_ bytes: [UInt8]) -> Bool {
        bytes.allSatisfy { $0 == 0 }
            || bytes.first == UInt8(ascii: "{") && bytes.allSatisfy { $0 >= 0x20 || $0 == 0x0A || $0 == 0 }
    }

    /// Removes a record, and what a killed process may have left of the next one. Syncs the directory.
    static func remove(_ name: FilePath.Component, in directory: Directory) throws {
        try directory.removeFile(name)
        if let unfinished = name.appending(".new") { try directory.removeFile(unfinished) }
        try directory.synchronize()
    }

    static func readWithStatus<Value: Decodable>(
        _ type: Value.Type, _ name: FilePath.Component, in directory: Directory
    ) throws -> (value: Value, status: FileStatus)? {
        guard let (bytes, status) = try DurableFile.readWithStatus(name, in: directory) else { return nil }
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .custom(wholeSeconds)
        let data = Data(padding: bytes)
        do {
            let found = try decoder.decode(Version.self, from: data).version
            guard found == 1 else {
                throw UnreadableRecord(path: directory.path.appending(name), reason: "unknown version \(found)")
            }
            return (try decoder.decode(type, from: data), status)
        } catch is DecodingError {
            throw UnreadableRecord(path: directory.path.appending(name), reason: "damaged record")
        }
    }

    /// Decodes a date as it is encoded. Foundation's own strategy reads fractions of a second but writes none.
    @Sendable private static func wholeSeconds(from decoder: any Decoder) throws -> Date {
        let container = try decoder.singleValueContainer()
        guard let date = try? Date(container.decode(String.self), strategy: .iso8601) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "not a date")
        }
        return Date(timeIntervalSince1970: date.timeIntervalSince1970.rounded(.down))
    }

    static func write(
        _ value: some Encodable, _ name: FilePath.Component, in directory: Directory, isOwn: Bool = false
    ) throws {
        let encoder = JSONEncoder()
        encoder.dateEncodingStrategy = .iso8601
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        try DurableFile.write(
            Array(try encoder.encode(value)), as: name, in: directory,
            // A record is replaced, never written in place: nobody else needs write permission.
            mode: isOwn ? 0o644 : GroupContainer.fileMode(in: directory) & 0o644, isOwn: isOwn)
    }
}

extension Data {
    /// Appends padding to JSON that may be truncated: Foundation's scanner locates some errors beyond the last byte,
    /// and traps.
    init(padding bytes: [UInt8]) { self = Data(bytes) + Data(repeating: 0x20, count: 16) }
}
