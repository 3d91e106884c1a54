import Glibc
import SystemPackage
import Testing

@testable import LinuxSystem

/// Calls that signals interrupt.
@Suite struct InterruptionTests {
    @Test func aCallIsRepeatedAfterAnInterruption() throws {
        var left = 1000
        let result = try retrying("read") {
            left -= 1
            errno = EINTR
            return left > 0 ? -1 : 7
        }
        #expect(result == 7 && left == 0)
    }

    @Test func aCallThatNeverGetsToRunEnds() throws {
        let error = #expect(throws: SystemError.self) {
            try retrying("read", path: "/file") {
                errno = EINTR
                return -1
            }
        }
        #expect(error?.errno == .interrupted && error?.path == "/file")
    }

    /// A long wait may be interrupted for ever, at the rate of a profiler's timer.
    @Test func aWaitMayBeInterruptedAnyNumberOfTimes() {
        var interruptions = Interruptions()
        var now = ContinuousClock.now
        let allowed = (0..<3 * Interruptions.most).allSatisfy { _ in
            now = now.advanced(by: .milliseconds(1))
            return interruptions.allowsAnother(at: now)
        }
        #expect(allowed)
    }

    /// Each call may take longer under a debugger, on a busy machine.
    @Test func aCallThatIsInterruptedSlowlyEndsWithinSeconds() {
        var interruptions = Interruptions()
        let start = ContinuousClock.now
        var now = start
        while interruptions.allowsAnother(at: now), start.duration(to: now) < .seconds(60) {
            now = now.advanced(by: .microseconds(400))
        }
        #expect(start.duration(to: now) < .seconds(10))
    }
}
