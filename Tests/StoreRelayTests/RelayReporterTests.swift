import NATSStreams
import Synchronization
import TestSupport
import Testing

@testable import StoreRelay

@Suite struct RelayReporterTests {
    /// What was passed on, and a clock that the test sets.
    private final class Log: Sendable {
        let lines = Mutex<[String]>([])
        let time = Mutex(ContinuousClock.now)

        var reporter: RelayReporter {
            RelayReporter(now: { self.time.withLock { $0 } }) { event in
                self.lines.withLock { $0.append(event.sentence) }
            }
        }

        var count: Int { lines.withLock(\.count) }
        func wait(_ duration: Duration) { time.withLock { $0 = $0.advanced(by: duration) } }
    }

    private func error(_ text: String) -> NATSError { NATSError(.lost, text) }
    private let connected = RelayEvent("connected", ["server": "nats://a:1"], "connected")

    @Test func anErrorThatLastsIsRepeatedAfterHalfAMinute() {
        let log = Log()
        let reporter = log.reporter
        for _ in 0..<100 {
            reporter.report(error("a"))
            reporter.report(error("b"))
            log.wait(.seconds(1))
        }
        // At 0, 30, 60 and 90 s, two each.
        #expect(log.count == 8)
        reporter.clearErrors()
        reporter.report(error("a"))
        #expect(log.count == 9)
    }

    @Test func aStateIsSaidOnceUntilItChangesOrAnErrorWasSaid() {
        let log = Log()
        let reporter = log.reporter
        for _ in 0..<50 {
            reporter.reportState(connected)
            reporter.report(error("the disk is full"))
            log.wait(.milliseconds(100))
        }
        // Connected, the error, connected.
        #expect(log.count == 3)
        reporter.reportState(RelayEvent("connected", ["server": "nats://b:1"], "connected"))
        #expect(log.count == 4)
        reporter.report(RelayEvent("applied", [:], "applied"))
        reporter.report(RelayEvent("applied", [:], "applied"))
        #expect(log.count == 6, "what happens is always said")
    }
}
