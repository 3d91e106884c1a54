import LinuxSystem
import Testing

@Suite struct BackoffTests {
    @Test func doublesUpToTheLongestDelay() {
        var backoff = Backoff(first: .milliseconds(20), longest: .milliseconds(100))
        let delays = (0..<5).map { _ in backoff.next() }
        #expect(delays == [20, 40, 80, 100, 100].map { .milliseconds($0) })
    }

    @Test func startsOverAfterAReset() {
        var backoff = Backoff(first: .seconds(1), longest: .seconds(300))
        for _ in 0..<20 { _ = backoff.next() }
        backoff.reset()
        #expect(backoff.next() == .seconds(1))
        #expect(backoff.next() == .seconds(2))
    }

    @Test func neverLengthensADelayThatIsShortened() {
        var backoff = Backoff(first: .milliseconds(1), longest: .milliseconds(20))
        backoff.shorten(to: .milliseconds(5))
        #expect(backoff.next() == .milliseconds(1))
        for _ in 0..<8 { _ = backoff.next() }
        backoff.shorten(to: .milliseconds(5))
        #expect(backoff.next() == .milliseconds(5))
        #expect(backoff.next() == .milliseconds(10))
    }

    @Test func randomizesWithinHalfOfTheDelay() {
        var backoff = Backoff(first: .microseconds(50), longest: .milliseconds(4), isRandomized: true)
        var seen: Set<Duration> = []
        for _ in 0..<200 {
            let limit = backoff.delay
            let delay = backoff.next()
            #expect(delay >= limit / 2 && delay <= limit)
            seen.insert(delay)
        }
        #expect(seen.count > 100)
        #expect(backoff.delay == .milliseconds(4))
    }
}
