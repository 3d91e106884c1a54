import LinuxSystem
import SystemPackage
import Testing

@testable import FileCoordination

@Suite struct ClaimStateTests {
    private let notes = ClaimedItem(container: "g", path: "Notes")
    private let holder = FileHolder(pid: 7, program: "app")

    private func board(_ presenters: UInt64...) -> ClaimState {
        var board = ClaimState()
        for presenter in presenters { _ = board.add(presenter, notes, holder) }
        return board
    }

    private var writing: [ClaimIntent] { [ClaimIntent(notes, .write([]))] }

    @Test func aClaimWithoutPresentersIsSettledAtOnce() {
        var board = board()
        #expect(board.begin(1, writing, own: nil) == [.settled(1, nil)])
    }

    @Test func itIsSettledByTheLastAnswer() throws {
        var board = board(2, 3)
        #expect(
            board.begin(1, writing, own: nil) == [.ask(2, 1, .relinquish(.writer)), .ask(3, 1, .relinquish(.writer))])
        #expect(try board.answer(3, 1, .relinquish(.writer), failure: nil) == [])
        #expect(board.unanswered(1) == [holder])
        #expect(try board.answer(2, 1, .relinquish(.writer), failure: nil) == [.settled(1, nil)])
    }

    @Test func thingsAreAskedOneAfterAnother() throws {
        var board = board(2)
        let intents = [ClaimIntent(notes, .read([]))]
        #expect(board.begin(1, intents, own: nil) == [.ask(2, 1, .save)])
        #expect(try board.answer(2, 1, .save, failure: nil) == [.ask(2, 1, .relinquish(.reader))])
    }

    @Test func anAnswerThatNobodyAskedForIsRefused() throws {
        var board = board(2, 3)
        _ = board.begin(1, writing, own: 3)
        // Of the claimant itself, of another kind, for another claim, a second time.
        #expect(throws: ClaimState.NotAsked.self) { try board.answer(3, 1, .relinquish(.writer), failure: nil) }
        #expect(throws: ClaimState.NotAsked.self) { try board.answer(2, 1, .save, failure: nil) }
        #expect(throws: ClaimState.NotAsked.self) { try board.answer(2, 9, .relinquish(.writer), failure: nil) }
        #expect(try board.answer(2, 1, .relinquish(.writer), failure: nil) == [.settled(1, nil)])
        #expect(throws: ClaimState.NotAsked.self) { try board.answer(2, 1, .relinquish(.writer), failure: nil) }
    }

    @Test func aPresenterThatDiesIsNotWaitedFor() {
        var board = board(2)
        _ = board.begin(1, writing, own: nil)
        #expect(board.remove(2) == [.settled(1, nil)])
        #expect(board.end(1, .init(tookPlace: true)) == [])
    }

    @Test func aFailureSettlesAndTheOthersTakeTheirItemBack() throws {
        var board = board(2, 3)
        _ = board.begin(1, writing, own: nil)
        let refusal = ClaimState.Refusal(presenter: holder, message: "no")
        #expect(try board.answer(2, 1, .relinquish(.writer), failure: "no") == [.settled(1, refusal)])
        #expect(throws: ClaimState.NotAsked.self) { try board.answer(3, 1, .relinquish(.writer), failure: nil) }
        #expect(board.end(1, .init(tookPlace: false)) == [.tell(2, 1, .reacquire), .tell(3, 1, .reacquire)])
    }

    /// Not answered in time: it may let go yet, and then must be told to take the item back.
    @Test func aLatePresenterIsToldToTakeItBack() {
        var board = board(2)
        _ = board.begin(1, writing, own: nil)
        #expect(board.end(1, .init(tookPlace: false)) == [.tell(2, 1, .reacquire)])
    }

    @Test func whoComesInTheMiddleWaitsForTheEnd() {
        var board = board()
        _ = board.begin(1, writing, own: nil)
        #expect(board.add(2, notes, holder) == [1])
        #expect(board.add(3, ClaimedItem(container: "g", path: "Other"), holder) == [])
        #expect(board.end(1, .init(tookPlace: true)) == [.tell(2, 1, .didChange(nil)), .tell(2, 1, .reacquire)])
    }

    @Test func movesAreToldAndFollowed() {
        var board = board(2)
        let new = ClaimedItem(container: "g", path: "New")
        _ = board.begin(1, [ClaimIntent(notes, .write(.forMoving))], own: nil)
        let actions = board.end(1, .init(tookPlace: true, moves: [.init(from: notes, to: new)]))
        #expect(actions.first == .tell(2, 1, .didMove(to: new, subitem: nil)))
        #expect(actions.last == .tell(2, 1, .reacquire))
        #expect(board.item(of: 2) == new)
    }

    /// Two items that change places go by way of a third name: each presenter ends where its item does.
    @Test func movesFollowOnEachOther() {
        var board = board(2)
        let other = ClaimedItem(container: "g", path: "Other")
        let between = ClaimedItem(container: "g", path: "Between")
        _ = board.add(3, other, holder)
        _ = board.begin(1, [notes, other].map { ClaimIntent($0, .write(.forMoving)) }, own: nil)
        let moves = [(notes, between), (other, notes), (between, other)].map {
            ClaimState.Outcome.Move(from: $0, to: $1)
        }
        let actions = board.end(1, .init(tookPlace: true, moves: moves))
        #expect(
            actions == [
                .tell(2, 1, .didMove(to: between, subitem: nil)), .tell(2, 1, .didMove(to: other, subitem: nil)),
                .tell(2, 1, .didChange(nil)), .tell(2, 1, .reacquire),
                .tell(3, 1, .didMove(to: notes, subitem: nil)), .tell(3, 1, .didChange(nil)), .tell(3, 1, .reacquire),
            ])
        #expect(board.item(of: 2) == other)
        #expect(board.item(of: 3) == notes)
    }
}
