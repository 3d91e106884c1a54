import CoreDataStore
import ManagedObjectModels
import MappingModels

/// The steps between versions of a model, each found out at most once. A model of a hundred versions has thousands of
/// pairs of them, and the ways from all of them to the current one share most steps.
package final class MigrationStepCache {
    private struct Pair: Hashable {
        let from: ObjectIdentifier
        let to: ObjectIdentifier
        let names: [String?]
    }

    private let mappings: [MappingModelFile]
    private var mapped: [Pair: Bool] = [:]
    private var possible: [Pair: Bool] = [:]
    private var steps: [Pair: MigrationStep] = [:]
    private var layoutFaults: [ObjectIdentifier: ModelFault?] = [:]
    /// The mapping that was inferred last, which a step may need next.
    private var lastInferred: (pair: Pair, mapping: MappingModel)?
    /// What prevented inferences, the latest last.
    private var conflicts: [InferenceConflict] = []
    private static let maximumConflictCount = 16
    /// Models whose identifiers are in use.
    private var models: [ObjectIdentifier: ManagedObjectModel] = [:]

    /// - Parameter mappings: The available mapping models. One that fits takes precedence over inference.
    package init(_ mappings: [MappingModelFile] = []) { self.mappings = mappings }

    var hasMappings: Bool { !mappings.isEmpty }

    private func pair(_ old: MigrationPath.KnownVersion, _ new: MigrationPath.KnownVersion) -> Pair {
        for model in [old.model, new.model] { models[model.identifier] = model }
        return Pair(from: old.model.identifier, to: new.model.identifier, names: [old.name, new.name])
    }

    /// Returns the fault for which no store can have the model's tables; nil if there is none.
    func layoutFault(of model: ManagedObjectModel) -> ModelFault? {
        if let known = layoutFaults[model.identifier] { return known }
        models[model.identifier] = model
        var fault: ModelFault?
        do { try StoreLayout(model).validate() } catch let found { fault = found }
        layoutFaults[model.identifier] = .some(fault)
        return fault
    }

    /// Returns true if a mapping model leads from one version to the other.
    func isMapped(from old: MigrationPath.KnownVersion, to new: MigrationPath.KnownVersion) -> Bool {
        guard hasMappings else { return false }
        let pair = pair(old, new)
        if let known = mapped[pair] { return known }
        let found =
            mappings.contains { $0.fits(from: old, to: new) }
            && old.model.entityVersionHashesByName != new.model.entityVersionHashesByName
        mapped[pair] = found
        return found
    }

    /// Returns true if a mapping model fits the step or a mapping can be inferred. Throws `MigrationError` if mapping
    /// models for the step conflict.
    func isPossible(
        from old: MigrationPath.KnownVersion, to new: MigrationPath.KnownVersion
    ) throws(MigrationError) -> Bool {
        let pair = pair(old, new)
        if let known = possible[pair] { return known }
        let found: Bool
        // A store can't tell versions with the same hashes apart, and their renaming identifiers are unrelated.
        if old.model.entityVersionHashesByName == new.model.entityVersionHashesByName {
            found = false
        } else if isMapped(from: old, to: new), try StepMapping(from: old, to: new, mappings) != nil {
            found = true
        } else {
            found = inferred(from: old.model, to: new.model, pair) != nil
        }
        possible[pair] = found
        return found
    }

    /// Returns the step; nil if it isn't possible. Throws `MigrationError` if mapping models for it conflict.
    func step(
        from old: MigrationPath.KnownVersion, to new: MigrationPath.KnownVersion
    ) throws(MigrationError) -> MigrationStep? {
        let pair = pair(old, new)
        if let known = steps[pair] { return known }
        guard try isPossible(from: old, to: new) else { return nil }
        func made(by method: MigrationStep.Method, _ findings: [MigrationFinding]) -> MigrationStep {
            var step = MigrationStep(from: old.model, to: new.model, named: new.name ?? "", by: method)
            step.findings = findings
            step.remarks = findings.filter(\.isReportedAtRun).map { "\($0.sentence) (\($0.remedy))" }
            return step
        }
        var step: MigrationStep
        if isMapped(from: old, to: new), let mapping = try StepMapping(from: old, to: new, mappings) {
            let review = MappingReview(mapping.resolved, from: old.model, to: new.model)
            step = made(by: .custom(mapping.resolved), review.findings + mapping.findings)
            step.mappingName = mapping.name
        } else if let mapping = inferred(from: old.model, to: new.model, pair) {
            step = made(by: .inferred(mapping), MigrationReview(old.model, new.model).findings)
        } else {
            return nil
        }
        steps[pair] = step
        return step
    }

    private func inferred(from old: ManagedObjectModel, to new: ManagedObjectModel, _ pair: Pair) -> MappingModel? {
        if let lastInferred, lastInferred.pair == pair { return lastInferred.mapping }
        guard !conflicts.contains(where: { $0.prevents(from: old, to: new) }) else { return nil }
        do {
            let mapping = try MappingModel.inferred(from: old, to: new)
            lastInferred = (pair, mapping)
            return mapping
        } catch {
            let reasons = (error as? MappingInferenceError)?.reasons ?? []
            if let conflict = reasons.lazy.compactMap({ InferenceConflict($0) }).first, !conflicts.contains(conflict) {
                conflicts = conflicts.suffix(Self.maximumConflictCount - 1) + [conflict]
            }
            return nil
        }
    }
}
