import Glibc
import LinuxSystem
import SystemPackage

/// A commit of the Git repository that a directory lies in. Reads it with git(1), since Git documents its commands
/// (git-ls-tree, git-cat-file), not its files, as its interface for programs.
struct GitRevision {
    /// The limit of a file, in bytes.
    private static let maximumFileSize = 64 << 20

    private let directory: FilePath
    /// The commit's full name.
    let commit: String
    /// The directory's path in the repository, empty or with a slash at its end.
    private let prefix: [UInt8]

    /// The first digits of the commit's name.
    var shortName: String { String(commit.prefix(12)) }

    /// Finds the commit. Throws `CommandFailure` if git doesn't know it, or the directory is in no repository.
    init(_ revision: String, in directory: FilePath) throws {
        guard !revision.hasPrefix("-") else {
            throw CommandFailure(
                .usage, code: "usage", "--base \(PrintableText(revision)): not a revision",
                remedy: "name a branch, a tag or a commit")
        }
        self.directory = directory
        commit = try Self.line(
            Self.git(["rev-parse", "--verify", "--end-of-options", revision + "^{commit}"], in: directory))
        var shown = try Self.git(["rev-parse", "--show-prefix"], in: directory)
        if shown.last == UInt8(ascii: "\n") { shown.removeLast() }
        prefix = shown
    }

    private static func line(_ output: [UInt8]) -> String {
        String(String(decoding: output, as: UTF8.self).prefix { $0 != "\n" })
    }

    /// Writes the directory's files, as the commit has them, to an empty directory. Throws `CommandFailure` if the
    /// commit doesn't have the directory.
    func extract(to target: FilePath) throws {
        let tree = Array((commit + ":").utf8) + prefix
        let listing = try Self.git(
            [Array("ls-tree".utf8), Array("-rz".utf8), Array("--full-tree".utf8), tree], in: directory)
        for entry in listing.split(separator: 0) {
            guard let tab = entry.firstIndex(of: 0x09) else { continue }
            let words = entry[..<tab].split(separator: 0x20)
            // Symbolic links and submodules are no part of a model.
            guard words.count == 3, words[0].starts(with: Array("100".utf8)),
                let path = FilePath(bytes: Array(entry[(tab + 1)...])), Self.isInside(path)
            else { continue }
            let content = try Self.git([Array("cat-file".utf8), Array("blob".utf8), Array(words[2])], in: directory)
            try Self.write(content, to: target, path)
        }
    }

    /// Returns true if the path can't lead out of the directory that it is relative to.
    private static func isInside(_ path: FilePath) -> Bool {
        !path.isAbsolute && !path.components.isEmpty && path.components.allSatisfy { $0.kind == .regular }
    }

    private static func write(_ content: [UInt8], to target: FilePath, _ path: FilePath) throws(SystemError) {
        var directory = try Directory(target)
        for component in path.removingLastComponent().components {
            if try directory.status(component) == nil { try directory.makeDirectory(component, mode: 0o700) }
            directory = try directory.directory(component)
        }
        guard let name = path.lastComponent else { return }
        let file = try directory.open(name, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        try file.write(content, at: 0, path: directory.path.appending(name))
    }

    // MARK: git

    private static func git(_ arguments: [String], in directory: FilePath) throws -> [UInt8] {
        try git(arguments.map { Array($0.utf8) }, in: directory)
    }

    /// Returns the output of git. Throws `CommandFailure` with its message if it fails.
    private static func git(_ arguments: [[UInt8]], in directory: FilePath) throws -> [UInt8] {
        let words = ["env", "git", "-C"].map { Array($0.utf8) } + [directory.bytes] + arguments
        let program = SpawnedProgram("/usr/bin/env", words)
        let ended = try program.run(until: .none, limit: maximumFileSize + 1)
        guard ended.status == 0 else {
            let message = line(ended.errors)
            throw CommandFailure(
                .inputOutput, code: "git_failed",
                "git: " + (message.isEmpty ? "it can't be run, or failed without a message" : message),
                remedy: "check that git is installed, the model is in a repository, and the revision exists")
        }
        guard ended.output.count <= maximumFileSize else {
            throw CommandFailure(
                .badData, code: "malformed_model", "a file of the commit is larger than \(maximumFileSize >> 20) MiB",
                remedy: "name a model")
        }
        return ended.output
    }
}
