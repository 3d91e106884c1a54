import CLinux
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Another user's access to a file, as decided by the kernel and as computed from modes and ACLs.
@Suite(.enabled(if: geteuid() == 0, "needs root, to become another user"))
struct UserAccessTests {
    private static let user = PeerCredentials(pid: 1, uid: 70_001, gid: 70_002, groups: [70_003, 70_004])
    private static let owners: [uid_t] = [0, 70_001, 70_009]
    private static let groups: [gid_t] = [0, 70_002, 70_003, 70_009]

    private let root: TemporaryDirectory

    init() throws {
        root = try TemporaryDirectory()
        #expect(chmod(root.path.string, 0o755) == 0)
    }

    private func disguise(_ path: FilePath, _ random: inout SeededGenerator) {
        _ = lchown(
            path.string, Self.owners.randomElement(using: &random) ?? 0, Self.groups.randomElement(using: &random) ?? 0)
        _ = chmod(path.string, mode_t.random(in: 0...0o777, using: &random))
        guard Bool.random(using: &random) else { return }
        let attribute = Self.list(&random)
        guard let file = try? Descriptor(opening: path, flags: O_RDONLY) else { return }
        // On a file system without ACLs, the mode applies.
        _ = gs_set_attribute(file.raw, "system.posix_acl_access", attribute, attribute.count)
    }

    /// Returns an ACL in the kernel's format, with its entries in order.
    private static func list(_ random: inout SeededGenerator) -> [UInt8] {
        func entry(_ tag: UInt8, _ identifier: UInt32 = .max) -> [UInt8] {
            let bytes = withUnsafeBytes(of: identifier.littleEndian) { Array($0) }
            return [tag, 0, UInt8.random(in: 0...7, using: &random), 0] + bytes
        }
        var list: [UInt8] = [2, 0, 0, 0] + entry(0x01)
        for user: UInt32 in [70_001, 70_009] where Bool.random(using: &random) { list += entry(0x02, user) }
        list += entry(0x04)
        for group: UInt32 in [70_002, 70_003, 70_009] where Bool.random(using: &random) { list += entry(0x08, group) }
        return list + entry(0x10) + entry(0x20)
    }

    /// The user's file system never answers, and even SIGKILL doesn't end a process that waits for it.
    @Test func doesNotWaitForADeadFileSystem() throws {
        let place = root.path.appending("dead")
        #expect(mkdir(place.string, 0o755) == 0)
        guard let device = try? Descriptor(opening: "/dev/fuse", flags: O_RDWR) else { return }
        let options = "fd=\(device.raw),rootmode=40000,user_id=0,group_id=0,allow_other"
        guard mount("fuse", place.string, "fuse", 0, options) == 0 else { return }
        defer { umount2(place.string, CInt(MNT_DETACH)) }
        let began = ContinuousClock.now
        #expect(UserAccess(Self.user).answer(place.appending("file"), R_OK) == .denied)
        #expect(began.duration(to: .now) < .seconds(20))
        // The next question is answered.
        #expect(UserAccess(Self.user).answer(root.path, X_OK) != .denied)
    }

    @Test(arguments: 0..<300) func kernelAndComputedAnswersAgree(_ seed: Int) throws {
        var random = SeededGenerator(seed: UInt64(seed))
        let outer = root.path.appending("outer")
        let inner = outer.appending("inner")
        let file = inner.appending("file")
        for directory in [outer, inner] { #expect(mkdir(directory.string, 0o755) == 0) }
        _ = try Descriptor(opening: file, flags: O_WRONLY | O_CREAT, mode: 0o600)
        #expect(symlink("inner/file", outer.appending("link").string) == 0)
        for path in [file, inner, outer] { disguise(path, &random) }
        let paths = [file, inner, outer, outer.appending("link"), inner.appending("nothing")]
        let modes: [CInt] = [R_OK, W_OK, X_OK, R_OK | W_OK, R_OK | X_OK]
        let questions = paths.flatMap { path in modes.map { UserAccess.Question(path, $0) } }
        let kernel = UserAccess(Self.user, asksKernel: true).answers(questions)
        let computed = UserAccess(Self.user, asksKernel: false).answers(questions)
        #expect(kernel == computed)
    }

    @Test func grantsAFileByItsIdentity() throws {
        let file = root.path.appending("file")
        _ = try Descriptor(opening: file, flags: O_WRONLY | O_CREAT, mode: 0o644)
        let identity = try #require(FileStatus(following: file)?.identity)
        #expect(UserAccess(Self.user).answer(file, R_OK) == .granted(identity))
        #expect(UserAccess(Self.user).answer(file, W_OK) == .denied)
        #expect(UserAccess(Self.user).answer(root.path.appending("nothing"), R_OK) == .absent)
    }

    /// The asking process keeps its identity, and so do its other threads.
    @Test func askingChangesNoIdentity() {
        _ = UserAccess(Self.user).answer("/", R_OK)
        #expect(geteuid() == 0 && getuid() == 0)
    }
}
