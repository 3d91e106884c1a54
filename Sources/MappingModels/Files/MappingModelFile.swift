import Glibc
import LinuxSystem
import ManagedObjectModels
import SystemPackage

/// A mapping model and the file that it was read from.
public struct MappingModelFile: Equatable, Sendable {
    public enum Form: String, Sendable, CaseIterable {
        /// Xcode's `.xcmappingmodel`.
        case xcode
        /// A compiled `.cdm`.
        case compiled
        /// groupstore's own, which a person reads: see Documentation/MappingModels.md.
        case yaml
    }

    private static let largest: Int64 = 64 << 20

    public let path: FilePath
    public let form: Form
    public let mappingModel: MappingModel
    /// Whether a person has named it, rather than that it was found beside a model: then it goes before those.
    public var isNamed = false

    /// Its file's name without extension.
    public var name: String { path.lastComponent?.stem ?? "" }

    /// Reads an `.xcmappingmodel`, a `.cdm`, or a file in YAML, told apart by what is in it.
    /// Throws `MappingModelError`.
    public init(reading path: FilePath) throws(MappingModelError) {
        guard let status = FileStatus(following: path) else {
            throw MappingModelError(SystemError.last("stat", path: path), path)
        }
        let file = status.kind == .directory ? path.appending("xcmapping.xml") : path
        let bytes = try Self.bytes(file)
        self.path = path
        form =
            bytes.starts(with: Array("bplist".utf8)) ? .compiled : bytes.starts(with: Array("<".utf8)) ? .xcode : .yaml
        do {
            switch form {
            case .xcode: mappingModel = try XcodeMappingReader.read(bytes)
            case .compiled: mappingModel = try CompiledMappingReader.read(bytes)
            case .yaml: mappingModel = try YAMLMappingReader.read(bytes)
            }
        } catch {
            throw MappingModelError(error, .malformed, file)
        }
    }

    private static func bytes(_ file: FilePath) throws(MappingModelError) -> [UInt8] {
        do throws(SystemError) {
            let descriptor = try Descriptor(opening: file, flags: O_RDONLY | O_NONBLOCK)
            let status = try descriptor.status(path: file)
            if status.kind == .regular, status.size <= largest {
                return try descriptor.read(count: Int(status.size), at: 0, path: file)
            }
        } catch {
            throw MappingModelError(error, file)
        }
        throw MappingModelError(
            .notAMappingModel, file, "this is no file, or one of more than \(largest >> 20) MiB",
            remedy: "name an .xcmappingmodel, a .cdm or a mapping model in YAML")
    }

    /// Those in a directory, by name: `.xcmappingmodel`, `.cdm`, and YAML files that end in `.mapping.yaml`. One that
    /// can't be read is an error. Throws `MappingModelError`.
    public static func all(in directory: FilePath) throws(MappingModelError) -> [MappingModelFile] {
        let names: [FilePath.Component]
        do throws(SystemError) { names = try Directory(directory).names() } catch {
            throw MappingModelError(error, directory)
        }
        var found: [MappingModelFile] = []
        for name in names.filter(isMappingModel).sorted(by: { $0.string < $1.string }) {
            found.append(try MappingModelFile(reading: directory.appending(name)))
        }
        return found
    }

    private static func isMappingModel(_ name: FilePath.Component) -> Bool {
        ["xcmappingmodel", "cdm"].contains(name.extension) || name.string.hasSuffix(".mapping.yaml")
            || name.string.hasSuffix(".mapping.yml")
    }

    /// Whether it leads from the one version to the other: by the entities' hashes where it has them; else by the names
    /// of the versions that it was written for, where the other versions of the model don't fit better; and by what it
    /// names. A name is nil where it isn't known.
    public func fits(
        from source: (name: String?, model: ManagedObjectModel),
        to destination: (name: String?, model: ManagedObjectModel)
    ) -> Bool {
        guard mappingModel.fits(from: source.model, to: destination.model) else { return false }
        guard !mappingModel.hasHashes else { return true }
        return Self.agree(mappingModel.sourceVersionName, source.name)
            && Self.agree(mappingModel.destinationVersionName, destination.name)
    }

    private static func agree(_ one: String?, _ other: String?) -> Bool {
        guard let one, let other else { return true }
        return one == other
    }
}

extension MappingModel {
    /// Whether it tells by hashes which models it is for.
    package var hasHashes: Bool { entityMappings.contains(where: \.hasHashes) }

    /// The same for any models that have what it names: where the models are known, their compiler puts the hashes in.
    package var withoutHashes: MappingModel {
        var model = self
        for index in model.entityMappings.indices {
            model.entityMappings[index].sourceEntityVersionHash = nil
            model.entityMappings[index].destinationEntityVersionHash = nil
        }
        return model
    }
}

extension EntityMapping {
    var hasHashes: Bool { sourceEntityVersionHash != nil || destinationEntityVersionHash != nil }
}
