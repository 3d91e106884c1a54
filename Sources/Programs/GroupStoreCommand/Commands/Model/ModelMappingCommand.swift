import AgentProtocol
import ArgumentParser
import CommandSupport
import Glibc
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SystemPackage

struct ModelMappingCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "mapping",
        abstract: "Make, print, convert and check mapping models.",
        discussion: """
            MAPPING is an .xcmappingmodel, a compiled .cdm, or a mapping model in YAML. Its content decides which.
            """,
        subcommands: [
            MappingCreateCommand.self, MappingShowCommand.self, MappingConvertCommand.self, MappingCheckCommand.self,
        ])
}

/// The option for mapping models.
struct MappingModelOptions: ParsableArguments {
    @Option(
        name: .customLong("mapping"), help: "Use this mapping model where it fits. May be repeated.",
        completion: .file())
    var mappings: [String] = []

    /// Returns the named mapping models, then those beside the models or in them.
    func files(beside models: [FilePath]) throws -> [MappingModelFile] {
        try MappingModelFile.files(mappings.map { ArgumentBytes.path($0) }, beside: models)
    }
}

/// The models that a mapping model leads between, which provide what it omits.
struct MappedModelsOptions: ParsableArguments {
    @Option(help: "The older model, which provides omitted properties.", completion: .file())
    var old: String?

    @Option(help: "The newer model, which provides omitted properties.", completion: .file())
    var new: String?

    /// Returns the mapping model with its omitted properties if both models are named.
    func completing(_ model: MappingModel) throws -> MappingModel {
        guard let old, let new else { return model }
        let models = try (
            ModelArgument(old).version(named: nil, .none), ModelArgument(new).version(named: nil, .none)
        )
        return try model.resolved(from: models.0.knownModel, to: models.1.knownModel)
    }

    /// Returns the text of a mapping model.
    func text(of model: MappingModel, _ format: MappingFormat) throws -> String {
        let completed = try completing(model)
        // The hashes were compared with the models' own.
        return try format.text(of: format == .xcode && old != nil && new != nil ? completed.withoutHashes : completed)
    }
}

struct MappingShowCommand: ProcIndependentCommand {
    static let configuration = CommandConfiguration(
        commandName: "show", abstract: "Print a mapping model as YAML or as Xcode's XML.",
        discussion: """
            Example:
              groupstore model mapping show Notes.xcmappingmodel
            """)

    @Argument(help: "The mapping model.", completion: .file())
    var mapping: String

    @Option(help: "The output format: YAML, or Xcode's XML of an .xcmappingmodel.")
    var format: MappingFormat = .yaml

    @OptionGroup var modelsOptions: MappedModelsOptions

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        try reporting(outputOptions) { output in
            let file = try mappingFile(mapping)
            let text = try modelsOptions.text(of: file.mappingModel, format)
            for entry in file.mappingModel.entityMappings where output.json { output.record(entry.record, "") }
            output.record(
                [
                    "type": "summary", "outcome": "shown", "form": .string(file.form.rawValue),
                    "entity_mappings": .integer(Int64(file.mappingModel.entityMappings.count)),
                    "source": file.mappingModel.sourceVersionName.map { .string($0) } ?? .null,
                    "destination": file.mappingModel.destinationVersionName.map { .string($0) } ?? .null,
                ], lines: text.lines)
        }
    }
}

struct MappingConvertCommand: ProcIndependentCommand {
    static let configuration = CommandConfiguration(
        commandName: "convert",
        abstract: "Convert a mapping model to an .xcmappingmodel, or to YAML.",
        discussion: """
            Xcode's form lists every property. To convert YAML that omits some, name both models with --old and --new.

            Example:
              groupstore model mapping convert Notes.yaml Notes.xcmappingmodel
            """)

    @Argument(help: "The mapping model.", completion: .file())
    var mapping: String

    @Argument(help: "The output path, which must not exist; a name that ends in .xcmappingmodel selects Xcode's form.")
    var destination: String

    @OptionGroup var modelsOptions: MappedModelsOptions

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        try reporting(outputOptions) { output in
            let model = try mappingFile(mapping).mappingModel
            let path = ArgumentBytes.path(destination)
            let format: MappingFormat = path.extension == "xcmappingmodel" ? .xcode : .yaml
            try MappingFormat.write(modelsOptions.text(of: model, format), to: path, format)
            output.record(
                [
                    "type": "summary", "outcome": "converted", "path": .string(path.string),
                    "form": .string(format.rawValue),
                ],
                "wrote \(PrintablePath(path))")
        }
    }
}

struct MappingCheckCommand: ProcIndependentCommand {
    static let configuration = CommandConfiguration(
        commandName: "check", abstract: "Check whether a mapping model fits two models.",
        discussion: """
            Exits with 0 if it fits, and 65 if not. Each finding names a remedy.

            Example:
              groupstore model mapping check Notes.yaml Old.xcdatamodel New.xcdatamodel
            """)

    @Argument(help: "The mapping model.", completion: .file())
    var mapping: String

    @Argument(help: "The older model, or a store.", completion: .file())
    var old: String

    @Argument(help: "The newer model.", completion: .file())
    var new: String

    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = Output(outputOptions)
        var isRefused = false
        try reporting(output) {
            let file = try mappingFile(mapping)
            let source = try ModelArgument(old).version(named: nil, .none)
            let destination = try ModelArgument(new).version(named: nil, .none)
            let findings = try self.findings(file, from: source.knownModel, to: destination.knownModel)
            for finding in findings {
                let severity = "\(finding.severity)"
                let place = [finding.entity, finding.property].compactMap(\.self).joined(separator: ".")
                output.record(
                    [
                        "type": "finding", "severity": .string(severity),
                        "entity": finding.entity.map { .string($0) } ?? .null,
                        "property": finding.property.map { .string($0) } ?? .null,
                        "message": .string(finding.message), "remedy": .string(finding.remedy),
                    ],
                    "\(severity): \(place.isEmpty ? "" : place + ": ")\(finding.message) (\(finding.remedy))")
            }
            isRefused = findings.contains { $0.severity == .error }
            let outcome = isRefused ? "refused" : "fits"
            output.record(
                ["type": "summary", "outcome": .string(outcome)],
                isRefused
                    ? "the mapping model can't be run"
                    : "the mapping model leads from \(source.name) to \(destination.name)")
        }
        if isRefused { throw ExitStatus.badData.code }
    }

    private func findings(
        _ file: MappingModelFile, from old: ManagedObjectModel, to new: ManagedObjectModel
    ) throws -> [MigrationFinding] {
        do {
            return try file.mappingModel.review(from: old, to: new)
        } catch {
            throw error.inFile(file.path)
        }
    }
}

/// The format of a mapping model.
enum MappingFormat: String, CaseIterable, ExpressibleByArgument {
    case yaml, xcode

    func text(of model: MappingModel) throws -> String {
        self == .xcode ? try model.xcodeDocument() : model.yaml
    }

    /// Writes a mapping model's file, or the directory of Xcode's form. Throws if the path exists.
    static func write(_ text: String, to path: FilePath, _ format: MappingFormat) throws {
        var file = path
        do throws(SystemError) {
            if format == .xcode {
                guard mkdir(path.string, 0o777) == 0 else { throw SystemError.last("mkdir", path: path) }
                file = path.appending("xcmapping.xml")
            }
            let opened = try Descriptor(opening: file, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o666)
            try opened.write(Array(text.utf8), at: 0, path: file)
        } catch {
            guard error.errno == .fileExists else { throw error }
            throw CommandFailure(
                .conflict, code: "exists", "\(PrintablePath(path)): this exists already", remedy: "name another file")
        }
    }
}

private func mappingFile(_ text: String) throws -> MappingModelFile {
    try MappingModelFile(reading: ArgumentBytes.path(text))
}

extension EntityMapping {
    fileprivate var record: JSONObject {
        [
            "type": "entity_mapping", "name": .string(name),
            "source": sourceEntityName.map { .string($0) } ?? .null,
            "destination": destinationEntityName.map { .string($0) } ?? .null,
            "where": filter.map { .string($0.description) } ?? .null,
            "policy": entityMigrationPolicyClassName.map { .string($0) } ?? .null,
            "attributes": .object(attributeMappings.json), "relationships": .object(relationshipMappings.json),
        ]
    }
}

extension [PropertyMapping] {
    /// The mappings by name; null for a new value.
    fileprivate var json: JSONObject {
        var object = JSONObject()
        for mapping in self {
            object[mapping.name] =
                mapping.isAutomatic ? "automatic" : mapping.valueExpression.map { .string($0.description) } ?? .null
        }
        return object
    }
}
