import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupContainers

/// What a removal leaves that was killed while it wrote its record.
@Suite struct RemovalRecordTests {
    private let scratch: TemporaryDirectory
    private let group: Directory
    private let aside: Directory

    init() throws {
        scratch = try TemporaryDirectory()
        group = try Directory(scratch.path)
        try group.makeDirectory(RemovalRecord.directoryName, mode: 0o700)
        aside = try group.directory(RemovalRecord.directoryName)
    }

    private func write(_ text: String, as name: FilePath.Component) throws {
        try DurableFile.write(Array(text.utf8), as: name, in: aside, mode: 0o600)
    }

    @Test(arguments: ["", "{", "{ \"version\": 1, \"id\"", "\0\0\0"]) func isClearedAway(_ text: String) throws {
        try write(text, as: "removal.json.new")
        #expect(RemovalRecord.isUnfinished(in: group))
        try RemovalRecord.removeUnfinished(in: group)
        #expect(try group.names().isEmpty)
    }

    @Test func anEmptyDirectoryIsClearedAway() throws {
        try RemovalRecord.removeUnfinished(in: group)
        #expect(try group.names().isEmpty)
    }

    @Test(arguments: ["SQLite format 3", "{\u{1}", "[", String(repeating: "{", count: 5000)])
    func anotherContentIsKept(_ text: String) throws {
        try write(text, as: "removal.json.new")
        #expect(!RemovalRecord.isUnfinished(in: group))
        try RemovalRecord.removeUnfinished(in: group)
        #expect(try aside.names() == ["removal.json.new"])
    }

    @Test(arguments: ["removal.json", "files", "other"]) func anotherFileIsKept(_ name: String) throws {
        // The record's own writing goes through the unfinished one.
        try write("{", as: try #require(FilePath.Component(name)))
        try write("{", as: "removal.json.new")
        try RemovalRecord.removeUnfinished(in: group)
        #expect(try aside.names().count == 2)
    }

    @Test func whatOthersMayHaveWrittenIsKept() throws {
        try write("{", as: "removal.json.new")
        try aside.setPermissions(0o770)
        try RemovalRecord.removeUnfinished(in: group)
        #expect(try aside.names().count == 1)
    }
}
