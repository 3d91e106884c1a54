import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage
import Testing

@testable import GroupStoreAgent

@Suite struct HolderDiagnosisTests {
    private func holder(_ pid: Int32, _ minor: Int?, patch: Int = 3, writes: Bool = true) -> StoreHolder {
        StoreHolder(
            process: FileHolder(pid: pid, program: "notes"), canWrite: writes,
            version: minor.map { SQLiteVersion(minor: $0, patch: patch) })
    }

    private func finding(_ holders: StoreHolder..., mode: DatabaseHeader.JournalMode = .writeAhead) -> Finding {
        HolderDiagnosis.finding("/a/Notes.sqlite", mode: mode, holders: holders)
    }

    @Test func warnsAboutTwoWritersWithAnOlderSQLite() {
        let found = finding(holder(1, 40), holder(2, 51), holder(3, 51, patch: 2))
        #expect(found.verdict == .warning)
        #expect(
            found.message.hasPrefix(
                "/a/Notes.sqlite: open in notes (pid 1), SQLite 3.40.3; notes (pid 2), SQLite 3.51.3; notes (pid 3), SQLite 3.51.2"
            ))
        #expect(found.remedy == "update SQLite in notes (pid 1), notes (pid 3)")
        #expect(found.holders.count == 3)
    }

    @Test func acceptsAllOtherHolders() {
        #expect(finding(holder(1, 40)).verdict == .fine)
        #expect(finding(holder(1, 51), holder(2, 52)).verdict == .fine)
        #expect(finding(holder(1, 40), holder(2, 40), mode: .rollback).verdict == .fine)
        #expect(finding(holder(1, 40), holder(2, 40, writes: false)).verdict == .fine)
    }

    @Test func reportsAnUnknownVersion() {
        let found = finding(holder(1, nil), holder(2, nil))
        #expect(
            found.message == "/a/Notes.sqlite: open in notes (pid 1), SQLite unknown; notes (pid 2), SQLite unknown")
        #expect(found.verdict == .fine)
    }
}
