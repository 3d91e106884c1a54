import Glibc
import LinuxSystem

/// The status as a table on a terminal.
final class LiveStatusTable: LiveStatusView {
    private let screen: LiveScreen
    private var table: StatusTable?
    /// The reason why there is no answer, until the first one.
    private var waiting: (message: String, since: LocalTime)?

    init(_ screen: LiveScreen) {
        self.screen = screen
        screen.show()
    }

    func show(_ update: StatusPoller.Update) {
        switch update {
        case .status(let status, let relays, let instant):
            let snapshot = StatusSnapshot(status, relays, at: instant, after: table?.snapshot)
            table = StatusTable(snapshot: snapshot, away: nil, time: .now())
            waiting = nil
        case .away(let message, let relays):
            let since = table?.away?.since ?? waiting?.since ?? .now()
            table?.away = (message, since)
            table?.snapshot.relays = relays
            waiting = (message, since)
        }
        draw()
    }

    func redraw() { draw(erasing: true) }

    func suspend() {
        screen.hide()
        // Unlike SIGTSTP, it is not blocked.
        kill(getpid(), SIGSTOP)
        screen.show()
        redraw()
    }

    func end() { screen.hide() }

    private func draw(erasing: Bool = false) {
        let size = screen.size
        let message = waiting.map { "no agent since \($0.since), trying again: \($0.message)" } ?? "…"
        let lines = table?.lines(size) ?? [LiveScreen.Line(message, .plain).cut(to: size.columns)]
        screen.draw(lines, on: size, erasing: erasing)
    }
}
