import LinuxSystem
import NATSStreams
import PersistentHistory
import SQLiteStore
import StoreReplication
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelay

/// What a follower does after an error.
@Suite struct SessionFailureTests {
    private let path: FilePath = "/replica.sqlite"

    @Test func theConnectionStaysIfTheCauseIsOnThisMachineOrAtTheHome() throws {
        let token = try #require(HistoryToken("h1.abc.5.ff"))
        // SQLITE_FULL and SQLITE_IOERR.
        let failures: [any ActionableError] = [
            StoreError(code: 13, message: "database or disk is full", path: path),
            StoreError(code: 10, message: "disk I/O error", path: path), StoreError.busy(path),
            SystemError("pwrite", .noSpace, path: path), SystemError("open", .isDirectory, path: path),
            RelayError.noHome(stream: "GS_Notes"), RelayError.noSnapshot("the history is outdated"),
            RelayError.badSnapshot("it has another size"), RelayError.oldSnapshot(token, position: token),
            RelayError.otherHome(token, last: token),
            ReplicationError.malformedSnapshot("it has another SHA-256", path),
        ]
        for failure in failures {
            #expect(SessionFailure(failure, hasConnected: true) == .retry, "\(failure.message)")
        }
    }

    @Test func aBrokerThatIsAwayIsConnectedToAgain() {
        for code in [NATSError.Code.lost, .timedOut, .unreachable, .streamBroken, .noStream] {
            #expect(SessionFailure(NATSError(code, ""), hasConnected: false) == .reconnect)
        }
        #expect(SessionFailure(NATSError(.refused, ""), hasConnected: true) == .reconnect)
        #expect(SessionFailure(NATSError(.refused, ""), hasConnected: false) == .end)
    }

    @Test func endsIfOnlyAPersonCanHelp() {
        let failures: [any ActionableError] = [
            ReplicationError.diverged(tables: ["Note"], path), SystemError("open", .permissionDenied, path: path),
            StoreError(code: 8, message: "attempt to write a readonly database", path: path),
            StoreError(code: 11, message: "database disk image is malformed", path: path),
        ]
        for failure in failures {
            #expect(SessionFailure(failure, hasConnected: true) == .end, "\(failure.message)")
        }
    }
}
