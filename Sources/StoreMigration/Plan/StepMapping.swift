import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels

/// The mapping of one step, put together from the mapping models that lead there: an app may divide a large one among
/// several files.
struct StepMapping {
    /// What the files are called.
    let name: String
    let resolved: MappingModel
    private(set) var findings: [MigrationFinding] = []

    /// Nil where no mapping model leads there. Those that a person has named go before those found beside the model. Throws
    /// `MigrationError` where two say different things of one entity.
    init?(
        from old: MigrationPath.KnownVersion, to new: MigrationPath.KnownVersion, _ mappings: [MappingModelFile]
    ) throws(MigrationError) {
        let fitting = mappings.filter { $0.fits(from: old, to: new) }
        let named = fitting.filter(\.isNamed)
        let used = Self.withoutOtherForms(named.isEmpty ? fitting : named)
        guard let first = used.first else { return nil }
        var merged = first.mappingModel
        var sources = [first]
        for other in used.dropFirst() {
            guard let more = try Self.entityMappings(of: other, besides: sources, old.model, new.model) else {
                continue
            }
            merged.entityMappings += more
            merged.preparations += other.mappingModel.preparations
            merged.completions += other.mappingModel.completions
            sources.append(other)
        }
        do { resolved = try merged.resolved(from: old.model, to: new.model) } catch {
            throw Self.conflict(first, used.last ?? first, "they can't be put together: \(error)")
        }
        name = sources.map(\.name).joined(separator: " + ")
        guard !named.isEmpty else { return }
        for other in fitting where !other.isNamed && !named.contains(where: { $0.mappingModel == other.mappingModel }) {
            var finding = MigrationFinding(
                .note, entity: nil, "\(PrintablePath(other.path)) leads there too, and isn't used: \(name) was named",
                remedy: "name it too, with --mapping, where it is meant")
            finding.isTold = true
            findings.append(finding)
        }
    }

    /// One file of each name: a compiled mapping model may lie beside what it was compiled from.
    private static func withoutOtherForms(_ files: [MappingModelFile]) -> [MappingModelFile] {
        var found: [MappingModelFile] = []
        for file in files
        where !found.contains(where: { other in
            other.name == file.name && other.form != file.form
                && Set(other.mappingModel.entityMappings.map(\.name))
                    == Set(file.mappingModel.entityMappings.map(\.name))
        }) {
            found.append(file)
        }
        return found
    }

    /// What `other` has that none of `sources` has; nil where it has all of it from them. Throws where they differ.
    private static func entityMappings(
        of other: MappingModelFile, besides sources: [MappingModelFile], _ old: ManagedObjectModel,
        _ new: ManagedObjectModel
    ) throws(MigrationError) -> [EntityMapping]? {
        var left = other.mappingModel.entityMappings
        for source in sources {
            let subjects = Set(source.mappingModel.entityMappings.map(\.subject))
            let shared = left.filter { subjects.contains($0.subject) }
            guard !shared.isEmpty else { continue }
            let own = source.mappingModel.entityMappings.filter { mapping in
                shared.contains { $0.subject == mapping.subject }
            }
            let isSame =
                own.map(\.withoutHashes).sorted { $0.name < $1.name }
                == shared.map(\.withoutHashes).sorted { $0.name < $1.name }
            guard isSame, source.mappingModel.preparations == other.mappingModel.preparations else {
                let names = Set(shared.compactMap { $0.sourceEntityName ?? $0.destinationEntityName }).sorted()
                throw conflict(source, other, "both say what becomes of \(names.joined(separator: ", "))")
            }
            left.removeAll { subjects.contains($0.subject) }
        }
        return left.isEmpty ? nil : left
    }

    private static func conflict(
        _ one: MappingModelFile, _ other: MappingModelFile, _ message: String
    ) -> MigrationError {
        MigrationError(
            CoreDataError.missingMappingModel,
            "\(PrintablePath(one.path)) and \(PrintablePath(other.path)) lead over the same step: \(message)",
            remedy: "name the one that is meant with --mapping, or take the other away")
    }
}

extension EntityMapping {
    /// What it is about: the older entity, or the newer one that is added.
    fileprivate var subject: String { sourceEntityName ?? "+" + (destinationEntityName ?? "") }

    fileprivate var withoutHashes: EntityMapping {
        var mapping = self
        (mapping.sourceEntityVersionHash, mapping.destinationEntityVersionHash) = (nil, nil)
        return mapping
    }
}
