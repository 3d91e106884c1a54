import ManagedObjectModels
import SQLiteStore
import SystemPackage

/// Counts what a migration removed or changed, object by object, by comparing the store as it was with the migrated
/// copy. It is the only count: a dry run makes it of a trial migration, and the run of the copy that it publishes.
///
/// What corresponds to what, and where it lies, is the audit's own reading of the models.
package struct LossCount: Sendable {
    /// The content that one sentence is about.
    struct Key: Hashable {
        let entity: String
        let property: String?
        let unit: RemovedContent.Loss.Unit
        let reason: String

        init(_ entity: String, _ property: String?, _ unit: RemovedContent.Loss.Unit, _ reason: String) {
            (self.entity, self.property, self.unit, self.reason) = (entity, property, unit, reason)
        }
    }

    private let paths: ContentPaths
    private let old: AuditLayout
    private let new: AuditLayout
    private let values: ValueLosses
    private let links: LinkLosses

    /// Returns nil if there are no steps.
    package init?(_ steps: [CountedStep]) {
        guard let paths = ContentPaths(steps), let first = steps.first, let last = steps.last else { return nil }
        self.paths = paths
        old = AuditLayout(first.source)
        new = AuditLayout(last.destination)
        values = ValueLosses(paths, old, new)
        links = LinkLosses(paths, old, new)
    }

    /// True if nothing can be lost, whatever the store contains: the audit proves that all content is the same.
    package var isEmpty: Bool {
        values.isEmpty && links.isEmpty && !paths.mayDropObjects && removedEntities.isEmpty
    }

    private var removedEntities: [(entity: String, point: LossPoint)] {
        old.tree.names.compactMap { name in
            if case .lost(let point) = paths.fate(of: name) { (name, point) } else { nil }
        }
    }

    /// Returns the losses. Both files must be without a log and without a writer.
    ///
    /// - Parameters:
    ///   - before: The store as it was before the first step.
    ///   - after: The copy after the last step.
    ///
    /// Throws `StoreError`, and `AuditFailure` if a file isn't laid out as its model says.
    package func losses(
        before: FilePath, after: FilePath, isCancelled: @escaping () -> Bool = { false }
    ) throws -> [RemovedContent.Loss] {
        guard !isEmpty else { return [] }
        let reader = try ComparisonReader(after, beside: before)
        reader.interrupt(when: isCancelled)
        try reader.addFunction(AttributeType.floatFunction, arguments: 1) { values in
            switch values[0] {
            case .integer(let number): .integer(Int64(exactly: Float(number)) == number ? 1 : 0)
            case .real(let number): .integer(number.isNaN || Double(Float(number)) == number ? 1 : 0)
            case .null, .text, .blob: .integer(0)
            }
        }
        let (oldSchema, newSchema) = (try AuditSchema(reader, "was"), try AuditSchema(reader, "main"))
        try old.verify(oldSchema)
        try new.verify(newSchema)
        var counts: [Key: Int64] = [:]
        for (key, count) in try objects(reader, oldSchema, newSchema) { counts[key, default: 0] += count }
        for (key, count) in try values.count(reader, oldSchema, newSchema) { counts[key, default: 0] += count }
        for (key, count) in try links.count(reader, oldSchema, newSchema) { counts[key, default: 0] += count }
        return counts.filter { $0.value > 0 }.map { key, count in
            RemovedContent.Loss(
                entity: key.entity, property: key.property, key.unit, count: count, reason: key.reason)
        }
    }

    private func objects(
        _ reader: ComparisonReader, _ oldSchema: AuditSchema, _ newSchema: AuditSchema
    ) throws -> [(Key, Int64)] {
        func count(_ entity: String, _ condition: String) throws -> Int64 {
            try reader.integer(
                "SELECT count(*) FROM \(oldSchema.qualified(old.tree.table(of: entity))) AS b NOT INDEXED "
                    + "WHERE b.Z_ENT = \(old.tree.number(of: entity))\(condition)") ?? 0
        }
        var found = try removedEntities.map { entity, point in
            (Key(entity, nil, .objects, point.reasonForObjects), try count(entity, ""))
        }
        guard paths.isChangedByHandlers else { return found }
        for entity in old.tree.names where paths.survives(entity) {
            let ends = paths.ends(of: entity)
            guard ends.allSatisfy(\.keepsKeys) else { continue }
            let isThere = ends.map { end in
                "EXISTS (SELECT 1 FROM \(newSchema.qualified(new.tree.table(of: end.entity))) AS a "
                    + "WHERE a.Z_PK = b.Z_PK AND a.Z_ENT = \(new.tree.number(of: end.entity)))"
            }.joined(separator: " OR ")
            found.append(
                (
                    Key(entity, nil, .objects, "is removed in part by a stage of the migration"),
                    try count(entity, " AND NOT (\(isThere))")
                ))
        }
        return found
    }

    /// Returns the table of an entity in the copy, as SQL.
    static func newTable(_ entity: String, _ layout: AuditLayout) -> String {
        "main." + quoted(layout.tree.table(of: entity))
    }
}
