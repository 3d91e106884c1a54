import CLinux
import Glibc
import SystemPackage
import TestSupport
import Testing

@testable import LinuxSystem

@Suite struct FileCopyTests {
    /// A file's parts: bytes, or the length of a hole.
    enum Part: Sendable {
        case data(Int)
        case hole(Int64)
    }

    static let layouts: [[Part]] = [
        [], [.data(1)], [.data(3 << 20)], [.data((17 << 20) + 5)], [.hole(1 << 20)], [.hole(5 << 20), .data(100)],
        [.data(4096), .hole(8 << 20), .data(4096)], [.data(4096), .hole(3 << 20)],
        [.hole(1 << 20), .data(70_000), .hole(2 << 20), .data(1 << 20), .hole(77)],
    ]
    static let ways: [(isInMemory: Bool, toOtherFileSystem: Bool)] = [
        (false, false), (false, true), (true, false), (true, true),
    ]

    private let root: TemporaryDirectory
    private let other: TemporaryDirectory
    private let sourcePath: FilePath

    init() throws {
        root = try TemporaryDirectory()
        other = try TemporaryDirectory(in: "/dev/shm")
        sourcePath = root.path.appending("source")
    }

    private static let data = (0..<0x10000).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8 | 1) }

    private static func bytes(_ count: Int) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: count) { buffer, length in
            let target = UnsafeMutableRawBufferPointer(buffer)
            data.withUnsafeBytes { data in
                while length < count {
                    let part = data[..<min(data.count, count - length)]
                    UnsafeMutableRawBufferPointer(rebasing: target[length...])
                        .copyMemory(from: UnsafeRawBufferPointer(rebasing: part))
                    length += part.count
                }
            }
        }
    }

    private func source(_ parts: [Part]) throws -> [UInt8] {
        let file = try Descriptor(opening: sourcePath, flags: O_RDWR | O_CREAT | O_TRUNC, mode: 0o600)
        var content: [UInt8] = []
        for part in parts {
            switch part {
            case .data(let count):
                let bytes = Self.bytes(count)
                try file.write(bytes, at: Int64(content.count))
                content += bytes
            case .hole(let count): content += [UInt8](repeating: 0, count: Int(count))
            }
        }
        try file.truncate(to: Int64(content.count))
        try file.synchronize()
        return content
    }

    /// Compares at the speed of memory, which `==` has in an optimized build only.
    private static func areEqual(_ first: [UInt8], _ second: [UInt8]) -> Bool {
        first.withUnsafeBytes { first in
            second.withUnsafeBytes { second in
                guard first.count == second.count else { return false }
                guard let start = first.baseAddress, let other = second.baseAddress else { return first.isEmpty }
                return memcmp(start, other, first.count) == 0
            }
        }
    }

    /// Keeps what passes through.
    private final class Witness: FileCopyBuffers {
        private(set) var read: [UInt8] = []
        private(set) var written = 0
        private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 17, alignment: 8)

        deinit { buffer.deallocate() }

        func nextBuffer() -> UnsafeMutableRawBufferPointer { buffer }

        func didRead(_ part: UnsafeMutableRawBufferPointer, at offset: Int64) {
            #expect(offset == Int64(read.count))
            read += part
        }

        func didWrite(_ count: Int) { written += count }
    }

    /// Runs the copy and returns the target's content.
    private func run(
        to directory: FilePath, through buffers: (any FileCopyBuffers)? = nil,
        change: (inout FileCopy) -> Void = { _ in }
    ) throws -> (result: FileCopy.Result, content: [UInt8], status: FileStatus) {
        let path = directory.appending("target")
        var copy = FileCopy(from: sourcePath, to: path)
        change(&copy)
        let source = try Descriptor(opening: sourcePath, flags: O_RDONLY)
        let target = try Descriptor(opening: path, flags: O_RDWR | O_CREAT | O_TRUNC, mode: 0o600)
        let result = try copy.run(from: source, to: target, through: buffers)
        let status = try target.status()
        return (result, try target.read(count: Int(status.size) + 1, at: 0), status)
    }

    @Test(arguments: layouts.indices, ways.indices) func copiesDataAndHoles(_ layout: Int, _ way: Int) throws {
        let content = try source(Self.layouts[layout])
        let allocated = try Descriptor(opening: sourcePath, flags: O_RDONLY).status().allocated
        let way = Self.ways[way]
        let witness = Witness()
        for checksHoles in [true, false] where checksHoles || !way.isInMemory {
            let copied = try run(
                to: way.toOtherFileSystem ? other.path : root.path, through: way.isInMemory ? witness : nil
            ) { copy in copy.checksHoles = checksHoles }
            #expect(Self.areEqual(copied.content, content))
            #expect(copied.result.bytes == Int64(content.count))
            // A block more for each end of a hole that isn't at a block's boundary.
            #expect(copied.status.allocated <= allocated + 4 * 4096)
            if way.isInMemory, copied.result.method == .copy {
                #expect(Self.areEqual(witness.read, content))
                #expect(witness.written == content.count)
            }
        }
    }

    @Test(arguments: ways.indices) func copiesWhatTheSourceGains(_ way: Int) throws {
        var content = try source([.data(40 << 20)])
        let way = Self.ways[way]
        var hasGrown = false
        let path = sourcePath
        let copied = try run(
            to: way.toOtherFileSystem ? other.path : root.path, through: way.isInMemory ? Witness() : nil
        ) { copy in
            copy.progress = { bytes in
                guard bytes > 0, !hasGrown else { return }
                hasGrown = true
                try Descriptor(opening: path, flags: O_WRONLY).write([7, 8, 9], at: 40 << 20)
            }
        }
        if copied.result.method == .copy { content += [7, 8, 9] }
        #expect(Self.areEqual(copied.content, content))
    }

    @Test(arguments: ways.indices) func endsWhereTheSourceEnds(_ way: Int) throws {
        let content = try source([.data(40 << 20), .hole(1 << 20), .data(10)])
        let way = Self.ways[way]
        let path = sourcePath
        let copied = try run(
            to: way.toOtherFileSystem ? other.path : root.path, through: way.isInMemory ? Witness() : nil
        ) { copy in
            copy.progress = { bytes in
                if bytes > 0 { try Descriptor(opening: path, flags: O_WRONLY).truncate(to: 20 << 20) }
            }
        }
        guard copied.result.method == .copy else { return }
        #expect(copied.result.bytes == 20 << 20)
        #expect(Self.areEqual(copied.content, Array(content[..<(20 << 20)])))
    }

    @Test func copiesNoMoreThanTheMaximum() throws {
        let content = try source([.data(3 << 20)])
        let copied = try run(to: other.path) { copy in copy.maximumSize = 1 << 20 }
        #expect(Self.areEqual(copied.content, Array(content[..<(1 << 20)])))
    }

    @Test(arguments: ways.indices) func endsWithTheErrorOfProgress(_ way: Int) throws {
        struct Cancelled: Error {}
        _ = try source([.data(40 << 20)])
        let way = Self.ways[way]
        #expect(throws: Cancelled.self) {
            try run(to: way.toOtherFileSystem ? other.path : root.path, through: way.isInMemory ? Witness() : nil) {
                $0.progress = { bytes in if bytes > 0 { throw Cancelled() } }
            }
        }
    }

    @Test func reportsProgressUpToTheSize() throws {
        let content = try source([.data(40 << 20)])
        var reports: [Int64] = []
        _ = try run(to: other.path) { copy in copy.progress = { reports.append($0) } }
        #expect(reports.first == 0 || reports.count == 1)
        #expect(reports.last == Int64(content.count))
        #expect(reports == reports.sorted())
    }

    /// /dev/full refuses every write with ENOSPC.
    @Test func reportsAFullDisk() throws {
        _ = try source([.data(100)])
        let source = try Descriptor(opening: sourcePath, flags: O_RDONLY)
        let target = try Descriptor(opening: "/dev/full", flags: O_RDWR)
        let error = #expect(throws: SystemError.self) {
            try FileCopy(from: sourcePath, to: "/dev/full").run(from: source, to: target)
        }
        #expect(error?.errno == .noSpace)
    }

    @Test func reportsASourceThatCannotBeRead() throws {
        let source = try Descriptor(opening: root.path, flags: O_RDONLY)
        let target = try Descriptor(opening: root.path.appending("target"), flags: O_RDWR | O_CREAT, mode: 0o600)
        let error = #expect(throws: SystemError.self) {
            try FileCopy(from: root.path, to: "target").run(from: source, to: target)
        }
        #expect(error?.errno == .isDirectory)
    }
}
