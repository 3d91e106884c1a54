import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage

/// The state of a running `groupstore-relay`: a file in the user's runtime directory, replaced at most once a second.
package struct RelayRecord: Codable, Sendable, Equatable {
    package enum Role: String, Codable, Sendable {
        case publish, follow
    }

    /// An error after which the program continued, or with which it ended.
    package struct Failure: Codable, Sendable, Equatable {
        package var code: String
        package var message: String
        /// Seconds since 1970.
        package var time: Double

        package init(code: String, message: String, time: Double) {
            (self.code, self.message, self.time) = (code, message, time)
        }
    }

    /// The last position that a follower has confirmed.
    package struct Follower: Codable, Sendable, Equatable {
        package var name: String
        package var position: String
        /// Seconds since 1970.
        package var time: Double

        package init(name: String, position: String, time: Double) {
            (self.name, self.position, self.time) = (name, position, time)
        }
    }

    package var version = 1
    package var process: ProcessIdentity
    package var role: Role
    package var store: StoredPath
    package var stream: String
    /// The follower's name; nil for a publisher.
    package var follower: String?
    /// The broker; nil while there is no connection.
    package var server: String?
    /// One word: `connecting`, `publishing`, `snapshot`, `following`, `caught_up`, or the code of the error that ended
    /// it or whose cause it waits for.
    package var state = "connecting"
    /// The token up to which everything is published or applied.
    package var position: String?
    /// The number of changes that are not yet published or applied, as far as is known.
    package var lag: Int64?
    /// The time since which there are such changes, in seconds since 1970.
    package var behindSince: Double?
    package var failure: Failure?
    package var batches: Int64 = 0
    package var messages: Int64 = 0
    package var bytes: Int64 = 0
    package var snapshots: Int64 = 0
    /// The messages that were left out, because they are forged or malformed.
    package var rejected: Int64 = 0
    package var followers: [Follower] = []
    /// The time of this record, in seconds since 1970.
    package var updated: Double = 0

    package init(_ role: Role, store: FilePath, stream: String, follower: String? = nil) {
        process = .current
        self.role = role
        self.store = StoredPath(store)
        self.stream = stream
        self.follower = follower
    }

    /// True if the program has ended with an error, waits for the end of the error's cause, or hasn't connected since
    /// the error.
    package var isInTrouble: Bool {
        !["connecting", "publishing", "snapshot", "following", "caught_up"].contains(state)
            || state == "connecting" && failure != nil
    }

    /// The file's name: a program replaces the record of the one before it.
    private var name: FilePath.Component? {
        let words = [stream] + [follower].compactMap(\.self) + [role.rawValue, "json"]
        return FilePath.Component(words.joined(separator: "."))
    }
}

extension RelayRecord {
    /// Returns the directory for the record of a program: systemd's `RuntimeDirectory=`, else the one in the runtime
    /// directory of the agent's socket; nil if there is none.
    package static func ownDirectory(environment: [String: String]) -> FilePath? {
        if let own = environment["RUNTIME_DIRECTORY"]?.split(separator: ":").first, own.hasPrefix("/") {
            return FilePath(String(own))
        }
        return runtimeDirectory(environment)?.appending("groupstore").appending("relays")
    }

    private static func runtimeDirectory(_ environment: [String: String]) -> FilePath? {
        var environment = environment
        environment["GROUPSTORE_SOCKET"] = nil
        return AgentSocket.path(environment: environment)?.removingLastComponent().removingLastComponent()
    }

    /// Returns the records of this user's programs and of the system's units, as far as they can be read. A record is
    /// a courtesy: a directory that can't be read has none.
    ///
    /// - Parameter system: The runtime directory of the system's units.
    package static func all(environment: [String: String], system: FilePath = "/run") -> [RelayRecord] {
        let own = runtimeDirectory(environment)
        let units = ([own].compactMap(\.self) + (own == system ? [] : [system])).flatMap { runtime in
            let parent = runtime.appending("groupstore-relay")
            let names = (try? Directory(parent).names()) ?? []
            return names.sorted { $0.string < $1.string }.map { parent.appending($0) }
        }
        let directories = [own?.appending("groupstore").appending("relays")].compactMap(\.self) + units
        return directories.flatMap { (try? all(in: $0)) ?? [] }
    }

    /// Replaces the record in the directory, which is created if it is missing. Throws `SystemError`.
    package func write(to path: FilePath) throws {
        guard let name, let temporary = name.appending(".new") else { return }
        try GroupContainer.create(path)
        let directory = try Directory(path)
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        let bytes = Array(try encoder.encode(self)) + [UInt8(ascii: "\n")]
        try directory.removeFile(temporary)
        // It describes a running process, and needs not outlast a power failure: nothing is synced.
        let descriptor = try directory.open(temporary, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        try descriptor.write(bytes, at: 0, path: path.appending(temporary))
        try directory.rename(temporary, to: name, in: directory, .replace)
    }

    /// Removes the record. Does nothing if there is none.
    package func remove(from path: FilePath) {
        guard let name else { return }
        try? Directory(path).removeFile(name)
    }

    /// Returns the records in the directory, by name; none if it doesn't exist. Leaves out files that are no records.
    package static func all(in path: FilePath) throws -> [RelayRecord] {
        guard FileStatus(following: path) != nil else { return [] }
        let directory = try Directory(path)
        let names = try directory.names().filter { $0.string.hasSuffix(".json") }.sorted { $0.string < $1.string }
        return names.compactMap { name in
            (try? DurableFile.read(name, in: directory)).flatMap {
                try? JSONDecoder().decode(RelayRecord.self, from: Data($0))
            }
        }
    }
}

extension RelayRecord {
    /// The time, in seconds since 1970.
    package static var now: Double {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }
}
