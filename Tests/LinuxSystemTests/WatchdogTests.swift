import Dispatch
import LinuxSystem
import Synchronization
import TestSupport
import Testing

@Suite(.ownThreads) struct WatchdogTests {
    /// What a watchdog did.
    private final class Deeds: Sendable {
        let interrupted = Atomic<Int>(0)
        let givenUp = Mutex<[String]>([])
        /// Lets the call end.
        let end = DispatchSemaphore(value: 0)

        /// Each call once: the watchdog gives up again if the call's thread doesn't run within another grace.
        var callsGivenUp: Set<String> { givenUp.withLock { Set($0) } }
    }

    private func watchdog(_ deeds: Deeds, grace: Duration = .milliseconds(20)) throws -> Watchdog {
        try Watchdog(rest: .milliseconds(5), grace: grace) { call, limit in
            deeds.givenUp.withLock { $0.append("\(call) \(limit)") }
            deeds.end.signal()
        }
    }

    @Test func leavesCallsAloneThatEndInTime() throws {
        let deeds = Deeds()
        let watchdog = try watchdog(deeds, grace: .ample)
        for _ in 0..<100 {
            let result = watchdog.watch(
                "short", limit: .zero, interrupt: { deeds.interrupted.add(1, ordering: .relaxed) }
            ) { 7 }
            #expect(result == 7)
        }
        // Another watchdog sees that time has passed.
        let other = Deeds()
        try self.watchdog(other).watch("long", limit: .milliseconds(50)) { other.end.wait() }
        #expect(deeds.interrupted.load(ordering: .relaxed) == 0)
        #expect(deeds.givenUp.withLock { $0 } == [])
    }

    @Test func makesAnOverdueCallEnd() throws {
        let deeds = Deeds()
        try watchdog(deeds, grace: .seconds(1)).watch(
            "call", limit: .zero,
            interrupt: {
                deeds.interrupted.add(1, ordering: .relaxed)
                deeds.end.signal()
            }
        ) { deeds.end.wait() }
        #expect(deeds.interrupted.load(ordering: .relaxed) == 1)
        #expect(deeds.givenUp.withLock { $0 } == [])
    }

    /// With nothing that makes the call end; with something that fails; and with something that doesn't end itself.
    @Test(arguments: [0, 1, 2])
    func givesUpIfACallDoesNotEnd(_ kind: Int) throws {
        let deeds = Deeds()
        let never = DispatchSemaphore(value: 0)
        let interrupts: [(@Sendable () -> Void)?] = [nil, {}, { never.wait() }]
        try watchdog(deeds).watch("call", limit: .milliseconds(10), interrupt: interrupts[kind]) { deeds.end.wait() }
        #expect(deeds.callsGivenUp == ["call 0.01 seconds"])
        never.signal()
    }

    /// A call in another is watched for itself.
    @Test func watchesTheOuterCallToo() throws {
        let deeds = Deeds()
        let watchdog = try watchdog(deeds)
        watchdog.watch("outer", limit: .zero) {
            watchdog.watch("inner", limit: .seconds(Int64.max)) { deeds.end.wait() }
        }
        #expect(deeds.callsGivenUp == ["outer 0.0 seconds"])
    }

    @Test func passesErrorsOn() throws {
        let watchdog = try watchdog(Deeds())
        #expect(throws: CancellationError.self) {
            try watchdog.watch("call", limit: .ample) { throw CancellationError() }
        }
        let none: Watchdog? = nil
        #expect(none.watch("call", limit: .zero) { 7 } == 7)
    }
}
