import Glibc
import LinuxSystem
import ManagedObjectModels
import SystemPackage

/// A mapping model and the file that it was read from.
///
///     let file = try MappingModelFile(reading: "Zoo.xcmappingmodel")
///     print(file.mappingModel.yaml)
public struct MappingModelFile: Equatable, Sendable {
    /// The form of a mapping model's file.
    public enum Form: String, Sendable, CaseIterable {
        /// Xcode's `.xcmappingmodel`.
        case xcode
        /// A compiled `.cdm`.
        case compiled
        /// groupstore's own readable form; see Documentation/MappingModels.md.
        case yaml
    }

    private static let maximumSize: Int64 = 64 << 20

    /// The path that was read.
    public let path: FilePath
    /// The form of the file.
    public let form: Form
    /// The mapping model as the file has it, not yet resolved; see ``MappingModel/resolved(from:to:)``.
    public let mappingModel: MappingModel
    /// True if a person named the file, false if it was found beside a model. Named files take precedence.
    public var isNamed = false

    /// The file's name without its extension.
    public var name: String { path.lastComponent?.stem ?? "" }

    /// Reads an `.xcmappingmodel`, a `.cdm`, or a YAML file of at most 64 MiB. The content determines the form.
    ///
    /// - Throws: ``MappingModelError`` if the file can't be read or is not a valid mapping model.
    public init(reading path: FilePath) throws(MappingModelError) {
        guard let status = FileStatus(following: path) else {
            throw MappingModelError(SystemError.last("stat", path: path), at: path)
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
            throw MappingModelError(error, code: .malformed, at: file)
        }
    }

    private static func bytes(_ file: FilePath) throws(MappingModelError) -> [UInt8] {
        do throws(SystemError) {
            let descriptor = try Descriptor(opening: file, flags: O_RDONLY | O_NONBLOCK)
            let status = try descriptor.status(path: file)
            if status.kind == .regular, status.size <= maximumSize {
                return try descriptor.read(count: Int(status.size), at: 0, path: file)
            }
        } catch {
            throw MappingModelError(error, at: file)
        }
        throw MappingModelError(
            .notAMappingModel, at: file, "this is not a regular file, or larger than \(maximumSize >> 20) MiB",
            remedy: "name an .xcmappingmodel, a .cdm or a mapping model in YAML")
    }

    /// Reads all mapping models in a directory, sorted by name: `.xcmappingmodel`, `.cdm`, and YAML files that end in
    /// `.mapping.yaml` or `.mapping.yml`.
    ///
    /// - Throws: ``MappingModelError`` if the directory or one of the files can't be read.
    public static func all(in directory: FilePath) throws(MappingModelError) -> [MappingModelFile] {
        let names: [FilePath.Component]
        do throws(SystemError) { names = try Directory(directory).names() } catch {
            throw MappingModelError(error, at: directory)
        }
        var files: [MappingModelFile] = []
        for name in names.filter(isMappingModel).sorted(by: { $0.string < $1.string }) {
            files.append(try MappingModelFile(reading: directory.appending(name)))
        }
        return files
    }

    private static func isMappingModel(_ name: FilePath.Component) -> Bool {
        ["xcmappingmodel", "cdm"].contains(name.extension) || name.string.hasSuffix(".mapping.yaml")
            || name.string.hasSuffix(".mapping.yml")
    }

    /// Returns true if the mapping model fits the two versions. All elements that it names must exist. If it has
    /// version hashes, they must match; otherwise the names of its versions must match, as far as both sides are known.
    ///
    /// - Parameters:
    ///   - source: The older version, whose name is nil if unknown.
    ///   - destination: The newer version, whose name is nil if unknown.
    public func fits(
        from source: (name: String?, model: ManagedObjectModel),
        to destination: (name: String?, model: ManagedObjectModel)
    ) -> Bool {
        // Names are compared first: of a hundred versions, they leave one pair.
        guard
            mappingModel.hasHashes
                || Self.namesAgree(mappingModel.sourceVersionName, source.name)
                    && Self.namesAgree(mappingModel.destinationVersionName, destination.name)
        else { return false }
        return mappingModel.fits(from: source.model, to: destination.model)
    }

    private static func namesAgree(_ first: String?, _ second: String?) -> Bool {
        guard let first, let second else { return true }
        return first == second
    }
}

extension MappingModel {
    /// True if version hashes identify the models that the mapping is for.
    package var hasHashes: Bool { entityMappings.contains(where: \.hasHashes) }

    /// This mapping model without hashes, for any models with the named elements. Compiling it for known models inserts
    /// their hashes.
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
