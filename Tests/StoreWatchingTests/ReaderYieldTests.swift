import Testing

@testable import StoreWatching

@Suite struct ReaderYieldTests {
    @Test func yieldsWhileReadersTakeLittleTime() {
        var readers = ReaderYield()
        let now = ContinuousClock.now
        #expect(readers.isDue(at: now))
        readers.record(from: now, to: now.advanced(by: .microseconds(50)))
        #expect(readers.isDue(at: now.advanced(by: .microseconds(50))))
    }

    /// Another program kept the processor for a time slice, so that the next change would come late.
    @Test func doesNotYieldForASecondAfterItLostTheProcessor() {
        var readers = ReaderYield()
        let now = ContinuousClock.now
        let ended = now.advanced(by: .milliseconds(3))
        readers.record(from: now, to: ended)
        #expect(!readers.isDue(at: ended))
        #expect(!readers.isDue(at: ended.advanced(by: .milliseconds(999))))
        #expect(readers.isDue(at: ended.advanced(by: .milliseconds(1000))))
    }
}
