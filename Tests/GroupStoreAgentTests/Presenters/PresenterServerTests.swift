import AgentProtocol
import FileCoordination
import Glibc
import LinuxSystem
import Synchronization
import TestSupport
import Testing

@testable import GroupStoreAgent

/// Presenters and claims over a real socket: presenters that come, go, hang, lie and answer late.
@Suite(.timeLimit(.minutes(60))) struct PresenterServerTests {
    let server: RunningServer
    let notes = "group.example/Notes.sqlite"

    init() throws { server = try RunningServer() }

    /// Returns a connection that presents the item, past its hello, and the presenter's number.
    private func presenting(_ item: String = "group.example/Notes.sqlite") throws -> (TestClient, String) {
        let client = try server.connect()
        let reply = try client.ask(#"{"id":1,"op":"present","store":"\#(item)","pid":\#(getpid())}"#, id: 1)
        guard reply.bool("ok") == true, let number = reply.string("presenter") else { throw Unexpected(reply.text) }
        return (client, number)
    }

    private func claiming(_ deadline: Double = 30) throws -> TestClient {
        let client = try server.connect()
        try client.send(
            #"{"id":5,"op":"claim","store":"\#(notes)","access":"write","deadline":\#(deadline)}"# + "\n")
        return client
    }

    private func next(_ client: TestClient, _ type: String) throws -> JSONObject {
        while let line = try client.next() { if line.string("type") == type { return line } }
        throw Unexpected("the connection ended before \(type)")
    }

    private func reply(_ client: TestClient) throws -> JSONObject {
        while let line = try client.next() { if line["id"] == 5, line["ok"] != nil { return line } }
        throw Unexpected("the connection ended before the reply")
    }

    @Test func asksAPresenterAndNotifiesItOfTheEnd() throws {
        let (presenter, number) = try presenting()
        let claimant = try claiming()
        let asked = try next(presenter, "relinquish")
        #expect(asked.string("store") == notes)
        #expect(asked.string("presenter") == number)
        #expect(asked.string("to") == "writer")
        #expect(asked.seconds("deadline") ?? 0 > 25)
        let claim = try #require(asked.string("claim"))
        #expect(try presenter.ask(#"{"id":2,"op":"relinquished","claim":"\#(claim)"}"#, id: 2).bool("ok") == true)
        #expect(try reply(claimant).string("claim") == claim)
        #expect(try claimant.ask(#"{"id":6,"op":"release","claim":"\#(claim)"}"#, id: 6).bool("ok") == true)
        #expect(try next(presenter, "did_change").string("claim") == claim)
        #expect(try next(presenter, "reacquire").string("path")?.hasSuffix("Notes.sqlite") == true)
        // Nothing is left of either.
        #expect(try claimant.ask(#"{"id":7,"op":"release","claim":"\#(claim)"}"#, id: 7).bool("ok") == false)
    }

    @Test func asksForSavingAndDeletion() throws {
        let (presenter, _) = try presenting()
        let claimant = try server.connect()
        try claimant.send(
            #"{"id":5,"op":"claim","intents":[{"store":"\#(notes)","access":"read"},{"store":"\#(notes)","access":"write","options":["for_deleting"]}]}"#
                + "\n")
        for (type, answer) in [
            ("save", "saved"), ("relinquish", "relinquished"), ("relinquish", "relinquished"),
            ("accommodate_deletion", "accommodated"),
        ] {
            let claim = try next(presenter, type).string("claim") ?? ""
            // The next question may come before the answer's own reply.
            try presenter.send(#"{"op":"\#(answer)","claim":"\#(claim)"}"# + "\n")
        }
        #expect(try reply(claimant).bool("ok") == true)
    }

    @Test func failingPresenterFailsTheClaim() throws {
        let (presenter, _) = try presenting()
        let claimant = try claiming()
        let claim = try next(presenter, "relinquish").string("claim") ?? ""
        _ = try presenter.ask(#"{"id":2,"op":"relinquished","claim":"\#(claim)","error":"a dialog is open"}"#, id: 2)
        let error = try #require(try reply(claimant).object("error"))
        #expect(error.string("code") == "presenter_failed")
        #expect(error.string("message")?.contains("a dialog is open") == true)
        // The presenter, like every other that let go, is notified of the end.
        #expect(try next(presenter, "reacquire").string("claim") == claim)
    }

    @Test func namesAHangingPresenterAtTheDeadline() throws {
        let (presenter, _) = try presenting()
        let started = ContinuousClock.now
        let claimant = try claiming(0.2)
        let error = try #require(try reply(claimant).object("error"))
        #expect(started.duration(to: .now) < .seconds(8))
        #expect(error.string("code") == "busy")
        guard case .array(let holders)? = error["holders"], case .object(let holder)? = holders.first else {
            throw Unexpected(error.text)
        }
        #expect(holder.integer("pid") == Int64(getpid()))
        // A late answer: nothing remains to be done, and the presenter is told to reacquire its item.
        let claim = try next(presenter, "relinquish").string("claim") ?? ""
        let late = try presenter.ask(#"{"id":2,"op":"relinquished","claim":"\#(claim)"}"#, id: 2)
        #expect(late.object("error")?.string("code") == "unknown_claim")
    }

    @Test func refusesAnAnswerForAnotherPresenter() throws {
        let (presenter, _) = try presenting()
        let (liar, lying) = try presenting("group.example/Other.sqlite")
        let claimant = try claiming()
        let asked = try next(presenter, "relinquish")
        let (claim, number) = (asked.string("claim") ?? "", asked.string("presenter") ?? "")
        for words in [
            #""claim":"\#(claim)""#, #""claim":"\#(claim)","presenter":"\#(number)""#,
            #""claim":"\#(claim)","presenter":"\#(lying)""#, #""claim":"c999""#,
        ] {
            let refused = try liar.ask(#"{"id":2,"op":"relinquished",\#(words)}"#, id: 2)
            #expect(refused.object("error")?.string("code") == "unknown_claim")
        }
        #expect(try liar.ask(#"{"id":3,"op":"release","claim":"\#(claim)"}"#, id: 3).bool("ok") == false)
        #expect(try liar.ask(#"{"id":4,"op":"unpresent","presenter":"\#(number)"}"#, id: 4).bool("ok") == false)
        // The claim still waits for the presenter that was asked.
        _ = try presenter.ask(#"{"id":2,"op":"relinquished","claim":"\#(claim)"}"#, id: 2)
        #expect(try reply(claimant).bool("ok") == true)
    }

    @Test func doesNotWaitForAPresenterThatLeaves() throws {
        let (presenter, number) = try presenting()
        let claimant = try claiming()
        _ = try next(presenter, "relinquish")
        _ = try presenter.ask(#"{"id":2,"op":"unpresent","presenter":"\#(number)"}"#, id: 2)
        #expect(try reply(claimant).bool("ok") == true)
    }

    /// The process lives and may have the item open: it was about to say so. Half an answer, and one that is longer
    /// than a line, are none.
    @Test(arguments: ["", #"{"op":"relinquished","error":"#, String(repeating: "x", count: 40_000)])
    func aBrokenConnectionIsARefusal(_ last: String) throws {
        let (presenter, _) = try presenting()
        let (other, _) = try presenting()
        let claimant = try claiming()
        let claim = try next(other, "relinquish").string("claim")
        _ = try next(presenter, "relinquish")
        try presenter.send(last)
        presenter.endSending()
        let error = try #require(try reply(claimant).object("error"))
        #expect(error.string("code") == "presenter_failed")
        // The other presenter gets its item back.
        #expect(try next(other, "reacquire").string("claim") == claim)
        // Nobody presents with that connection any more.
        let second = try claiming()
        _ = try other.ask(
            #"{"id":2,"op":"relinquished","claim":"\#(try next(other, "relinquish").string("claim") ?? "")"}"#, id: 2)
        #expect(try reply(second).bool("ok") == true)
    }

    @Test func endsTheClaimOfADeadClaimant() throws {
        let (presenter, _) = try presenting()
        let claimant = try claiming()
        let claim = try next(presenter, "relinquish").string("claim") ?? ""
        _ = try presenter.ask(#"{"id":2,"op":"relinquished","claim":"\#(claim)"}"#, id: 2)
        _ = try reply(claimant)
        claimant.endSending()
        #expect(try next(presenter, "reacquire").string("claim") == claim)
    }

    @Test func newPresenterWaitsForARunningClaim() throws {
        let claimant = try claiming()
        let claim = try reply(claimant).string("claim") ?? ""
        let late = try server.connect()
        let answer = try late.ask(#"{"id":1,"op":"present","store":"\#(notes)"}"#, id: 1)
        #expect(answer["waits_for"] == .array([.string(claim)]))
        _ = try claimant.ask(#"{"id":6,"op":"release","claim":"\#(claim)","took_place":false}"#, id: 6)
        #expect(try next(late, "reacquire").string("claim") == claim)
    }

    @Test func notifiesPresentersOfMoves() throws {
        let (presenter, _) = try presenting()
        let claimant = try claiming()
        let claim = try next(presenter, "relinquish").string("claim") ?? ""
        _ = try presenter.ask(#"{"id":2,"op":"relinquished","claim":"\#(claim)"}"#, id: 2)
        _ = try reply(claimant)
        _ = try claimant.ask(
            #"{"id":6,"op":"release","claim":"\#(claim)","moves":[{"from":"\#(notes)","to":"group.example/New.sqlite"}]}"#,
            id: 6)
        #expect(try next(presenter, "did_move").string("to") == "group.example/New.sqlite")
    }

    @Test func takesMovesOfSeveralRequests() throws {
        let (presenter, _) = try presenting()
        let claimant = try claiming()
        let claim = try next(presenter, "relinquish").string("claim") ?? ""
        _ = try presenter.ask(#"{"id":2,"op":"relinquished","claim":"\#(claim)"}"#, id: 2)
        _ = try reply(claimant)
        let move = { (from: String, to: String) in #"[{"from":"group.example/\#(from)","to":"group.example/\#(to)"}]"# }
        _ = try claimant.ask(
            #"{"id":6,"op":"release","claim":"\#(claim)","moves":\#(move("Notes.sqlite", "A")),"more":true}"#, id: 6)
        _ = try claimant.ask(#"{"id":7,"op":"release","claim":"\#(claim)","moves":\#(move("A", "B"))}"#, id: 7)
        #expect(try next(presenter, "did_move").string("to") == "group.example/A")
        #expect(try next(presenter, "did_move").string("to") == "group.example/B")
    }

    @Test(arguments: [
        (#"{"id":9,"op":"present","store":"nobody/Notes"}"#, "unknown_store"),
        (#"{"id":9,"op":"present","store":"group.example/../x"}"#, "bad_request"),
        (#"{"id":9,"op":"present"}"#, "bad_request"),
        (#"{"id":9,"op":"unpresent","presenter":"p77"}"#, "unknown_presenter"),
        (#"{"id":9,"op":"unpresent","presenter":"c1"}"#, "bad_request"),
        (#"{"id":9,"op":"saved","claim":"c1"}"#, "unknown_claim"),
        (#"{"id":9,"op":"saved"}"#, "bad_request"),
        (#"{"id":9,"op":"claim","store":"group.example/N","access":"look"}"#, "bad_request"),
        (#"{"id":9,"op":"claim","store":"group.example/N","access":"write","options":["for_fun"]}"#, "bad_request"),
        (#"{"id":9,"op":"claim","intents":[]}"#, "bad_request"),
        (#"{"id":9,"op":"claim","store":"group.example/N","access":"read","deadline":-1}"#, "bad_request"),
        (#"{"id":9,"op":"claim","store":"group.example/N","access":"read","presenter":"p1"}"#, "unknown_presenter"),
        (#"{"id":9,"op":"release","claim":"c5"}"#, "unknown_claim"),
    ])
    func refusesInvalidRequests(_ line: String, _ code: String) throws {
        let client = try server.connect()
        let answer = try client.ask(line, id: 9)
        #expect(answer.object("error")?.string("code") == code, "\(answer.text)")
    }

    @Test func limitsPresentersPerConnection() throws {
        let client = try server.connect()
        for number in 1...PresenterServer.maximumPresenters {
            let id = JSONValue.integer(Int64(number))
            #expect(try client.ask(#"{"id":\#(number),"op":"present","store":"\#(notes)"}"#, id: id).bool("ok") == true)
        }
        let refused = try client.ask(#"{"id":999,"op":"present","store":"\#(notes)"}"#, id: 999)
        #expect(refused.object("error")?.string("code") == "too_many_presenters")
    }
}
