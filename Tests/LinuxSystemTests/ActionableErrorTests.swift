import Foundation
import SystemPackage
import TestSupport
import Testing

@testable import LinuxSystem

@Suite struct ActionableErrorTests {
    private static let errors = [
        Errno.permissionDenied, .noSpace, .noSuchFileOrDirectory, .notDirectory, .noMemory, .tooManyOpenFiles,
        .ioError,
    ].map { SystemError("open", $0, path: "/srv/Notes.sqlite") }

    @Test(arguments: errors) func systemErrorsHaveTheShapeAndThePath(_ error: SystemError) {
        #expect(error.shapeDefects == [])
        #expect(error.errorPath == "/srv/Notes.sqlite")
    }

    @Test(arguments: errors) func foundationShowsTheMessageAndTheRemedy(_ error: SystemError) {
        let unknown: any Error = error
        #expect(unknown.localizedDescription == "\(error.fullMessage) (\(error.remedy))")
        #expect((unknown as NSError).localizedFailureReason == error.fullMessage)
        #expect((unknown as NSError).localizedRecoverySuggestion == error.remedy)
    }

    @Test func aLimitHasTheSystemsErrorAsItsCauseAndItsPath() throws {
        let limit = try #require(ResourceLimit(SystemError("inotify_add_watch", .noSpace, path: "/srv")))
        #expect(limit.shapeDefects == [])
        #expect(limit.underlyingError is SystemError)
        #expect(limit.errorPath == "/srv")
    }
}
