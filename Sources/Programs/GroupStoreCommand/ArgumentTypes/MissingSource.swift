import CLinux
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A store that was to be relocated and doesn't exist: perhaps its name is mistyped.
struct MissingSource {
    private let path: FilePath
    private let isDirectoryMissing: Bool
    /// The file in the same directory that may be meant.
    let nearest: FilePath?

    /// The target of a symbolic link that leads nowhere.
    private var linkTarget: FilePath?

    /// Returns nil if a file has that name, if need be through a symbolic link.
    init?(_ path: FilePath) {
        guard let name = path.lastComponent, FileStatus(following: path) == nil else { return nil }
        self.path = path
        guard let directory = try? Directory(path.removingLastComponent()), let names = try? directory.names() else {
            isDirectoryMissing = true
            nearest = nil
            return
        }
        isDirectoryMissing = false
        if names.contains(name) {
            linkTarget = try? directory.open(name, flags: gs_o_path).linkTarget(path: path)
            nearest = nil
            return
        }
        let files = names.filter { StoreName($0) != nil && (try? directory.status($0))?.kind == .regular }
        nearest = files.compactMap(\.utf8).sorted().nearest(to: name.utf8 ?? "").map {
            path.removingLastComponent().appending($0)
        }
    }

    /// True if the name is that of a store, not of a directory: it has the extension of a database, and its directory
    /// exists.
    var isStore: Bool {
        !isDirectoryMissing && path.extension.map { ["sqlite", "sqlite3", "db", "db3"].contains($0) } == true
    }

    var sentence: String { fact + suggestion }

    /// What is missing.
    var fact: String {
        if isDirectoryMissing { return "there is no directory \(PrintablePath(path.removingLastComponent()))" }
        if let linkTarget {
            return "\(PrintablePath(path)) is a link to \(PrintablePath(linkTarget)), which doesn't exist"
        }
        return "there is no file \(PrintablePath(path))"
    }

    /// The end of a sentence that asks for the file which may be meant; empty if there is none.
    var suggestion: String { nearest.map { "; did you mean \(PrintablePath($0))?" } ?? "" }
}
