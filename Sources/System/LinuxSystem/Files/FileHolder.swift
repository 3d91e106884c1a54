import Glibc
import SystemPackage

/// A process that has a file open or claimed, as far as this process can tell.
package struct FileHolder: Hashable, Sendable {
    /// The process id, or 0 if it is unknown.
    package let pid: Int32
    package let program: String
    /// True if the process is in another PID namespace. `pid` is then the id visible here if there is one, else the
    /// process's own.
    package let isElsewhere: Bool

    package init(pid: Int32, program: String, isElsewhere: Bool = false) {
        self.pid = pid
        self.program = program
        self.isElsewhere = isElsewhere
    }
}

extension FileHolder: CustomStringConvertible {
    package var description: String {
        let number = pid == 0 ? "" : "pid \(pid)"
        let place = isElsewhere ? "in another PID namespace" : ""
        let words = [number, place].filter { !$0.isEmpty }.joined(separator: ", ")
        return words.isEmpty ? program : "\(program) (\(words))"
    }
}

extension [FileHolder] {
    /// All holders in one phrase.
    package var list: String { map(\.description).joined(separator: ", ") }

    /// All holders in one phrase, if there must be at least one.
    package var names: String { isEmpty ? "a process that can't be seen from here" : list }
}

extension FileHolder {
    /// Returns the processes whose descriptors lead to the file. Processes of other users and in other PID namespaces
    /// are invisible, so an empty result does not prove that nobody has it open.
    package static func of(_ identity: FileIdentity, excluding own: Int32 = getpid()) -> [FileHolder] {
        of(excluding: own) { status, _ in status.identity == identity }
    }

    /// Returns the processes one of whose descriptors leads to such a file, or with `inDirectories`, whose working
    /// directory or root is one.
    package static func of(
        excluding own: Int32 = getpid(), inDirectories: Bool = false,
        where condition: (FileStatus, HeldFile.Link) -> Bool
    ) -> [FileHolder] {
        (ProcFileSystem.processes ?? []).filter { pid in
            pid != own
                && (HeldFile.hasFile(pid, where: condition)
                    || inDirectories && HeldFile.hasDirectory(pid, where: condition))
        }.compactMap(FileHolder.init(process:))
    }

    /// Creates a holder for a process that was seen to hold the file. Returns nil if the process has ended since.
    package init?(process pid: Int32) {
        // The name is read last: whoever still has one was there before.
        let isElsewhere = Self.isElsewhere(pid)
        guard let program = Self.name(of: pid) else { return nil }
        self.init(pid: pid, program: program, isElsewhere: isElsewhere)
    }

    private static func isElsewhere(_ pid: Int32) -> Bool {
        guard let other = FileStatus(following: FilePath("/proc/\(pid)/ns/pid"))?.identity else { return false }
        return other != FileStatus(following: "/proc/self/ns/pid")?.identity
    }

    /// False if no process with this number has memory: it has ended, or is about to close its descriptors.
    package var isRunning: Bool { ProcessIdentity.hasMemory(pid) }

    /// Returns the process's name as recorded by the kernel, at most 15 characters, or "?" if it can't be read.
    package static func program(of pid: Int32) -> String { name(of: pid) ?? "?" }

    private static func name(of pid: Int32) -> String? {
        guard let directory = try? Directory(FilePath("/proc/\(pid)")),
            let bytes = try? DurableFile.read("comm", in: directory)
        else { return nil }
        return String(decoding: bytes.prefix { $0 != 0x0A }, as: UTF8.self)
    }
}
