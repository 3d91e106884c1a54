import Glibc
import LinuxSystem
import SQLiteStore
import SystemPackage

/// Checks the system that this program runs on.
package enum SystemDiagnosis {
    package static func findings() -> [Finding] {
        [proc, descriptors, leases, sqlite, inotifyLibrary, swift, kernel]
    }

    private static var proc: Finding {
        guard ProcFileSystem.isMounted else {
            return Finding(
                "proc", .problem(.configuration),
                "/proc isn't mounted: processes that have a store open can't be found",
                remedy: ProcMissing().remedy)
        }
        guard ProcFile.text("/proc/1/comm") != nil else {
            return Finding(
                "proc", .warning, "/proc hides other users' processes: those that have a store open can't be found",
                remedy: "mount it without hidepid, or run this as root")
        }
        return Finding("proc", .fine, "/proc is mounted")
    }

    /// The limit on open files. The agent raises its soft limit to the hard one.
    private static var descriptors: Finding {
        let limit = ResourceLimit.maxDescriptors
        let message = "a process may have \(limit) files open: an agent takes up to four for each store that it follows"
        guard limit < 4096 else { return Finding("descriptors", .fine, message) }
        return Finding(
            "descriptors", .warning, message, remedy: "raise LimitNOFILE= of the agent's unit, or ulimit -Hn")
    }

    private static var leases: Finding {
        guard let enabled = ProcFile.integer("/proc/sys/fs/leases-enable"),
            let seconds = ProcFile.integer("/proc/sys/fs/lease-break-time")
        else { return Finding("leases", .warning, "the settings of leases can't be read", remedy: "mount /proc") }
        guard enabled != 0 else {
            return Finding(
                "leases", .problem(.configuration), "leases are disabled",
                remedy: "sysctl -w fs.leases-enable=1")
        }
        let message = "leases are enabled; an opener waits for one at most \(seconds) s (fs.lease-break-time)"
        guard seconds > 0 else {
            return Finding("leases", .problem(.configuration), message, remedy: "sysctl -w fs.lease-break-time=45")
        }
        return Finding("leases", .fine, message)
    }

    private static var sqlite: Finding {
        let path = loaded("libsqlite3").map { " (\($0))" } ?? ""
        let message = "SQLite \(SQLiteLibrary.version)\(path)"
        guard SQLiteLibrary.isRecentEnough else {
            return Finding(
                "sqlite", .problem(.configuration), "\(message); 3.37 or later is needed",
                remedy: "install a newer libsqlite3")
        }
        return Finding("sqlite", .fine, message)
    }

    private static func library(_ check: String, _ name: String) -> Finding {
        guard let path = loaded(name) else {
            return Finding(check, .warning, "\(name) isn't loaded by this program", remedy: "build it with \(name)")
        }
        return Finding(check, .fine, "\(name) (\(path))")
    }

    private static var inotifyLibrary: Finding {
        #if InotifyTools
            library("inotify_library", "libinotifytools")
        #else
            Finding("inotify_library", .fine, "inotify(7) is called directly, without libinotifytools")
        #endif
    }

    private static var swift: Finding {
        #if compiler(>=6.3)
            let version = "6.3 or later"
        #elseif compiler(>=6.2)
            let version = "6.2"
        #else
            let version = "6.1"
        #endif
        return Finding("swift", .fine, "built by Swift \(version)")
    }

    private static var kernel: Finding {
        var name = utsname()
        guard uname(&name) == 0 else { return Finding("kernel", .warning, "the kernel's version can't be read") }
        let release = withUnsafeBytes(of: name.release) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
        let machine = withUnsafeBytes(of: name.machine) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
        return Finding("kernel", .fine, "Linux \(release), \(machine)")
    }

    /// Returns the file that a library was loaded from, as the kernel mapped it: its name ends in the library's
    /// version.
    static func loaded(_ library: String) -> String? {
        // Longer than other `/proc` files that are read here, but of this process alone.
        guard let maps = try? Directory("/proc/self"),
            let bytes = try? DurableFile.read("maps", in: maps, limit: 8 << 20)
        else { return nil }
        return String(decoding: bytes, as: UTF8.self).split(separator: "\n").lazy
            .compactMap { line in line.firstIndex(of: "/").map { String(line[$0...]) } }
            .first { $0.contains("/\(library).so") }
    }
}
