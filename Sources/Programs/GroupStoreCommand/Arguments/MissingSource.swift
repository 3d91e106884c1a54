import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A store that was to be relocated and doesn't exist: perhaps its name is mistyped.
struct MissingSource {
    private let path: FilePath
    private let isDirectoryMissing: Bool
    /// The file in the same directory that may be meant.
    let nearest: FilePath?

    /// Returns nil if something has that name.
    init?(_ path: FilePath) {
        guard let name = path.lastComponent, FileStatus(following: path) == nil else { return nil }
        self.path = path
        guard let directory = try? Directory(path.removingLastComponent()), let names = try? directory.names() else {
            isDirectoryMissing = true
            nearest = nil
            return
        }
        // A link that leads nowhere is there.
        if names.contains(name) { return nil }
        isDirectoryMissing = false
        let files = names.filter { StoreName($0) != nil && (try? directory.status($0))?.kind == .regular }
        nearest = files.compactMap(\.utf8).sorted().nearest(to: name.utf8 ?? "").map {
            path.removingLastComponent().appending($0)
        }
    }

    var sentence: String {
        if isDirectoryMissing { return "there is no directory \(PrintablePath(path.removingLastComponent()))" }
        let meant = nearest.map { "; did you mean \(PrintablePath($0))?" } ?? ""
        return "there is no file \(PrintablePath(path))\(meant)"
    }
}
