import Glibc
import LinuxSystem
import SystemPackage

/// The record of a group's removal. It stays with what is being removed, so that a removal that was killed can be told
/// from another directory with such a name, and put back.
package struct RemovalRecord: Codable, Sendable, Equatable {
    package var version = 1
    /// Part of the name that the group's directory has meanwhile. Nobody can guess it.
    package let id: TransferIdentifier
    /// The directory's own name, and the directory itself.
    package let name: StoredPath
    package let directory: FileIdentity

    private enum CodingKeys: CodingKey {
        case version, id, name, directory
    }

    package init(of name: FilePath.Component, _ directory: FileIdentity) {
        id = TransferIdentifier()
        self.name = StoredPath(FilePath(root: nil, [name]))
        self.directory = directory
    }

    /// The directory in the group's directory that has the record, and everything that is just being removed.
    package static let directoryName: FilePath.Component = ".groupstore-removal"
    private static let fileName: FilePath.Component = "removal.json"

    /// Returns true if the record has this name, or one that a killed process has left half written.
    package static func isFile(_ name: FilePath.Component) -> Bool {
        name == fileName || name == fileName.appending(".new")
    }

    /// The name of the group's directory during the removal.
    package var hiddenName: FilePath.Component { hiddenName("") }

    /// The name of the record's directory beside the group's, once that one is empty.
    package var recordsName: FilePath.Component { hiddenName(Self.recordsSuffix) }

    private static let recordsSuffix = ".records"

    private func hiddenName(_ suffix: String) -> FilePath.Component {
        let end = Array(".removing-\(id)\(suffix)".utf8)
        let bytes = [UInt8(ascii: ".")] + name.path.bytes + end
        let short = Array(".groupstore".utf8) + end
        return FilePath.Component(bytes: bytes.count <= 255 ? bytes : short) ?? .currentDirectory
    }

    /// Returns true if a record's directory beside the directory `name` may have this name, by its form.
    package static func isRecordsName(_ candidate: FilePath.Component, of name: FilePath.Component) -> Bool {
        let isOf = { (start: [UInt8]) in
            let start = start + Array(".removing-".utf8)
            guard candidate.bytes.starts(with: start),
                let end = String(validating: candidate.bytes.dropFirst(start.count), as: UTF8.self),
                end.hasSuffix(recordsSuffix)
            else { return false }
            return TransferIdentifier(String(end.dropLast(recordsSuffix.count))) != nil
        }
        return isOf([UInt8(ascii: ".")] + name.bytes) || isOf(Array(".groupstore".utf8))
    }

    /// Returns the record in its directory. Returns nil if there is none, or if another user than root and this one may
    /// have written it.
    package static func read(in directory: Directory) -> RemovalRecord? {
        guard let (record, status) = try? Record.readWithStatus(Self.self, fileName, in: directory),
            [0, geteuid()].contains(status.owner), status.permissions & 0o022 == 0
        else { return nil }
        return record
    }

    package func write(in directory: Directory) throws { try Record.write(self, Self.fileName, in: directory) }

    /// True if a removal may have been killed before its record was complete: it had moved nothing then.
    package static func isUnfinished(in group: Directory) -> Bool { (try? unfinished(in: group)) != nil }

    /// Removes what a removal has left that was killed before its record was complete. Removes nothing that could be
    /// anything else. The caller holds the group's lock, so no removal is under way.
    package static func removeUnfinished(in group: Directory) throws(SystemError) {
        guard let aside = try unfinished(in: group) else { return }
        if let name = fileName.appending(".new") { try aside.removeFile(name) }
        // The kernel removes no directory that isn't empty.
        try group.removeDirectory(directoryName)
        try group.synchronize()
    }

    /// Returns the directory, of this user alone, that has nothing but the beginning of a record.
    private static func unfinished(in group: Directory) throws(SystemError) -> Directory? {
        func isOwn(_ status: FileStatus) -> Bool {
            [0, geteuid()].contains(status.owner) && status.permissions & 0o022 == 0
        }
        guard let status = try group.status(directoryName), status.kind == .directory, isOwn(status) else { return nil }
        let aside = try group.directory(directoryName)
        let names = try aside.names()
        guard let name = names.first else { return aside }
        guard names.count == 1, name == fileName.appending(".new"), let file = try aside.status(name),
            file.kind == .regular, isOwn(file), file.links == 1, file.size <= mostBytes,
            let bytes = try DurableFile.read(name, in: aside, limit: mostBytes), Record.isBeginning(bytes)
        else { return nil }
        return aside
    }

    private static let mostBytes = 4096

    package static func remove(from directory: Directory) throws(SystemError) {
        try directory.removeFile(fileName)
        if let unfinished = fileName.appending(".new") { try directory.removeFile(unfinished) }
    }
}
