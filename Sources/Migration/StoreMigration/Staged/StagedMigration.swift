import ManagedObjectModels
import MappingModels

/// Converts an app's stages into the steps for one store. Corresponds to `NSStagedMigrationManager`.
struct StagedMigration {
    /// A transition to the next version.
    private struct Transition {
        let checksum: String
        /// The custom stage's handlers; nil within lightweight stages.
        let handlers: MigrationStageHandlers?
    }

    private let first: String
    private let transitions: [Transition]

    /// Throws `MigrationError` if the stages don't form one sequence.
    init(_ stages: [MigrationStage]) throws {
        var checksums: [String] = []
        var transitions: [Transition] = []
        func append(_ checksum: String, _ handlers: MigrationStageHandlers?) throws {
            guard !checksums.contains(checksum) else { throw Self.invalid("two stages lead to \(checksum)") }
            if !checksums.isEmpty { transitions.append(Transition(checksum: checksum, handlers: handlers)) }
            checksums.append(checksum)
        }
        for stage in stages {
            switch stage {
            case .lightweight(let versions):
                guard !versions.isEmpty else { throw Self.invalid("a lightweight stage names no version") }
                for version in versions where version != checksums.last { try append(version, nil) }
            case .custom(let old, let new, let label, let willMigrate, let didMigrate):
                if old != checksums.last { try append(old, nil) }
                let handlers = MigrationStageHandlers(label: label, willMigrate: willMigrate, didMigrate: didMigrate)
                try append(new, handlers)
            }
        }
        guard let first = checksums.first else { throw Self.invalid("there are no stages") }
        self.first = first
        self.transitions = transitions
    }

    /// Returns the steps for a store of the source version. Throws `MigrationError`: 134504 for a version that no stage
    /// or no model has, 134506 if the destination comes before the store's version, 134140 if no mapping can be
    /// inferred.
    func steps(
        from source: ManagedObjectModel, to destination: ManagedObjectModel, named name: String,
        among versions: [(name: String, model: ManagedObjectModel)]
    ) throws -> [MigrationStep] {
        let candidates = [(name: "", model: source), (name: name, model: destination)] + versions
        let checksums = [first] + transitions.map(\.checksum)
        guard let from = checksums.firstIndex(of: source.versionChecksum) else {
            throw Self.unknown("the store's version, \(source.versionChecksum), is in no stage")
        }
        guard let to = checksums.firstIndex(of: destination.versionChecksum) else {
            throw Self.unknown("\(name), \(destination.versionChecksum), is in no stage")
        }
        guard from <= to else {
            throw MigrationError(
                CoreDataError.backwardMigration,
                "A store file cannot be migrated backwards with staged migration: the stages lead to \(name) before the "
                    + "store's own version",
                remedy: "put the stages in the order of the versions, or use the newer model")
        }
        var steps: [MigrationStep] = []
        var current = source
        for index in from..<to {
            // Successive lightweight transitions form one step, to the last of them.
            let transition = transitions[index]
            let isLast = index + 1 == to || transitions[index + 1].handlers != nil
            guard isLast || transition.handlers != nil else { continue }
            let next = candidates.dropFirst().first { $0.model.versionChecksum == transition.checksum }
            guard let next else { throw Self.unknown("no model has the checksum \(transition.checksum)") }
            steps.append(try step(from: current, to: next, transition.handlers))
            current = next.model
        }
        return steps
    }

    private func step(
        from source: ManagedObjectModel, to destination: (name: String, model: ManagedObjectModel),
        _ handlers: MigrationStageHandlers?
    ) throws -> MigrationStep {
        do {
            let mapping = try MappingModel.inferred(from: source, to: destination.model)
            var step = MigrationStep(
                from: source, to: destination.model, named: destination.name, by: .inferred(mapping))
            step.stage = handlers
            return step
        } catch let error as MappingInferenceError {
            throw MigrationError(error)
        }
    }

    private static func unknown(_ message: String) -> MigrationError {
        MigrationError(
            CoreDataError.modelReferenceNotFound, message, remedy: "name each version's checksum in a stage, in order")
    }

    private static func invalid(_ message: String) -> MigrationError {
        MigrationError(
            CoreDataError.migration, "the stages of the migration are wrong: \(message)",
            remedy: "name each version once, from the oldest to the current one")
    }
}
