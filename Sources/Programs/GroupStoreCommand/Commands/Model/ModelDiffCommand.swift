import AgentProtocol
import ArgumentParser
import CommandSupport
import ManagedObjectModels

struct ModelDiffCommand: ProcIndependentCommand {
    static let configuration = CommandConfiguration(
        commandName: "diff",
        abstract: "Print the differences between two models.",
        discussion: """
            Pairs entities and properties by their renaming identifiers. A star marks a change that requires a \
            migration of stores; the others don't.

            Example:
              groupstore model diff Notes.sqlite Notes.xcdatamodeld --format html >diff.html
            """)

    @Argument(help: "The older model, or a store.", completion: .file())
    var old: String

    @Argument(help: "The newer model, or a store.", completion: .file())
    var new: String?

    @OptionGroup var modelOptions: ModelListOptions

    @Option(help: "Compare only the entities of this configuration of the models.")
    var configuration: String?

    @Option(help: "Print the differences as text, or as an HTML page with both models side by side.")
    var format: DiffPageFormat = .text

    @OptionGroup var renameOptions: ModelRenameOptions
    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        try modelOptions.validate(new.map { [$0] } ?? [], 1)
        guard format == .text || !outputOptions.json else {
            throw ValidationError("--json and --format \(format.rawValue) exclude each other")
        }
    }

    func run() throws {
        try reporting(outputOptions) { output in
            let older = try ModelArgument([old], configuration: configuration).version(
                named: nil, ModelMergeOptions.none)
            let before = try older.knownModel
            let newer = try modelOptions.argument(new, configuration).version(named: nil, ModelMergeOptions.none)
            let after = try renameOptions.applied(to: newer.knownModel, from: before)
            let changes = ModelDifference(from: before, to: after).changes
            if format == .html {
                let page = DiffPage(from: before, named: older.name, to: after, named: newer.name, changes)
                return output.record([:], lines: page.lines)
            }
            for change in changes { output.record(change.record, change.text) }
            let toMigrate = changes.filter(\.changesVersionHash).count
            output.record(
                [
                    "type": "summary", "outcome": changes.isEmpty ? "same" : "different",
                    "changes": .integer(Int64(changes.count)), "changes_hash": .bool(toMigrate > 0),
                ],
                ModelDifference.summary(changes))
        }
    }
}

/// The form of a report: text, or a page for a browser.
enum DiffPageFormat: String, CaseIterable, ExpressibleByArgument {
    case text
    /// One page that loads nothing.
    case html
}

extension ModelDifference {
    /// Returns the number of changes, and how many require a migration, in words.
    static func summary(_ changes: [Change]) -> String {
        let toMigrate = changes.filter(\.changesVersionHash).count
        guard !changes.isEmpty else { return "no difference" }
        guard changes.count > 1 else {
            return toMigrate == 1 ? "1 change, which requires a migration" : "1 change, which requires no migration"
        }
        if toMigrate == changes.count { return "\(changes.count) changes, all of which require a migration" }
        let number = toMigrate == 0 ? "none" : "\(toMigrate)"
        return "\(changes.count) changes, \(number) of which \(toMigrate > 1 ? "require" : "requires") a migration"
    }
}

extension ModelDifference.Change {
    var path: String { property.map { entity + "." + $0 } ?? entity }

    fileprivate var text: String {
        let sign = changesVersionHash ? "* " : "  "
        let words = details.map { detail in
            "\(detail.aspect) \(detail.old ?? "-") → \(detail.new ?? "-")"
        }
        let renaming = oldName.map { " from \($0)" } ?? ""
        return sign + kind.rawValue + " " + path + renaming
            + (words.isEmpty ? "" : ": " + words.joined(separator: ", "))
    }

    fileprivate var record: JSONObject {
        var object: JSONObject = ["type": "change", "change": .string(kind.rawValue), "entity": .string(entity)]
        object["property"] = property.map { .string($0) }
        object["old_name"] = oldName.map { .string($0) }
        object["details"] = .array(
            details.map { detail in
                .object([
                    "aspect": .string(detail.aspect), "old": detail.old.map { .string($0) } ?? .null,
                    "new": detail.new.map { .string($0) } ?? .null,
                ])
            })
        object["changes_hash"] = .bool(changesVersionHash)
        return object
    }
}
