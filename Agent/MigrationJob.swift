import ArgumentParser
import CoreDataStore
import Glibc
import LinuxSystem
import ManagedObjectModel
import PersistentStore
import StoreMigration
import SystemPackage

/// Which model a store is migrated to, and how that is told.
struct MigrationModelOptions: ParsableArguments {
    @Option(
        help: "The model: an .xcdatamodeld (its current version), .xcdatamodel, .momd, .mom, or a store of it.",
        completion: .file())
    var model: String

    @Option(name: .customLong("version"), help: "A version of the model other than the current one.")
    var version: String?

    @OptionGroup var renameOptions: ModelRenameOptions

    @Flag(help: "Let persistent history lose the changes of entities that are removed.")
    var allowPartialHistory = false

    @Option(help: "Print each SQL statement with its time to this file, or to standard error for -.")
    var traceSql: String?

    @Option(help: "1 for the statements; 3 for the values in them too.")
    var traceLevel = 1

    /// Nil when no trace is asked for. Throws `CommandFailure`.
    func trace() throws -> StatementTrace? {
        guard let traceSql else { return nil }
        guard traceSql != "-" else {
            return StatementTrace(level: traceLevel) { Output.write(Self.line($0, $1), to: STDERR_FILENO) }
        }
        let path = ArgumentBytes.path(traceSql)
        let file = try Descriptor(opening: path, flags: O_WRONLY | O_CREAT | O_APPEND, mode: 0o600)
        let raw = dup(file.raw)
        guard raw >= 0 else { throw SystemError.last("dup", path: path) }
        // Open until the process ends.
        return StatementTrace(level: traceLevel) { Output.write(Self.line($0, $1), to: raw) }
    }

    private static func line(_ sql: String, _ time: Duration) -> String {
        let milliseconds = (time.seconds * 1_000_000).rounded() / 1000
        return "\(milliseconds) ms  \(sql)"
    }
}

/// A store, the version that it is to be of, and the way there.
struct MigrationJob {
    let location: StoreLocation
    let target: ModelVersion
    /// What the store's version is called; its file's name where no version has its hashes.
    let fromName: String
    let manager: MigrationManager

    /// Throws `MigrationError`, `StoreError`, `SystemError`, `CommandFailure`.
    init(_ location: StoreLocation, _ options: MigrationModelOptions) throws {
        self.location = location
        let argument = try ModelArgument(options.model)
        let named = try argument.version(named: options.version, .none)
        let model = try named.knownModel
        let bundle: ModelBundle? = if case .bundle(let bundle) = argument { bundle } else { nil }
        (target, fromName, manager) = try StoreReader.read(location) { reader in
            guard let store = try StoreModel(reader) else {
                throw CommandFailure(
                    .badData, code: "not_core_data", "\(PrintablePath(location.path)): this store is not Core Data's",
                    remedy: "name a store that has the table Z_METADATA")
            }
            let known = bundle?.version(matching: store.metadata.versionHashes)
            let source = known?.model ?? store.cachedModel
            let renamed = try source.map { try options.renameOptions.applied(to: model, from: $0) } ?? model
            let target = (named.version ?? ModelVersion(name: named.name, model: model, path: argument.path))
                .replacing(renamed)
            let manager = try MigrationManager(
                for: store, to: target, in: bundle,
                options: MigrationOptions(allowsPartialHistory: options.allowPartialHistory))
            try manager.check(reader)
            return (target, known?.name ?? location.path.stem ?? "", manager)
        }
    }

    /// What is done, or was.
    var sentence: String {
        guard !manager.steps.isEmpty else { return "nothing to do: the store is of \(target.name)" }
        let names = manager.steps.map(\.destinationName).joined(separator: ", then ")
        return "\(PrintablePath(location.path)): \(fromName) to \(names), by inferred mapping"
    }
}

/// Runs `body`, and turns what a migration throws into `CommandFailure`.
func migrationFailures<Result>(_ body: () throws -> Result) throws -> Result {
    do {
        return try storeFailures(body)
    } catch let error as MigrationError {
        throw CommandFailure(error)
    }
}

extension CommandFailure {
    init(_ error: MigrationError) {
        let reasons = error.findings.dropFirst().map { "\n  " + $0.message }.joined()
        let status: ExitStatus =
            switch error.code {
            case CoreDataError.migrationCancelled: .interrupted
            case CoreDataError.migration where error.isOfTheDisk: .inputOutput
            default: .badData
            }
        self.init(status, code: "core_data_\(error.code)", error.description + reasons, remedy: error.remedy)
    }
}
