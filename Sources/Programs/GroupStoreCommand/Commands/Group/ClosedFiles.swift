import CommandSupport
import Glibc
import GroupStoreAgent
import LinuxSystem
import SystemPackage

/// Proves that nobody has the files of a group open.
struct ClosedFiles {
    /// The process of this user's agent, which follows stores and lets go of those that are gone.
    private let agent: Int64?
    /// True if the user asserts that files are closed where the file system can't prove it.
    private let assumeClosed: Bool

    /// The longest wait for the agent and its children.
    private static let agentTimeout = Duration.seconds(5)
    /// The longest wait for a process that isn't seen: it may have closed the file since.
    private static let unseenTimeout = Duration.seconds(1)
    /// A lease can be refused for an instant after the last close.
    private static let closeTimeout = Duration.milliseconds(10)

    init(assumeClosed: Bool) {
        FileLease.ignoreBreakSignal()
        agent = (try? AgentStatus(environment: ProcessVariables.all))?.summary.integer("pid")
        self.assumeClosed = assumeClosed
    }

    /// Throws `CommandFailure` if a program other than the agent has one of the files open, and if that can't be found
    /// out.
    func check(
        _ entries: [GroupInventory.Entry], in directory: Directory, waitsForAgent: Bool = false
    ) throws {
        for entry in entries where entry.status.kind == .regular && !entry.isRecord {
            let parent = try directory.descendant(entry.path.removingLastComponent())
            let file = try parent.open(entry.name, flags: O_RDONLY)
            _ = try lease(on: file, entry, at: directory.path.pushing(entry.path), waitsForAgent: waitsForAgent)
        }
    }

    /// Returns a lease on the file, or nil if the file system has none. Throws `CommandFailure` if another program has
    /// it open, and for a file with content if nothing proves that none has.
    func lease(
        on file: borrowing Descriptor, _ entry: GroupInventory.Entry, at path: FilePath, waitsForAgent: Bool = true
    ) throws -> FileLease? {
        let start = ContinuousClock.now
        var closing = ContinuousClock.now.advanced(by: Self.closeTimeout)
        var backoff = Backoff(first: .microseconds(100), longest: .milliseconds(20))
        while true {
            do throws(SystemError) {
                if let lease = try FileLease(file) { return lease }
            } catch {
                return try unproved(entry, at: path, error)
            }
            if closing < .now {
                let holders = FileHolder.of(entry.status.identity)
                let isAgentAlone = holders.allSatisfy { isAgent($0) }
                if isAgentAlone, !holders.isEmpty, !waitsForAgent { return nil }
                let limit = holders.isEmpty ? Self.unseenTimeout : Self.agentTimeout
                guard isAgentAlone, start.duration(to: .now) < limit else { throw Self.open(path, holders) }
                closing = .now.advanced(by: Self.closeTimeout)
            }
            pause(backoff.next())
        }
    }

    /// True for the agent and the processes that it starts to read stores.
    private func isAgent(_ holder: FileHolder) -> Bool {
        guard let agent else { return false }
        return Int64(holder.pid) == agent || ProcessIdentity.parent(of: holder.pid).map(Int64.init) == agent
    }

    /// Returns nil for a file that may be taken for closed although the file system grants no lease.
    private func unproved(_ entry: GroupInventory.Entry, at path: FilePath, _ error: SystemError) throws -> FileLease? {
        let holders = FileHolder.of(entry.status.identity).filter { !isAgent($0) }
        guard holders.isEmpty else { throw Self.open(path, holders) }
        guard !error.isPermission else {
            throw CommandFailure(
                .notPermitted, code: "not_owner", "\(PrintablePath(path)) belongs to user \(entry.status.owner)",
                remedy: "run this as that user, or as root")
        }
        guard entry.status.size == 0 || assumeClosed else {
            throw CommandFailure(
                .conflict, code: "no_proof", "nothing proves that \(PrintablePath(path)) is closed: \(error.errno)",
                remedy: "close every program that uses it, then run this again with --assume-closed")
        }
        return nil
    }

    static func open(_ path: FilePath, _ holders: [FileHolder]) -> CommandFailure {
        CommandFailure(
            .busy, code: "busy", "\(PrintablePath(path)) is open in \(holders.names)",
            remedy: "close it there, then run this again")
    }
}

extension Directory {
    /// Returns the directory at a relative path. Follows no links.
    func descendant(_ path: FilePath) throws(SystemError) -> Directory {
        var found = self
        for name in path.components { found = try found.directory(name) }
        return found
    }
}
