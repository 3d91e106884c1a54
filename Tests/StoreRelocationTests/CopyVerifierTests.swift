import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelocation

@Suite struct CopyVerifierTests {
    private let root: TemporaryDirectory
    private let path: FilePath

    init() throws {
        root = try TemporaryDirectory()
        path = root.path.appending("copy")
    }

    /// Writes `parts`, and leaves in the file what `alter` makes of each.
    private func run(
        _ parts: [[UInt8]], isBeside: Bool, alter: (Int, inout [UInt8]) -> Void = { _, _ in }
    ) throws -> String {
        let file = try Descriptor(opening: path, flags: O_RDWR | O_CREAT | O_TRUNC, mode: 0o600)
        let verification = try CopyVerifier(descriptor: file.raw, path: path, isBeside: isBeside)
        do {
            var offset: Int64 = 0
            for (number, part) in parts.enumerated() {
                try verification.slot().copyBytes(from: part)
                var written = part
                alter(number, &written)
                try file.write(written, at: offset)
                try verification.wrote(part.count)
                offset += Int64(part.count)
            }
        } catch {
            verification.cancel()
            throw error
        }
        return try verification.finish()
    }

    private static let parts = (0..<37).map { number in
        [UInt8]((0..<(number == 36 ? 77 : CopyVerifier.chunk)).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ number) })
    }

    @Test(arguments: [true, false]) func whatIsThereIsHashed(isBeside: Bool) throws {
        var hash = ContentHash()
        for part in Self.parts { part.withUnsafeBytes { hash.update($0) } }
        #expect(try run(Self.parts, isBeside: isBeside) == hash.text())
    }

    @Test(arguments: [true, false]) func nothingIsHashedAsNothing(isBeside: Bool) throws {
        #expect(try run([], isBeside: isBeside) == ContentHash().text())
    }

    /// Early in the file, where the writer is to hear of it, and in the last part, where it is through.
    @Test(arguments: [0, 2, 36], [true, false]) func aChangedByteIsFound(_ damaged: Int, isBeside: Bool) throws {
        #expect(throws: FileCopy.Mismatch.self) {
            try run(Self.parts, isBeside: isBeside) { number, part in if number == damaged { part[part.count / 2] ^= 1 }
            }
        }
    }

    @Test(arguments: [true, false]) func aPartThatIsMissingIsFound(isBeside: Bool) throws {
        #expect(throws: FileCopy.Mismatch.self) {
            try run(Self.parts, isBeside: isBeside) { number, part in if number == 36 { part.removeLast() } }
        }
    }
}
