import Glibc
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreMerging
import StoreRelocation
import SystemPackage

/// The merge of all branches of a store into it, one after the other.
struct BranchMerge: StoreCombination {
    let options: MergeOptions
    let branches: [StoreLocation]
    /// The last state that all of them had; nil to merge two ways.
    let base: StoreLocation?
    /// The programs that have or had each branch open, in one phrase.
    let holders: [String]
    let isCancelled: @Sendable () -> Bool

    func run(
        on staged: StoreLocation, of group: FilePath, merging legacy: StoreLocation,
        report: (RelocationEvent) -> Void
    ) throws -> MergeReport {
        var total: MergeReport?
        for (number, branch) in branches.enumerated() {
            if branches.count > 1 {
                let earlier = holders.prefix(number).joined(separator: ", ")
                report(
                    .note(
                        "what \(holders[number]) has committed, beside the store"
                            + (number == 0 ? ":" : " with the rows of \(earlier):")))
            }
            if try Self.isEmpty(staged) {
                // The database at the name has nothing at all: the branch's log had even its tables.
                try StoreReader.read(branch) { try $0.copy(to: staged.pathForSQLite) }
                let copied = try Self.report(ofAllOf: branch)
                report(.merging(copied))
                total = total.map { $0.adding(copied) } ?? copied
                continue
            }
            let merge = StoreMerge(options, base: base, isCancelled: isCancelled)
            let note = try Self.leftOut(of: branch, staged)
            var result = try merge.run(on: staged, of: group, merging: branch, report: report)
            if let note { result.notes.append(note) }
            total = total.map { $0.adding(result) } ?? result
        }
        return total ?? MergeReport()
    }

    /// Returns a report that all rows of a branch are taken.
    private static func report(ofAllOf branch: StoreLocation) throws -> MergeReport {
        try StoreReader.read(branch) { reader in
            var report = MergeReport()
            for (table, rows) in try StoreContent(reader).rowCounts() {
                var entity = MergeReport.Entity(entity: nil, table: table, keys: [["*"]])
                entity.onlyLegacy = rows
                report.entities.append(entity)
            }
            return report
        }
    }

    /// Returns a note on the views, triggers and indexes that only the branch has: a merge takes rows.
    private static func leftOut(of branch: StoreLocation, _ store: StoreLocation) throws -> String? {
        func objects(_ store: StoreLocation) throws -> [DatabaseSchema.Object] {
            let schema = try StoreReader.read(store) { try DatabaseSchema($0) }
            return [.view, .trigger, .index].flatMap(schema.objects)
        }
        func key(_ object: DatabaseSchema.Object) -> String {
            "\(object.kind.rawValue) \(DatabaseSchema.key(of: object.name))"
        }
        let present = Set(try objects(store).map(key))
        let missing = try objects(branch).filter { !present.contains(key($0)) }
        guard !missing.isEmpty else { return nil }
        let names = missing.map { "the \($0.kind.rawValue) \(PrintableText($0.name))" }.joined(separator: ", ")
        return "only the branch has \(names): not in the result"
    }

    private static func isEmpty(_ store: StoreLocation) throws -> Bool {
        try StoreReader.read(store) { try $0.integer("SELECT count(*) FROM sqlite_schema") == 0 }
    }

    func rehearse(
        _ group: StoreLocation, merging legacy: StoreLocation, report: (RelocationEvent) -> Void
    ) throws -> MergeReport {
        let place = try ScratchDirectory()
        return try withExtendedLifetime(place) {
            let directory = try Directory(place.path)
            let copy = StoreLocation(directory: directory, name: group.name)
            _ = try directory.open(group.name.database, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
            try StoreReader.read(group) { try $0.copy(to: copy.pathForSQLite, isTemporary: true) }
            try group.copySupport(to: copy)
            return try run(on: copy, of: group.path, merging: legacy, report: report)
        }
    }
}

extension MergeReport {
    /// Returns the report with another merge's counts added, table by table.
    func adding(_ other: MergeReport) -> MergeReport {
        var sum = self
        sum.entities += other.entities
        sum.base += other.base
        sum.links += other.links
        sum.notes += other.notes
        return sum
    }
}
