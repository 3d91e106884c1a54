import AgentProtocol
import LinuxSystem
import PersistentHistory
import SystemPackage

/// Reads of histories for subscriptions.
extension HistoryService {
    /// The maximum number of rows in one read for subscriptions. If there are more, the change is sent without rows.
    private static let maximumRows = 4096

    /// Queues a read of the store's history for its subscriptions, and returns at once.
    package func readForSubscribers(of store: StoreAddress) {
        guard state.withLock({ $0.scheduledRounds.insert(store).inserted }) else { return }
        if enqueue(.round(store)) != nil {
            state.withLock { _ = $0.scheduledRounds.remove(store) }
            runRound(store) { _ in .failed }
        }
    }

    /// Runs one round. `read` returns the changes after a position; for nil, only the history's present position.
    func runRound(_ store: StoreAddress, _ read: (HistoryToken?) -> HistoryReadResult) {
        guard let round = publisher.beginRound(store) else { return }
        var reading = round.position.map { HistoryReadResult.page(RowPage(token: $0)) } ?? .none
        if round.needsReading || hasPageRows(store) { reading = read(round.position) }
        let returning = round.returning.mapValues { read($0) }
        // The rows may be of commits after the last event.
        let isCaughtUp = feed?.catchUp(store) ?? false
        publisher.endRound(round, reading, returning: returning, isCaughtUp: isCaughtUp)
    }

    func read(_ store: StoreAddress, after position: HistoryToken?) -> HistoryReadResult {
        guard let path = path(of: store), program != nil else { return .none }
        guard states[store] != .released else { return .failed }
        do {
            if let rows = try pageRows(of: store) {
                let found = try rows.changes(after: position, limit: Self.maximumRows)
                rowsAreRead(store)
                return found
            }
        } catch {
            pageRowsFailed(store, error)
            return .failed
        }
        let start = position.map { "--since=\($0)" } ?? "--now"
        let words = ["changes", "--json", "--wire-lines", "--limit=\(Self.maximumRows)", start]
        do throws(SystemError) {
            let messages = try messages(Self.command(words, path: path))
            if let summary = messages.last?.object, summary.string("outcome") == "changes" {
                updateOnce(store, isOutdated: summary.bool("outdated") ?? false)
            }
            let found = HistoryReadResult(messages)
            guard position == nil, let token = found.token else {
                return if case .tooMany = found { presentPosition(of: store) } else { found }
            }
            return .position(token)
        } catch {
            log.warning("history: \(error)")
            return .failed
        }
    }

    /// Returns the present position, because there are more changes than one read may return.
    private func presentPosition(of store: StoreAddress) -> HistoryReadResult {
        let found = read(store, after: nil)
        return found.token.map { .tooMany($0) } ?? found
    }
}
