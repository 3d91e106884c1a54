import Glibc
import LinuxSystem
import StoreReplication
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelay

/// The file of a snapshot that is being received.
@Suite struct SnapshotDownloadFileTests {
    private let scratch: TemporaryDirectory
    private static let content = (0..<2_500_000).map { UInt8(truncatingIfNeeded: $0 &* 31 >> 3) }
    private let content = Self.content
    private let chunkSize = 1 << 20

    init() throws { scratch = try TemporaryDirectory() }

    private func received() throws -> SnapshotDownloadFile {
        try SnapshotDownloadFile(
            "Notes.snapshot", in: Directory(scratch.path), expected: Int64(content.count), chunkSize: chunkSize)
    }

    private func append(_ range: Range<Int>, to file: SnapshotDownloadFile) throws {
        for start in stride(from: range.lowerBound, to: range.upperBound, by: chunkSize) {
            let chunk = Array(content[start..<min(start + chunkSize, range.upperBound)])
            try file.append(chunk, sha256: SHA256Stream.digest(chunk))
        }
    }

    /// The SHA-256 of the lines with the chunks' SHA-256s.
    private var digest: String {
        let starts = stride(from: 0, to: content.count, by: chunkSize)
        return SHA256Stream.digest(
            starts.flatMap { SnapshotDigest.line(SHA256Stream.digest(content.dropFirst($0).prefix(chunkSize))) })
    }

    private var written: [UInt8] {
        get throws {
            let path = scratch.path.appending("Notes.snapshot")
            return try Descriptor(opening: path, flags: O_RDONLY).read(count: content.count + 1, at: 0)
        }
    }

    @Test func returnsTheDigestOfTheWrittenChunks() throws {
        let file = try received()
        try append(0..<content.count, to: file)
        #expect(file.size == Int64(content.count))
        #expect(try file.finish() == digest)
        #expect(try written == content)
    }

    /// The whole chunks of an interrupted download count; half a chunk doesn't.
    @Test(arguments: [0, 1, 1 << 20, (1 << 20) + 7, 2 << 20, 2_499_999, 2_500_000])
    func goesOnAfterWholeChunks(left: Int) throws {
        try append(0..<left, to: received())
        let file = try received()
        #expect(file.size == Int64(left == content.count ? left : left / chunkSize * chunkSize))
        try append(Int(file.size)..<content.count, to: file)
        #expect(try file.finish() == digest)
        #expect(try written == content)
    }

    /// What the disk has changed meanwhile isn't the announced file.
    @Test func hashesTheFileThatAnInterruptedDownloadLeft() throws {
        try append(0..<chunkSize, to: received())
        let path = scratch.path.appending("Notes.snapshot")
        try Descriptor(opening: path, flags: O_RDWR).write([content[100] &+ 1], at: 100)
        let file = try received()
        try append(chunkSize..<content.count, to: file)
        #expect(try file.finish() != digest)
    }

    @Test func longerFileIsCut() throws {
        let path = scratch.path.appending("Notes.snapshot")
        try Descriptor(owning: open(path.string, O_CREAT | O_RDWR, 0o600)).write(content + content, at: 0)
        #expect(try received().size == Int64(2 * chunkSize))
    }

    @Test func fullDiskIsAnErrorOfTheDownload() throws {
        let full = try FileWriting(to: Descriptor(owning: open("/dev/full", O_RDWR)), at: 0, path: "/dev/full")
        var failure: SystemError?
        do throws(SystemError) {
            for _ in 0..<100 { try full.add([1, 2, 3]) }
            try full.finish()
        } catch {
            failure = error
        }
        #expect(failure?.errno == .noSpace)
        #expect(throws: SystemError.self) { try full.finish() }
    }
}
