import AgentProtocol
import LinuxSystem

/// The record as a status prints it.
extension RelayRecord {
    /// True if the program runs.
    package var isRunning: Bool { process.isRunningInThisBoot }

    /// The state, or `ended` if the program was killed.
    package var reportedState: String { isRunning || failure?.code == state ? state : "ended" }

    /// The object for programs.
    package var object: JSONObject {
        var object: JSONObject = ["type": "relay", "role": .string(role.rawValue), "stream": .string(stream)]
        object.setPath("store", bytes: store.path.bytes)
        object["follower"] = follower.map { .string($0) }
        object["pid"] = .integer(Int64(process.pid))
        object["running"] = .bool(isRunning)
        object["state"] = .string(reportedState)
        object["server"] = server.map { .string($0) }
        object["position"] = position.map { .string($0) }
        object["lag_changes"] = knownLag.map { .integer($0) }
        object["lag_seconds"] = lagSeconds.map { .number($0) }
        if let failure {
            object["last_error"] = .object([
                "code": .string(failure.code), "message": .string(failure.message), "at": .time(failure.time),
            ])
        }
        object["counts"] = .object([
            "batches": .integer(batches), "messages": .integer(messages), "bytes": .integer(bytes),
            "snapshots": .integer(snapshots), "rejected": .integer(rejected),
        ])
        if role == .publish {
            object["followers"] = .array(
                followers.map { follower in
                    .object([
                        "follower": .string(follower.name), "position": .string(follower.position),
                        "at": .time(follower.time),
                    ])
                })
        }
        object["updated"] = .time(updated)
        return object
    }

    /// The number of missing changes; nil if it isn't known. A program that can't go on doesn't see new changes.
    package var knownLag: Int64? { lag == 0 && (isInTrouble || !isRunning) ? nil : lag }

    /// The time since which something is missing, in seconds until now; 0 if nothing is.
    package var lagSeconds: Double? {
        guard knownLag != nil else { return nil }
        guard let behindSince else { return 0 }
        return max(0, Self.now - behindSince)
    }

    /// The lines for people.
    package var lines: [String] {
        let process = isRunning ? ", pid \(self.process.pid)" : ""
        var lines = ["\(subject)\(process)"]
        let behind = knownLag.map { lag in
            lag == 0 ? "up to date" : "\(Counted(lag, "change")), \(Int(lagSeconds ?? 0)) s behind"
        }
        lines.append("    \(broker)\(behind.map { ", \($0)" } ?? "")")
        lines += followers.map { "    follower \($0.name)  \($0.position)" }
        if let failure { lines.append("    last error at \(WireTime.text(failure.time) ?? "?"): \(failure.message)") }
        return lines
    }

    /// One line for people, without what changes while nothing happens.
    package var summary: String {
        let behind = knownLag.map { $0 == 0 ? "up to date" : "\(Counted($0, "change")) behind" }
        return ([subject, broker] + [behind, failure.map { "last error: \($0.message)" }].compactMap(\.self))
            .joined(separator: ", ")
    }

    private var subject: String {
        let who = follower.map { "\(stream) as \($0)" } ?? stream
        let words = role == .publish ? "published to \(who)" : "follows \(who)"
        return "\(PrintablePath(store.path))  \(words)  \(reportedState)"
    }

    private var broker: String { server ?? "not connected" }
}
