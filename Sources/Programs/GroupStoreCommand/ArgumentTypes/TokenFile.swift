import AgentProtocol
import Glibc
import LinuxSystem
import SystemPackage

/// A file that keeps the position up to which all work is done, for the next run: one line, replaced as a whole.
struct TokenFile: Sendable {
    let path: FilePath

    /// A token that nothing continues from: whoever begins with it gets a reset.
    static let lost = "lost"

    /// Returns the token, or nil if there is no file yet. A file that has lost its content to a power cut stands for a
    /// token that is lost. Throws if the file can't be read or holds something else.
    func read() throws -> String? {
        let (directory, name) = try location()
        guard let bytes = try DurableFile.read(name, in: directory, limit: Self.maxLength + 1) else { return nil }
        // What `PreparedToken` has renamed may never have reached the disk: the file is empty then, or zeros.
        if bytes.allSatisfy({ $0 == 0 }) { return Self.lost }
        let line = bytes.last == 0x0A ? bytes.dropLast() : bytes[...]
        guard bytes.count <= Self.maxLength, !line.isEmpty, !line.contains(where: { $0 <= 0x20 }),
            let token = String(validating: line, as: UTF8.self)
        else {
            throw CommandFailure(
                .badData, code: "bad_token_file", "\(PrintablePath(path)) doesn't hold a token",
                remedy: "name another file, or remove it to start over")
        }
        return token
    }

    /// Replaces the token. If it throws, the file is unchanged.
    func write(_ token: String) throws {
        let (directory, name) = try location()
        try DurableFile.write(Array((token + "\n").utf8), as: name, in: directory, mode: 0o600)
    }

    /// Writes a token beside the file, so that replacing the token is a single call. Nothing is synced yet.
    func prepare(_ token: String) throws -> PreparedToken { try PreparedToken(token, location()) }

    /// Syncs the token that was published last.
    func synchronize() throws {
        let (directory, name) = try location()
        try directory.openOwn(name, flags: O_RDONLY).synchronize(path: path)
        try directory.synchronize()
    }

    private static let maxLength = WireLine.maxLength

    private func location() throws -> (Directory, FilePath.Component) {
        let absolute = path.absolute(in: FilePath(workingDirectory()))
        guard let name = absolute.lastComponent else {
            throw CommandFailure(
                .usage, code: "no_file", "--token-file: \(PrintablePath(path)) isn't a file",
                remedy: "name a file, which is created if it doesn't exist")
        }
        return (try Directory(absolute.removingLastComponent()), name)
    }
}
