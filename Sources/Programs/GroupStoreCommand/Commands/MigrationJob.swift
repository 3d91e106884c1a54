import ArgumentParser
import CommandSupport
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

/// The options that select the model and trace a migration.
struct MigrationModelOptions: ParsableArguments {
    @OptionGroup var versionOption: ModelVersionOption

    @Option(help: "The store holds the entities of this configuration of the model only.")
    var configuration: String?

    @OptionGroup var renameOptions: ModelRenameOptions
    @OptionGroup var mappingOptions: MappingModelOptions

    @Flag(help: "Allow persistent history to lose the changes of removed entities.")
    var allowPartialHistory = false

    @Option(
        help: ArgumentHelp(
            "Check all objects by the newer model's rules after the migration, list every fault, and refuse or report.",
            valueName: "policy"))
    var validate: ValidationArgument?

    @Option(
        help: ArgumentHelp(
            "Write each SQL statement and its duration to this file; - is standard error.", valueName: "file"))
    var traceSql: String?

    @Option(help: ArgumentHelp("Trace statements (1), or statements with their values (3).", valueName: "level"))
    var traceLevel = 1

    /// Throws `ValidationError` for options without effect.
    func validate(beside models: [String]) throws {
        guard (1...3).contains(traceLevel) else { throw ValidationError("--trace-level must be 1 to 3") }
        for text in renameOptions.renamings where ModelRenaming(text) == nil {
            throw ValidationError("--rename \(text): write Car=Automobile or Car.color=paintColor")
        }
        let isModelUsed =
            versionOption.modelVersion != nil || configuration != nil || traceSql != nil || allowPartialHistory
            || validate != nil
            || !renameOptions.renamings.isEmpty
            || !mappingOptions.mappings.isEmpty
        guard !models.isEmpty || !isModelUsed else {
            throw ValidationError(
                "--model-version, --configuration, --rename, --mapping, --allow-partial-history, --validate and "
                    + "--trace-sql need a --model")
        }
    }

    /// Returns the trace, or nil if none is wanted. Throws `SystemError`.
    func trace() throws -> StatementTrace? {
        guard let traceSql else { return nil }
        guard traceSql != "-" else {
            return StatementTrace(level: traceLevel) { Output.write(lines: Self.lines($0, $1), to: STDERR_FILENO) }
        }
        let path = ArgumentBytes.path(traceSql)
        let file = try Descriptor(opening: path, flags: O_WRONLY | O_CREAT | O_APPEND, mode: 0o600)
        let raw = dup(file.raw)
        guard raw >= 0 else { throw SystemError.last("dup", path: path) }
        // The descriptor stays open until the process ends.
        return StatementTrace(level: traceLevel) { Output.write(lines: Self.lines($0, $1), to: raw) }
    }

    /// Returns the same options as a request for an agent, which reads the models itself; nil without a model.
    func request(_ models: [String]) -> MigrationRequest? {
        let paths = models.map { path($0) }
        guard let first = paths.first else { return nil }
        var request = request(first, mappings: mappingOptions.mappings.map { path($0) })
        request.mergedModels = Array(paths.dropFirst())
        request.configuration = configuration
        request.version = versionOption.modelVersion
        return request
    }

    private func request(_ model: FilePath, mappings: [FilePath]) -> MigrationRequest {
        var request = MigrationRequest(model)
        request.mappings = mappings
        request.renamings = renameOptions.renamings.compactMap { ModelRenaming($0) }
        request.options = MigrationOptions(
            allowsPartialHistory: allowPartialHistory, validation: validate?.validation ?? .none)
        return request
    }

    /// Returns the migration to the version of `argument` that the options name, and that version.
    func migration(
        to argument: ModelArgument, _ output: Output
    ) throws -> (transform: MigrationTransform, target: ModelVersion) {
        let named = try argument.version(named: versionOption.modelVersion, .none)
        let target = try named.version ?? ModelVersion(name: named.name, model: named.knownModel, path: argument.path)
        let request = request(argument.path, mappings: mappingOptions.mappings.map { ArgumentBytes.path($0) })
        var transform = try MigrationTransform(
            request, to: target, in: argument.bundle, isCancelled: { Interruption.isRequested })
        transform.faultHandler = FaultPrinter(output).print
        return (transform, target)
    }

    /// Returns an absolute path; a store may be named as `GROUP_ID/NAME`.
    func path(_ text: String) -> FilePath {
        let path = ArgumentBytes.path(text).absolute(in: FilePath(workingDirectory()))
        guard FileStatus(following: path) == nil, let store = try? StoreArgument(text).location() else { return path }
        return store.path
    }

    /// Returns the migration as a relocation's transform. Throws `SystemError`.
    func transform(_ job: MigrationJob) throws -> MigrationTransform {
        var transform = job.transform
        transform.trace = try trace()
        return transform
    }

    /// Returns a trace entry's lines. A statement may contain newlines; only its first line begins at the margin.
    private static func lines(_ sql: String, _ time: Duration) -> [String] {
        let milliseconds = (time.seconds * 1_000_000).rounded() / 1000
        var lines = sql.split(separator: "\n", omittingEmptySubsequences: false).map { "    " + $0 }
        lines[0] = "\(milliseconds) ms  \(lines[0].dropFirst(4))"
        return lines
    }
}

/// A store, its target version, and the migration between them.
struct MigrationJob {
    let location: StoreLocation
    let target: ModelVersion
    /// The migration as a relocation's transform. `plan` is its plan for the store.
    let transform: MigrationTransform
    let plan: MigrationPlan
    /// The outcome of the dry run, if there was one.
    let rehearsed: MigrationOutcome?

    /// Plans the migration.
    init(
        _ location: StoreLocation, models: [String], options: MigrationModelOptions, isDryRun: Bool, output: Output
    ) throws {
        self.location = location
        let argument = try ModelArgument(models, configuration: options.configuration)
        let (migration, target) = try options.migration(to: argument, output)
        self.target = target
        (plan, rehearsed) = try StoreReader.read(location) { reader in
            guard let store = try StoreModel(reader) else {
                throw CommandFailure(
                    .badData, code: "not_core_data", "\(PrintablePath(location.path)): this isn't a Core Data store",
                    remedy: "name a store with the table Z_METADATA")
            }
            let plan = try migration.plan(for: store)
            try plan.check(reader)
            let rehearsed =
                isDryRun ? try MigrationDryRun(plan)?.run(on: reader, faultHandler: migration.faultHandler) : nil
            return (plan, rehearsed)
        }
        transform = migration.carrying(plan)
    }

    /// The content that the migration would remove; none without a dry run.
    var losses: RemovedContent { rehearsed?.losses ?? .none }

    /// The notes to print before the migration.
    var notes: [String] {
        losses.sentences + (rehearsed?.remarks ?? plan.remarks) + [rehearsed?.orphanedFilesNote].compactMap(\.self)
    }

    /// One line that describes the migration.
    var sentence: String {
        guard !plan.steps.isEmpty else { return "nothing to do: the store has version \(target.name)" }
        let names = plan.steps.map { step in
            if let name = step.mappingName { return step.destinationName + " by the mapping model " + name }
            return step.destinationName + " by inferred mapping"
        }
        return
            "\(PrintablePath(location.path)): \(plan.sourceName ?? "its own model") to \(names.joined(separator: ", then "))"
    }
}

/// The policy for objects that the newer model's rules don't allow.
enum ValidationArgument: String, ExpressibleByArgument, CaseIterable {
    case refuse
    case report

    var validation: MigrationValidation { self == .refuse ? .refuse : .report }
}
