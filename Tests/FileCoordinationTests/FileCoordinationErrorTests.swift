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
}
