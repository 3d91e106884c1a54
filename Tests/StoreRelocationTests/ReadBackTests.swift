import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelocation

@Suite struct ReadBackTests {
    private let root: TemporaryDirectory
    private let path: FilePath

    init() throws {
        root = try TemporaryDirectory()
        path = root.path.appending("copy")
    }

    /// Writes `parts`, and leaves in the file what `alter` makes of each.
    private func run(_ parts: [[UInt8]], alter: (Int, inout [UInt8]) -> Void = { _, _ in }) throws -> String {
        let file = try Descriptor(opening: path, flags: O_RDWR | O_CREAT | O_TRUNC, mode: 0o600)
        let verification = try ReadBack(descriptor: file.raw, path: path)
        do {
            var offset: Int64 = 0
            for (number, part) in parts.enumerated() {
                try verification.slot().copyBytes(from: part)
                var written = part
                alter(number, &written)
                try file.write(written, at: offset)
                verification.wrote(part.count)
                offset += Int64(part.count)
            }
        } catch {
            verification.cancel()
            throw error
        }
        return try verification.finish()
    }

    private static let parts = (0..<37).map { number in
        [UInt8]((0..<(number == 36 ? 77 : 1 << 18)).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ number) })
    }

    @Test func whatIsThereIsHashed() throws {
        var hash = ContentHash()
        for part in Self.parts { part.withUnsafeBytes { hash.update($0) } }
        #expect(try run(Self.parts) == hash.text())
    }

    @Test func nothingIsHashedAsNothing() throws { #expect(try run([]) == ContentHash().text()) }

    /// Early in the file, where the writer is to hear of it, and in the last part, where it is through.
    @Test(arguments: [0, 2, 36]) func aChangedByteIsFound(_ damaged: Int) throws {
        #expect(throws: FileCopy.Mismatch.self) {
            try run(Self.parts) { number, part in if number == damaged { part[part.count / 2] ^= 1 } }
        }
    }

    @Test func aPartThatIsMissingIsFound() throws {
        #expect(throws: FileCopy.Mismatch.self) {
            try run(Self.parts) { number, part in if number == 36 { part.removeLast() } }
        }
    }
}
