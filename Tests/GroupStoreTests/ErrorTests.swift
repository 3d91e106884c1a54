import AgentProtocol
import Foundation
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupContainers
@testable import GroupStore

@Suite struct ErrorTests {
    @Test func refusalsHaveTheShape() throws {
        let bad = try #require(throws: GroupStoreError.self) { try GroupContainer(identifier: "not a group") }
        let missing = try #require(throws: GroupStoreError.self) {
            try GroupContainer(identifier: "group.example", directory: URL(filePath: "/nonexistent/group.example"))
        }
        #expect(bad.shapeDefects == [] && bad.errorCode == "bad_identifier")
        #expect(missing.shapeDefects == [] && missing.errorCode == "no_container")
    }

    /// A program that knows nothing of this package shows one of these.
    @Test(
        arguments: [
            GroupStoreError(.noAgent, "no agent answers at /run/agent.sock", remedy: "start it: groupstore agent"),
            FileCoordinationError(.busy, "Notes.sqlite is claimed by pid 7", remedy: "try again when it is done"),
        ] as [any ActionableError])
    func anErrorShowsItsRemedy(_ error: any ActionableError) {
        let unknown: any Error = error
        #expect("\(unknown)" == "\(error.message) (\(error.remedy))")
        #expect(unknown.localizedDescription == "\(error.message) (\(error.remedy))")
        #expect((unknown as NSError).localizedRecoverySuggestion == error.remedy)
    }

    @Test(
        arguments: [
            (SystemError("open", .ioError, path: "/srv/Notes.sqlite"), "system", "/srv/Notes.sqlite"),
            (AgentConnectionError.lost("/run/agent"), "no_agent", "/run/agent"),
            (AgentConnectionError.refused(WireError(code: "busy", "it is busy")), "refused", nil),
            (UntrustedJournal(directory: "/srv", writer: 1), "interrupted", "/srv"),
            (UnreadableRecord(path: "/srv/record", reason: "damaged"), "interrupted", "/srv/record"),
        ] as [(any ActionableError, String, FilePath?)])
    func anErrorThatIsNotPublicIsTheCauseOfAPublicOne(_ cause: any ActionableError, code: String, path: FilePath?)
        throws
    {
        #expect(cause.shapeDefects == [])
        let error = try #require(GroupStoreError.visible(cause) as? GroupStoreError)
        #expect(error.shapeDefects == [])
        #expect(error.errorCode == code)
        #expect(error.underlyingError.map { "\($0)" } == "\(cause)")
        #expect(error.errorPath == path)
    }
}
