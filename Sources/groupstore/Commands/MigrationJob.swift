import ArgumentParser
import CoreDataStore
import Glibc
import GroupStoreAgent
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteFormat
import SQLiteStore
import StoreMigration
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

    /// Throws `ValidationError` for what means nothing.
    func validate(beside model: String?) throws {
        guard (1...3).contains(traceLevel) else { throw ValidationError("--trace-level is 1 to 3") }
        for text in renameOptions.renamings where ModelRenaming(text) == nil {
            throw ValidationError("--rename \(text): write Car=Automobile or Car.color=paintColor")
        }
        let isModelUsed =
            version != nil || traceSql != nil || allowPartialHistory || !renameOptions.renamings.isEmpty
            || !mappingOptions.mappings.isEmpty
        guard model != nil || !isModelUsed else {
            throw ValidationError(
                "--version, --rename, --mapping, --allow-partial-history and --trace-sql need a --model")
        }
    }

    /// Nil when no trace is asked for. Throws `CommandFailure`.
    func trace() throws -> StatementTrace? {
        guard let traceSql else { return nil }
        guard traceSql != "-" else {
            return StatementTrace(level: traceLevel) { Output.write(lines: Self.lines($0, $1), to: STDERR_FILENO) }
        }
        let path = ArgumentBytes.path(traceSql)
        let file = try Descriptor(opening: path, flags: O_WRONLY | O_CREAT | O_APPEND, mode: 0o600)
        let raw = dup(file.raw)
        guard raw >= 0 else { throw SystemError.last("dup", path: path) }
        // Open until the process ends.
        return StatementTrace(level: traceLevel) { Output.write(lines: Self.lines($0, $1), to: raw) }
    }

    /// The same for a model that is read where the relocation is done.
    func request(_ model: String) -> MigrationRequest {
        var request = MigrationRequest(path(model))
        request.version = version
        request.mappings = mappingOptions.mappings.map { path($0) }
        request.renamings = renameOptions.renamings.compactMap { ModelRenaming($0) }
        request.allowsPartialHistory = allowPartialHistory
        return request
    }

    /// An absolute path; a store may be named as `GROUP_ID/NAME`.
    func path(_ text: String) -> FilePath {
        let path = ArgumentBytes.path(text).absolute(in: FilePath(workingDirectory()))
        guard FileStatus(following: path) == nil, let store = try? StoreArgument(text).location() else { return path }
        return store.path
    }

    /// The same migration, as relocations take it. Throws `CommandFailure`.
    func transform(_ job: MigrationJob) throws -> MigrationTransform {
        MigrationTransform(
            to: job.target, in: job.bundle, mappings: job.mappings, renamings: job.renamings,
            options: MigrationOptions(allowsPartialHistory: allowPartialHistory), trace: try trace(),
            isCancelled: { Interruption.wasAskedFor })
    }

    /// A name in the statement may hold a newline, too: only the first line begins at the margin.
    private static func lines(_ sql: String, _ time: Duration) -> [String] {
        let milliseconds = (time.seconds * 1_000_000).rounded() / 1000
        var lines = sql.split(separator: "\n", omittingEmptySubsequences: false).map { "    " + $0 }
        lines[0] = "\(milliseconds) ms  \(lines[0].dropFirst(4))"
        return lines
    }
}

/// A store, the version that it is to be of, and the way there.
struct MigrationJob {
    let location: StoreLocation
    let target: ModelVersion
    /// The versions that lie between.
    let bundle: ModelBundle?
    let mappings: [MappingModelFile]
    /// What the store's version is called; nil where the store is of none of the model's versions.
    let fromName: String?
    let manager: MigrationManager
    /// What the way removes from the store.
    let losses: RemovedContent
    /// What it would tell, where it was tried.
    let rehearsed: MigrationOutcome?
    let renamings: [ModelRenaming]

    /// Throws `MigrationError`, `StoreError`, `SystemError`, `CommandFailure`.
    init(_ location: StoreLocation, _ model: String, _ options: MigrationModelOptions, isDryRun: Bool) throws {
        self.location = location
        let argument = try ModelArgument(model)
        let named = try argument.version(named: options.version, .none)
        let model = try named.knownModel
        let bundle: ModelBundle? = if case .bundle(let bundle) = argument { bundle } else { nil }
        self.bundle = bundle
        let mappings = try options.mappingOptions.files(beside: argument.path)
        self.mappings = mappings
        let target = named.version ?? ModelVersion(name: named.name, model: model, path: argument.path)
        self.target = target
        let renamings = try options.renameOptions.parsed()
        self.renamings = renamings
        (fromName, manager, losses, rehearsed) = try StoreReader.read(location) { reader in
            guard let store = try StoreModel(reader) else {
                throw CommandFailure(
                    .badData, code: "not_core_data", "\(PrintablePath(location.path)): this store is not Core Data's",
                    remedy: "name a store that has the table Z_METADATA")
            }
            let manager: MigrationManager
            do {
                manager = try MigrationManager(
                    for: store, to: target, in: bundle, mappings: mappings, renamings: renamings,
                    options: MigrationOptions(allowsPartialHistory: options.allowPartialHistory))
            } catch let fault as ModelFault {
                throw CommandFailure(renaming: fault)
            }
            try manager.check(reader)
            let rehearsed = isDryRun ? try MigrationDryRun(manager)?.run(on: reader) : nil
            return (bundle?.versionName(of: store), manager, try manager.losses(reader), rehearsed)
        }
    }

    /// What a person should know before it is done.
    var notes: [String] {
        losses.sentences + (rehearsed?.remarks ?? manager.remarks) + [rehearsed?.leftFiles].compactMap(\.self)
    }

    /// What is done, or was.
    var sentence: String {
        guard !manager.steps.isEmpty else { return "nothing to do: the store is of \(target.name)" }
        let names = manager.steps.map { step in
            if let name = step.mappingName { return step.destinationName + " by the mapping model " + name }
            return step.destinationName + " by inferred mapping"
        }
        return
            "\(PrintablePath(location.path)): \(fromName ?? "its own model") to \(names.joined(separator: ", then "))"
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
        let reasons = error.findings.dropFirst().map { "  " + $0.sentence }
        let status: ExitStatus =
            switch error.code {
            case CoreDataError.migrationCancelled: .interrupted
            case CoreDataError.migration where error.isOfTheDisk: .inputOutput
            default: .badData
            }
        self.init(status, code: error.word, error.description, reasons: reasons, remedy: error.remedy)
    }
}
