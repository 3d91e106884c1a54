import AgentProtocol
import Glibc
import GroupStore
import LinuxSystem
import StoreWatching
import SystemPackage

/// An agent that this process runs for itself, as a child: histories are read through SQLite, for which an agent has
/// the means. It relocates nothing, leaves nothing behind, and ends with this process.
final class PrivateAgent {
    let socket: FilePath
    /// The watched paths, and the names that the agent has for their stores.
    let stores: [(path: FilePath, address: StoreAddress)]
    private let directory: FilePath
    private let child: pid_t
    /// The agent ends when this is closed.
    private let input: CInt

    private static let startTimeout = Duration.seconds(30)

    /// Starts an agent for the stores at these absolute paths, which need not exist.
    ///
    /// Throws `DirectFeedError`, `SystemError` and `AgentConnectionError`.
    init(_ paths: [FilePath]) throws {
        var directories: [FilePath] = []
        var stores: [(FilePath, StoreAddress)] = []
        for path in paths {
            let place = try afterRelocations {
                guard let place = StorePlace(path), FileStatus(following: place.path)?.kind != .directory else {
                    throw DirectFeedError.notAStore(path)
                }
                return place
            }
            let number = directories.firstIndex(of: place.directory) ?? directories.count
            if number == directories.count { directories.append(place.directory) }
            guard let address = StoreAddress(group: Self.group(number), name: place.name.bytes) else {
                throw DirectFeedError.notAStore(path)
            }
            if !stores.contains(where: { $0.1 == address }) { stores.append((path, address)) }
        }
        self.stores = stores
        directory = try Self.makeDirectory()
        socket = directory.appending(Self.socketName)
        (child, input) = try Self.start(directory, serving: directories)
        try awaitSocket()
    }

    deinit {
        close(input)
        var status: CInt = 0
        _ = try? retrying("waitpid") { waitpid(child, &status, 0) }
        try? Directory(directory.removingLastComponent()).removeTree(directory.lastComponent ?? "none")
    }

    static let socketName: FilePath.Component = "agent.sock"

    private static func group(_ number: Int) -> String { "watched.\(number)" }

    /// Makes a directory that only this user may enter.
    private static func makeDirectory() throws -> FilePath {
        let environment = ProcessVariables.all
        let runtime = environment["XDG_RUNTIME_DIR"].map { FilePath($0) }
        let base = runtime.flatMap { access($0.string, W_OK) == 0 ? $0 : nil } ?? "/tmp"
        var template = Array(base.appending("groupstore-watch-XXXXXX").string.utf8CString)
        guard mkdtemp(&template) != nil else { throw SystemError.last("mkdtemp", path: base) }
        return template.withUnsafeBufferPointer { $0.baseAddress.map { FilePath(platformString: $0) } ?? base }
    }

    private static func start(_ directory: FilePath, serving directories: [FilePath]) throws -> (pid_t, CInt) {
        var ends: [CInt] = [-1, -1]
        guard pipe(&ends) == 0 else { throw SystemError.last("pipe") }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        defer { close(ends[0]) }
        var words = ["groupstore", "agent", "--quiet", "--private"].map { Array($0.utf8) }
        words.append(directory.bytes)
        for (number, directory) in directories.enumerated() {
            words += [Array("--group".utf8), Array("\(group(number))=".utf8) + directory.bytes]
        }
        var agent = SpawnedProgram("/proc/self/exe", words)
        (agent.input, agent.output, agent.leadsGroup) = (.descriptor(ends[0]), .null, true)
        do throws(SystemError) {
            return (try agent.start(), ends[1])
        } catch {
            close(ends[1])
            throw error
        }
    }

    private func awaitSocket() throws {
        let deadline = Deadline(after: Self.startTimeout)
        while true {
            do {
                _ = try UnixSocket.connect(to: socket)
                return
            } catch {
                if Interruption.isRequested { throw AgentConnectionError.interrupted }
                var status: CInt = 0
                guard waitpid(child, &status, WNOHANG) == 0, !deadline.hasPassed else {
                    throw AgentConnectionError.timedOut(socket)
                }
                pause(.milliseconds(5))
            }
        }
    }
}
