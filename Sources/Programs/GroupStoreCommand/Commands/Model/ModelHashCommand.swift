import AgentProtocol
import ArgumentParser
import CommandSupport
import ManagedObjectModels

struct ModelHashCommand: ProcIndependentCommand {
    static let configuration = CommandConfiguration(
        commandName: "hash",
        abstract: "Print each version's entity hashes and checksum, which Core Data compares.",
        discussion: """
            Example:
              groupstore model hash Notes.xcdatamodeld
            """)

    @Argument(help: "The model, or a store.", completion: .file())
    var model: String?

    @OptionGroup var modelOptions: ModelListOptions

    @OptionGroup var mergeOptions: ModelMergeOptions
    @OptionGroup var outputOptions: OutputOptions

    func validate() throws { try modelOptions.validate(model.map { [$0] } ?? [], 1) }

    func run() throws {
        try reporting(outputOptions) { output in
            let versions = try modelOptions.argument(model, mergeOptions.configuration).versions(mergeOptions)
            for version in versions { output.report(ignoredIn: version.version) }
            for version in versions { output.record(version.hashRecord, lines: version.hashText) }
            if output.json {
                output.record(
                    ["type": "summary", "outcome": "hashed", "versions": .integer(Int64(versions.count))], "")
            }
        }
    }
}

extension NamedModel {
    /// The Base64 text of the SHA-256 of all hashes.
    var checksum: String { ManagedObjectModel.versionChecksum(of: hashes) }

    fileprivate var hashRecord: JSONObject {
        var entities = JSONObject()
        for (name, hash) in hashes.sorted(by: { $0.key.precedes($1.key) }) {
            entities[name] = .string(hash.hexadecimal)
        }
        return [
            "type": "version", "name": .string(name), "current": .bool(isCurrent), "checksum": .string(checksum),
            "entities": .object(entities),
        ]
    }

    fileprivate var hashText: [String] {
        var table = TextTable()
        for (name, hash) in hashes.sorted(by: { $0.key.precedes($1.key) }) {
            table.add(.text(name), .text(hash.hexadecimal))
        }
        return [name + (isCurrent ? " (current)" : ""), "  checksum " + checksum] + table.lines(indent: "  ")
    }
}

extension [UInt8] {
    /// The bytes as two hexadecimal digits each.
    var hexadecimal: String { map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() }
}
