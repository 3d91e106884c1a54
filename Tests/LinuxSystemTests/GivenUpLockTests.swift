import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// A child process that another thread is starting shares each open file description until it runs its program. A
/// second descriptor of the lock's description stands for it.
struct GivenUpLockTests {
    let scratch: TemporaryDirectory
    let directory: Directory

    init() throws {
        scratch = try TemporaryDirectory()
        directory = try Directory(scratch.path)
    }

    /// Returns a second descriptor of each open file description of the file.
    private func inherited(_ path: FilePath) throws -> [Inherited] {
        let identity = try #require(FileStatus(following: path)).identity
        return try Directory("/proc/self/fd").names().compactMap { name in
            var found = stat()
            guard let raw = CInt(name.string), fstat(raw, &found) == 0, FileStatus(found).identity == identity else {
                return nil
            }
            return Inherited(descriptor: Descriptor(owning: fcntl(raw, F_DUPFD_CLOEXEC, 0)))
        }
    }

    private final class Inherited: Sendable {
        let descriptor: Descriptor
        init(descriptor: consuming Descriptor) { self.descriptor = descriptor }
    }

    @Test func aGivenUpFileLockIsFree() throws {
        let lock = try OpenFileLock("lock", in: directory)
        let children = try inherited(scratch.path.appending("lock"))
        #expect(!children.isEmpty && !OpenFileLock.isFree("lock", in: directory))
        _ = consume lock
        #expect(OpenFileLock.isFree("lock", in: directory))
        withExtendedLifetime(children) {}
    }

    @Test func aGivenUpRangeLockIsFree() throws {
        func locks() throws -> RangeLocks {
            try RangeLocks(directory.open("ranges", flags: O_RDWR | O_CREAT, mode: 0o600))
        }
        var held: RangeLocks? = try locks()
        #expect(try held?.lock(.exclusive, 5..<9) == true)
        let children = try inherited(scratch.path.appending("ranges"))
        #expect(try !children.isEmpty && locks().lock(.shared, 6..<7) == false)
        held = nil
        #expect(try locks().lock(.exclusive, 0..<20))
        withExtendedLifetime(children) {}
    }

    @Test func aGivenUpDirectoryLockIsFree() throws {
        var held: DirectoryLock? = try DirectoryLock(scratch.path)
        #expect(try held?.tryLock() == true)
        let children = try inherited(scratch.path)
        #expect(try !children.isEmpty && DirectoryLock(scratch.path).tryLock() == false)
        held = nil
        #expect(try DirectoryLock(scratch.path).tryLock())
        withExtendedLifetime(children) {}
    }
}
