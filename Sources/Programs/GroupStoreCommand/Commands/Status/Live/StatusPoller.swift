import AgentProtocol
import CLinux
import Glibc
import GroupStore
import LinuxSystem
import Synchronization
import SystemPackage

/// Asks the agent for its status again and again, on a thread of its own, so that an agent that doesn't answer delays
/// no redrawing. One connection is kept; if it is lost, another one is tried until the agent is back.
///
/// The requests are brief: the agent reads nothing from the disk for them. A whole answer is asked for only when a
/// process turns up whose program isn't known, and once in a while.
final class StatusPoller: Sendable {
    enum Update: Sendable {
        case status(AgentStatus, RelayRows, at: ContinuousClock.Instant)
        /// No agent answers.
        case away(String, RelayRows)
    }

    /// Becomes readable when there are updates: an event descriptor.
    let descriptor: CInt
    private let updates = Mutex<[Update]>([])
    private let socket: FilePath
    private let operation: StatusOperation
    private let target: StatusTarget?
    private let interval: Duration

    /// The time that an agent has for an answer before it counts as away.
    private static let timeout = Duration.seconds(5)
    /// The time for which the programs of a whole answer are taken for known: a process may run another program.
    private static let programsLifetime = Duration.seconds(60)

    /// Starts asking.
    ///
    /// - Parameter target: The group or store of the operation, whose relays are of interest; nil for all.
    init(
        _ connection: consuming AgentConnection, _ operation: StatusOperation, of target: StatusTarget?,
        interval: Duration
    ) throws {
        socket = connection.socket
        self.operation = operation
        self.target = target
        self.interval = interval
        descriptor = try retrying("eventfd") { gs_eventfd() }
        _ = try SystemThread(name: "gs-status") { [self] in run() }
    }

    /// Removes and returns the updates that have come.
    func drain() -> [Update] {
        var counter: UInt64 = 0
        _ = read(descriptor, &counter, 8)
        return updates.withLock { updates in
            defer { updates = [] }
            return updates
        }
    }

    private func post(_ update: Update) {
        updates.withLock { $0.append(update) }
        var one: UInt64 = 1
        _ = write(descriptor, &one, 8)
    }

    private func run() {
        var connection: AgentConnection?
        var programs = KnownPrograms()
        var backoff = Backoff(first: .milliseconds(100), longest: .seconds(2))
        while true {
            do throws(AgentConnectionError) {
                let started = ContinuousClock.now
                if connection == nil {
                    connection = try AgentConnection(socket, deadline: Deadline(after: Self.timeout))
                }
                guard let connection else { continue }
                post(.status(try status(connection, &programs), RelayRows(of: target), at: .now))
                backoff.reset()
                pause(max(.zero, interval - started.duration(to: .now)))
            } catch {
                connection = nil
                programs = KnownPrograms()
                post(.away(error.message, RelayRows(of: target)))
                pause(backoff.next())
            }
        }
    }

    private func status(
        _ connection: AgentConnection, _ programs: inout KnownPrograms
    ) throws(AgentConnectionError) -> AgentStatus {
        var brief = operation
        brief.isBrief = true
        if let known = programs.complete(try AgentStatus(connection, brief, timeout: Self.timeout)) { return known }
        let whole = try AgentStatus(connection, operation, timeout: Self.timeout)
        programs = KnownPrograms(whole, until: .now + Self.programsLifetime)
        return whole
    }
}

/// The programs of the processes in a whole answer.
struct KnownPrograms {
    private var programs: [Int64: String] = [:]
    private var end: ContinuousClock.Instant?

    init() {}

    init(_ status: AgentStatus, until end: ContinuousClock.Instant) {
        self.end = end
        for row in status.rows where row.type == "subscription" {
            if let pid = row.object.integer("pid") { programs[pid] = row.object.string("program") ?? "?" }
        }
    }

    /// Returns a brief answer with the programs; nil if one isn't known.
    func complete(_ status: AgentStatus) -> AgentStatus? {
        guard let end, .now < end else { return nil }
        var rows = status.rows
        for (index, row) in rows.enumerated() where row.type == "subscription" {
            guard let pid = row.object.integer("pid") else { continue }
            guard let program = programs[pid] else { return nil }
            rows[index].object["program"] = .string(program)
        }
        return AgentStatus(rows: rows, summary: status.summary)
    }
}
