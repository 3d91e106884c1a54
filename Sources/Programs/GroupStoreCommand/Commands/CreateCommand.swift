import AgentProtocol
import ArgumentParser
import CommandSupport
import CoreDataStore
import Glibc
import LinuxSystem
import ManagedObjectModels
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage

struct CreateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "create",
        abstract: "Create an empty Core Data store for a model, as Core Data would.",
        discussion: """
            Example:
              groupstore create Notes.sqlite --model Notes.xcdatamodeld
            """)

    @Argument(help: "The path of the new store, which must not exist.", completion: .file())
    var store: String

    @Option(
        name: .customLong("model"),
        help: """
            The model: an .xcdatamodeld (its current version), .xcdatamodel, .momd or .mom. If repeated, the models are \
            merged.
            """,
        completion: .file())
    var models: [String]

    @OptionGroup var versionOption: ModelVersionOption

    @Option(help: "The store's journal mode: a write-ahead log, or a rollback journal that is deleted.")
    var journalMode: JournalModeArgument = .wal

    @OptionGroup var mergeOptions: ModelMergeOptions
    @OptionGroup var outputOptions: OutputOptions

    func validate() throws { try ModelListOptions.requireModel(models) }

    func run() throws {
        try reporting(outputOptions, changing: true) { output in
            let named = try ModelArgument(models, configuration: mergeOptions.configuration).version(
                named: versionOption.modelVersion, mergeOptions)
            output.report(ignoredIn: named.version)
            let path = ArgumentBytes.path(store)
            let layout = StoreLayout(try named.knownModel)
            try layout.validate()
            try create(layout, at: path)
            var record: JSONObject = ["type": "summary", "outcome": "created", "model": .string(named.name)]
            record.setPath("store", bytes: path.bytes)
            output.record(record, "created \(PrintablePath(path)), an empty store of \(named.name)")
        }
    }

    private func create(_ layout: StoreLayout, at path: FilePath) throws {
        guard let last = path.lastComponent, let name = StoreName(last) else {
            throw RelocationFailure.badName(path)
        }
        let parent = path.removingLastComponent()
        let directory = try Directory(parent.isEmpty ? "." : parent)
        let new = try NewStore(at: StoreLocation(directory: directory, name: name))
        try layout.makeStore(at: new.path)
        try new.publish(mode: 0o666 & ~Self.fileModeMask, writeAhead: journalMode == .wal)
    }

    /// The file mode mask. umask(2) can read it only by setting it.
    private static var fileModeMask: mode_t {
        let mask = umask(0)
        umask(mask)
        return mask
    }
}

/// A store's journal mode.
enum JournalModeArgument: String, ExpressibleByArgument, CaseIterable {
    case wal, delete

    var mode: DatabaseHeader.JournalMode { self == .wal ? .writeAhead : .rollback }
}
