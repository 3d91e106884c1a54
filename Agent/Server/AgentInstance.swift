import Glibc
import LinuxSystem
import SystemPackage

/// The agent's exclusive hold on its socket: one agent per socket. A lock file beside the socket decides, so that a
/// dead agent's socket is replaced and a live agent's is not.
package struct AgentInstance: ~Copyable {
    package enum Failure: ActionableError {
        case alreadyServed(socket: FilePath, by: String)
        case notASocket(FilePath)
        case pathTooLong(FilePath)

        package var errorCode: String {
            switch self {
            case .alreadyServed: "already_running"
            case .notASocket: "not_a_socket"
            case .pathTooLong: "socket_path_too_long"
            }
        }

        package var remedy: String {
            switch self {
            case .alreadyServed: "stop that one first, or set GROUPSTORE_SOCKET to another path"
            case .notASocket: "move it away, or name another path"
            case .pathTooLong: "set GROUPSTORE_SOCKET to a shorter path"
            }
        }

        package var errorPath: FilePath? {
            switch self {
            case .alreadyServed(let path, _), .notASocket(let path), .pathTooLong(let path): path
            }
        }

        package var message: String {
            switch self {
            case .alreadyServed(let socket, let holder): "another agent (\(holder)) serves \(PrintablePath(socket))"
            case .notASocket(let path): "\(PrintablePath(path)) is there and is not a socket"
            case .pathTooLong(let path):
                "\(PrintablePath(path)) is longer than a socket's path may be (\(UnixSocket.maxPathLength) bytes)"
            }
        }
    }

    private let lock: OpenFileLock
    private let directory: Directory
    private let name: FilePath.Component
    package let socket: FilePath
    /// The service manager's socket, if it listens for this agent; its name is not this agent's to make or to remove.
    private let activation: ActivationSocket?

    /// Takes the lock for the service manager's socket.
    package init(_ activation: ActivationSocket) throws {
        try self.init(socket: activation.path, isShared: false, activation: activation)
    }

    /// Takes the lock, and makes the socket's directory if it is missing. `isShared`: other users may connect.
    package init(socket: FilePath, isShared: Bool) throws {
        try self.init(socket: socket, isShared: isShared, activation: nil)
    }

    private init(socket: FilePath, isShared: Bool, activation: ActivationSocket?) throws {
        guard socket.bytes.count <= UnixSocket.maxPathLength, let name = socket.lastComponent,
            let lockName = name.appending(".lock")
        else { throw Failure.pathTooLong(socket) }
        let directory = try Self.directory(socket.removingLastComponent(), isShared: isShared)
        guard let lock = try OpenFileLock(lockName, in: directory) else {
            throw Failure.alreadyServed(socket: socket, by: Self.holder(lockName, directory))
        }
        try lock.write(note: Array("pid \(getpid())\n".utf8))
        self.lock = lock
        self.directory = directory
        self.name = name
        self.socket = socket
        self.activation = activation
    }

    private static func holder(_ lockName: FilePath.Component, _ directory: Directory) -> String {
        let note = String(decoding: OpenFileLock.note(lockName, in: directory).prefix(64), as: UTF8.self)
        return note.isEmpty ? "pid unknown" : note.split(separator: "\n").first.map(String.init) ?? note
    }

    private static func directory(_ path: FilePath, isShared: Bool) throws(SystemError) -> Directory {
        do throws(SystemError) {
            return try Directory(path)
        } catch {
            guard error.errno == .noSuchFileOrDirectory, let name = path.lastComponent else { throw error }
            let parent = try Directory(path.removingLastComponent())
            do throws(SystemError) {
                try parent.makeDirectory(name, mode: isShared ? 0o711 : 0o700)
            } catch {
                if error.errno != .fileExists { throw error }
            }
            return try Directory(path)
        }
    }

    /// Returns the service manager's listening socket, else a new one, which replaces a dead agent's. Call it once.
    package borrowing func listen(isShared: Bool) throws -> Descriptor {
        if let activation { return activation.listener() }
        if let found = try directory.status(name) {
            guard found.kind == .other else { throw Failure.notASocket(socket) }
            if (try? UnixSocket.connect(to: socket)) != nil {
                throw Failure.alreadyServed(socket: socket, by: "a program that does not hold its lock")
            }
            try directory.removeFile(name)
        }
        return try UnixSocket.listen(at: socket, mode: isShared ? 0o666 : 0o600)
    }

    /// Makes an empty directory beside the socket for this agent's own files. A dead agent's files in it are removed.
    package borrowing func makePrivateDirectory() throws(SystemError) -> FilePath {
        guard let name = name.appending(".private") else {
            throw SystemError("mkdir", .fileNameTooLong, path: socket)
        }
        try directory.removeTree(name)
        try directory.makeDirectory(name, mode: 0o700)
        return directory.path.appending(name)
    }

    package borrowing func removePrivateDirectory() {
        if let name = name.appending(".private") { try? directory.removeTree(name) }
    }

    /// Removes the socket's name, unless it is the service manager's. The lock is released with this value.
    package borrowing func removeSocket() { if activation == nil { try? directory.removeFile(name) } }
}
