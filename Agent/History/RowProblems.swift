import AgentProtocol
import FoundationEssentials
import LinuxSystem
import RowShadow
import Synchronization

/// Why the rows of stores can't be recorded or told now. Any thread may read it.
package final class RowProblems: Sendable {
    /// A problem that lasts.
    struct Problem: Sendable {
        let code: String
        let message: String
        let remedy: String
        let began: Date
        private let start: ContinuousClock.Instant

        fileprivate init(_ error: any ActionableError, began: Date, _ start: ContinuousClock.Instant) {
            (code, message, remedy) = (error.errorCode, error.fullMessage, error.remedy)
            (self.began, self.start) = (began, start)
        }

        fileprivate func isOver(_ limit: Duration, at now: ContinuousClock.Instant) -> Bool {
            start.duration(to: now) >= limit
        }

        fileprivate static func began(
            with error: any ActionableError, after former: Self?, at now: ContinuousClock.Instant
        ) -> Self {
            if let former, former.code == error.errorCode { return Self(error, began: former.began, former.start) }
            return Self(error, began: Date(), now)
        }

        var json: JSONObject {
            [
                "code": .string(code), "message": .string(message), "hint": .string(remedy),
                "since": .string(began.formatted(.iso8601)),
            ]
        }
    }

    /// What the log is to say.
    enum News: Equatable {
        case began(String)
        case over
        case none
    }

    private struct Entry {
        var problem: Problem
        /// The code that the log has said; nil if none.
        var logged: String?
    }

    private let entries = Mutex<[StoreAddress: Entry]>([:])

    /// The time for which a store that can't be read is no problem.
    static let patience = Duration.seconds(60)

    package init() {}

    /// Records that the rows of a store couldn't be read or recorded.
    func record(_ error: any ActionableError, of store: StoreAddress, now: ContinuousClock.Instant = .now) -> News {
        entries.withLock { entries in
            let former = entries[store]
            let problem = Problem.began(with: error, after: former?.problem, at: now)
            var entry = Entry(problem: problem, logged: former?.logged)
            defer { entries[store] = entry }
            guard Self.isReported(problem, at: now), entry.logged != problem.code else { return .none }
            entry.logged = problem.code
            return .began("\(problem.message) (\(problem.remedy))")
        }
    }

    /// Records that the rows of a store are recorded again, or needn't be.
    func end(_ store: StoreAddress) -> News {
        entries.withLock { $0.removeValue(forKey: store)?.logged == nil ? .none : .over }
    }

    /// Returns the problem of a store; nil if there is none, or it may be over in a moment.
    func problem(of store: StoreAddress, now: ContinuousClock.Instant = .now) -> Problem? {
        entries.withLock { $0[store]?.problem }.flatMap { Self.isReported($0, at: now) ? $0 : nil }
    }

    /// True if the store couldn't be read for now.
    func isBusy(_ store: StoreAddress) -> Bool {
        entries.withLock { $0[store]?.problem.code == RowShadowError.busyCode }
    }

    /// The stores with a problem, or with one that may be over in a moment.
    var stores: [StoreAddress] { entries.withLock { Array($0.keys) } }

    private static func isReported(_ problem: Problem, at now: ContinuousClock.Instant) -> Bool {
        problem.code != RowShadowError.busyCode || problem.isOver(patience, at: now)
    }
}
