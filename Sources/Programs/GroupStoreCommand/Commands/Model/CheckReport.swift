import AgentProtocol
import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteStore
import StoreMigration
import SystemPackage

/// The check of one older version against a newer one, with the place of each finding.
struct CheckReport {
    let old: NamedModel
    let new: NamedModel
    let check: MigrationCheck
    /// The store; nil if the older model isn't a store's.
    let store: StoreModel?

    /// Checks an older version that isn't a store's.
    ///
    /// - Parameters:
    ///   - target: The newer model with its renaming identifiers set.
    ///   - between: The versions on the way to it, or the reason why there is no way.
    ///   - cache: The steps that the checks of several versions share.
    init(
        _ old: NamedModel, _ new: NamedModel, target: ManagedObjectModel,
        between: Result<[ModelVersion], MigrationError>, using cache: MigrationStepCache
    ) {
        (self.old, self.new, store) = (old, new, nil)
        check = MigrationCheck(old, new, target: target, between: between, using: cache)
    }

    /// Checks a store, as the version from which a migration would start, by the same steps. Examines its content if
    /// the verdict depends on it.
    init(
        _ store: StoreModel, _ new: NamedModel, in bundle: ModelBundle?, renaming: ModelRenameOptions,
        mappings: [MappingModelFile]
    ) throws {
        let target = try new.knownModel
        let named = try ModelArgument.store(store).version(named: nil, .none)
        let sources = StoreSources(store, bundle)
        let cache = MigrationStepCache(mappings)
        func check(_ source: StoreSources.Source?) throws -> (old: NamedModel, check: MigrationCheck) {
            let between = Result { () throws(MigrationError) -> [ModelVersion] in
                guard let goal = new.version ?? bundle?.current else { return [] }
                let versions = try bundle?.versions(
                    from: source?.version, to: goal, ofStore: named.name, hashes: named.hashes, mappings: mappings)
                if let source {
                    try mappings.requireUse(from: (source.version?.name, source.model), to: goal, in: bundle)
                }
                return versions ?? []
            }
            let old = named.known(as: source)
            let renamed = try source.map { try renaming.applied(to: target, from: $0.model) } ?? target
            return (old, MigrationCheck(old, new, target: renamed, between: between, using: cache))
        }
        let found: (old: NamedModel, check: MigrationCheck)
        do {
            found =
                try sources.all.isEmpty
                ? check(nil) : sources.commonResult(isSame: { $0.check.isSame(as: $1.check) }) { try check($0) }
        } catch let error as MigrationError {
            let first = try check(sources.all.first)
            found = (first.old, first.check.refused(with: error))
        }
        (old, self.new, self.store) = (found.old, new, store)
        self.check = try Self.withContentExamined(of: store, found.check)
    }

    private static func withContentExamined(of store: StoreModel, _ check: MigrationCheck) throws -> MigrationCheck {
        guard !check.steps.isEmpty else {
            return check.addingNotes(for: try ExternalReferences.missing(of: store.location))
        }
        let decided = try StoreReader.read(store.location) { reader in
            do {
                let decided = try decideByContent(check, reader)
                if case .refused = decided.verdict { return decided }
                let trial = try MigrationDryRun(MigrationPlan(steps: check.steps))?.run(on: reader)
                return decided.replacingRemovals(with: trial?.losses ?? .none)
            } catch let error as MigrationError {
                return check.refused(with: error)
            }
        }
        return decided.addingNotes(for: try ExternalReferences.missing(of: store.location))
    }

    private static func decideByContent(_ check: MigrationCheck, _ reader: StoreReader) throws -> MigrationCheck {
        guard let first = check.steps.first, let obstacles = try StoreObstacles(reader, first) else { return check }
        try obstacles.checkTables()
        return check.resolvingConditions(
            with: try obstacles.find(MigrationOptions()), warnings: try obstacles.abstractObjects())
    }

    var isRefused: Bool { if case .refused = check.verdict { true } else { false } }

    var word: String {
        switch check.verdict {
        case .compatible: "compatible"
        case .inferred: "inferred"
        case .mapped: "mapped"
        case .stepwise: "stepwise"
        case .refused: "refused"
        }
    }

    /// Returns how many older versions' stores open with the current version, in words.
    static func summary(of reports: [CheckReport]) -> String {
        guard let current = reports.first?.new.name else { return "" }
        let refused = reports.filter(\.isRefused).count
        let warned = reports.count { $0.findings.contains { $0.severity == .warning } }
        let warnings = warned == 0 ? "" : "; \(Counted(warned, "version")) with warnings"
        let count = reports.count
        if refused == 0 {
            let versions = count == 1 ? "the older version" : "all \(count) older versions"
            return "Stores of \(versions) open with \(current)\(warnings)."
        }
        if refused == count {
            let versions = count == 1 ? "the older version" : "none of the \(count) older versions"
            return "Stores of \(versions) \(count == 1 ? "don't open" : "open") with \(current)\(warnings)."
        }
        let refusals = refused == 1 ? "1 is refused" : "\(refused) are refused"
        return "Stores of \(count - refused) of \(count) older versions open with \(current), \(refusals)\(warnings)."
    }

    /// The verdict in words.
    var sentence: String {
        switch check.verdict {
        case .compatible: "compatible: opens without migration"
        case .inferred: "by inferred migration"
        case .mapped: "by the mapping model " + (check.mappingNames.compactMap(\.self).first ?? "")
        case .stepwise(let steps): "in steps, " + methods + ": " + ([old.name] + steps).joined(separator: " → ")
        case .refused(let code): "refused: \(code) \(CoreDataError.reason(code))"
        }
    }

    /// The methods of the steps in words.
    private var methods: String {
        let mapped = zip(check.mappingNames, 1...).compactMap { name, number in name.map { "\(number) by \($0)" } }
        guard !mapped.isEmpty else { return "each inferred" }
        let remaining = mapped.count < check.mappingNames.count ? ", the remaining inferred" : ""
        return mapped.joined(separator: ", ") + remaining
    }

    /// The findings of the check, and statements in the newer model's file that have no effect.
    var findings: [MigrationFinding] {
        let remarks = (new.version?.remarks ?? []).map { remark in
            MigrationFinding(
                .warning, entity: remark.entity, property: remark.property, remark.message, remedy: remark.remedy)
        }
        return check.findings + remarks
    }

    /// Returns the file and line that a finding refers to: in the newer model or, for a removed element, in the older
    /// one.
    func location(of finding: MigrationFinding) -> (path: FilePath, line: Int?)? {
        for version in [new.version, old.version].compactMap(\.self) {
            if let place = version.location(entity: finding.entity, property: finding.property) { return place }
        }
        return new.version.map { ($0.path, nil) }
    }
}

extension MigrationCheck {
    fileprivate init(
        _ old: NamedModel, _ new: NamedModel, target: ManagedObjectModel,
        between: Result<[ModelVersion], MigrationError>, using cache: MigrationStepCache
    ) {
        let versions = (try? between.get()) ?? []
        let check = MigrationCheck(
            from: old.model, sourceName: old.version?.name, hashes: old.hashes, to: target, named: new.name,
            intermediates: versions.map { ($0.name, $0.model) }, using: cache)
        if case .failure(let error) = between { self = check.refused(with: error) } else { self = check }
    }
}

extension NamedModel {
    /// Returns a store's model as the version that it has.
    fileprivate func known(as source: StoreSources.Source?) -> NamedModel {
        guard let source else { return self }
        return NamedModel(
            name: name, isCurrent: isCurrent, hashes: hashes, model: source.model, version: source.version)
    }
}
