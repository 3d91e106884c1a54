import LinuxSystem
import SystemPackage
import Testing

@testable import FileCoordination

@Suite struct ClaimStateTests {
    private let notes = ClaimedItem(container: "g", path: "Notes")
    private let holder = FileHolder(pid: 7, program: "app")

    private func claimState(_ presenters: UInt64...) -> ClaimState {
        var claimState = ClaimState()
        for presenter in presenters { _ = claimState.add(presenter, presenting: notes, holder: holder) }
        return claimState
    }

    private var writing: [ClaimIntent] { [ClaimIntent(notes, .write([]))] }

    @Test func settlesAClaimWithoutPresentersAtOnce() {
        var claimState = claimState()
        #expect(claimState.begin(1, writing, excluding: nil) == [.settled(1, nil)])
    }

    @Test func settlesWithTheLastAnswer() throws {
        var claimState = claimState(2, 3)
        #expect(
            claimState.begin(1, writing, excluding: nil) == [
                .request(2, 1, .relinquish(.writer)), .request(3, 1, .relinquish(.writer)),
            ])
        #expect(try claimState.answer(3, claim: 1, .relinquish(.writer), failure: nil) == [])
        #expect(claimState.unanswered(1) == [holder])
        #expect(try claimState.answer(2, claim: 1, .relinquish(.writer), failure: nil) == [.settled(1, nil)])
    }

    @Test func sendsRequestsOneAtATime() throws {
        var claimState = claimState(2)
        let intents = [ClaimIntent(notes, .read([]))]
        #expect(claimState.begin(1, intents, excluding: nil) == [.request(2, 1, .save)])
        #expect(try claimState.answer(2, claim: 1, .save, failure: nil) == [.request(2, 1, .relinquish(.reader))])
    }

    @Test func refusesAnUnexpectedAnswer() throws {
        var claimState = claimState(2, 3)
        _ = claimState.begin(1, writing, excluding: 3)
        // Of the claimant itself, of another kind, for another claim, and a second time.
        #expect(throws: ClaimState.UnexpectedAnswer.self) {
            try claimState.answer(3, claim: 1, .relinquish(.writer), failure: nil)
        }
        #expect(throws: ClaimState.UnexpectedAnswer.self) { try claimState.answer(2, claim: 1, .save, failure: nil) }
        #expect(throws: ClaimState.UnexpectedAnswer.self) {
            try claimState.answer(2, claim: 9, .relinquish(.writer), failure: nil)
        }
        #expect(try claimState.answer(2, claim: 1, .relinquish(.writer), failure: nil) == [.settled(1, nil)])
        #expect(throws: ClaimState.UnexpectedAnswer.self) {
            try claimState.answer(2, claim: 1, .relinquish(.writer), failure: nil)
        }
    }

    @Test func doesNotWaitForARemovedPresenter() {
        var claimState = claimState(2)
        _ = claimState.begin(1, writing, excluding: nil)
        #expect(claimState.remove(2) == [.settled(1, nil)])
        #expect(claimState.end(1, .init(tookPlace: true)) == [])
    }

    @Test func refusesForARemovedPresenterThatMayHaveItsItem() {
        var claimState = claimState(2, 3)
        _ = claimState.begin(1, writing, excluding: nil)
        let refusal = ClaimState.Refusal(presenter: holder, message: "gone")
        #expect(claimState.remove(2, failure: "gone") == [.settled(1, refusal)])
        // Nobody is asked or waited for any more.
        #expect(claimState.remove(3, failure: "gone") == [])
        #expect(claimState.end(1, .init(tookPlace: false)) == [])
    }

    @Test func reacquiresAfterAFailure() throws {
        var claimState = claimState(2, 3)
        _ = claimState.begin(1, writing, excluding: nil)
        let refusal = ClaimState.Refusal(presenter: holder, message: "no")
        #expect(try claimState.answer(2, claim: 1, .relinquish(.writer), failure: "no") == [.settled(1, refusal)])
        #expect(throws: ClaimState.UnexpectedAnswer.self) {
            try claimState.answer(3, claim: 1, .relinquish(.writer), failure: nil)
        }
        #expect(claimState.end(1, .init(tookPlace: false)) == [.notify(2, 1, .reacquire), .notify(3, 1, .reacquire)])
    }

    /// A presenter that hasn't answered in time may still relinquish, and must then be notified to reacquire.
    @Test func notifiesALatePresenterToReacquire() {
        var claimState = claimState(2)
        _ = claimState.begin(1, writing, excluding: nil)
        #expect(claimState.end(1, .init(tookPlace: false)) == [.notify(2, 1, .reacquire)])
    }

    @Test func makesANewPresenterWaitForTheClaim() {
        var claimState = claimState()
        _ = claimState.begin(1, writing, excluding: nil)
        #expect(claimState.add(2, presenting: notes, holder: holder) == [1])
        #expect(claimState.add(3, presenting: ClaimedItem(container: "g", path: "Other"), holder: holder) == [])
        #expect(
            claimState.end(1, .init(tookPlace: true)) == [.notify(2, 1, .didChange(nil)), .notify(2, 1, .reacquire)])
    }

    @Test func reportsAndFollowsMoves() {
        var claimState = claimState(2)
        let new = ClaimedItem(container: "g", path: "New")
        _ = claimState.begin(1, [ClaimIntent(notes, .write(.forMoving))], excluding: nil)
        let actions = claimState.end(1, .init(tookPlace: true, moves: [.init(from: notes, to: new)]))
        #expect(actions.first == .notify(2, 1, .didMove(to: new, subitem: nil)))
        #expect(actions.last == .notify(2, 1, .reacquire))
        #expect(claimState.item(of: 2) == new)
    }

    /// Two items swap their names by way of a third: each presenter ends where its item does.
    @Test func followsChainedMoves() {
        var claimState = claimState(2)
        let other = ClaimedItem(container: "g", path: "Other")
        let between = ClaimedItem(container: "g", path: "Between")
        _ = claimState.add(3, presenting: other, holder: holder)
        _ = claimState.begin(1, [notes, other].map { ClaimIntent($0, .write(.forMoving)) }, excluding: nil)
        let moves = [(notes, between), (other, notes), (between, other)].map {
            ClaimState.Outcome.Move(from: $0, to: $1)
        }
        let actions = claimState.end(1, .init(tookPlace: true, moves: moves))
        #expect(
            actions == [
                .notify(2, 1, .didMove(to: between, subitem: nil)), .notify(2, 1, .didMove(to: other, subitem: nil)),
                .notify(2, 1, .didChange(nil)), .notify(2, 1, .reacquire),
                .notify(3, 1, .didMove(to: notes, subitem: nil)), .notify(3, 1, .didChange(nil)),
                .notify(3, 1, .reacquire),
            ])
        #expect(claimState.item(of: 2) == other)
        #expect(claimState.item(of: 3) == notes)
    }

    /// A directory's presenter is told of a changed item by the name that it has afterwards.
    @Test func namesAMovedSubitemByItsNewPlace() {
        let directory = ClaimedItem(container: "g", path: "dir")
        let (old, new) = (ClaimedItem(container: "g", path: "dir/a"), ClaimedItem(container: "g", path: "dir/b"))
        let outside = ClaimedItem(container: "g", path: "c")
        func notices(_ moves: [(ClaimedItem, ClaimedItem)], _ item: ClaimedItem) -> [PresenterNotice] {
            let moves = moves.map { ClaimState.Outcome.Move(from: $0, to: $1) }
            return ClaimState.notices(of: moves, [ClaimIntent(item, .write(.forMoving))], to: directory)
        }
        #expect(notices([(old, new)], old) == [.didMove(to: new, subitem: old), .didChange(new)])
        #expect(notices([(old, outside)], old) == [.didMove(to: outside, subitem: old)])
        #expect(notices([(outside, new)], outside) == [.didChange(new)])
        let renamed = ClaimedItem(container: "g", path: "folder")
        let inside = ClaimedItem(container: "g", path: "folder/a")
        #expect(notices([(directory, renamed)], old) == [.didMove(to: renamed, subitem: nil), .didChange(inside)])
    }
}
