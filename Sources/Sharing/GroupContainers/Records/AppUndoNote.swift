import Glibc
import LinuxSystem
import SystemPackage

/// The file `.groupstore-ID.undo`, which lies beside the old place of a directory while it is being moved, there or
/// back. The records are in the group of the other place, which the old place doesn't tell while no link is there.
package struct AppUndoNote: Codable, Sendable, Equatable {
    package var version = 1
    /// The move back, whose destination is the old place, or the move from there.
    package let move: AppMove

    private static let suffix = ".undo"

    private static func name(_ move: AppMove) -> FilePath.Component { move.id.hiddenName(suffix) }

    /// Writes and syncs the note of a move, in the directory of its old place.
    package static func write(_ move: AppMove, in parent: Directory) throws {
        try Record.write(AppUndoNote(move: move), name(move), in: parent)
    }

    package static func remove(_ move: AppMove, in parent: Directory) throws {
        try Record.remove(name(move), in: parent)
    }

    /// Returns the move back to a place, if it was interrupted. A note that others could have written doesn't count.
    package static func find(for place: FilePath, in parent: Directory) -> AppMove? {
        all(in: parent).first { $0.destination.path == place && $0.undoes != nil }
    }

    /// Returns the move from a place, if it was interrupted or has stopped programs.
    package static func find(from place: FilePath, in parent: Directory) -> AppMove? {
        all(in: parent).first { $0.source.path == place && $0.undoes == nil }
    }

    private static func all(in parent: Directory) -> [AppMove] {
        guard let owner = try? parent.status().owner else { return [] }
        return names(in: parent, suffix).compactMap { name -> AppMove? in
            guard let (note, writer) = try? Record.readWithOwner(AppUndoNote.self, name, in: parent),
                [0, geteuid(), owner].contains(writer)
            else { return nil }
            return note.move
        }
    }

    /// Returns the names that consist of an identifier's hidden name and a suffix.
    private static func names(in parent: Directory, _ suffix: String) -> [FilePath.Component] {
        ((try? parent.names()) ?? []).filter { name in
            guard let text = name.utf8, text.hasSuffix(suffix) else { return false }
            return TransferIdentifier(
                hiddenName: FilePath.Component(String(text.dropLast(suffix.count))) ?? .currentDirectory) != nil
        }
    }

    /// Removes the notes that killed processes have left half written: files of this user or root with nothing but the
    /// beginning of a note, which no process has open. Their writer had stopped nothing. Leaves what can't be removed.
    package static func removeUnfinished(in parent: Directory) {
        for name in names(in: parent, suffix + ".new") { try? removeUnfinished(name, in: parent) }
    }

    private static func removeUnfinished(_ name: FilePath.Component, in parent: Directory) throws(SystemError) {
        let file = try parent.openOwn(name, flags: O_RDONLY)
        let path = parent.path.appending(name)
        // A writer has it open until it has its name.
        guard let lease = try FileLease(file, .write) else { return }
        defer { withExtendedLifetime(lease) {} }
        let status = try file.status(path: path)
        guard status.kind == .regular, [0, geteuid()].contains(status.owner), status.permissions & 0o022 == 0,
            status.links == 1, status.size <= mostBytes,
            try Record.isBeginning(file.read(count: mostBytes, at: 0, path: path)), FileLease.isIntact(file.raw)
        else { return }
        try parent.removeFile(name)
        try parent.synchronize()
    }

    private static let mostBytes = 1 << 16
}
