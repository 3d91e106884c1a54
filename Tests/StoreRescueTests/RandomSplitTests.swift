import LinuxSystem
import SQLiteStore
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

@testable import StoreRescue

/// Random splits of a store between programs. Each row that a program was told is committed must be in the result.
@Suite(.ownThreads) struct RandomSplitTests {
    @Test(.soak, arguments: 0..<50) func losesNoCommittedRow(round: Int) throws {
        FileLease.ignoreBreakSignal()
        var generator = SeededGenerator(seed: Tier.seed &+ UInt64(round))
        let rig = try RescueRig()
        var committed: Set<String> = ["1=base"]
        var next = 2
        var holders: [SQLiteHolder] = []
        // Each split leaves a program with lost files; the last one writes at the name, and ends.
        for split in 0...Int.random(in: 1...2, using: &generator) {
            let holder = try rig.holder()
            for _ in 0..<Int.random(in: 1...30, using: &generator) {
                try write(holder, "p\(split)", &next, &committed, &generator)
            }
            holders.append(holder)
            if Bool.random(using: &generator) { try holder.run("c.execute('PRAGMA wal_checkpoint')") }
            rig.unlink("-wal", "-shm")
            // A program whose files are lost goes on.
            for holder in holders where Bool.random(using: &generator) {
                try write(holder, "late", &next, &committed, &generator)
            }
        }
        let last = try rig.holder()
        for _ in 0..<Int.random(in: 0...10, using: &generator) {
            try write(last, "last", &next, &committed, &generator)
        }
        if Bool.random(using: &generator) { try last.end() } else { try last.kill() }
        do {
            _ = try rig.rescue(deadline: .ample).run()
            let found = Set(try rig.rows())
            #expect(committed.subtracting(found).isEmpty, "seed \(Tier.seed): \(committed.subtracting(found))")
        } catch let failure as RelocationFailure {
            // Two programs that checkpoint into one database can damage it. Nothing is changed then.
            #expect(failure.code == "branch_damaged", "seed \(Tier.seed): \(failure)")
            #expect(try rig.archivedRows().isEmpty)
        }
    }

    private func write(
        _ holder: SQLiteHolder, _ value: String, _ next: inout Int, _ committed: inout Set<String>,
        _ generator: inout SeededGenerator
    ) throws {
        let text = value + String(repeating: "x", count: Int.random(in: 0...2000, using: &generator))
        try holder.insert(next, text)
        committed.insert("\(next)=\(text)")
        next += 1
    }
}
