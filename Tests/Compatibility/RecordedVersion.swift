import AgentProtocol
import Foundation
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

/// What one release has written, in Tests/Compatibility/VERSION. `record` makes such a directory.
struct RecordedVersion: Sendable, CustomTestStringConvertible {
    let name: String

    static let root = URL(filePath: #filePath).deletingLastPathComponent()

    static let all: [RecordedVersion] = {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: root.path())) ?? []
        return names.filter { $0.first?.isNumber == true }.sorted().map(RecordedVersion.init)
    }()

    var testDescription: String { name }

    private func url(_ path: String) -> URL { Self.root.appending(path: name).appending(path: path) }

    func bytes(_ path: String) throws -> [UInt8] { Array(try Data(contentsOf: url(path))) }

    func object(_ path: String) throws -> JSONObject { try Self.object(bytes(path)) }

    static func object(_ bytes: [UInt8]) throws -> JSONObject {
        guard case .object(let object) = try JSONValue(parsing: bytes) else { throw Unexpected("not an object") }
        return object
    }

    /// The objects of a file with one a line.
    func lines(_ path: String) throws -> [JSONObject] {
        try bytes(path).split(separator: UInt8(ascii: "\n")).map { try Self.object(Array($0)) }
    }

    /// The files of a directory, each with its name.
    func files(in directory: String) throws -> [(name: String, bytes: [UInt8])] {
        try FileManager.default.contentsOfDirectory(atPath: url(directory).path()).sorted().map {
            ($0, try bytes("\(directory)/\($0)"))
        }
    }

    /// Makes the store that a file describes in SQL.
    func store(_ path: String, in directory: TemporaryDirectory) throws -> StoreLocation {
        let file = directory.path.appending("Notes.sqlite")
        do {
            let writer = try StoreWriter(file, creating: true)
            try writer.execute(script: String(decoding: bytes(path), as: UTF8.self))
        }
        return StoreLocation(
            directory: try Directory(directory.path),
            name: try #require(file.lastComponent.flatMap(StoreName.init)))
    }
}

extension JSONValue {
    /// Returns true if this has all that `other` has, with the same values. Later versions may add members.
    func includes(_ other: JSONValue) -> Bool {
        switch (self, other) {
        case (.object(let mine), .object(let others)):
            others.members.allSatisfy { mine[$0.key]?.includes($0.value) == true }
        case (.array(let mine), .array(let others)):
            mine.count == others.count && zip(mine, others).allSatisfy { $0.includes($1) }
        default: self == other
        }
    }
}
