import Dispatch
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@Suite struct FileProbeTests {
    private let root: TemporaryDirectory
    private let directory: Directory

    init() throws {
        FileLease.ignoreBreakSignal()
        root = try TemporaryDirectory()
        directory = try Directory(root.path)
        _ = try directory.open("file", flags: O_RDWR | O_CREAT, mode: 0o600)
    }

    private func probe() throws -> FileProbe? { try FileProbe("file", in: directory) }

    @Test(.ownDescriptors) func noticesTheLastClose() throws {
        let program = try directory.open("file", flags: O_RDWR)
        let probe = try #require(try probe())
        #expect(probe.isOpenElsewhere)
        _ = consume program
        #expect(!probe.isOpenElsewhere)
    }

    @Test(.ownDescriptors) func electsOne() throws {
        var first = try probe()
        #expect(first != nil)
        #expect(try probe() == nil)
        // The other one has closed its descriptor.
        #expect(first?.isOpenElsewhere == false)
        first = nil
        #expect(try probe() != nil)
    }

    @Test func electsAtMostOneOfManyAtTheSameTime() {
        let elected = Atomic(0)
        let total = Atomic(0)
        DispatchQueue.concurrentPerform(iterations: 8) { _ in
            for _ in 0..<200 {
                guard let probe = try? probe() else { continue }
                withExtendedLifetime(probe) {
                    #expect(elected.add(1, ordering: .relaxed).newValue == 1)
                    total.add(1, ordering: .relaxed)
                    elected.subtract(1, ordering: .relaxed)
                }
            }
        }
        #expect(total.load(ordering: .relaxed) > 0)
    }

    /// SQLite locks up to 512 bytes from 2³⁰ on.
    @Test(.ownDescriptors) func leavesTheLocksOfSQLiteAlone() throws {
        let locks = try RangeLocks(directory.open("file", flags: O_RDWR))
        let bytes: Range<Int64> = 1 << 30..<1 << 30 + 512
        #expect(try locks.lock(.exclusive, bytes))
        let probe = try #require(try probe())
        #expect(probe.isOpenElsewhere)
        locks.unlock(bytes)
        #expect(try locks.lock(.exclusive, bytes))
    }

    @Test(.ownDescriptors) func givesWayToALockOnTheWholeFile() throws {
        var locks: RangeLocks? = try RangeLocks(directory.open("file", flags: O_RDWR))
        #expect(try locks?.lock(.exclusive, 0..<Int64.max) == true)
        #expect(try probe() == nil)
        locks = nil
        #expect(try probe() != nil)
    }
}
