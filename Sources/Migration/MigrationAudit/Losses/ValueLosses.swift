import SQLiteStore

/// Counts the attribute values that objects lose, by comparing each object's rows in the two stores.
struct ValueLosses {
    /// A count of one attribute's values, for the objects of one older entity.
    private struct Candidate {
        let loss: LossCount.Key
        /// The condition on the old row `b`, and on the new row `a` if there is a destination.
        let condition: String
    }

    /// The old table, and the new entity whose rows are compared; nil to read the old rows only.
    private struct Source: Hashable {
        let table: String
        let destination: String?
    }

    /// SQLite accepts 2,000 columns in a result and a thousand terms in one expression.
    private static let maximumTerms = 250

    private let paths: ContentPaths
    private let old: AuditLayout
    private let new: AuditLayout
    private var candidates: [(source: Source, candidate: Candidate)] = []

    init(_ paths: ContentPaths, _ old: AuditLayout, _ new: AuditLayout) {
        self.paths = paths
        self.old = old
        self.new = new
        for entity in old.tree.names {
            for attribute in old.tree.model.entity(named: entity)?.attributes ?? []
            where attribute.derivation == nil {
                let values = StoredAttribute.all(of: attribute).filter { $0.description.derivation == nil }
                guard !values.isEmpty else { continue }
                for member in old.tree.family(of: entity) where paths.survives(member) {
                    add(values, attribute.name, declaredBy: entity, of: member)
                }
            }
        }
    }

    /// True if no values need to be counted, whatever the stores contain.
    var isEmpty: Bool { candidates.isEmpty }

    // MARK: Candidates

    private mutating func add(
        _ values: [StoredAttribute], _ attribute: String, declaredBy entity: String, of member: String
    ) {
        let fates = values.map { paths.fate(of: AttributeKey(entity: entity, path: $0.path), in: member) }
        // A whole composite attribute is lost as one.
        let points = fates.compactMap { fate in if case .lost(let point) = fate { point } else { nil } }
        if points.count == values.count, let point = points.last {
            let columns = values.compactMap { oldColumn($0, entity) }
            addLost(columns, LossCount.Key(entity, attribute, .values, point.reasonForContent), member)
            return
        }
        for (value, fate) in zip(values, fates) {
            guard let column = oldColumn(value, entity) else { continue }
            let name = value.path.joined(separator: ".")
            switch fate {
            case .lost(let point):
                addLost([column], LossCount.Key(entity, name, .values, point.reasonForContent), member)
            case .ends(let ends): add(ends, column, value, LossCount.Key(entity, name, .values, ""), member)
            case .undecided: continue
            }
        }
    }

    private func oldColumn(_ value: StoredAttribute, _ entity: String) -> String? {
        old.attributes[AttributeKey(entity: entity, path: value.path)]
    }

    private mutating func addLost(_ columns: [String], _ loss: LossCount.Key, _ member: String) {
        let hasValue = columns.map { ColumnRule.oldValue($0) + " IS NOT NULL" }.joined(separator: " OR ")
        candidates.append(
            (
                Source(table: old.tree.table(of: member), destination: nil),
                Candidate(
                    loss: loss, condition: "b.Z_ENT = \(old.tree.number(of: member)) AND (\(hasValue))")
            ))
    }

    private mutating func add(
        _ ends: [ContentPaths.ValueEnd], _ column: String, _ value: StoredAttribute, _ key: LossCount.Key,
        _ member: String
    ) {
        let entities = paths.ends(of: member)
        // Objects that a mapping model divides among several entities are compared with each of them.
        guard entities.count == 1 else { return addDivided(ends, entities, column, value, key, member) }
        guard let end = ends.first, let last = end.conversions.last, end.keepsKeys,
            let newColumn = new.attributes[end.key], let stored = new.tree.stored(end.key)
        else { return }
        let (oldValue, newValue) = (ColumnRule.oldValue(column), ColumnRule.newValue(newColumn))
        let source = Source(table: old.tree.table(of: member), destination: end.entity)
        let objects =
            "b.Z_ENT = \(old.tree.number(of: member)) AND a.Z_ENT = \(new.tree.number(of: end.entity)) AND "
        func add(_ unit: RemovedContent.Loss.Unit, _ reason: String, _ condition: String) {
            candidates.append(
                (
                    source,
                    Candidate(
                        loss: LossCount.Key(key.entity, key.property, unit, reason), condition: objects + condition)
                ))
        }
        let conversion = ValueConversion(from: value, to: stored)
        add(.values, last.reason, "\(oldValue) IS NOT NULL AND \(newValue) IS NULL")
        add(
            .changes, last.reason,
            "\(oldValue) IS NOT NULL AND \(newValue) IS NOT NULL AND NOT \(conversion.isSame(oldValue, newValue))")
    }

    private mutating func addDivided(
        _ ends: [ContentPaths.ValueEnd], _ entities: [ContentPaths.EntityEnd], _ column: String,
        _ value: StoredAttribute, _ key: LossCount.Key, _ member: String
    ) {
        guard entities.allSatisfy(\.keepsKeys), ends.allSatisfy(\.keepsKeys) else { return }
        let oldValue = ColumnRule.oldValue(column)
        func exists(_ entity: String, _ condition: String) -> String {
            "EXISTS (SELECT 1 FROM \(LossCount.newTable(entity, new)) AS a WHERE a.Z_PK = b.Z_PK "
                + "AND a.Z_ENT = \(new.tree.number(of: entity))\(condition))"
        }
        let survives = entities.map { exists($0.entity, "") }.joined(separator: " OR ")
        let isKept = ends.compactMap { end -> String? in
            guard let column = new.attributes[end.key], let stored = new.tree.stored(end.key) else { return nil }
            let newValue = ColumnRule.newValue(column)
            let isSame = ValueConversion(from: value, to: stored).isSame(oldValue, newValue)
            return exists(end.entity, " AND \(newValue) IS NOT NULL AND \(isSame)")
        }
        let source = Source(table: old.tree.table(of: member), destination: nil)
        let number = old.tree.number(of: member)
        candidates.append(
            (
                source,
                Candidate(
                    loss: LossCount.Key(
                        key.entity, key.property, .values, "is not kept by each entity mapping of its objects"),
                    condition: "b.Z_ENT = \(number) AND \(oldValue) IS NOT NULL AND (\(survives)) "
                        + "AND NOT (\((isKept + ["0"]).joined(separator: " OR ")))")
            ))
    }

    // MARK: Counts

    func count(_ reader: ComparisonReader, _ oldSchema: AuditSchema, _ newSchema: AuditSchema) throws
        -> [(LossCount.Key, Int64)]
    {
        var sources: [Source] = []
        for (source, _) in candidates where !sources.contains(source) { sources.append(source) }
        var found: [(LossCount.Key, Int64)] = []
        for source in sources {
            let own = candidates.filter { $0.source == source }.map(\.candidate)
            var rows = "\(oldSchema.qualified(source.table)) AS b NOT INDEXED"
            if let entity = source.destination {
                rows += " JOIN \(newSchema.qualified(new.tree.table(of: entity))) AS a ON a.Z_PK = b.Z_PK"
            }
            for start in stride(from: 0, to: own.count, by: Self.maximumTerms) {
                let batch = own[start..<min(start + Self.maximumTerms, own.count)]
                let sums = batch.map { "total(\($0.condition))" }.joined(separator: ", ")
                let statement = try reader.prepare("SELECT \(sums) FROM \(rows)")
                guard try statement.step() else { continue }
                for (index, candidate) in batch.enumerated() {
                    found.append((candidate.loss, statement.integer(Int32(index))))
                }
            }
        }
        return found
    }
}
