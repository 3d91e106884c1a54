import LinuxSystem
import Testing

@testable import DirectoryWatching

@Suite struct AwaitedNamesTests {
    private let directory = FileIdentity(device: 1, inode: 2)
    private let start = ContinuousClock.now

    @Test func aFewOtherNamesAreNoBurden() {
        var names = AwaitedNames()
        for second in 0..<100 {
            for _ in 1...4 {
                #expect(names.otherName(in: directory, at: start.advanced(by: .seconds(2 * second))) == nil)
            }
        }
    }

    /// However busy it is, it is looked at twice a second at most, and not left for longer than a second.
    @Test func aBusyDirectoryIsLeftInPauses() {
        var names = AwaitedNames()
        var now = start
        var looks = 0
        while now < start.advanced(by: .seconds(60)) {
            looks += 1
            now = names.otherName(in: directory, at: now) ?? now.advanced(by: .milliseconds(1))
        }
        #expect((60...80).contains(looks))
        // When it is quiet, the first name is heard of again.
        now = now.advanced(by: .seconds(5))
        #expect(names.otherName(in: directory, at: now) == nil)
    }
}
