import FoundationEssentials
import Glibc
import LinuxSystem
import SystemPackage

/// The process that holds or waits for a claim: a file beside the locks, itself locked for as long as the claim exists.
///
/// The kernel doesn't report who owns an open-file-description lock. The record only names the process; it decides
/// nothing.
package struct ClaimRecord: Codable, Sendable, Equatable {
    package struct Access: Codable, Sendable, Equatable {
        /// The item's path relative to the group container's directory.
        package var item: StoredPath
        package var writes: Bool

        package init(item: FilePath, writes: Bool) {
            self.item = StoredPath(item)
            self.writes = writes
        }
    }

    package var version = 1
    package var id: TransferIdentifier
    package var process: ProcessIdentity
    package var purpose: String?
    package var accesses: [Access]
    /// False while the claim waits.
    package var isGranted: Bool

    package init(process: ProcessIdentity, purpose: String?, accesses: [Access], isGranted: Bool) {
        id = TransferIdentifier()
        self.process = process
        self.purpose = purpose
        self.accesses = accesses
        self.isGranted = isGranted
    }
}

/// A claim's record on disk. The file is removed when this value is destroyed.
package struct ClaimNotice: ~Copyable, Sendable {
    private let directory: Directory
    private let name: FilePath.Component
    private let lock: OpenFileLock

    /// Writes the record. Throws `SystemError`: EACCES or EROFS if the process may not write to the container.
    package init(_ record: ClaimRecord, in container: GroupContainer) throws {
        let directory = try container.holders()
        let mode = try GroupContainer.fileMode(in: directory)
        let name = record.id.component.appending(".json") ?? record.id.component
        let lock = try Self.lock(name, in: directory, mode)
        try lock.write(note: Self.bytes(of: record))
        self.directory = directory
        self.name = name
        self.lock = lock
    }

    private static func lock(
        _ name: FilePath.Component, in directory: Directory, _ mode: mode_t
    ) throws -> OpenFileLock {
        guard let lock = try OpenFileLock(name, in: directory, mode: mode) else {
            throw SystemError("open", .fileExists, path: directory.path.appending(name))
        }
        return lock
    }

    private static func bytes(of record: ClaimRecord) throws -> [UInt8] {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return Array(try encoder.encode(record))
    }

    package borrowing func update(_ record: ClaimRecord) throws { try lock.write(note: Self.bytes(of: record)) }

    deinit { try? directory.removeFile(name) }
}

extension GroupContainer {
    /// Returns the directory `claims` and creates it if missing.
    package func claims() throws(SystemError) -> Directory {
        try Self.child(Self.claimsName, of: bookkeeping())
    }

    /// Returns the directory `claims`, or nil if it was never created.
    package func existingClaims() throws(SystemError) -> Directory? {
        guard let bookkeeping = try existingBookkeeping(), try bookkeeping.status(Self.claimsName) != nil else {
            return nil
        }
        return try bookkeeping.directory(Self.claimsName)
    }

    private static let holdersName: FilePath.Component = "holders"

    fileprivate func holders() throws(SystemError) -> Directory {
        try Self.child(Self.holdersName, of: claims())
    }

    /// Returns the claims of live processes. Removes the records of killed processes, where permitted.
    package func claimRecords() -> [ClaimRecord] {
        guard let claims = try? existingClaims(), let holders = try? claims.directory(Self.holdersName),
            let names = try? holders.names()
        else { return [] }
        return names.compactMap { name in
            if OpenFileLock.isFree(name, in: holders) {
                // Lock the record first, so that one that is just being created isn't removed.
                if let lock = try? OpenFileLock(name, in: holders) {
                    withExtendedLifetime(lock) { try? holders.removeFile(name) }
                }
                return nil
            }
            let bytes = OpenFileLock.note(name, in: holders)
            return try? JSONDecoder().decode(ClaimRecord.self, from: Data(padding: bytes))
        }
    }
}
