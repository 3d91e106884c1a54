import AgentProtocol
import Testing

@testable import GroupStoreAgent

/// How often subscribers hear how far a relocation is.
@Suite struct ProgressPacingTests {
    private func report(_ step: Int) -> StoreProgress {
        StoreProgress(.migrating, fraction: Double(step) / 10_000, activity: "busy")
    }

    /// Plays reports at the given milliseconds, and returns what is sent and when.
    private func sent(_ times: [Int]) -> [(time: Int, progress: StoreProgress)] {
        let start = ContinuousClock.now
        var pacing = ProgressPacing(at: start)
        var due: Int?
        var sent: [(Int, StoreProgress)] = []
        for (step, time) in times.enumerated() {
            if let at = due, at <= time {
                due = nil
                pacing.takePending(at: start + .milliseconds(at)).map { sent.append((at, $0)) }
            }
            switch pacing.receive(report(step), at: start + .milliseconds(time)) {
            case .send: sent.append((time, report(step)))
            case .wait(let duration): due = time + Int(duration / .milliseconds(1))
            case .none: break
            }
        }
        if let due { pacing.takePending(at: start + .milliseconds(due)).map { sent.append((due, $0)) } }
        return sent
    }

    @Test(arguments: [1, 7, 30, 99, 100, 101, 350]) func sendsAtMostTenReportsASecond(_ step: Int) {
        let times = Array(stride(from: 0, through: 10_000, by: step))
        let found = sent(times)
        #expect(found.allSatisfy { $0.time >= 100 })
        for (one, next) in zip(found, found.dropFirst()) { #expect(next.time - one.time >= 100) }
        #expect(found.last?.progress == report(times.count - 1))
        if step < 100 { #expect(found.count > 80) }
    }

    @Test func sendsAnActivityThatLastsAlthoughItBeganSoon() {
        #expect(sent([1, 2]).map(\.time) == [100])
        #expect(sent([1, 2]).map(\.progress) == [report(1)])
    }

    /// The call for a report that was replaced by a sent one comes late, when the next one waits already.
    @Test func aLateCallSendsNothingTooSoon() {
        let start = ContinuousClock.now
        var pacing = ProgressPacing(at: start)
        #expect(pacing.receive(report(1), at: start + .milliseconds(50)) == .wait(.milliseconds(50)))
        #expect(pacing.receive(report(2), at: start + .milliseconds(100)) == .send)
        #expect(pacing.receive(report(3), at: start + .milliseconds(101)) == .wait(.milliseconds(99)))
        #expect(pacing.takePending(at: start + .milliseconds(102)) == nil)
        #expect(pacing.takePending(at: start + .milliseconds(200)) == report(3))
    }

    @Test func sendsNothingIfNothingIsReported() { #expect(sent([]).isEmpty) }
}
