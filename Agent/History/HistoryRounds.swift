import AgentProtocol
import LinuxSystem
import PersistentHistory
import SystemPackage

/// Reading histories for those who are subscribed.
extension HistoryService {
    /// Rows that are read at once for those who are subscribed; of more they are told without.
    private static let mostRead = 4096

    /// Has the store's history read for those who are subscribed, and returns at once.
    package func readForSubscribers(of store: StoreAddress) {
        guard state.withLock({ $0.due.insert(store).inserted }) else { return }
        if enqueue(.round(store)) != nil {
            state.withLock { _ = $0.due.remove(store) }
            settle(store) { _ in .failed }
        }
    }

    /// `read`: what follows a position; of nil, where the history is.
    func settle(_ store: StoreAddress, _ read: (HistoryToken?) -> HistoryReadResult) {
        guard let round = hub.beginRound(store) else { return }
        var reading = round.position.map { HistoryReadResult.page(RowPage(token: $0)) } ?? .none
        if round.needsReading { reading = read(round.position) }
        let returning = round.returning.mapValues { read($0) }
        // What was read may have been committed after the last event.
        let isCaughtUp = feed?.catchUp(store) ?? false
        hub.endRound(round, reading, returning: returning, isCaughtUp: isCaughtUp)
    }

    func read(_ store: StoreAddress, after position: HistoryToken?) -> HistoryReadResult {
        guard let path = path(of: store), program != nil else { return .none }
        guard states[store] != .released else { return .failed }
        let place = position.map { "--since=\($0)" } ?? "--now"
        let words = ["changes", "--json", "--wire-lines", "--limit=\(Self.mostRead)", place]
        do throws(SystemError) {
            let found = HistoryReadResult(try messages(Self.command(words, path)))
            guard position == nil, let token = found.token else {
                return if case .tooMany = found { now(store) } else { found }
            }
            return .position(token)
        } catch {
            log.warning("history: \(error)")
            return .failed
        }
    }

    /// More was changed than is read.
    private func now(_ store: StoreAddress) -> HistoryReadResult {
        let found = read(store, after: nil)
        return found.token.map { .tooMany($0) } ?? found
    }
}
