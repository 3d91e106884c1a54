import CoreDataStore
import SQLiteStore
import StoreRelocation

/// Brings virtual tables up to date with the merged rows.
struct VirtualTableMerge {
    let session: MergeSession
    private var store: StoreWriter { session.store }

    /// Throws `RelocationFailure` if the legacy store has rows that can't be merged.
    func check() throws {
        for table in session.schema.virtualTables where table.treatment == .other {
            let rows = try? store.integer("SELECT count(*) FROM legacy.\(MergeSession.quote(table.name))")
            guard rows == 0 else {
                throw RelocationFailure.mergeUnsupported(
                    "the virtual table \(table.name) (\(table.module)) of the legacy store has rows, or can't be read")
            }
        }
        for table in session.schema.virtualTables where table.treatment == .content {
            guard let rows = try? store.integer("SELECT count(*) FROM legacy.\(MergeSession.quote(table.name))") else {
                throw RelocationFailure.mergeUnsupported(
                    "the virtual table \(table.name) (\(table.module)) of the legacy store can't be read")
            }
            guard rows > 0 else { continue }
            for (index, other) in session.schema.tables.enumerated() where other.hasVisibleNumber {
                let renumbered = try store.integer("SELECT count(*) FROM \(session.map(index)) WHERE lid <> gid") ?? 0
                if renumbered > 0 {
                    throw RelocationFailure.mergeUnsupported(
                        "rows of \(other.name) get other numbers, which the full-text table \(table.name) may refer to")
                }
            }
        }
    }

    /// Merges full-text tables with their own content, by the rows' numbers. Returns the plan's lines.
    func mergeContent() throws -> [MergeReport.Entity] {
        var found: [MergeReport.Entity] = []
        for table in session.schema.virtualTables where table.treatment == .content {
            let (group, legacy) = ("main.\(MergeSession.quote(table.name))", "legacy.\(MergeSession.quote(table.name))")
            var report = MergeReport.Entity(entity: nil, table: table.name, keys: [["rowid"]])
            let equal = table.columns.map { "g.\(MergeSession.quote($0)) IS l.\(MergeSession.quote($0))" }
            let pairs = "\(legacy) AS l JOIN \(group) AS g ON g.rowid = l.rowid"
            let same = (["TRUE"] + equal).joined(separator: " AND ")
            report.equal = try store.integer("SELECT count(*) FROM \(pairs) WHERE \(same)") ?? 0
            let different = try store.integer("SELECT count(*) FROM \(pairs) WHERE NOT (\(same))") ?? 0
            let added = "\(legacy) AS l WHERE l.rowid NOT IN (SELECT rowid FROM \(group))"
            report.onlyLegacy = try store.integer("SELECT count(*) FROM \(added)") ?? 0
            report.onlyGroup =
                (try store.integer("SELECT count(*) FROM \(group)") ?? 0) - report.equal - different
            let columns = table.columns.map(MergeSession.quote)
            let all = (["rowid"] + columns).joined(separator: ", ")
            let sources = (["l.rowid"] + columns.map { "l.\($0)" }).joined(separator: ", ")
            switch session.options.preferences.first(where: { if case .newer = $0 { false } else { true } }) {
            case .group?: report.takesGroup = different
            case .legacy?:
                report.takesLegacy = different
                try store.execute(
                    "CREATE TEMP TABLE gs_content AS SELECT l.rowid AS id FROM \(pairs) WHERE NOT (\(same))")
                try store.execute("DELETE FROM \(group) WHERE rowid IN (SELECT id FROM temp.gs_content)")
                try store.execute("DROP TABLE temp.gs_content")
            default: report.undecided = different
            }
            if report.undecided == 0 {
                try store.execute("INSERT INTO \(group) (\(all)) SELECT \(sources) FROM \(added)")
            }
            if !report.isEmpty { found.append(report) }
        }
        return found
    }

    /// Fills the indexes of other tables again.
    func rebuild() throws {
        for table in session.schema.virtualTables where table.treatment == .rebuilt {
            let name = MergeSession.quote(table.name)
            do {
                try store.execute("INSERT INTO main.\(name) (\(name)) VALUES ('rebuild')")
            } catch let error as StoreError {
                throw RelocationFailure.mergeUnsupported(
                    "the full-text index \(table.name) can't be rebuilt: \(error.reason)")
            }
        }
        for index in session.schema.layout?.spatialIndexes ?? [] {
            guard session.schema.virtualTables.contains(where: { $0.name.lowercased() == index.name.lowercased() })
            else {
                continue
            }
            try store.execute("DELETE FROM main.\(MergeSession.quote(index.name))")
            try store.execute(index.populateStatement)
        }
    }
}
