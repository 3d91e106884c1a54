import LinuxSystem
import Synchronization
import TestSupport
import Testing

@Suite(.ownThreads) struct MonotonicSemaphoreTests {
    @Test func countsSignals() {
        let semaphore = MonotonicSemaphore()
        #expect(!semaphore.wait(within: .zero))
        for _ in 0..<3 { semaphore.signal() }
        semaphore.wait()
        #expect(semaphore.wait(within: .ample) && semaphore.wait(within: .zero))
        #expect(!semaphore.wait(within: .seconds(-1)))
    }

    @Test(arguments: [1, 999_999_999, 1_000_000_000])
    func waitsForItsLimit(nanoseconds: Int64) {
        let (semaphore, begin) = (MonotonicSemaphore(), ContinuousClock.now)
        #expect(!semaphore.wait(within: .nanoseconds(nanoseconds)))
        #expect(begin.duration(to: .now) >= .nanoseconds(nanoseconds))
    }

    @Test(arguments: [Duration.ample, .seconds(Int64.max) * 10])
    func isWokenByAnotherThread(_ limit: Duration) throws {
        let (there, back) = (MonotonicSemaphore(), MonotonicSemaphore())
        let count = 10_000
        _ = try SystemThread(name: "echo") {
            for _ in 0..<count {
                there.wait()
                back.signal()
            }
        }
        for _ in 0..<count {
            there.signal()
            #expect(back.wait(within: limit))
        }
    }

    @Test func letsOneWaitEndForEachSignal() throws {
        let semaphore = MonotonicSemaphore()
        let ended = Mutex(0)
        let threads = try (0..<8).map { _ in
            try SystemThread(name: "waiter") {
                semaphore.wait(within: .ample)
                ended.withLock { $0 += 1 }
            }
        }
        for _ in threads { semaphore.signal() }
        for thread in threads { #expect(thread.join(within: .ample)) }
        #expect(ended.withLock { $0 } == threads.count && !semaphore.wait(within: .zero))
    }
}
