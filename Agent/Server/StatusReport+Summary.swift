import AgentProtocol
import FoundationEssentials
import Glibc
import LinuxSystem
import SystemPackage

/// The end of the answer to `status`: what concerns the whole agent.
extension StatusReport {
    func summary(
        _ operation: StatusOperation, _ feed: [StoreAddress: Publisher.StoreStatus], _ visible: Visible,
        _ requester: Requester
    ) -> JSONObject {
        let known = feed.filter { visible.stores.contains($0.key) }
        let subscriptions = known.values.reduce(0) { $0 + $1.subscriptions.count }
        let sizes = requester.isTrusted ? publisher.sizes : (stores: known.count, subscriptions: subscriptions)
        let groups = requester.isTrusted ? configuration.value.groups.count : visible.groups.count
        var summary: JSONObject = ["agent": .string(version), "pid": .integer(Int64(getpid()))]
        summary.setPath("socket", bytes: socket.bytes)
        summary["epoch"] = .string(publisher.epoch)
        summary["started"] = .string(started.formatted(.iso8601))
        summary["groups"] = .integer(Int64(groups))
        summary["stores"] = .integer(Int64(sizes.stores))
        if let rejection = configuration.rejection {
            let failed: JSONObject = [
                "message": .string(rejection.message), "hint": .string(rejection.remedy),
                "at": .string(rejection.at.formatted(.iso8601)),
            ]
            summary["reload_failed"] = .object(failed)
        }
        summary["subscribers"] = .integer(Int64(sizes.subscriptions))
        if requester.isTrusted {
            let connections = publisher.connections
            summary["connections"] = .object(connections.counts.json(open: connections.open))
        }
        if !operation.isBrief {
            summary["descriptors"] = .object([
                "open": .integer(Self.openDescriptors),
                "limit": .integer(Int64(ResourceLimit.descriptors)),
            ])
        }
        if requester.isTrusted, !operation.isBrief {
            let reloads = configuration.reloads
            summary["reloads"] = .object(["applied": .integer(reloads.applied), "rejected": .integer(reloads.rejected)])
            summary["cpu_seconds"] = .number(Self.cpuSeconds)
            summary["resident_bytes"] = Self.residentBytes.map { .integer($0) }
        }
        // They name files and directories.
        if requester.isTrusted, let problems {
            summary["configuration_problems"] = problems
            summary["configuration_problem_count"] = .integer(Int64(configuration.value.problems.count))
        }
        return summary
    }

    /// The errors in files of the configuration that are left out, or used as they were; nil if there are none.
    private var problems: JSONValue? {
        let problems = configuration.value.problems
        guard !problems.isEmpty else { return nil }
        // The answer is one line, and nobody reads more.
        let shown = problems.prefix(Self.maximumProblems).map { problem in
            var object: JSONObject = [
                "message": .string(Self.shortened(problem.fullMessage)),
                "hint": .string(Self.shortened(problem.remedy)),
            ]
            if let path = problem.path?.bytes, path.count <= Self.maximumLength { object.setPath("path", bytes: path) }
            object["line"] = problem.line.map { .integer(Int64($0)) }
            return JSONValue.object(object)
        }
        return .array(shown)
    }

    /// Counted in bytes: one character may have any number of them.
    private static func shortened(_ text: String) -> String {
        text.utf8.count <= maximumLength ? text : String(decoding: text.utf8.prefix(maximumLength), as: UTF8.self) + "…"
    }

    private static let maximumLength = 400
    private static let maximumProblems = 10

    /// The number of open descriptors. Since Linux 6.2 it is the directory's size (proc(5)); listing them takes long.
    private static var openDescriptors: Int64 {
        if let size = FileStatus(following: "/proc/self/fd")?.size, size > 0 { return Int64(size) }
        return Int64((try? Directory("/proc/self/fd").names().count) ?? 0)
    }

    /// The processor time of all threads, in user and kernel mode.
    private static var cpuSeconds: Double {
        var time = timespec()
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }

    /// The memory in use: the second field of /proc/self/statm, in pages (proc(5)).
    private static var residentBytes: Int64? {
        guard let bytes = try? DurableFile.read("statm", in: Directory("/proc/self")) else { return nil }
        let fields = String(decoding: bytes, as: UTF8.self).split(separator: " ")
        return fields.dropFirst().first.flatMap { Int64($0) }.map { $0 * Int64(sysconf(CInt(_SC_PAGESIZE))) }
    }
}
