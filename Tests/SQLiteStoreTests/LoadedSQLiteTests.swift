import Foundation
import Testing

@testable import SQLiteFormat

@Suite struct LoadedSQLiteTests {
    private static let hash = "df5c253c0b3dd24916e4ec7cf77d3db5294cc9fd45ae7b9c5e82ad8197f3alt1"

    private func version(_ texts: String...) -> SQLiteVersion? {
        var scan = SQLiteVersionScan()
        Array(texts.joined(separator: "\0").utf8 + [0]).withUnsafeBytes { scan.add($0) }
        return scan.version
    }

    @Test func findsAVersionBesideTheDateOfItsSources() {
        #expect(version("2022-12-28 14:03:47 \(Self.hash)", "3.40.1") == SQLiteVersion(minor: 40, patch: 1))
        #expect(version("2017-10-24 18:55:49 \(Self.hash)", "3.21.0") == SQLiteVersion(minor: 21, patch: 0))
        #expect(version("2026-03-13 10:00:00 \(Self.hash)", "3.51.3") == .withoutResetBug)
    }

    /// As in SQLite's shell, which links the library, or in an unrelated program.
    @Test func isUnknownWithoutEitherText() {
        #expect(version("2022-12-28 14:03:47 \(Self.hash)") == nil)
        #expect(version("3.40.1") == nil)
        #expect(version("2022-12-28 14:03:47 not the hash", "3.40.1") == nil)
        #expect(version("2022-12-28 14:03:47 \(Self.hash)", "13.40.1", "3.40", "3.40.1x", "3.400.1") == nil)
    }

    /// As in a Python with SQLite linked in.
    @Test func ignoresVersionsOfOtherPrograms() {
        let sources = "2024-11-25 12:07:48 \(Self.hash)"
        #expect(version(sources, "3.12.10", "3.2.0", "3.0.16", "3.47.1") == SQLiteVersion(minor: 47, patch: 1))
        #expect(version("2025-11-28 17:28:25 \(Self.hash)", "3.5.4", "3.51.1") == SQLiteVersion(minor: 51, patch: 1))
        #expect(version("2027-11-28 17:28:25 \(Self.hash)", "3.14.1", "3.59.1") == SQLiteVersion(minor: 59, patch: 1))
        #expect(version(sources, "3.46.2", "3.47.1") == nil)
    }

    @Test func ordersVersions() {
        #expect(SQLiteVersion(minor: 51, patch: 2) < .withoutResetBug)
        #expect(SQLiteVersion(minor: 9, patch: 9) < SQLiteVersion(minor: 40, patch: 1))
        #expect(SQLiteVersion(minor: 52, patch: 0) >= .withoutResetBug)
    }

    @Test func findsARunningProgramsLibrary() throws {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = ["sqlite3", "-batch"]
        let (input, output) = (Pipe(), Pipe())
        (process.standardInput, process.standardOutput) = (input, output)
        try process.run()
        try input.fileHandleForWriting.write(contentsOf: Data("SELECT sqlite_version();\n".utf8))
        var text = Data()
        while text.last != UInt8(ascii: "\n") {
            let byte = try output.fileHandleForReading.read(upToCount: 1)
            text += try #require(byte)
        }
        let found = LoadedSQLite.version(inProcess: process.processIdentifier)
        try input.fileHandleForWriting.close()
        process.waitUntilExit()
        #expect(found?.description == String(decoding: text.dropLast(), as: UTF8.self))
        #expect(LoadedSQLite.version(inProcess: process.processIdentifier) == nil)
    }
}
