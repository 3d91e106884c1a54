import AgentProtocol
import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteStore
import StoreMigration
import SystemPackage

/// One older version checked against a newer one, and where each finding stands.
struct CheckReport {
    let old: NamedModel
    let new: NamedModel
    let check: MigrationCheck
    /// Nil when the older model is no store's.
    let store: StoreModel?

    /// One older version of no store. `target` is the newer model with its renaming identifiers set; `between` the versions
    /// on the way to it, or why there is no way.
    init(
        _ old: NamedModel, _ new: NamedModel, _ target: ManagedObjectModel,
        _ between: Result<[ModelVersion], MigrationError>, mappings: [MappingModelFile] = []
    ) {
        (self.old, self.new, store) = (old, new, nil)
        check = MigrationCheck(old, new, target, between, mappings)
    }

    /// A store, of the version that a migration takes it for, by the same steps. Its content is looked at where the answer
    /// depends on it. Throws `CommandFailure`.
    init(
        _ store: StoreModel, _ new: NamedModel, in bundle: ModelBundle?, _ renaming: ModelRenameOptions,
        mappings: [MappingModelFile]
    ) throws {
        let target = try new.knownModel
        let named = try ModelArgument.store(store).version(named: nil, .none)
        let sources = StoreSources(store, bundle)
        func check(_ source: StoreSources.Source?) throws -> (old: NamedModel, check: MigrationCheck) {
            var between = Result<[ModelVersion], MigrationError>.success([])
            let goal = new.version ?? bundle?.current
            if let bundle, let goal {
                between = Result { () throws(MigrationError) in
                    try bundle.versions(
                        from: source?.version, to: goal, ofStore: named.name, hashes: named.hashes, mappings: mappings)
                }
            }
            let old = named.known(as: source)
            let renamed = try source.map { try renaming.applied(to: target, from: $0.model) } ?? target
            return (old, MigrationCheck(old, new, renamed, between, mappings))
        }
        let found: (old: NamedModel, check: MigrationCheck)
        do {
            found =
                try sources.all.isEmpty
                ? check(nil) : sources.agreed(isSame: { $0.check.isSame(as: $1.check) }) { try check($0) }
        } catch let error as MigrationError {
            let first = try check(sources.all.first)
            found = (first.old, first.check.refusing(error))
        }
        (old, self.new, self.store) = (found.old, new, store)
        do {
            self.check = try Self.looking(into: store, found.check)
        } catch let error as StoreError {
            throw CommandFailure(error)
        } catch let error as SystemError {
            throw CommandFailure(error)
        }
    }

    private static func looking(into store: StoreModel, _ check: MigrationCheck) throws -> MigrationCheck {
        guard !check.steps.isEmpty else { return check.noting(try ExternalReferences.missing(of: store.location)) }
        let decided = try StoreReader.read(store.location) { reader in
            do {
                let decided = try decide(check, reader)
                if case .refused = decided.verdict { return decided }
                _ = try MigrationDryRun(MigrationManager(steps: check.steps))?.run(on: reader)
                return try decided.counting(MigrationManager(steps: check.steps).losses(reader))
            } catch let error as MigrationError {
                return check.refusing(error)
            }
        }
        return decided.noting(try ExternalReferences.missing(of: store.location))
    }

    private static func decide(_ check: MigrationCheck, _ reader: StoreReader) throws -> MigrationCheck {
        guard let first = check.steps.first, let obstacles = try StoreObstacles(reader, first) else { return check }
        try obstacles.checkTables()
        return check.deciding(try obstacles.find(MigrationOptions()))
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

    /// What was decided, for a person.
    var sentence: String {
        switch check.verdict {
        case .compatible: "compatible: opened as it is"
        case .inferred: "by inferred migration"
        case .mapped: "by the mapping model " + (check.mappingNames.compactMap(\.self).first ?? "")
        case .stepwise(let steps): "in steps, " + methods + ": " + ([old.name] + steps).joined(separator: " → ")
        case .refused(let code): "refused: \(code) \(CoreDataError.reason(code))"
        }
    }

    /// How the steps are made.
    private var methods: String {
        let mapped = zip(check.mappingNames, 1...).compactMap { name, number in name.map { "\(number) by \($0)" } }
        guard !mapped.isEmpty else { return "each inferred" }
        let others = mapped.count < check.mappingNames.count ? ", the others inferred" : ""
        return mapped.joined(separator: ", ") + others
    }

    /// Findings of the check, and what the newer model's file says in vain.
    var findings: [MigrationFinding] {
        let remarks = (new.version?.remarks ?? []).map { remark in
            MigrationFinding(
                .warning, entity: remark.entity, property: remark.property, remark.message, remedy: remark.remedy)
        }
        return check.findings + remarks
    }

    /// The file and line that a finding is about: in the newer model, else, for what was removed, in the older.
    func place(of finding: MigrationFinding) -> (path: FilePath, line: Int?)? {
        if let version = new.version, let line = version.line(entity: finding.entity, property: finding.property) {
            return (version.path, line)
        }
        if let version = old.version, let line = version.line(entity: finding.entity, property: finding.property) {
            return (version.path, line)
        }
        return new.version.map { ($0.path, nil) }
    }
}

extension MigrationCheck {
    fileprivate init(
        _ old: NamedModel, _ new: NamedModel, _ target: ManagedObjectModel,
        _ between: Result<[ModelVersion], MigrationError>, _ mappings: [MappingModelFile]
    ) {
        let versions = (try? between.get()) ?? []
        let check = MigrationCheck(
            from: old.model, sourceName: old.version?.name, hashes: old.hashes, to: target, named: new.name,
            intermediates: versions.map { ($0.name, $0.model) }, mappings: mappings)
        if case .failure(let error) = between { self = check.refusing(error) } else { self = check }
    }
}

extension NamedModel {
    /// A store's, as the version that it is of.
    fileprivate func known(as source: StoreSources.Source?) -> NamedModel {
        guard let source else { return self }
        return NamedModel(
            name: name, isCurrent: isCurrent, hashes: hashes, model: source.model, version: source.version)
    }
}
