import AgentProtocol
import CommandSupport
import Glibc
import GroupStore
import LinuxSystem
import SystemPackage

/// A view of the status that is kept up to date.
protocol LiveStatusView: AnyObject {
    /// Shows an answer of the agent, or that there is none.
    func show(_ update: StatusPoller.Update)
    /// Adapts to the terminal's size.
    func redraw()
    /// Gives the terminal back while the process is stopped, and returns when it goes on.
    func suspend()
    /// Gives the terminal back.
    func end()
}

/// `status --watch`: a table on a terminal, lines elsewhere. Signals, keys and answers are handled on one thread.
struct StatusWatch {
    private let target: String?
    private let interval: Duration
    private let output: Output

    init(_ target: String?, interval: Duration, _ output: Output) {
        self.target = target
        self.interval = interval
        self.output = output
    }

    /// Runs until a signal or a key ends it. Throws `AgentConnectionError` and `CommandFailure` if there is nothing to
    /// watch at the beginning.
    func run() throws {
        let environment = ProcessVariables.all
        let hasScreen = !output.json && LiveScreen.isAvailable(environment: environment)
        let signals = try SignalSource(Self.signals(hasScreen: hasScreen))
        let connection = try connect(signals.raw)
        let (operation, found) = try operation(connection)
        let poller = try StatusPoller(connection, operation, of: found, interval: interval)
        let view: any LiveStatusView =
            hasScreen ? LiveStatusTable(LiveScreen(environment: environment)) : LiveStatusLines(output)
        defer { view.end() }
        try follow(poller, view, signals, keys: hasScreen && isatty(STDIN_FILENO) == 1)
    }

    private func connect(_ interrupt: CInt) throws -> AgentConnection {
        let socket = try AgentConnection.standardSocket(environment: ProcessVariables.all)
        return try AgentConnection(socket, interrupt: interrupt)
    }

    /// Returns the request for the target, and the target as it was found. Throws if the agent doesn't serve it.
    private func operation(_ connection: AgentConnection) throws -> (StatusOperation, StatusTarget?) {
        guard let target else { return (StatusOperation(), nil) }
        let found = try StatusTarget(target, served: ServedGroups(connection))
        guard let operation = found.operation, try !AgentStatus(connection, operation).rows.isEmpty else {
            throw CommandFailure(
                .unavailable, code: "not_served", "the agent doesn't serve \(found.name)",
                remedy: "add it to the agent's configuration; without --watch, its directory is shown")
        }
        return (operation, found)
    }

    // MARK: Signals and keys

    private static let ending: [CInt] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT]

    /// Returns the signals to handle. One that is ignored, as under nohup(1), stays ignored.
    private static func signals(hasScreen: Bool) -> [CInt] {
        let wanted = ending + (hasScreen ? [SIGWINCH, SIGTSTP, SIGCONT] : [])
        return wanted.filter { number in
            var action = sigaction()
            guard sigaction(number, nil, &action) == 0 else { return true }
            return unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) != 1
        }
    }

    private func follow(
        _ poller: StatusPoller, _ view: any LiveStatusView, _ signals: borrowing SignalSource, keys: Bool
    ) throws {
        var entries = [signals.raw, poller.descriptor, STDOUT_FILENO, keys ? STDIN_FILENO : -1].map {
            pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
        }
        // Only its end is of interest.
        entries[2].events = 0
        while true {
            try retrying("poll") { poll(&entries, nfds_t(entries.count), -1) }
            while let signal = signals.next() { try handle(signal, view) }
            if entries[3].revents != 0 {
                switch Self.key() {
                case UInt8(ascii: "q")?, UInt8(ascii: "Q")?, 4?: return
                case 12?: view.redraw()
                case nil: entries[3].fd = -1
                default: break
                }
            }
            if entries[1].revents != 0 { for update in poller.drain() { view.show(update) } }
            if entries[2].revents != 0 { throw Self.endOfReader() }
            try Output.checkDelivered()
        }
    }

    private func handle(_ signal: CInt, _ view: any LiveStatusView) throws {
        switch signal {
        case SIGWINCH, SIGCONT: view.redraw()
        case SIGTSTP: view.suspend()
        default:
            view.end()
            if output.json { output.record(["type": "summary", "outcome": "interrupted"], "") }
            throw ExitStatus.interrupted.code
        }
    }

    /// Reads a key; nil at the end of the input.
    private static func key() -> UInt8? {
        var byte: UInt8 = 0
        return read(STDIN_FILENO, &byte, 1) == 1 ? byte : nil
    }

    /// Ends this process as a program that writes would end, unless that is ignored.
    private static func endOfReader() -> any Error {
        kill(getpid(), SIGPIPE)
        return ExitStatus.interrupted.code
    }
}
