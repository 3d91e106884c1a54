import Testing

@testable import GroupStoreAgent

@Suite struct PollingThrottleTests {
    /// The pauses after so many rounds, each of whose events were waited for that long.
    private func pauses(_ pace: inout PollingThrottle, _ rounds: Int, _ waited: Duration) -> [Duration] {
        (0..<rounds).compactMap { _ in pace.rest(afterWaiting: waited, isBacklogged: false) }
    }

    @Test func aWriterWithoutRestIsLookedAtInPauses() {
        var pace = PollingThrottle()
        #expect(pauses(&pace, 64, .microseconds(50)).isEmpty)
        let found = pauses(&pace, 300, .microseconds(1))
        #expect(found.count == 300)
        #expect(found.first == .milliseconds(3) && found.last == .milliseconds(5))
        // Held up for a moment, it is itself again soon.
        #expect(pauses(&pace, 1, .milliseconds(2)).isEmpty)
        #expect(pauses(&pace, 16, .zero).count == 8)
        // At rest, the next commit and those after it are told at once.
        #expect(pauses(&pace, 1, .milliseconds(20)).isEmpty)
        #expect(pauses(&pace, 64, .zero).isEmpty)
    }

    @Test func commitsWithTimeBetweenThemAreToldAtOnce() {
        var pace = PollingThrottle()
        #expect(pauses(&pace, 10_000, .microseconds(200)).isEmpty)
        // Looks that were due bring nothing, and are no rest either.
        for _ in 0..<1000 {
            pace.waited(.microseconds(50))
            pace.waited(.microseconds(100))
            #expect(pauses(&pace, 1, .microseconds(50)).isEmpty)
        }
    }

    @Test func aBacklogIsTakenInWithoutAPause() {
        var pace = PollingThrottle()
        for _ in 0..<1000 { #expect(pace.rest(afterWaiting: .zero, isBacklogged: true) == nil) }
    }
}
