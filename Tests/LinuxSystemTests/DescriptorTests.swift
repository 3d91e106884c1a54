import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@Suite struct DescriptorTests {
    /// Another process holds the descriptor briefly, and nothing else.
    @Test(.timeLimit(.minutes(60))) func closesInAnotherProcess() throws {
        let root = try TemporaryDirectory()
        let path = root.path.appending("file")
        let file = try Descriptor(opening: path, flags: O_RDWR | O_CREAT, mode: 0o600)
        let raw = file.raw
        #expect(flock(raw, LOCK_EX) == 0)
        var ends: (CInt, CInt) = (0, 0)
        try withUnsafeMutableBytes(of: &ends) { buffer in
            _ = try retrying("pipe") { pipe(buffer.bindMemory(to: CInt.self).baseAddress) }
        }
        file.closeElsewhere()
        close(ends.1)
        // Nobody else has the pipe's writing end.
        var byte: UInt8 = 0
        #expect(read(ends.0, &byte, 1) == 0)
        close(ends.0)
        let other = try Descriptor(opening: path, flags: O_RDWR)
        #expect(flock(other.raw, LOCK_EX) == 0)
    }
}
