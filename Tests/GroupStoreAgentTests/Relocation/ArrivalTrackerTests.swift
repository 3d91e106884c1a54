import DirectoryWatching
import Testing

@testable import GroupStoreAgent

@Suite struct ArrivalTrackerTests {
    private let start = ContinuousClock.now

    private func arrival() -> ArrivalTracker { ArrivalTracker(settle: .seconds(1)) }

    private func after(_ milliseconds: Int) -> ContinuousClock.Instant {
        start.advanced(by: .milliseconds(milliseconds))
    }

    @Test func nothingIsNeverWhole() {
        #expect(!arrival().isWhole(at: after(100_000)))
    }

    @Test func anOldStoreIsWholeAtOnce() {
        var arrival = arrival()
        arrival.found(age: .seconds(60), at: start)
        #expect(arrival.isWhole(at: start))
    }

    @Test func aYoungStoreWaitsForTheRest() {
        var arrival = arrival()
        arrival.found(age: .milliseconds(300), at: start)
        #expect(!arrival.isWhole(at: after(600)))
        #expect(arrival.isWhole(at: after(700)))
    }

    @Test func aStoreMovedInWaitsForItsLog() {
        var arrival = arrival()
        arrival.note(.database, .movedIn, at: start, isOpen: { false })
        arrival.note(.wal, .movedIn, at: after(900), isOpen: { false })
        #expect(!arrival.isWhole(at: after(1000)))
        #expect(arrival.isWhole(at: after(1900)))
    }

    @Test func aCopyCountsFromItsEnd() {
        var arrival = arrival()
        arrival.note(.database, .created, at: start, isOpen: { true })
        arrival.note(.database, .closedAfterWriting, at: after(5000), isOpen: { false })
        #expect(!arrival.isWhole(at: after(5500)))
        arrival.note(.wal, .created, at: after(5600), isOpen: { false })
        arrival.note(.wal, .closedAfterWriting, at: after(5900), isOpen: { false })
        #expect(!arrival.isWhole(at: after(6800)))
        #expect(arrival.isWhole(at: after(6900)))
    }

    @Test func aProgramThatMadeItCountsFromItsBeginning() {
        var arrival = arrival()
        arrival.note(.database, .created, at: start, isOpen: { true })
        arrival.note(.journal, .created, at: after(1), isOpen: { true })
        arrival.note(.journal, .deleted, at: after(2), isOpen: { true })
        arrival.note(.database, .closedAfterWriting, at: after(3000), isOpen: { false })
        #expect(arrival.isWhole(at: after(3000)))
    }

    @Test func sideFilesOfAStoreInUseDoNotPutItOff() {
        var arrival = arrival()
        arrival.note(.database, .movedIn, at: start, isOpen: { false })
        arrival.note(.journal, .created, at: after(900), isOpen: { true })
        #expect(arrival.isWhole(at: after(1000)))
    }

    @Test func aStoreTakenAwayIsGone() {
        var arrival = arrival()
        arrival.note(.database, .movedIn, at: start, isOpen: { false })
        arrival.note(.database, .movedOut, at: after(10), isOpen: { false })
        #expect(arrival.wholeAt == nil)
    }

    @Test func aLinkIsWholeWithoutBeingClosed() {
        var arrival = arrival()
        arrival.note(.database, .created, at: start, isOpen: { false })
        #expect(arrival.isWhole(at: after(1000)))
    }
}
