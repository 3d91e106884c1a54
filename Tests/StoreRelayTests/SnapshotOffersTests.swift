import AgentProtocol
import PersistentHistory
import TestSupport
import Testing

@testable import StoreRelay

/// Which snapshots a home offers, and which ones a follower takes.
@Suite struct SnapshotOffersTests {
    private let start = ContinuousClock.now

    private func token(_ number: Int, history: String = "abc") throws -> HistoryToken {
        try #require(HistoryToken("h1.\(history).\(number).ff"))
    }

    private func request(
        _ have: HistoryToken?, _ reason: SnapshotRequest.Reason, by follower: String = "laptop"
    ) -> SnapshotRequest {
        SnapshotRequest(follower: follower, have: have, reason: reason)
    }

    private func seconds(_ number: Double) -> ContinuousClock.Instant { start.advanced(by: .seconds(number)) }

    /// A snapshot up to the change 836 is kept since the start.
    private func kept() throws -> SnapshotOffers {
        var offers = SnapshotOffers()
        offers.add("old", upto: try token(836), begun: start, made: seconds(0.1))
        return offers
    }

    @Test func aKeptSnapshotServesAFollowerThatHasLess() throws {
        var offers = try kept()
        #expect(offers.offer(to: request(nil, .first), at: seconds(5)) == "old")
        #expect(offers.offer(to: SnapshotRequest(follower: nil, have: nil, reason: nil), at: seconds(5)) == "old")
        #expect(offers.offer(to: request(try token(835), .gap), at: seconds(5)) == "old")
        #expect(offers.offer(to: request(try token(9000, history: "def"), .otherHistory), at: seconds(5)) == "old")
        #expect(!offers.needsAnother(at: seconds(5)))
        #expect(offers.offer(to: request(nil, .first), at: seconds(61)) == nil)
        #expect(offers.needsAnother(at: seconds(61)))
    }

    @Test(arguments: [SnapshotRequest.Reason.gap, .schemaChanged, .otherHistory, .damaged], [836, 2178])
    func aKeptSnapshotThatDoesNotHelpIsNotOffered(reason: SnapshotRequest.Reason, have: Int) throws {
        var offers = try kept()
        let request = request(try token(have), reason)
        #expect(offers.offer(to: request, at: seconds(5)) == nil)
        #expect(offers.needsAnother(at: seconds(5)))
        // One that is made for it helps even if it leads no further.
        offers.add("new", upto: try token(have), begun: seconds(5), made: seconds(6))
        #expect(!offers.needsAnother(at: seconds(8)))
        #expect(offers.offer(to: request, at: seconds(8)) == "new")
        // It asks again: that one didn't help.
        #expect(offers.offer(to: request, at: seconds(9)) == nil)
        #expect(offers.needsAnother(at: seconds(9)))
    }

    @Test func theOtherLineOfARestoredHomeIsNotWhatIsKept() throws {
        var offers = try kept()
        #expect(offers.offer(to: request(try token(500), .otherHistory), at: seconds(5)) == nil)
    }

    @Test func aSnapshotBeforeAGapIsWithdrawn() throws {
        var offers = try kept()
        #expect(offers.tokens == ["old": try token(836)])
        offers.withdraw("old")
        #expect(offers.tokens.isEmpty)
        #expect(offers.offer(to: request(nil, .first), at: seconds(5)) == nil)
        #expect(offers.needsAnother(at: seconds(5)))
    }

    @Test func followersThatWaitShareASnapshot() throws {
        var offers = try kept()
        let have = try token(2000)
        let requests = ["a", "b", "c"].map { self.request(have, .schemaChanged, by: $0) }
        for asked in requests { #expect(offers.offer(to: asked, at: seconds(5)) == nil) }
        offers.add("new", upto: try token(2000), begun: seconds(6), made: seconds(7))
        for asked in requests { #expect(offers.offer(to: asked, at: seconds(8)) == "new") }
        #expect(!offers.needsAnother(at: seconds(10)))
    }

    @Test func requestsDoNotKeepAHomeBusyWithSnapshots() throws {
        var offers = SnapshotOffers()
        offers.add("long", upto: try token(1), begun: start, made: seconds(30))
        #expect(offers.offer(to: request(try token(1), .gap), at: seconds(31)) == nil)
        #expect(!offers.needsAnother(at: seconds(89)))
        #expect(offers.offer(to: request(try token(1), .gap), at: seconds(89)) == nil)
        #expect(offers.needsAnother(at: seconds(91)))
        #expect(!offers.needsAnother(at: seconds(300)), "nobody asks any more")
    }

    /// The home's disk holds two at most, whatever is asked for.
    @Test func twoSnapshotsAreKeptAtATime() throws {
        var offers = try kept()
        let room = offers.makeRoom(at: seconds(1))
        #expect(room == [])
        offers.add("new", upto: try token(900), begun: seconds(1), made: seconds(2))
        let wait = offers.makeRoom(at: seconds(3))
        #expect(wait == nil, "both may be received at the moment")
        offers.use("old", at: seconds(20))
        let one = offers.makeRoom(at: seconds(33))
        #expect(one == ["new"], "nobody has asked for it for half a minute")
        #expect(offers.tokens == ["old": try token(836)])
    }

    @Test func aSnapshotInUseEndsWithItsLifetime() throws {
        var offers = SnapshotOffers()
        offers.add("small", upto: try token(1), size: 1 << 20, begun: start, made: start)
        offers.add("large", upto: try token(1), size: 1 << 30, begun: start, made: start)
        var removed: [String] = []
        for second in stride(from: 0.0, through: 3700, by: 10) {
            for id in ["small", "large"] { offers.use(id, at: seconds(second)) }
            removed += offers.removeExpired(at: seconds(second))
        }
        #expect(removed == ["small"])
        #expect(SnapshotOffers.lifetime(size: 1 << 30) == .seconds(3600 + 4096))
        let unused = offers.removeExpired(at: seconds(4400))
        #expect(unused == ["large"])
    }

    @Test func aFailureIsNotRepeatedAtOnce() throws {
        var offers = SnapshotOffers()
        #expect(offers.offer(to: request(nil, .first), at: seconds(0)) == nil)
        #expect(offers.needsAnother(at: seconds(0)))
        offers.noteFailure(begun: seconds(0), ended: seconds(4))
        #expect(!offers.needsAnother(at: seconds(11)))
        #expect(offers.needsAnother(at: seconds(13)))
    }

    @Test func aRequestSurvivesTheMessage() throws {
        let request = request(try token(5), .schemaChanged)
        let text = request.object(nonce: "5e2f").text
        #expect(
            text
                == #"{"op":"begin","nonce":"5e2f","follower":"laptop","have":"h1.abc.5.ff","reason":"schema_changed"}"#)
        guard case .object(let object) = try JSONValue(parsing: Array(text.utf8)) else {
            Issue.record("the request is no object")
            return
        }
        #expect(SnapshotRequest(object) == request)
        let other = SnapshotRequest(["op": "begin", "follower": "a.b", "have": "x", "reason": "y"])
        #expect(other == SnapshotRequest(follower: nil, have: nil, reason: nil))
    }

    @Test(arguments: [SnapshotRequest.Reason.gap, .schemaChanged, .damaged])
    func aFollowerNeverGoesBackOnItsLine(reason: SnapshotRequest.Reason) throws {
        let request = request(try token(2178), reason)
        #expect(throws: RelayError.self) { try request.check(try token(836)) }
        try request.check(try token(2178))
        try request.check(try token(836, history: "def"))
        try self.request(try token(2178), .otherHistory).check(try token(836))
        try self.request(nil, .first).check(try token(836))
    }

    /// Only who suspects that something was lost is content with what the home has published.
    @Test func onlyDamageEndsWithoutASnapshot() throws {
        for reason in [SnapshotRequest.Reason.first, .gap, .otherHistory, .schemaChanged] {
            #expect(!request(try token(1), reason).acceptsCurrent)
        }
        #expect(request(try token(1), .damaged).acceptsCurrent)
        #expect(SnapshotRequest(follower: nil, have: try token(1), reason: nil).acceptsCurrent)
    }
}
