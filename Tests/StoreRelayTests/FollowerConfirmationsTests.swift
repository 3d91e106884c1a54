import PersistentHistory
import RelayStatus
import SQLiteStore
import Testing

@testable import StoreRelay

/// Confirmations of followers that may lie.
struct FollowerConfirmationsTests {
    private let stream: RelayStream
    private var confirmations: FollowerConfirmations
    private var record = RelayRecord(.publish, store: "/Notes.sqlite", stream: "GS_Notes")

    init() throws {
        stream = try RelayStream("Notes")
        confirmations = FollowerConfirmations(stream)
    }

    private func token(_ number: Int64, nonce: String = "ff") throws -> HistoryToken {
        try #require(HistoryToken("h1.abc.\(number).\(nonce)"))
    }

    /// A home whose history has the changes up to 100.
    private mutating func write() throws -> [String: Int64] {
        var written: [String: Int64] = [:]
        try confirmations.write(to: &record) { follower, token in
            guard token.history == "abc", token.nonce == 0xff, token.number <= 100 else {
                throw StoreHistory.Discontinuity.epoch
            }
            written[follower] = token.number
        }
        return written
    }

    @Test(arguments: ["h1.abc.9223372036854775807.1", "h1.abc.101.ff", "h1.def.5.ff", "h1.\u{1b}[2J.5.ff"])
    func aTokenThatTheHistoryLacksHoldsNothingBack(lie: String) throws {
        var test = self
        test.confirmations.add(["laptop": try #require(HistoryToken(lie))])
        #expect(try test.write().isEmpty)
        #expect(test.record.followers.isEmpty && !test.confirmations.isPending)
        test.confirmations.add(["laptop": try token(5)])
        #expect(try test.write() == ["laptop": 5])
        #expect(test.record.followers.map(\.position) == ["h1.abc.5.ff"])
        // An earlier one, repeated by somebody, sets nothing back.
        test.confirmations.add(["laptop": try token(4)])
        #expect(try test.write().isEmpty)
        #expect(test.record.followers.map(\.position) == ["h1.abc.5.ff"])
    }

    @Test func inventedNamesHaveALimit() throws {
        var test = self
        var waiting: [String: HistoryToken] = [:]
        for number in 0..<5000 {
            FollowerConfirmations.add(Acknowledgement(try token(5), by: "f\(number)"), to: &waiting)
        }
        #expect(waiting.count == FollowerConfirmations.maxFollowers)
        test.confirmations.add(waiting)
        #expect(try test.write().count == FollowerConfirmations.maxFollowers)
        test.confirmations.add(["another": try token(5), "f0": try token(6)])
        #expect(try test.write() == ["f0": 6])
        #expect(test.record.followers.count == FollowerConfirmations.maxFollowers)
    }

    @Test func aBusyStoreIsTriedAgain() throws {
        var test = self
        test.confirmations.add(["laptop": try token(5)])
        try test.confirmations.write(to: &test.record) { _, _ in throw StoreError.busy("/Notes.sqlite") }
        #expect(test.confirmations.isPending)
        #expect(try test.write() == ["laptop": 5])
    }
}
