import Testing

@testable import ChangeFeed

@Suite struct PollDelayTests {
    @Test func delaysGrowWithTheTime() {
        var delay = PollDelay()
        var all = Duration.zero
        var polls = 0
        while all < .seconds(3600) {
            all += delay.next()
            polls += 1
        }
        #expect(polls < 300)
        #expect(delay.next() == .seconds(15))
    }

    /// A new commit is found soon, however long its transaction was open.
    @Test func anEventShortensTheDelay() {
        var delay = PollDelay()
        for _ in 1...60 { _ = delay.next() }
        delay.recordEvent()
        #expect(delay.next() == .milliseconds(1))
        var all = Duration.milliseconds(1)
        while all < .seconds(3) {
            let next = delay.next()
            #expect(next <= max(.milliseconds(20), all / 4))
            all += next
        }
    }

    /// A program that writes continuously under an exclusive lock still uses up the patience.
    @Test func anEventDoesNotExtendPatience() {
        var delay = PollDelay()
        var polls = 0
        while delay.nextWithin(.milliseconds(500)) != nil {
            delay.recordEvent()
            polls += 1
            guard polls < 1000 else { break }
        }
        #expect(polls < 1000)
        #expect(!delay.isFresh)
    }
}
