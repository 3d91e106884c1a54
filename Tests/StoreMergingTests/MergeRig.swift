import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage
import TestSupport

@testable import StoreMerging

/// Two stores of one schema in a directory, and the parts of a merge between them.
final class MergeRig {
    private let place: TemporaryDirectory
    private let directory: Directory
    let group: StoreLocation
    let legacy: StoreLocation

    init(_ schema: String, group groupRows: String, legacy legacyRows: String) throws {
        place = try TemporaryDirectory()
        directory = try Directory(place.path)
        group = try Self.location("Group.sqlite", directory)
        legacy = try Self.location("Legacy.sqlite", directory)
        for (store, rows) in [(group, groupRows), (legacy, legacyRows)] {
            let writer = try StoreWriter(store.path, creating: true)
            try writer.execute(script: schema)
            try writer.execute(script: rows)
        }
    }

    static func location(_ name: FilePath.Component, _ directory: Directory) throws -> StoreLocation {
        guard let name = StoreName(name) else { throw Unexpected("not a name") }
        return StoreLocation(directory: directory, name: name)
    }

    /// Merges, lets a statement change the result or the claim, and proves it.
    func merge(_ options: MergeOptions, tampering: String = "", claiming: String = "") throws -> MergeReport {
        let before = try Self.location("Before.sqlite", directory)
        let witness = try Self.location("Witness.sqlite", directory)
        _ = try StoreWriter(before.path, creating: true)
        try StoreReader.read(group) { try $0.copy(to: before.path) }
        let prepared = try MergePreparation(group: group, legacy: legacy, model: nil, options: options).schema()
        let report = try MergeRun(
            schema: prepared.schema, newer: prepared.newer, options: options, group: group, legacy: legacy,
            isCancelled: { false }
        ).run(merging: legacy.path, witness: witness, planned: { _ in }, progress: { _, _ in })
        if !tampering.isEmpty { try StoreWriter(group.path).execute(script: tampering) }
        if !claiming.isEmpty { try StoreWriter(witness.path).execute(script: claiming) }
        try MergeProof(
            prepared.schema, options, report, group: group, before: before, legacy: legacy, legacyOwner: legacy,
            witness: witness
        ).check()
        return report
    }

    /// Returns the rows of a query on the result, with `|` between columns.
    func rows(_ sql: String) throws -> [String] {
        let store = try StoreWriter(group.path)
        let statement = try store.prepare(sql)
        var found: [String] = []
        while try statement.step() {
            found.append((0..<statement.columnCount).map { statement.text($0) ?? "-" }.joined(separator: "|"))
        }
        return found
    }
}

extension MergeOptions {
    init(_ keys: String..., prefer: String...) {
        self.init()
        self.keys = keys.compactMap(MergeKey.init)
        preferences = prefer.compactMap(MergePreference.init)
    }
}
