import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// A process that any thread is starting has a copy of each descriptor until it runs its program. A copy made with dup
/// stands for it: both share the open file description, which holds the locks.
@Suite struct GivenUpLockTests {
    private let root: TemporaryDirectory
    private let directory: Directory

    init() throws {
        root = try TemporaryDirectory()
        directory = try Directory(root.path)
        _ = try directory.open("file", flags: O_RDWR | O_CREAT, mode: 0o600)
    }

    /// Returns copies of all descriptors of this process that are open on a file.
    private static func copies(of file: FileIdentity) throws -> [CInt] {
        try Directory("/proc/self/fd").names().compactMap { CInt($0.string) }
            .filter { raw in
                var found = stat()
                return fstat(raw, &found) == 0 && FileStatus(found).identity == file
            }
            .map { dup($0) }
    }

    @Test func releasesALockOnAFile() throws {
        var lock = try OpenFileLock("lock", in: directory)
        #expect(lock != nil)
        let copies = try Self.copies(of: #require(directory.status("lock")).identity)
        defer { for copy in copies { close(copy) } }
        #expect(copies.count == 1)
        #expect(!OpenFileLock.isFree("lock", in: directory))
        lock = nil
        #expect(OpenFileLock.isFree("lock", in: directory))
    }

    @Test func releasesLocksOnRanges() throws {
        var locks: RangeLocks? = try RangeLocks(directory.open("file", flags: O_RDWR))
        #expect(try locks?.lock(.exclusive, 5..<9) == true)
        #expect(try locks?.lock(.shared, 1 << 40..<1 << 41) == true)
        let copies = try Self.copies(of: #require(locks).identity)
        defer { for copy in copies { close(copy) } }
        #expect(copies.count == 1)
        locks = nil
        let others = try RangeLocks(directory.open("file", flags: O_RDWR))
        #expect(try others.lock(.exclusive, 0..<Int64.max))
    }

    @Test func releasesALockOnADirectory() throws {
        var lock: DirectoryLock? = try DirectoryLock(root.path)
        #expect(try lock?.tryLock() == true)
        let copies = try Self.copies(of: directory.status().identity)
        defer { for copy in copies { close(copy) } }
        #expect(try !DirectoryLock(root.path).tryLock())
        lock = nil
        #expect(try DirectoryLock(root.path).tryLock())
    }

    @Test func releasesTheMarkOfAProbe() throws {
        FileLease.ignoreBreakSignal()
        var probe = try FileProbe("file", in: directory)
        let copies = try Self.copies(of: #require(probe).identity)
        defer { for copy in copies { close(copy) } }
        #expect(copies.count == 1)
        probe = nil
        #expect(try FileProbe("file", in: directory) != nil)
    }
}
