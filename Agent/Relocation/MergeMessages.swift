import AgentProtocol
import LinuxSystem
import SQLiteStore
import StoreMerging
import StoreRelocation

/// The JSON of a merge (Documentation/Merging.md).
extension MergeReport {
    /// The lines of the plan: an object of type `merge_base` for each table if the stores have a common base, then one
    /// of type `merge` for each entity, one of type `merge_links` for each relationship, and one of type
    /// `merge_reference` for each reference that the user declared.
    package var lines: [JSONObject] {
        base.map(\.json) + entities.map(\.json) + links.map(\.json) + references.map(\.json)
    }

    /// The member `merge` of a summary.
    package var sums: JSONObject {
        [
            "only_group": .integer(sum(\.onlyGroup)), "only_legacy": .integer(sum(\.onlyLegacy)),
            "equal": .integer(sum(\.equal)), "different": .integer(sum(\.different)),
            "takes_group": .integer(sum(\.takesGroup)), "takes_legacy": .integer(sum(\.takesLegacy)),
            "undecided": .integer(sum(\.undecided)), "renumbered": .integer(sum(\.renumbered)),
            "links_added": .integer(links.reduce(0) { $0 + $1.onlyLegacy }), "links_cleared": .integer(linksCleared),
            "dangling": .integer(dangling), "external_files": .integer(externalFiles),
        ]
    }
}

extension MergeReport.Entity {
    fileprivate var json: JSONObject {
        var object: JSONObject = ["type": "merge"]
        object["entity"] = entity.map { .string($0) }
        object["table"] = .string(table)
        object["keys"] = .array(keys.map { .array($0.map { .string($0) }) })
        object["only_group"] = .integer(onlyGroup)
        object["only_legacy"] = .integer(onlyLegacy)
        object["equal"] = .integer(equal)
        object["different"] = .integer(different)
        object["takes_group"] = .integer(takesGroup)
        object["takes_legacy"] = .integer(takesLegacy)
        object["undecided"] = .integer(undecided)
        object["renumbered"] = .integer(renumbered)
        object["samples"] = .object([
            "only_group": .array(samplesOnlyGroup.map { .object($0.json(isDifferent: false)) }),
            "only_legacy": .array(samplesOnlyLegacy.map { .object($0.json(isDifferent: false)) }),
            "different": .array(samplesDifferent.map { .object($0.json(isDifferent: true)) }),
        ])
        return object
    }
}

extension MergeReport.Base {
    private static let withoutKey = "rows without a key have no common base: those deleted on one side may come back"

    fileprivate var json: JSONObject {
        let rows: [(String, Rows)] = [
            ("deleted_by_group", deletedByGroup), ("deleted_by_legacy", deletedByLegacy),
            ("changed_by_group", changedByGroup), ("changed_by_legacy", changedByLegacy), ("kept_changed", keptChanged),
        ]
        var object: JSONObject = [
            "type": "merge_base", "table": .string(table), "common_base": .bool(obstacle == nil),
        ]
        if let obstacle {
            object["note"] = .string(obstacle)
            return object
        }
        var samples = JSONObject()
        for (name, rows) in rows {
            object[name] = .integer(rows.count)
            samples[name] = .array(rows.samples.map { .object($0.json(isDifferent: false)) })
        }
        object["kept_referenced"] = .integer(keptReferenced)
        if hasRowsWithoutKey { object["note"] = .string(Self.withoutKey) }
        object["samples"] = .object(samples)
        return object
    }
}

extension MergeReport.Links {
    fileprivate var json: JSONObject {
        [
            "type": "merge_links", "table": .string(table), "relationship": .string(relationship),
            "only_group": .integer(onlyGroup), "only_legacy": .integer(onlyLegacy), "equal": .integer(equal),
        ]
    }
}

extension MergeReport.Reference {
    fileprivate var json: JSONObject {
        [
            "type": "merge_reference", "table": .string(table), "column": .string(column),
            "target": .object(["table": .string(targetTable), "column": .string(targetColumn)]),
            "changed": .integer(changed),
        ]
    }
}

extension MergeReport.Sample {
    fileprivate func json(isDifferent: Bool) -> JSONObject {
        var names = JSONObject()
        for value in key { names[value.name] = value.value.sample }
        var object: JSONObject = ["key": .object(names)]
        guard isDifferent else { return object }
        object["takes"] = takes.map { .string($0.rawValue) } ?? .null
        var values = JSONObject()
        for difference in differences {
            values[difference.name] = .object(["group": difference.group.sample, "legacy": difference.legacy.sample])
        }
        object["values"] = .object(values)
        return object
    }
}

extension StoredValue {
    /// The longest text of a sample, in characters, and the longest BLOB, in bytes.
    private static let longestText = 200
    private static let longestBlob = 64

    /// The value in the form of rows with values, cut if it is long.
    fileprivate var sample: JSONValue {
        switch self {
        case .text(let text) where text.count > Self.longestText: .string(text.prefix(Self.longestText) + "…")
        case .blob(let bytes) where bytes.count > Self.longestBlob,
            .malformedText(let bytes) where bytes.count > Self.longestBlob:
            .object(["bytes": .integer(Int64(bytes.count))])
        case .null, .integer, .real, .text, .malformedText, .blob:
            {
                var text: [UInt8] = []
                ValueJSON.append(self, to: &text)
                return .encoded(text)
            }()
        }
    }
}

extension MergeReport {
    /// The plan in lines for people.
    package var sentences: [String] {
        base.flatMap(\.sentences) + entities.flatMap(\.sentences)
            + links.map {
                "\($0.relationship): \(Counted($0.onlyGroup, "link")) only in the group's store, \($0.onlyLegacy) only in "
                    + "the legacy one, \($0.equal) equal"
            }
            + references.map {
                "\($0.table).\($0.column) refers to \($0.targetTable).\($0.targetColumn): "
                    + "\(Counted($0.changed, "reference")) of the legacy store changed"
            }
    }
}

extension MergeReport.Entity {
    fileprivate var sentences: [String] {
        var decisions = ["\(takesGroup) kept from the group's, \(takesLegacy) from the legacy one"]
        if undecided > 0 { decisions.append("\(undecided) undecided") }
        let key = keys.isEmpty ? "no key needed" : keys.map { $0.joined(separator: ", ") }.joined(separator: "; ")
        let kept = different > 0 ? " (\(decisions.joined(separator: ", ")))" : ""
        var lines = [
            "\(name) (\(key)): \(onlyGroup) only in the group's store, \(onlyLegacy) only in the legacy one, \(equal) equal, "
                + "\(different) different\(kept)"
        ]
        lines += samplesOnlyGroup.map { "  only in the group's store: \($0.keyText)" }
        lines += samplesOnlyLegacy.map { "  only in the legacy store: \($0.keyText)" }
        lines += samplesDifferent.map { sample in
            let values = sample.differences.prefix(4).map {
                "\($0.name) \(MergeText.value($0.group)) in the group's, \(MergeText.value($0.legacy)) in the legacy one"
            }
            let rest = sample.differences.count > 4 ? ", and \(sample.differences.count - 4) more" : ""
            let decision =
                switch sample.takes {
                case .group: "kept from the group's"
                case .legacy: "kept from the legacy one"
                case nil: "undecided"
                }
            return "  different: \(sample.keyText): \(values.joined(separator: "; "))\(rest); \(decision)"
        }
        return lines
    }
}

extension MergeReport.Base {
    fileprivate var sentences: [String] {
        if let obstacle { return ["\(table): no common base: rows deleted on one side may come back; \(obstacle)"] }
        var lines: [String] = []
        func add(_ rows: Rows, _ sentence: String, _ verb: String) {
            guard rows.count > 0 else { return }
            lines.append("\(table): \(Counted(rows.count, "row")) \(sentence)")
            lines += rows.samples.map { "  \(verb): \($0.keyText)" }
            let rest = rows.count - Int64(rows.samples.count)
            if rest > 0 { lines.append("  \(verb): \(rest) more") }
        }
        for (side, other, deleted, changed) in [
            ("the group's store", "the legacy store", deletedByGroup, changedByGroup),
            ("the legacy store", "the group's store", deletedByLegacy, changedByLegacy),
        ] {
            add(deleted, "deleted, as \(side) has deleted what \(other) has left as it was", "deleted")
            add(changed, "changed, as \(side) has changed what \(other) has left as it was", "changed")
        }
        add(keptChanged, "in conflict: one side has deleted what the other has changed, which is kept", "kept")
        if keptReferenced > 0 {
            lines.append("\(table): \(Counted(keptReferenced, "deleted row")) kept, as other rows refer to them")
        }
        if hasRowsWithoutKey { lines.append("\(table): \(Self.withoutKey)") }
        return lines
    }
}

extension MergeReport.Sample {
    fileprivate var keyText: String { key.map { "\($0.name) \(MergeText.value($0.value))" }.joined(separator: ", ") }
}
