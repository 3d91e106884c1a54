import LinuxSystem
import Testing

@testable import DirectoryWatching

@Suite struct AwaitedNamesTests {
    private let directory = FileIdentity(device: 1, inode: 2)
    private let start = ContinuousClock.now

    @Test func keepsWatchingWithFewOtherNames() {
        var names = AwaitedNames()
        for second in 0..<100 {
            for _ in 1...4 {
                #expect(names.recordOther(in: directory, at: start.advanced(by: .seconds(2 * second))) == nil)
            }
        }
    }

    /// However busy the directory is, it is polled about once a second.
    @Test func pollsABusyDirectory() {
        var names = AwaitedNames()
        var now = start
        var polls = 0
        while now < start.advanced(by: .seconds(60)) {
            polls += 1
            now = names.recordOther(in: directory, at: now) ?? now.advanced(by: .milliseconds(1))
        }
        #expect((60...80).contains(polls))
        // Once it is quiet, the first name raises an event again.
        now = now.advanced(by: .seconds(5))
        #expect(names.recordOther(in: directory, at: now) == nil)
    }
}
