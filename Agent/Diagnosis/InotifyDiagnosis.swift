import Glibc
import LinuxSystem
import SystemPackage

/// The kernel's limits on inotify(7), and their present use.
package struct InotifyDiagnosis: Equatable, Sendable {
    /// The maximum number of instances per user; the agent needs one.
    package var instances: Int?
    /// The maximum number of watches per user; the agent needs one per directory.
    package var watches: Int?
    /// The maximum number of unread events; the kernel drops further ones and reports an overflow.
    package var queuedEvents: Int?
    /// The instances in use by this user, in processes that can be seen; nil without `/proc`.
    package var usedInstances: Int?
    package var usedWatches: Int?
    /// The reason why no instance can be created; nil if one can.
    package var refusal: Errno?

    package init() {
        instances = Self.limit("max_user_instances")
        watches = Self.limit("max_user_watches")
        queuedEvents = Self.limit("max_queued_events")
        (usedInstances, usedWatches) = Self.usage()
        let probe = inotify_init1(Int32(bitPattern: UInt32(O_CLOEXEC)))
        refusal = probe < 0 ? Errno(rawValue: errno) : nil
        if probe >= 0 { close(probe) }
    }

    private static func limit(_ name: String) -> Int? { ProcFile.integer(FilePath("/proc/sys/fs/inotify/\(name)")) }

    /// Counts the use. Each watch is a line of the descriptor's fdinfo (proc(5)).
    private static func usage() -> (instances: Int?, watches: Int?) {
        guard let proc = try? Directory("/proc"), let names = try? proc.names() else { return (nil, nil) }
        var used = (instances: 0, watches: 0)
        for name in names where Int32(name.string) != nil {
            guard let process = try? proc.directory(name), (try? process.status())?.owner == getuid(),
                let information = try? process.directory("fdinfo"), let numbers = try? information.names()
            else { continue }
            for number in numbers {
                guard let bytes = try? DurableFile.read(number, in: information, limit: 1 << 16) else { continue }
                let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n")
                let watches = lines.filter { $0.hasPrefix("inotify wd:") }.count
                if watches > 0 { used.instances += 1 }
                used.watches += watches
            }
        }
        return (used.instances, used.watches)
    }

    package var findings: [Finding] {
        [
            finding("instances", limit: instances, used: usedInstances, least: 16, better: 256),
            finding("watches", limit: watches, used: usedWatches, least: 1024, better: 65536),
            queueFinding,
        ]
    }

    private func finding(_ resource: String, limit: Int?, used: Int?, least: Int, better: Int) -> Finding {
        let check = "inotify_\(resource)"
        let remedy = "raise it: sysctl -w fs.inotify.max_user_\(resource)=\(max(better, 2 * (limit ?? 0)))"
        guard let limit else {
            return Finding(check, .warning, "the limit on inotify \(resource) can't be read", remedy: "mount /proc")
        }
        let usage = used.map { ", \($0) seen in use by this user" } ?? ""
        let message = "fs.inotify.max_user_\(resource) is \(limit)\(usage)"
        if resource == "instances", let refusal {
            return Finding(check, .problem(.configuration), "\(message); no further one: \(refusal)", remedy: remedy)
        }
        let isTight = limit < least || (used ?? 0) * 5 >= limit * 4
        return Finding(check, isTight ? .warning : .fine, message, remedy: isTight ? remedy : nil)
    }

    private var queueFinding: Finding {
        guard let queuedEvents else {
            return Finding(
                "inotify_queue", .warning, "the limit on queued inotify events can't be read", remedy: "mount /proc")
        }
        let message = "fs.inotify.max_queued_events is \(queuedEvents)"
        guard queuedEvents < 1024 else { return Finding("inotify_queue", .fine, message) }
        return Finding(
            "inotify_queue", .warning, "\(message): a burst of changes overflows it, and subscribers must re-read",
            remedy: "raise it: sysctl -w fs.inotify.max_queued_events=16384")
    }
}
