import AgentProtocol
import Glibc
import LinuxSystem
import SystemPackage

/// A file that holds up to where all is done, for the next run: one line, replaced as a whole.
struct TokenFile: Sendable {
    let path: FilePath

    /// Nil when there is none yet. Throws a `CommandFailure` when it can't be read or holds no token.
    func read() throws -> String? {
        do {
            let (directory, name) = try place()
            guard let bytes = try DurableFile.read(name, in: directory, limit: Self.longest + 1) else { return nil }
            let line = bytes.last == 0x0A ? bytes.dropLast() : bytes[...]
            guard bytes.count <= Self.longest, !line.isEmpty, !line.contains(where: { $0 <= 0x20 }),
                let token = String(validating: line, as: UTF8.self)
            else {
                throw CommandFailure(
                    .badData, code: "bad_token_file", "\(PrintablePath(path)) holds no token",
                    remedy: "name another file, or remove it to begin anew")
            }
            return token
        } catch let error as SystemError {
            throw CommandFailure(error)
        }
    }

    /// Throws a `CommandFailure`; the file is as it was then.
    func write(_ token: String) throws {
        do {
            let (directory, name) = try place()
            try DurableFile.write(Array((token + "\n").utf8), as: name, in: directory, mode: 0o600)
        } catch let error as SystemError {
            throw CommandFailure(error)
        }
    }

    private static let longest = WireLine.longest

    private func place() throws -> (Directory, FilePath.Component) {
        let absolute = path.absolute(in: FilePath(workingDirectory()))
        guard let name = absolute.lastComponent else {
            throw CommandFailure(.usage, code: "no_file", "--token-file: \(PrintablePath(path)) is no file")
        }
        return (try Directory(absolute.removingLastComponent()), name)
    }
}
