import CLinux
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport

/// Random file operations in a few directories, the same ones for the same seed. An operation that can't be done, for
/// example because the file doesn't exist, does nothing.
struct FileStorm {
    /// A path as the kernel takes it.
    private typealias Path = [CChar]

    /// The directories, each in a parent of its own.
    let directories: [FilePath]
    private let paths: [Path]
    /// The files that operations are about, by directory. The last directory is not one of `directories`.
    private let files: [[Path]]
    private let temporaryFiles: [[Path]]
    private let unwatched: FilePath
    private var random: SeededGenerator
    private var movedAway = 0

    init(in root: FilePath, seed: UInt64) {
        random = SeededGenerator(seed: seed)
        directories = (1...4).map { root.appending("parent\($0)").appending("directory\($0)") }
        unwatched = root.appending("unwatched").appending("directory")
        let all = directories + [unwatched]
        for path in all.flatMap({ [$0.removingLastComponent(), $0] }) { mkdir(Self.path(path), 0o755) }
        paths = all.map(Self.path)
        files = all.map { directory in Self.names.map { Self.path(directory.appending($0)) } }
        temporaryFiles = all.map { directory in (0..<40).map { Self.path(directory.appending("temporary \($0)")) } }
    }

    private static let names: [FilePath.Component] = {
        let odd: [[UInt8]] = [
            Array(repeating: 0x78, count: 255), Array(repeating: 0x79, count: 254) + [0xFF], [0xFF, 0x0A, 0x22, 0x5C],
            [0x20], [0xC3, 0xA9], [0x01], Array("store-wal".utf8), Array("store-shm".utf8),
        ]
        return odd.compactMap { FilePath.Component(bytes: $0) } + (1...12).compactMap { FilePath.Component("\($0)") }
    }()

    private static func path(_ path: FilePath) -> Path { path.bytes.map { CChar(bitPattern: $0) } + [0] }

    mutating func number(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &random) }

    private mutating func file(in directory: Int) -> Path { files[directory][number(0...Self.names.count - 1)] }

    private mutating func directory() -> Int { number(0...directories.count - 1) }

    /// A random file: usually in one of the directories, else beside them.
    private mutating func file() -> Path { file(in: number(0...9) == 0 ? directories.count : directory()) }

    private func write(_ path: Path, flags: CInt, count: Int = 0) {
        let file = open(path, flags | O_CLOEXEC, 0o644)
        guard file >= 0 else { return }
        for number in 0..<count { pwrite(file, path, 1, number) }
        close(file)
    }

    private func read(_ path: Path) {
        let file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard file >= 0 else { return }
        var byte: UInt8 = 0
        pread(file, &byte, 1, 0)
        close(file)
    }

    /// Writes through memory, which raises no event for the write.
    private func writeMapped(_ path: Path) {
        let file = open(path, O_RDWR | O_CLOEXEC)
        guard file >= 0 else { return }
        defer { close(file) }
        guard ftruncate(file, 4096) == 0,
            let memory = mmap(nil, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), memory != MAP_FAILED
        else { return }
        memory.storeBytes(of: UInt64(4096), as: UInt64.self)
        munmap(memory, 4096)
    }

    private func makeMany(_ files: [Path]) {
        for file in files { write(file, flags: O_WRONLY | O_CREAT, count: 1) }
        for file in files { unlink(file) }
    }

    /// Removes a directory or moves it away, and makes it again.
    private mutating func replace(_ directory: Int) {
        let path = paths[directory]
        if number(0...2) == 0 {
            movedAway += 1
            rename(path, Self.path(unwatched.appending("moved \(movedAway)")))
        } else {
            for file in files[directory] where unlink(file) != 0 { rmdir(file) }
            rmdir(path)
        }
        mkdir(path, 0o755)
    }

    /// Does one operation. Returns the directory if it is a new one afterwards, which `replacing: false` rules out.
    mutating func perform(replacing: Bool = true) -> FilePath? {
        switch number(0...(replacing ? 33 : 32)) {
        case 0...4: write(file(), flags: O_WRONLY | O_CREAT)
        case 5...9: write(file(), flags: O_WRONLY, count: number(1...5))
        case 10...11: write(file(), flags: O_WRONLY | O_CREAT | O_TRUNC, count: 2)
        case 12...13:
            let directory = directory()
            rename(file(in: directory), file(in: directory))
        case 14...16: rename(file(), file())
        case 17: gs_renameat2(AT_FDCWD, file(), AT_FDCWD, file(), gs_rename_exchange)
        case 18...19: link(file(), file())
        case 20...22: unlink(file())
        case 23: chmod(file(), 0o600)
        case 24: truncate(file(), 10)
        case 25: writeMapped(file())
        case 26: symlink(file(), file())
        case 27: mkdir(file(), 0o755)
        case 28: rmdir(file())
        case 29: chmod(paths[directory()], number(0...1) == 0 ? 0o755 : 0o700)
        case 30: makeMany(temporaryFiles[directory()])
        case 31: utimes(file(), [timeval(tv_sec: 1, tv_usec: 0), timeval(tv_sec: 2, tv_usec: 0)])
        case 32: read(file())
        default:
            let directory = directory()
            replace(directory)
            return directories[directory]
        }
        return nil
    }
}
