import AgentProtocol
import CoreDataStore
import LinuxSystem
import ManagedObjectModel
import PersistentStore
import StoreMigration
import SystemPackage

/// One older version checked against a newer one, and where each finding stands.
struct CheckReport {
    let old: NamedModel
    let new: NamedModel
    let check: MigrationCheck
    /// Nil when the older model is no store's.
    let store: StoreModel?

    /// `target` is the newer model with its renaming identifiers set; `between` the versions on the way to it, or why there
    /// is no way. A store's content is looked at where the answer depends on it. Throws `CommandFailure`.
    init(
        _ old: NamedModel, _ new: NamedModel, _ target: ManagedObjectModel,
        _ between: Result<[ModelVersion], MigrationError>, store: StoreModel?, mappings: [MappingModelFile] = []
    ) throws {
        self.old = old
        self.new = new
        self.store = store
        let versions = (try? between.get()) ?? []
        var check = MigrationCheck(
            from: old.model, sourceName: old.version?.name, hashes: old.hashes, to: target, named: new.name,
            intermediates: versions.map { ($0.name, $0.model) }, mappings: mappings)
        if case .failure(let error) = between { check = check.refusing(error) }
        guard let store else {
            self.check = check
            return
        }
        do {
            let decided = try check.firstStep.map { try Self.decide(check, $0, store) } ?? check
            self.check = decided.noting(try ExternalReferences.missing(of: store.location))
        } catch let error as StoreError {
            throw CommandFailure(error)
        } catch let error as SystemError {
            throw CommandFailure(error)
        }
    }

    private static func decide(
        _ check: MigrationCheck, _ step: MigrationStep, _ store: StoreModel
    ) throws -> MigrationCheck {
        try StoreReader.read(store.location) { reader in
            guard let obstacles = try StoreObstacles(reader, step) else { return check }
            do throws(MigrationError) { try obstacles.checkTables() } catch { return check.refusing(error) }
            return check.deciding(try obstacles.find(MigrationOptions()))
        }
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
