import DirectoryWatching
import Testing

@testable import GroupStoreAgent

@Suite struct ArrivalTrackerTests {
    private let start = ContinuousClock.now

    private func arrival() -> ArrivalTracker { ArrivalTracker(settle: .seconds(1)) }

    private func after(_ milliseconds: Int) -> ContinuousClock.Instant {
        start.advanced(by: .milliseconds(milliseconds))
    }

    @Test func absentStoreIsNeverWhole() {
        #expect(!arrival().isWhole(at: after(100_000)))
    }

    @Test func oldStoreIsWholeAtOnce() {
        var arrival = arrival()
        arrival.start(age: .seconds(60), at: start)
        #expect(arrival.isWhole(at: start))
    }

    @Test func youngStoreWaitsForTheSettleTime() {
        var arrival = arrival()
        arrival.start(age: .milliseconds(300), at: start)
        #expect(!arrival.isWhole(at: after(600)))
        #expect(arrival.isWhole(at: after(700)))
    }

    @Test func storeMovedInWaitsForItsWAL() {
        var arrival = arrival()
        arrival.record(.database, .movedIn, at: start, isOpen: { false })
        arrival.record(.wal, .movedIn, at: after(900), isOpen: { false })
        #expect(!arrival.isWhole(at: after(1000)))
        #expect(arrival.isWhole(at: after(1900)))
    }

    @Test func copySettlesFromItsLastClose() {
        var arrival = arrival()
        arrival.record(.database, .created, at: start, isOpen: { true })
        arrival.record(.database, .closedAfterWriting, at: after(5000), isOpen: { false })
        #expect(!arrival.isWhole(at: after(5500)))
        arrival.record(.wal, .created, at: after(5600), isOpen: { false })
        arrival.record(.wal, .closedAfterWriting, at: after(5900), isOpen: { false })
        #expect(!arrival.isWhole(at: after(6800)))
        #expect(arrival.isWhole(at: after(6900)))
    }

    @Test func storeMadeByAProgramSettlesFromItsCreation() {
        var arrival = arrival()
        arrival.record(.database, .created, at: start, isOpen: { true })
        arrival.record(.journal, .created, at: after(1), isOpen: { true })
        arrival.record(.journal, .deleted, at: after(2), isOpen: { true })
        arrival.record(.database, .closedAfterWriting, at: after(3000), isOpen: { false })
        #expect(arrival.isWhole(at: after(3000)))
    }

    @Test func sideFilesOfAStoreInUseDoNotDelayIt() {
        var arrival = arrival()
        arrival.record(.database, .movedIn, at: start, isOpen: { false })
        arrival.record(.journal, .created, at: after(900), isOpen: { true })
        #expect(arrival.isWhole(at: after(1000)))
    }

    @Test func removedStoreIsAbsent() {
        var arrival = arrival()
        arrival.record(.database, .movedIn, at: start, isOpen: { false })
        arrival.record(.database, .movedOut, at: after(10), isOpen: { false })
        #expect(arrival.wholeAt == nil)
    }

    @Test func hardLinkIsWholeWithoutAClose() {
        var arrival = arrival()
        arrival.record(.database, .created, at: start, isOpen: { false })
        #expect(arrival.isWhole(at: after(1000)))
    }
}
