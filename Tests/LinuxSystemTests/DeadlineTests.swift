import LinuxSystem
import Testing

@Suite struct DeadlineTests {
    @Test func clampsNanoseconds() {
        #expect(Duration.milliseconds(-1500).nanoseconds == -1_500_000_000)
        #expect(Duration.nanoseconds(Int64.max).nanoseconds == .max)
        #expect(Duration.nanoseconds(Int64.min).nanoseconds == .min)
        for huge in [Duration.seconds(Int64.max), .seconds(Int64.max) * 10] {
            #expect(huge.nanoseconds == .max)
            #expect((.zero - huge).nanoseconds == .min)
        }
    }

    @Test func acceptsAnyDuration() throws {
        for huge in [Duration.seconds(Int64.max), .seconds(Int64.max) * 10] {
            let left = try #require(Deadline(after: huge).remaining)
            #expect(left > .longestWait - .seconds(3600) && left <= .longestWait)
            #expect(Deadline(after: .zero - huge).hasPassed)
        }
    }
}
