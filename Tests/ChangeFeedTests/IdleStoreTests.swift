import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import ChangeFeed

/// Idle stores in WAL mode, observed with late events. Each test states the events that have arrived.
@Suite(.ownThreads) struct IdleStoreTests {
    private let directory: TemporaryDirectory
    private let store: FilePath
    private let observer: StoreObserver

    init() throws {
        directory = try TemporaryDirectory()
        store = directory.path.appending("Notes.sqlite")
        try ObserverRig.once(store, "PRAGMA journal_mode = WAL; CREATE TABLE note (text)")
        observer = StoreObserver(directory: directory.path, name: try #require(StoreName("Notes.sqlite")))
        observer.attach()
    }

    private func write() throws { try ObserverRig.once(store, "INSERT INTO note VALUES ('x')") }
    private func wasWritten() { observer.recordEvent(.database, created: false, modified: true, removed: false) }
    private func wasOpened() { observer.recordEvent(.sharedMemory, created: true, modified: true, removed: false) }
    private func wasClosed() { observer.recordEvent(.sharedMemory, created: false, modified: false, removed: true) }

    /// Polls once, which leaves it open whether a program or a copy wrote the store.
    private func doubt() {
        let found = observer.poll { nil }
        #expect(found.finding == .unchanged && found.nextPollDelay != nil)
    }

    /// A doubt that one program's events have resolved does not affect the next program.
    @Test func eachDoubtIsIndependent() throws {
        try write()
        wasWritten()
        doubt()
        let reader = try Shell(store)
        wasClosed()
        wasOpened()
        #expect(observer.poll { nil }.finding == .changed)
        // There is no poll between the two.
        try reader.close()
        wasClosed()

        let writer = try Shell(store, "INSERT INTO note VALUES ('y')")
        wasOpened()
        #expect(observer.poll { nil }.finding == .changed)
        try writer.close()
        wasWritten()
        doubt()
        wasClosed()
        #expect(observer.poll { nil }.finding == .unchanged)
    }

    /// A copied-over store was never in a WAL, and the next program to open it reads it.
    @Test(arguments: [true, false]) func findsACopyThatIsOpenedImmediately(_ isDoubted: Bool) throws {
        let copy = directory.path.appending("Copy.sqlite")
        try run("cp", [Word(store), Word(copy)])
        try run("cp", [Word(copy), Word(store)])
        wasWritten()
        if isDoubted { doubt() }
        let reader = try Shell(store)
        wasOpened()
        #expect(observer.poll { nil }.finding == .changed)
        #expect(observer.poll { nil }.finding == .unchanged)
        try reader.close()
        wasClosed()
        #expect(observer.poll { nil }.finding == .unchanged)
    }
}

/// Each state of an idle database, and what follows a look at it.
@Suite struct IdleStateTests {
    private static let (published, touched, written) = (stamp(1, 1), stamp(1, 2), stamp(2, 2))
    private static let start = ContinuousClock.now
    private static let deadline = start.advanced(by: IdleState.settlingTime)

    /// A stamp of long ago.
    private static func stamp(_ modified: Int64, _ changed: Int64) -> StoreFiles.Stamp {
        StoreFiles.Stamp(size: 4096, modified: modified, changed: changed)
    }

    private static func idle(_ stamp: StoreFiles.Stamp) -> IdleState { .idle(at: stamp, settled: stamp) }

    private static func doubtful(_ stamp: StoreFiles.Stamp?) -> IdleState {
        .doubtful(since: stamp, settled: stamp, until: deadline)
    }

    private struct Row {
        let state: IdleState
        let stamp: StoreFiles.Stamp
        var wasWritten = false
        var isExact = false
        var time = start
        let finding: IdleState.Finding
        let next: IdleState
    }

    private static let table = [
        Row(state: .inUse, stamp: written, finding: .unchanged, next: idle(written)),
        Row(state: .inUse, stamp: written, wasWritten: true, finding: .doubtful, next: doubtful(nil)),
        Row(state: idle(published), stamp: published, finding: .unchanged, next: idle(published)),
        Row(state: idle(published), stamp: touched, finding: .unchanged, next: idle(touched)),
        Row(state: idle(published), stamp: touched, isExact: true, finding: .doubtful, next: doubtful(published)),
        Row(state: idle(published), stamp: written, finding: .doubtful, next: doubtful(published)),
        Row(state: idle(published), stamp: published, wasWritten: true, finding: .doubtful, next: doubtful(published)),
        Row(state: doubtful(published), stamp: written, finding: .doubtful, next: doubtful(published)),
        Row(state: doubtful(published), stamp: written, time: deadline, finding: .written, next: idle(written)),
        Row(
            state: doubtful(nil), stamp: written, wasWritten: true, time: deadline, finding: .written,
            next: idle(written)),
        // A session that ended meanwhile explains the write.
        Row(state: doubtful(nil), stamp: written, time: deadline, finding: .unchanged, next: idle(written)),
        Row(state: doubtful(published), stamp: published, time: deadline, finding: .unchanged, next: idle(published)),
    ]

    @Test func followsTheTable() {
        for (number, row) in Self.table.enumerated() {
            var state = row.state
            let found = state.inspect(row.stamp, wasWritten: row.wasWritten, isExact: row.isExact, at: row.time)
            #expect(found == row.finding, "row \(number)")
            #expect(state == row.next, "row \(number)")
        }
    }
}
