import AgentProtocol
import ArgumentParser
import CommandSupport
import LinuxSystem
import MappingModels
import SystemPackage

struct MappingCreateCommand: ProcIndependentCommand {
    static let configuration = CommandConfiguration(
        commandName: "create",
        abstract: "Make a mapping model from two models, to be edited.",
        discussion: """
            Writes what Core Data would infer, entity by entity and property by property. What can't be inferred is \
            marked TO DO. Unedited, the mapping model makes the same objects, values and links as an inferred migration.

            Example:
              groupstore model mapping create Old.xcdatamodel New.xcdatamodel --to Notes.yaml
            """)

    @Argument(help: "The older model, or a store.", completion: .file())
    var old: String

    @Argument(help: "The newer model.", completion: .file())
    var new: String

    @Option(help: "The form to write: yaml or xcmappingmodel (default: that of --to, else yaml).")
    var format: DraftFormat?

    @Option(help: "Write to this path, which must not exist, instead of standard output.")
    var to: String?

    @OptionGroup var renameOptions: ModelRenameOptions
    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        try reporting(outputOptions, changing: to != nil) { output in
            let before = try ModelArgument(old).version(named: nil, .none)
            let after = try ModelArgument(new).version(named: nil, .none)
            let source = try before.knownModel
            var draft = MappingDraft(
                from: source, to: try renameOptions.applied(to: after.knownModel, from: source))
            draft.nameVersions(from: before.version?.name, to: after.version?.name)
            let path = to.map { ArgumentBytes.path($0) }
            let form = format ?? (path?.extension == "xcmappingmodel" ? .xcmappingmodel : .yaml)
            let text = try form.text(of: draft)
            if let path { try MappingFormat.write(text, to: path, form == .xcmappingmodel ? .xcode : .yaml) }
            report(draft, form, text, path, output)
        }
    }

    private func report(_ draft: MappingDraft, _ form: DraftFormat, _ text: String, _ path: FilePath?, _ output: Output)
    {
        for place in draft.places where output.json { output.record(place.record, "") }
        let open = draft.places.filter(\.isOpen)
        var record: JSONObject = [
            "type": "summary", "outcome": "created", "form": .string(form.rawValue),
            "entity_mappings": .integer(Int64(draft.mappingModel.entityMappings.count)),
            "to_do": .integer(Int64(open.count)),
        ]
        if let path { record.setPath("path", bytes: path.bytes) } else { record["text"] = .string(text) }
        var lines = path == nil ? text.lines : []
        // Xcode's form has no place for comments that Xcode would keep.
        if path != nil || form == .xcmappingmodel { lines += open.map { "TO DO: " + $0.sentence } }
        if let path { lines.append("wrote \(PrintablePath(path)): \(Counted(open.count, "place")) to fill in") }
        output.record(record, lines: lines)
    }
}

/// The form of a new mapping model.
enum DraftFormat: String, CaseIterable, ExpressibleByArgument {
    case yaml, xcmappingmodel

    /// Returns the file's text. Throws `MappingModelError` for what Xcode's form can't express.
    func text(of draft: MappingDraft) throws -> String {
        self == .yaml ? draft.yaml : try draft.xcodeDocument()
    }
}

extension String {
    /// The lines of a text that ends with a newline.
    var lines: [String] { dropLast().split(separator: "\n", omittingEmptySubsequences: false).map(String.init) }
}

extension MappingDraft.Place {
    fileprivate var sentence: String {
        let location = [mapping, property].compactMap(\.self).joined(separator: ".")
        return (location.isEmpty ? "" : location + ": ") + "\(message) (\(remedy))"
    }

    fileprivate var record: JSONObject {
        [
            "type": isOpen ? "to_do" : "note", "mapping": mapping.map { .string($0) } ?? .null,
            "property": property.map { .string($0) } ?? .null, "message": .string(message), "remedy": .string(remedy),
        ]
    }
}
