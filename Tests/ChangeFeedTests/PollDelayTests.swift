import Testing

@testable import ChangeFeed

@Suite struct PollDelayTests {
    @Test func waitsGrowWithTheTime() {
        var delay = PollDelay()
        var all = Duration.zero
        var looks = 0
        while all < .seconds(3600) {
            all += delay.next()
            looks += 1
        }
        #expect(looks < 300)
        #expect(delay.next() == .seconds(15))
    }

    /// What was committed just now is found soon, however long the transaction was open before.
    @Test func anEventMakesThemShortAgain() {
        var delay = PollDelay()
        for _ in 1...60 { _ = delay.next() }
        delay.sawEvent()
        #expect(delay.next() == .milliseconds(1))
        var all = Duration.milliseconds(1)
        while all < .seconds(3) {
            let next = delay.next()
            #expect(next <= max(.milliseconds(20), all / 4))
            all += next
        }
    }

    /// A program that writes all the time and keeps everybody out does so for long, too.
    @Test func anEventDoesNotExtendPatience() {
        var delay = PollDelay()
        var looks = 0
        while delay.nextWithin(.milliseconds(500)) != nil {
            delay.sawEvent()
            looks += 1
            guard looks < 1000 else { break }
        }
        #expect(looks < 1000)
        #expect(!delay.isFresh)
    }
}
