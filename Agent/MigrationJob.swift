import ArgumentParser
import CoreDataStore
import Glibc
import GroupStoreAgent
import LinuxSystem
import ManagedObjectModel
import PersistentStore
import StoreMigration
import StorePreparation
import StoreRelocation
import SystemPackage

/// Which model a store is migrated to, and how that is told.
struct MigrationModelOptions: ParsableArguments {
    @Option(name: .customLong("version"), help: "A version of the model other than the current one.")
    var version: String?

    @OptionGroup var renameOptions: ModelRenameOptions
    @OptionGroup var mappingOptions: MappingModelOptions

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

    /// The same migration, as relocations take it. Throws `CommandFailure`.
    func transform(_ job: MigrationJob) throws -> MigrationTransform {
        try transform(to: job.target, in: job.bundle, job.mappings)
    }

    /// To the model's version that is asked for. Throws `CommandFailure`.
    func transform(toModel model: String) throws -> MigrationTransform {
        let argument = try ModelArgument(model)
        let named = try argument.version(named: version, .none)
        let target =
            try named.version ?? ModelVersion(name: named.name, model: named.knownModel, path: argument.path)
        let mappings = try mappingOptions.files(beside: argument.path)
        guard case .bundle(let bundle) = argument else { return try transform(to: target, in: nil, mappings) }
        return try transform(to: target, in: bundle, mappings)
    }

    private func transform(
        to target: ModelVersion, in bundle: ModelBundle?, _ mappings: [MappingModelFile]
    ) throws -> MigrationTransform {
        let trace = UncheckedTrace(trace: try trace())
        return MigrationTransform(
            to: target, in: bundle, mappings: mappings,
            options: MigrationOptions(allowsPartialHistory: allowPartialHistory),
            trace: { trace.trace })
    }

    /// A command runs on one thread.
    private struct UncheckedTrace: @unchecked Sendable {
        let trace: StatementTrace?
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
    /// The versions that lie between.
    let bundle: ModelBundle?
    let mappings: [MappingModelFile]
    /// What the store's version is called; its file's name where no version has its hashes.
    let fromName: String
    let manager: MigrationManager

    /// Throws `MigrationError`, `StoreError`, `SystemError`, `CommandFailure`.
    init(_ location: StoreLocation, _ model: String, _ options: MigrationModelOptions) throws {
        self.location = location
        let argument = try ModelArgument(model)
        let named = try argument.version(named: options.version, .none)
        let model = try named.knownModel
        let bundle: ModelBundle? = if case .bundle(let bundle) = argument { bundle } else { nil }
        self.bundle = bundle
        let mappings = try options.mappingOptions.files(beside: argument.path)
        self.mappings = mappings
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
                for: store, to: target, in: bundle, mappings: mappings,
                options: MigrationOptions(allowsPartialHistory: options.allowPartialHistory))
            try manager.check(reader)
            return (target, known?.name ?? location.path.stem ?? "", manager)
        }
    }

    /// What is done, or was.
    var sentence: String {
        guard !manager.steps.isEmpty else { return "nothing to do: the store is of \(target.name)" }
        let names = manager.steps.map { step in
            if case .custom = step.method { return step.destinationName + " by a mapping model" }
            return step.destinationName + " by inferred mapping"
        }
        return "\(PrintablePath(location.path)): \(fromName) to \(names.joined(separator: ", then "))"
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
    init(_ failure: RelocationFailure) {
        let status = ExitStatus(rawValue: failure.exitCode) ?? .inputOutput
        self.init(status, code: failure.code, failure.message, remedy: failure.remedy)
    }

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
