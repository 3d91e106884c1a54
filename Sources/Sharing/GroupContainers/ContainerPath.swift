import LinuxSystem
import SystemPackage

/// The short form of a path in the private directory of a packaged app:
///
/// - `flatpak:APP/PATH` is `~/.var/app/APP/PATH`
/// - `snap:NAME/common/PATH` is `~/snap/NAME/common/PATH`, which all revisions of the snap share
/// - `snap:NAME/current/PATH` is `~/snap/NAME/current/PATH`, where `current` is snapd's link to the data of the
///   installed revision; a revision's number may stand in its place
package struct ContainerPath: Equatable, Sendable {
    /// An error in a short form, with its remedy.
    package struct Failure: Error, Equatable {
        package let message: String
        package let remedy: String
    }

    package let path: FilePath

    /// Expands a short form. Returns nil for any other text.
    ///
    /// - Parameter home: The user's home directory.
    package init?(_ text: String, home: String?) throws(Failure) {
        let isFlatpak = text.hasPrefix("flatpak:")
        guard isFlatpak || text.hasPrefix("snap:") else { return nil }
        let example = isFlatpak ? "flatpak:com.example.Notes/data/Notes.sqlite" : "snap:notes/common/Notes.sqlite"
        let rest = text[text.index(after: text.firstIndex(of: ":") ?? text.startIndex)...]
        let names = rest.split(separator: "/", omittingEmptySubsequences: false)
        guard names.count >= 2, !rest.utf8.contains(0), !names.contains(where: { ["", ".", ".."].contains($0) }) else {
            throw Failure(message: "\(text) is not an app and a path in its directory", remedy: "write \(example)")
        }
        if !isFlatpak, !Self.isRevision(names[1]) {
            throw Failure(
                message: "\(text) is neither in the snap's common directory nor in a revision's",
                remedy: "write snap:\(names[0])/common/… or snap:\(names[0])/current/…")
        }
        guard isFlatpak || names.count >= 3 else {
            throw Failure(message: "\(text) names no file", remedy: "write \(example)")
        }
        guard let home, home.hasPrefix("/") else {
            throw Failure(message: "\(text) can't be resolved: HOME is not set", remedy: "write the whole path")
        }
        path = FilePath(home).pushing(FilePath(isFlatpak ? ".var/app" : "snap")).pushing(FilePath(String(rest)))
    }

    /// `x1` is a revision that was installed from a file.
    private static func isRevision(_ name: Substring) -> Bool {
        if name == "common" || name == "current" { return true }
        let digits = name.hasPrefix("x") ? name.dropFirst() : name
        return !digits.isEmpty && digits.utf8.allSatisfy { (0x30...0x39).contains($0) }
    }
}
