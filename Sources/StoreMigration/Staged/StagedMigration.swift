import ManagedObjectModels
import MappingModels

/// The steps that stages come to, for a store of one version: `NSStagedMigrationManager`.
struct StagedMigration {
    /// What leads from one version to the next.
    private struct Passage {
        let checksum: String
        /// Nil within lightweight stages.
        let handlers: MigrationStageHandlers?
    }

    private let first: String
    private let passages: [Passage]

    /// Throws `MigrationError` for stages that don't follow each other.
    init(_ stages: [MigrationStage]) throws {
        var checksums: [String] = []
        var passages: [Passage] = []
        func go(to checksum: String, _ handlers: MigrationStageHandlers?) throws {
            guard !checksums.contains(checksum) else { throw Self.invalid("two stages lead to \(checksum)") }
            if !checksums.isEmpty { passages.append(Passage(checksum: checksum, handlers: handlers)) }
            checksums.append(checksum)
        }
        for stage in stages {
            switch stage {
            case .lightweight(let versions):
                guard !versions.isEmpty else { throw Self.invalid("a lightweight stage names no version") }
                for version in versions where version != checksums.last { try go(to: version, nil) }
            case .custom(let old, let new, let label, let willMigrate, let didMigrate):
                if old != checksums.last { try go(to: old, nil) }
                let handlers = MigrationStageHandlers(label: label, willMigrate: willMigrate, didMigrate: didMigrate)
                try go(to: new, handlers)
            }
        }
        guard let first = checksums.first else { throw Self.invalid("there are no stages") }
        self.first = first
        self.passages = passages
    }

    /// Throws `MigrationError`: 134504 for a version that no stage or no model has, 134506 for one that lies before the
    /// store's, 134140 where no mapping can be inferred.
    func steps(
        from source: ManagedObjectModel, to destination: ManagedObjectModel, named name: String,
        among versions: [(name: String, model: ManagedObjectModel)]
    ) throws -> [MigrationStep] {
        let known = [(name: "", model: source), (name: name, model: destination)] + versions
        let places = [first] + passages.map(\.checksum)
        guard let from = places.firstIndex(of: source.versionChecksum) else {
            throw Self.unknown("the store's version, \(source.versionChecksum), is in no stage")
        }
        guard let to = places.firstIndex(of: destination.versionChecksum) else {
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
        for place in from..<to {
            // Lightweight passages that follow each other are one step, to the last of them.
            let isLast = place + 1 == to || passages[place + 1].handlers != nil
            guard isLast || passages[place].handlers != nil else { continue }
            let next = known.dropFirst().first { $0.model.versionChecksum == passages[place].checksum }
            guard let next else { throw Self.unknown("no model has the checksum \(passages[place].checksum)") }
            steps.append(try step(from: current, to: next, passages[place].handlers))
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
