import ChangeFeed
import Dispatch
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

/// A store that another one replaces, or that comes and goes, while it is polled.
@Suite struct ReplacedStoreTests {
    private let root: TemporaryDirectory
    private let group: Directory
    private let observer: StoreObserver

    init() throws {
        root = try TemporaryDirectory()
        group = try Directory(root.path)
        observer = StoreObserver(directory: root.path, name: try #require(StoreName("Notes.sqlite")))
        _ = try python(
            """
            import sqlite3
            for name in ('Notes.sqlite', 'other'):
                sqlite3.connect('\(root.path.string)/' + name).execute('CREATE TABLE note (text)')
            """)
    }

    private func poll() -> Observation {
        observer.recordEvent(.database, created: true, modified: true, removed: true)
        return observer.poll { nil }
    }

    @Test func reportsAReplacementThatCannotBeRead() throws {
        observer.attach()
        // No process can open it: it is a circle of links.
        #expect(symlink("Notes.sqlite-wal", root.path.appending("Notes.sqlite-wal").string) == 0)
        #expect(rename(root.path.appending("other").string, root.path.appending("Notes.sqlite").string) == 0)
        #expect(poll().finding == .discontinued(.unreadable))
        #expect(poll().finding == .unchanged)
        try group.removeFile("Notes.sqlite-wal")
        #expect(poll().finding == .changed)
    }

    /// Whatever a poll meets midway, the last report agrees with what lies there in the end.
    @Test func lastReportAgreesWithTheEnd() throws {
        observer.attach()
        let (here, away) = (root.path.appending("Notes.sqlite").string, root.path.appending("away").string)
        var isReported = true
        for round in 0..<200 {
            let staysAway = round.isMultiple(of: 2)
            let isOver = DispatchSemaphore(value: 0)
            DispatchQueue.global().async {
                for _ in 0..<50 {
                    rename(here, away)
                    rename(away, here)
                }
                if staysAway { rename(here, away) }
                isOver.signal()
            }
            func record(_ finding: Observation.Finding) {
                switch finding {
                case .discontinued(.vanished), .discontinued(.unreadable): isReported = false
                case .discontinued, .changed: isReported = true
                case .unchanged: break
                }
            }
            while isOver.wait(timeout: .now()) == .timedOut { record(poll().finding) }
            record(poll().finding)
            #expect(isReported != staysAway, "round \(round)")
            if staysAway {
                rename(away, here)
                record(poll().finding)
            }
        }
    }
}
