import FileCoordination
import LinuxSystem
import SQLiteStore
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

@testable import StoreRescue

/// Random splits of a store between programs that add, change and delete rows.
@Suite(.ownThreads) struct RandomSplitTests {
    /// What the programs were told is committed.
    private struct Oracle {
        /// The rows that the store had before.
        let base = Set(1...20)
        var next = 21
        /// The values that each row may have.
        var values: [Int: Set<String>] = [:]
        /// The program and its last value, for each change of a row; nil for a deletion.
        var changes: [Int: [(program: Int, value: String?)]] = [:]

        init() {
            for id in base { values[id] = ["base"] }
        }
    }

    @Test(.soak, arguments: 0..<50) func losesNoCommittedRow(round: Int) throws {
        FileLease.ignoreBreakSignal()
        var generator = SeededGenerator(seed: Tier.seed &+ UInt64(round))
        let rig = try RescueRig()
        var oracle = Oracle()
        for id in oracle.base where id > 1 { try rig.sql(rig.path, "INSERT INTO t VALUES (\(id), 'base')") }
        var holders: [SQLiteHolder] = []
        let checkpoints = Int.random(in: 0..<3, using: &generator) == 0
        // Each split leaves a program with lost files; the last one writes at the name.
        for program in 0...Int.random(in: 0...2, using: &generator) {
            let holder = try rig.holder()
            for _ in 0..<Int.random(in: 1...30, using: &generator) { try write(holder, program, &oracle, &generator) }
            if Int.random(in: 0..<4, using: &generator) > 0 { try holder.changeFirstPage() }
            holders.append(holder)
            if checkpoints, Bool.random(using: &generator) { try holder.run("c.execute('PRAGMA wal_checkpoint')") }
            rig.unlink("-wal", "-shm")
            // A program whose files are lost goes on.
            for (program, holder) in holders.enumerated() where Bool.random(using: &generator) {
                try write(holder, program, &oracle, &generator)
            }
        }
        let last = try rig.holder()
        for _ in 0..<Int.random(in: 0...10, using: &generator) {
            try write(last, holders.count, &oracle, &generator)
            if Bool.random(using: &generator) { try last.changeFirstPage() }
        }
        var registry = InProcessRegistry()
        switch Int.random(in: 0..<4, using: &generator) {
        case 0: try last.end()
        case 1: registry = try rig.presenting(last) { try? last.run("c.close()") }
        default: try last.kill()
        }
        do {
            let report = try rescue(rig, registry, threeWay: Bool.random(using: &generator))
            let hasBase = report.merge?.base.isEmpty == false
            try check(oracle, rig, hasBase: hasBase, "seed \(Tier.seed), round \(round), base \(hasBase)")
            let (deleted, changed) = (report.merge?.deletedByOneSide ?? 0, report.merge?.changedByOneSide ?? 0)
            print("split \(round): base \(hasBase), \(report.branches.count) branches, \(deleted) \(changed)")
        } catch let failure as RelocationFailure {
            // Two programs that checkpoint into one database can damage it. Nothing is changed then.
            #expect(failure.code == "branch_damaged" && checkpoints, "seed \(Tier.seed): \(failure)")
            #expect(try rig.archivedRows().isEmpty)
        }
    }

    /// Joins with a base if nothing contradicts it.
    private func rescue(_ rig: RescueRig, _ registry: InProcessRegistry, threeWay: Bool) throws -> RescueReport {
        func run(_ margin: Duration?) throws -> RescueReport {
            try rig.rescue(prefer: .group, deadline: .ample, registry: registry, baseMargin: margin).run()
        }
        do {
            return try run(threeWay ? .zero : nil)
        } catch let failure as RelocationFailure where threeWay && failure.code == "no_common_base" {
            return try run(nil)
        }
    }

    private func check(_ oracle: Oracle, _ rig: RescueRig, hasBase: Bool, _ context: String) throws {
        var found: [Int: String] = [:]
        for row in try rig.rows() {
            let parts = row.split(separator: "=", maxSplits: 1)
            found[try #require(Int(parts[0]))] = String(parts[1])
        }
        for (id, values) in oracle.values {
            let changes = oracle.changes[id] ?? []
            let programs = Set(changes.map(\.program))
            let isDeleted = changes.contains { $0.value == nil }
            if let value = found[id] {
                #expect(values.contains(value), "\(context): row \(id) has a value from nowhere")
            } else {
                #expect(isDeleted, "\(context): row \(id) is lost")
            }
            // What one program alone has done is in the result, if the base is known, or only it had the row.
            guard hasBase, programs.count == 1, let change = changes.last else { continue }
            #expect(found[id] == change.value, "\(context): row \(id)")
        }
        #expect(found.keys.allSatisfy { oracle.values[$0] != nil }, "\(context): a row from nowhere")
    }

    private func write(
        _ holder: SQLiteHolder, _ program: Int, _ oracle: inout Oracle, _ generator: inout SeededGenerator
    ) throws {
        let text = "p\(program)-" + String(repeating: "x", count: Int.random(in: 0...2000, using: &generator))
        switch Int.random(in: 0..<4, using: &generator) {
        case 0:
            let id = Int.random(in: 1...20, using: &generator)
            try holder.run("c.execute('DELETE FROM t WHERE id = \(id)')")
            oracle.changes[id, default: []].append((program, nil))
        case 1:
            let id = Int.random(in: 1...20, using: &generator)
            try holder.run("c.execute(\"UPDATE t SET v = '\(text)' WHERE id = \(id)\")")
            oracle.values[id]?.insert(text)
            // It changes nothing after the program's own deletion.
            let wasDeleted = oracle.changes[id]?.contains { $0.program == program && $0.value == nil } ?? false
            if !wasDeleted { oracle.changes[id, default: []].append((program, text)) }
        default:
            try holder.insert(oracle.next, text)
            oracle.values[oracle.next] = [text]
            oracle.next += 1
        }
    }
}
