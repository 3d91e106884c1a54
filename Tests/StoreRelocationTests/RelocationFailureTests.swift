import Glibc
import SQLiteStore
import SystemPackage
import Testing

@testable import StoreRelocation

/// A failure names SQLite's code and message, and what the user can do follows from the code.
@Suite struct RelocationFailureTests {
    private let request = RelocationRequest(source: "/old/a.sqlite", group: "/group")

    @Test(
        arguments: [
            (5, RelocationFailure.Kind.busy, "in_use"), (262, .busy, "in_use"), (11, .badData, "corrupt"),
            (26, .badData, "corrupt"), (3, .notPermitted, "not_permitted"), (1032, .notPermitted, "not_permitted"),
            (13, .unusablePlace, "no_space"), (14, .failed, "sqlite_error"), (15, .failed, "sqlite_error"),
            (778, .failed, "sqlite_error"),
        ] as [(Int32, RelocationFailure.Kind, String)])
    func reportsSQLitesErrorWhileWriting(_ code: Int32, _ kind: RelocationFailure.Kind, _ name: String) throws {
        let error = #expect(throws: StoreWriteError.self) {
            try StoreWriteError.translating { throw StoreError(code: code, message: "a reason", path: "/other") }
        }
        let failure = RelocationFailure(try #require(error), request)
        #expect(failure.kind == kind && failure.code == name)
        #expect(failure.message == "/old/a.sqlite: SQLite error \(code): a reason")
    }

    /// While reading, too: a store's log or a copy may need space.
    @Test(arguments: [(13, 0), (14, ENOSPC), (10, EDQUOT)] as [(Int32, Int32)])
    func aFullDiskIsNamedAsSuch(_ code: Int32, _ errno: Int32) {
        let failure = RelocationFailure(
            StoreError(code: code, message: "a reason", path: "/old/a.sqlite", errno: errno), request)
        #expect(failure.kind == .unusablePlace && failure.code == "no_space")
        #expect(failure.message.contains("/old/a.sqlite: database or disk is full") || errno == 0)
        #expect(failure.remedy.contains("df -i"))
    }

    /// An error that isn't SQLite's, and one while reading, are reported as ever.
    @Test func reportsOtherErrorsAsTheyAre() throws {
        #expect(throws: StoreError.notAFile("/old/a.sqlite")) {
            try StoreWriteError.translating { throw StoreError.notAFile("/old/a.sqlite") }
        }
        let failure = RelocationFailure(StoreError(code: 11, message: "a reason", path: "/old/a.sqlite"), request)
        #expect(failure.kind == .badData && failure.code == "unreadable")
        #expect(failure.message == "/old/a.sqlite: the database is damaged: a reason (SQLite error 11)")
    }
}
