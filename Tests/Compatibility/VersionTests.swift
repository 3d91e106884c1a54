import AgentProtocol
import Foundation
import Testing

/// The version is the same wherever it is written.
@Suite struct VersionTests {
    private let root = RecordedVersion.root.deletingLastPathComponent().deletingLastPathComponent()

    private func text(_ path: String) throws -> String {
        try String(contentsOf: root.appending(path: path), encoding: .utf8)
    }

    @Test func thePythonClientHasTheProgramsVersion() throws {
        let found = try text("Clients/python/groupstore/_version.py").firstMatch(of: /__version__ = "([^"]+)"/)
        #expect(found.map { String($0.1) } == ProgramVersion.current)
    }

    @Test(arguments: ["compose.yaml", "users.yaml"]) func theSamplesNameTheImageOfThisVersion(file: String) throws {
        let found = try text("Samples/Containers/compose/\(file)").firstMatch(of: /image: groupstore:([^\s]+)/)
        #expect(found.map { String($0.1) } == ProgramVersion.current)
    }

    @Test func theChangelogBeginsWithThisVersion() throws {
        let found = try text("CHANGELOG.md").firstMatch(of: /\n## ([0-9.]+)/)
        #expect(found.map { String($0.1) } == ProgramVersion.current)
    }

    @Test func thisVersionsFilesAreRecorded() {
        #expect(RecordedVersion.all.contains { $0.name == ProgramVersion.current })
    }
}
