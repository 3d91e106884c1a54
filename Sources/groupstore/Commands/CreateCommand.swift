import AgentProtocol
import ArgumentParser
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
        abstract: "Make an empty Core Data store of a model, as Core Data would make it.")

    @Argument(help: "Where the store is to be. There may be nothing yet.", completion: .file())
    var store: String

    @Option(
        help: "The model: an .xcdatamodeld (its current version), .xcdatamodel, .momd or .mom.", completion: .file())
    var model: String

    @Option(name: .customLong("version"), help: "A version of the model other than the current one.")
    var version: String?

    @Option(help: "How the store keeps its log: wal or delete.")
    var journalMode: JournalModeArgument = .wal

    @OptionGroup var mergeOptions: ModelMergeOptions
    @OptionGroup var outputOptions: OutputOptions

    func run() throws {
        let output = Output(outputOptions)
        try reporting(output, changing: true) {
            let named = try ModelArgument(model).version(named: version, mergeOptions)
            let path = ArgumentBytes.path(store)
            try storeFailures {
                let layout = StoreLayout(try named.knownModel)
                try layout.check()
                try create(layout, at: path)
            }
            var record: JSONObject = ["type": "summary", "outcome": "created", "model": .string(named.name)]
            record.setPath("store", bytes: path.bytes)
            output.record(record, "created \(PrintablePath(path)), an empty store of \(named.name)")
        }
    }

    private func create(_ layout: StoreLayout, at path: FilePath) throws {
        guard let last = path.lastComponent, let name = StoreName.given(last) else {
            throw RelocationFailure.badName(path)
        }
        let parent = path.removingLastComponent()
        let directory = try Directory(parent.isEmpty ? "." : parent)
        let new = try NewStore(at: StoreLocation(directory: directory, name: name))
        try layout.makeStore(at: new.path)
        try new.publish(mode: 0o666 & ~Self.fileModeMask, writeAhead: journalMode == .wal)
    }

    /// It can be asked for only by setting it.
    private static var fileModeMask: mode_t {
        let mask = umask(0)
        umask(mask)
        return mask
    }
}

/// How a store keeps its log.
enum JournalModeArgument: String, ExpressibleByArgument, CaseIterable {
    case wal, delete

    var mode: DatabaseHeader.JournalMode { self == .wal ? .writeAhead : .rollback }
}

/// Runs `body`, and turns what stores, models and the system throw into `CommandFailure`.
func storeFailures<Result>(_ body: () throws -> Result) throws -> Result {
    do {
        return try body()
    } catch let error as StoreError {
        throw CommandFailure(error)
    } catch let error as SystemError {
        throw CommandFailure(error)
    } catch let error as ModelError {
        throw CommandFailure(error)
    } catch let fault as ModelFault {
        throw CommandFailure(
            .badData, code: "name_collision", (fault.element.map { $0 + ": " } ?? "") + fault.message,
            remedy: fault.remedy)
    } catch let error as NewStore.Taken {
        throw CommandFailure(
            .conflict, code: "exists", "\(PrintablePath(error.path)): there is something already",
            remedy: "name another place, or move it away")
    }
}
