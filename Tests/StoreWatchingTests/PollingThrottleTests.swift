import Testing

@testable import StoreWatching

@Suite struct PollingThrottleTests {
    /// Returns the pauses after `rounds` rounds, each with events after `waited`.
    private func pauses(_ throttle: inout PollingThrottle, rounds: Int, waited: Duration) -> [Duration] {
        (0..<rounds).compactMap { _ in throttle.pause(afterWaiting: waited, isBacklogged: false) }
    }

    @Test func pausesForABusyWriter() {
        var throttle = PollingThrottle()
        #expect(pauses(&throttle, rounds: 64, waited: .microseconds(50)).isEmpty)
        let found = pauses(&throttle, rounds: 300, waited: .microseconds(1))
        #expect(found.count == 300)
        #expect(found.first == .milliseconds(3) && found.last == .milliseconds(5))
        // After a short delay it soon counts as busy again.
        #expect(pauses(&throttle, rounds: 1, waited: .milliseconds(2)).isEmpty)
        #expect(pauses(&throttle, rounds: 16, waited: .zero).count == 8)
        // After an idle time, the next commits are published at once.
        #expect(pauses(&throttle, rounds: 1, waited: .milliseconds(20)).isEmpty)
        #expect(pauses(&throttle, rounds: 64, waited: .zero).isEmpty)
    }

    @Test func doesNotPauseForSpacedCommits() {
        var throttle = PollingThrottle()
        #expect(pauses(&throttle, rounds: 10_000, waited: .microseconds(200)).isEmpty)
        // Scheduled polls find nothing, and don't count as idle time either.
        for _ in 0..<1000 {
            throttle.recordIdleRound(.microseconds(50))
            throttle.recordIdleRound(.microseconds(100))
            #expect(pauses(&throttle, rounds: 1, waited: .microseconds(50)).isEmpty)
        }
    }

    @Test func doesNotPauseWithABacklog() {
        var throttle = PollingThrottle()
        for _ in 0..<1000 { #expect(throttle.pause(afterWaiting: .zero, isBacklogged: true) == nil) }
    }
}
