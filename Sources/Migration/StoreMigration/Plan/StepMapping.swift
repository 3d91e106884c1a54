import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels

/// The mapping of one step, merged from all mapping models that fit it: an app may split a large one into several
/// files.
struct StepMapping {
    /// The files' names, joined by ` + `.
    let name: String
    let resolved: MappingModel
    private(set) var findings: [MigrationFinding] = []

    /// Returns nil if no mapping model fits. Files that a person named take precedence over those found beside the
    /// model. Throws `MigrationError` if two files map one entity differently.
    init?(
        from old: MigrationPath.KnownVersion, to new: MigrationPath.KnownVersion, _ mappings: [MappingModelFile]
    ) throws(MigrationError) {
        let fitting = mappings.filter { $0.fits(from: old, to: new) }
        let named = fitting.filter(\.isNamed)
        let used = Self.withoutDuplicateForms(named.isEmpty ? fitting : named)
        guard let first = used.first else { return nil }
        var merged = first.mappingModel
        var sources = [first]
        for file in used.dropFirst() {
            guard let additions = try Self.entityMappings(of: file, besides: sources) else { continue }
            merged.entityMappings += additions
            merged.preparations += file.mappingModel.preparations
            merged.completions += file.mappingModel.completions
            sources.append(file)
        }
        do { resolved = try merged.resolved(from: old.model, to: new.model) } catch {
            throw Self.conflict(between: first, and: used.last ?? first, "they can't be merged: \(error.fullMessage)")
        }
        name = sources.map(\.name).joined(separator: " + ")
        guard !named.isEmpty else { return }
        for file in fitting where !file.isNamed && !named.contains(where: { $0.mappingModel == file.mappingModel }) {
            var finding = MigrationFinding(
                .note, entity: nil, "\(PrintablePath(file.path)) fits the same step, but isn't used: \(name) was named",
                remedy: "name it too, with --mapping, if it is meant")
            finding.isReportedAtRun = true
            findings.append(finding)
        }
    }

    /// Drops further forms of one mapping model: a compiled one may lie beside its source file.
    private static func withoutDuplicateForms(_ files: [MappingModelFile]) -> [MappingModelFile] {
        var unique: [MappingModelFile] = []
        for file in files
        where !unique.contains(where: { earlier in
            earlier.name == file.name && earlier.form != file.form
                && Set(earlier.mappingModel.entityMappings.map(\.name))
                    == Set(file.mappingModel.entityMappings.map(\.name))
        }) {
            unique.append(file)
        }
        return unique
    }

    /// Returns the entity mappings of `file` that no source has; nil if the sources have all of them. Throws if a
    /// shared entity is mapped differently.
    private static func entityMappings(
        of file: MappingModelFile, besides sources: [MappingModelFile]
    ) throws(MigrationError) -> [EntityMapping]? {
        var remaining = file.mappingModel.entityMappings
        for source in sources {
            let subjects = Set(source.mappingModel.entityMappings.map(\.subject))
            let shared = remaining.filter { subjects.contains($0.subject) }
            guard !shared.isEmpty else { continue }
            let own = source.mappingModel.entityMappings.filter { mapping in
                shared.contains { $0.subject == mapping.subject }
            }
            let isSame =
                own.map(\.withoutHashes).sorted { $0.name < $1.name }
                == shared.map(\.withoutHashes).sorted { $0.name < $1.name }
            guard isSame, source.mappingModel.preparations == file.mappingModel.preparations else {
                let names = Set(shared.compactMap { $0.sourceEntityName ?? $0.destinationEntityName }).sorted()
                throw conflict(between: source, and: file, "both map \(names.joined(separator: ", "))")
            }
            remaining.removeAll { subjects.contains($0.subject) }
        }
        return remaining.isEmpty ? nil : remaining
    }

    private static func conflict(
        between first: MappingModelFile, and second: MappingModelFile, _ message: String
    ) -> MigrationError {
        MigrationError(
            CoreDataError.missingMappingModel,
            "\(PrintablePath(first.path)) and \(PrintablePath(second.path)) fit the same step: \(message)",
            remedy: "name the intended one with --mapping, or remove the other")
    }
}

extension EntityMapping {
    /// The key of the mapping: the older entity's name, or `+` and the name of the newer entity that is added.
    fileprivate var subject: String { sourceEntityName ?? "+" + (destinationEntityName ?? "") }

    fileprivate var withoutHashes: EntityMapping {
        var mapping = self
        (mapping.sourceEntityVersionHash, mapping.destinationEntityVersionHash) = (nil, nil)
        return mapping
    }
}
