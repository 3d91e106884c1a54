import FoundationEssentials
import Glibc
import LinuxSystem
import SystemPackage

/// What is being done with one set of files, and what must be known to finish or undo it after a crash.
package struct Transfer: Codable, Sendable, Equatable {
    /// Where the set goes.
    package enum Purpose: Codable, Sendable, Equatable {
        /// To the group container, under this name.
        case publish(as: StoredPath)
        /// To the archive, with this word on why.
        case archive(reason: String)
        /// Nowhere: the same content is already in the group container.
        case discard
        /// Back to where it came from: out of the archive `taken`, or, the relocation with that receipt being undone,
        /// to its legacy place.
        case restore(to: StoredPath, as: StoredPath, taken: TransferIdentifier)
    }

    package enum Method: String, Codable, Sendable {
        case rename, reflink, copy
        /// A copy whose content was changed.
        case migrate
        /// Another store, made where this one couldn't be changed; this one is in the archive.
        case replace
    }

    package enum Retirement: String, Codable, Sendable, CaseIterable {
        case delete, archive, symlink
    }

    package var id: TransferIdentifier
    package var purpose: Purpose
    /// The directory that the set is in, and the database's name there.
    package var directory: StoredPath
    package var name: StoredPath
    package var database: FileIdentity
    /// When the database's file was made, in nanoseconds since 1970; nil where it can't be known.
    package var databaseBirth: Int64?
    /// The support folder beside the database, when there is one.
    package var support: FileIdentity?
    /// The folder that moves, where its owner may not write to it: for the moment of its move they may, and whoever ends
    /// the transfer takes that right away again.
    package var closedSupport: FileIdentity?
    /// The directories that the set is in and goes to: while they are the same ones, so are the files known by their
    /// numbers. Nil where the journal doesn't tell.
    package var sourceDirectory: FileIdentity?
    package var destinationDirectory: FileIdentity?
    /// `rename` on one file system; otherwise the set is copied, and the old one removed afterwards.
    package var copies: Bool
    package var retirement: Retirement
    /// The name of the group's store that stands for this one from now on, where this one isn't published itself.
    package var successor: StoredPath?
    /// Write-ahead logging was on, and is put on again.
    package var hadWAL: Bool
    /// Whether it is on at the new place; nil: as it was.
    package var arrivesInWAL: Bool?

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

/// How far a transfer has come. It only says what may have been done: what was done is seen on the disk.
package enum TransferState: Codable, Sendable, Equatable {
    /// The set has its name. There may be staged copies.
    case intended
    /// The old name may stand for an empty directory of ours, and the database for its hidden name. Until
    /// `committing`, all of it is undone.
    case withdrawn
    /// The set is being given its new place; the database's arrival there is the commit point. Before it all is
    /// undone, after it all is finished. `database` and `support` are what is to arrive.
    case committing(database: FileIdentity, support: FileIdentity?, receipt: RelocationReceipt?)
}

/// `.groupstore/journal.json`: read and written only by who holds the group's lock.
package struct TransferJournal: Codable, Sendable, Equatable {
    package var version = 1
    package var transfer: Transfer
    package var state: TransferState
    /// Whose file it is.
    package var writer = geteuid()

    private enum CodingKeys: CodingKey {
        case version, transfer, state
    }

    package init(transfer: Transfer, state: TransferState) {
        self.transfer = transfer
        self.state = state
    }

    /// Files keep their inodes over a boot, but the kernel may number their devices anew (btrfs, device mapper): those
    /// that the journal knows get the numbers that they have now.
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

    /// Opens a directory that the journal names. Who may write to a group container could leave a journal there that
    /// tells the next user what to move and remove elsewhere: it is believed of its writer's own directories only,
    /// unless root or this user wrote it. Throws `UntrustedJournal`.
    package func directory(_ path: FilePath) throws -> Directory {
        let directory = try Directory(path)
        let owner = try directory.status().owner
        guard [0, geteuid(), owner].contains(writer) else {
            throw UntrustedJournal(directory: path, writer: writer)
        }
        return directory
    }
}

/// A journal that names a directory of another user than the one who wrote it.
package struct UntrustedJournal: Error, CustomStringConvertible {
    package let directory: FilePath
    package let writer: uid_t
    package var description: String {
        "user \(writer), who left an interrupted relocation, does not own \(PrintablePath(directory))"
    }
}

/// A record of ours that can't be read: damaged, or made by a newer version.
package struct UnreadableRecord: Error, CustomStringConvertible {
    package let path: FilePath
    package let reason: String
    package var description: String { "\(PrintablePath(path)): \(reason)" }
}

extension GroupContainer {
    /// The transfer that was under way; nil when none was.
    package func journal() throws -> TransferJournal? {
        try existingBookkeeping().flatMap { try Self.journal(Self.journalName, in: $0) }
    }

    /// Nil when there is no such file.
    static func journal(_ name: FilePath.Component, in directory: Directory) throws -> TransferJournal? {
        guard let (record, status) = try Record.readWithStatus(TransferJournal.self, name, in: directory)
        else { return nil }
        // Who may write into it could have: then it is anybody's.
        guard status.permissions & 0o022 == 0 else {
            throw UnreadableRecord(
                path: directory.path.appending(name), reason: "others than its owner may write to it")
        }
        var journal = record
        journal.writer = status.owner
        return journal
    }

    package func write(_ journal: TransferJournal) throws {
        try Record.write(journal, Self.journalName, in: bookkeeping())
    }

    package func removeJournal() throws {
        guard let bookkeeping = try existingBookkeeping() else { return }
        try bookkeeping.removeFile(Self.journalName)
        // What a kill may have left of one that was being written.
        if let unfinished = Self.journalName.appending(".new") { try bookkeeping.removeFile(unfinished) }
        try bookkeeping.synchronize()
    }
}

enum Record {
    private struct Version: Decodable {
        let version: Int
    }

    static func read<Value: Decodable>(
        _ type: Value.Type, _ name: FilePath.Component, in directory: Directory
    ) throws -> Value? { try readWithStatus(type, name, in: directory)?.value }

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
                throw UnreadableRecord(path: directory.path.appending(name), reason: "version \(found) is not known")
            }
            return (try decoder.decode(type, from: data), status)
        } catch is DecodingError {
            throw UnreadableRecord(path: directory.path.appending(name), reason: "damaged record")
        }
    }

    /// A date as it is written again: Foundation's own strategy takes fractions of a second, and writes none.
    @Sendable private static func wholeSeconds(from decoder: any Decoder) throws -> Date {
        let container = try decoder.singleValueContainer()
        guard let date = try? Date(container.decode(String.self), strategy: .iso8601) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "not a date")
        }
        return Date(timeIntervalSince1970: date.timeIntervalSince1970.rounded(.down))
    }

    static func write(_ value: some Encodable, _ name: FilePath.Component, in directory: Directory) throws {
        let encoder = JSONEncoder()
        encoder.dateEncodingStrategy = .iso8601
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        try DurableFile.write(
            Array(try encoder.encode(value)), as: name, in: directory,
            // Replaced, never written into: nobody else needs to.
            mode: GroupContainer.fileMode(in: directory) & 0o644)
    }
}

extension Data {
    /// JSON that may end too early: Foundation's scanner looks for the place of some errors behind the last byte, and
    /// traps.
    init(padding bytes: [UInt8]) { self = Data(bytes) + Data(repeating: 0x20, count: 16) }
}
