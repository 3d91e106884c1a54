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

    /// Writes `parts` after `alter` has changed each, while the verifier expects the originals.
    private func run(
        _ parts: [[UInt8]], isConcurrent: Bool, alter: (Int, inout [UInt8]) -> Void = { _, _ in }
    ) throws -> String {
        let file = try Descriptor(opening: path, flags: O_RDWR | O_CREAT | O_TRUNC, mode: 0o600)
        let verifier = try CopyVerifier(descriptor: file.raw, path: path, isConcurrent: isConcurrent)
        do {
            var offset: Int64 = 0
            for (number, part) in parts.enumerated() {
                try verifier.nextBuffer().copyBytes(from: part)
                var written = part
                alter(number, &written)
                try file.write(written, at: offset)
                try verifier.didWrite(part.count)
                offset += Int64(part.count)
            }
        } catch {
            verifier.cancel()
            throw error
        }
        return try verifier.finish()
    }

    private static let parts = (0..<37).map { number in
        [UInt8]((0..<(number == 36 ? 77 : CopyVerifier.chunk)).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ number) })
    }

    @Test(arguments: [true, false]) func hashesTheFile(isConcurrent: Bool) throws {
        var hash = ContentHash()
        for part in Self.parts { part.withUnsafeBytes { hash.update($0) } }
        #expect(try run(Self.parts, isConcurrent: isConcurrent) == hash.text())
    }

    @Test(arguments: [true, false]) func hashesAnEmptyFile(isConcurrent: Bool) throws {
        #expect(try run([], isConcurrent: isConcurrent) == ContentHash().text())
    }

    /// Early in the file, where the writer must be stopped, and in the last part, where it has finished.
    @Test(arguments: [0, 2, 36], [true, false]) func detectsAChangedByte(_ damaged: Int, isConcurrent: Bool) throws {
        #expect(throws: VerifiedCopy.Mismatch.self) {
            try run(Self.parts, isConcurrent: isConcurrent) { number, part in
                if number == damaged { part[part.count / 2] ^= 1 }
            }
        }
    }

    @Test(arguments: [true, false]) func detectsAMissingPart(isConcurrent: Bool) throws {
        #expect(throws: VerifiedCopy.Mismatch.self) {
            try run(Self.parts, isConcurrent: isConcurrent) { number, part in if number == 36 { part.removeLast() } }
        }
    }
}
