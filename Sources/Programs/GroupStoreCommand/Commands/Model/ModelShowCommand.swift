import AgentProtocol
import ArgumentParser
import CommandSupport
import LinuxSystem
import ManagedObjectModels

struct ModelShowCommand: ProcIndependentCommand {
    static let configuration = CommandConfiguration(
        commandName: "show", abstract: "Print a model's entities and properties.",
        discussion: """
            Example:
              groupstore model show Notes.xcdatamodeld --format svg >Notes.svg
            """)

    @Argument(help: "The model, or a store.", completion: .file())
    var model: String?

    @OptionGroup var modelOptions: ModelListOptions

    @OptionGroup var versionOption: ModelVersionOption

    @Option(help: "Print the model as text, as a Mermaid class diagram, a Graphviz graph, or an SVG picture.")
    var format: ShowFormat = .text

    @OptionGroup var mergeOptions: ModelMergeOptions
    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        try modelOptions.validate(model.map { [$0] } ?? [], 1)
        guard format == .text || !outputOptions.json else {
            throw ValidationError("--json and --format \(format.rawValue) exclude each other")
        }
    }

    func run() throws {
        try reporting(outputOptions) { output in
            let shown = try modelOptions.argument(model, mergeOptions.configuration).version(
                named: versionOption.modelVersion, mergeOptions)
            let model = try shown.knownModel
            output.report(ignoredIn: shown.version)
            switch format {
            case .text: break
            case .mermaid: return output.record([:], lines: ModelDiagram(model).mermaid)
            case .dot: return output.record([:], lines: ModelDiagram(model).dot)
            case .svg: return output.record([:], lines: ModelDrawing(model, named: shown.name).lines)
            }
            output.record(
                shown.record(model), lines: [shown.title] + model.facts.lines(indent: "  "))
            for entity in model.entities {
                output.record(entity.record, lines: entity.text)
                for property in entity.declaredProperties where output.json {
                    output.record(property.record(of: entity), "")
                }
            }
            if output.json {
                let properties = model.entities.reduce(0) { $0 + $1.declaredProperties.count }
                output.record(
                    [
                        "type": "summary", "outcome": "shown", "entities": .integer(Int64(model.entities.count)),
                        "properties": .integer(Int64(properties)),
                    ], "")
            }
        }
    }
}

/// The form in which a model is shown.
enum ShowFormat: String, CaseIterable, ExpressibleByArgument {
    case text
    /// A class diagram in Mermaid's language, which code hosts draw.
    case mermaid
    /// A graph in the language of Graphviz.
    case dot
    /// A scalable vector graphic, which browsers show.
    case svg
}

extension NamedModel {
    fileprivate var title: String { name + (isCurrent ? " (current)" : "") }

    fileprivate func record(_ model: ManagedObjectModel) -> JSONObject {
        var configurations = JSONObject()
        for (name, members) in model.configurations.sorted(by: { $0.key < $1.key }) {
            configurations[name] = .array(members.sorted().map { .string($0) })
        }
        return [
            "type": "version", "name": .string(name), "current": .bool(isCurrent), "checksum": .string(checksum),
            "identifiers": .array(model.versionIdentifiers.sorted().map { .string($0) }),
            "configurations": .object(configurations),
            "fetch_requests": .array(model.fetchRequestTemplates.map { .string($0.name) }),
        ]
    }
}

extension ManagedObjectModel {
    fileprivate var facts: TextTable {
        var table = TextTable()
        let identifiers = versionIdentifiers.filter { !$0.isEmpty }.sorted().joined(separator: ", ")
        if !identifiers.isEmpty { table.add(.text("identifier"), .text(identifiers)) }
        for (name, members) in configurations.sorted(by: { $0.key < $1.key }) {
            table.add(.text("configuration"), .text(name + ": " + members.sorted().joined(separator: ", ")))
        }
        for request in fetchRequestTemplates {
            let condition = request.predicate.map { " where " + $0 } ?? ""
            table.add(.text("fetch request"), .text(request.name + ": " + request.entityName + condition))
        }
        table.add(.text("checksum"), .text(versionChecksum))
        return table
    }
}

extension EntityDescription {
    fileprivate var text: [String] {
        var table = TextTable()
        for property in declaredProperties {
            let name = property.kind == "attribute" ? property.name : property.name + " →"
            table.add(.text(name), .text(property.aspects.text))
        }
        let words = aspects.text
        return ["", name + (words.isEmpty ? "" : "  " + words)] + table.lines(indent: "  ")
    }

    fileprivate var record: JSONObject {
        ["type": "entity", "name": .string(name), "aspects": .object(aspects.json)]
    }
}

extension PropertyDescription {
    fileprivate func record(of entity: EntityDescription) -> JSONObject {
        [
            "type": .string(kind), "entity": .string(entity.name), "name": .string(name),
            "aspects": .object(aspects.json),
        ]
    }
}

extension [ModelAspect] {
    /// The aspects in words; only the value if it needs no name.
    var text: String {
        map { aspect in
            if aspect.isFlag { return aspect.name }
            return ["type", "destination"].contains(aspect.name) ? aspect.value : aspect.name + " " + aspect.value
        }.joined(separator: ", ")
    }

    fileprivate var json: JSONObject {
        var object = JSONObject()
        for aspect in self { object[aspect.name] = aspect.isFlag ? .bool(true) : .string(aspect.value) }
        return object
    }
}
