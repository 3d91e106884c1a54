import LinuxSystem
import TestSupport
import Testing

@testable import FileCoordination

@Suite struct FileCoordinationErrorTests {
    @Test func aWrappedErrorKeepsTheRemedyAndIsTheCause() {
        let cause = SystemError("open", .permissionDenied, path: "/srv/Notes.sqlite")
        let error = FileCoordinationError(cause as any Error)
        #expect(error.shapeDefects == [])
        #expect(error.errorCode == "system")
        #expect(error.remedy == cause.remedy)
        #expect(error.underlyingError as? SystemError == cause)
        #expect(error.errorPath == "/srv/Notes.sqlite")
    }

    /// A presenter in another process may have written a part of it.
    @Test func controlCharactersAreEscaped() {
        let error = FileCoordinationError(.agent, "it said \u{1B}[2J\nand more", remedy: "see\u{7}")
        #expect(error.message == "it said \\u{1b}[2J\\u{a}and more")
        #expect(error.remedy == "see\\u{7}")
    }

    @Test func theContainerItselfHasAName() {
        let error = FileCoordinationError.busy(["", "Notes.sqlite"], lockHolders: [], presenters: [])
        #expect(error.message.hasPrefix("the group container, Notes.sqlite is claimed"))
    }
}
