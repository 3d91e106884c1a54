import AgentProtocol
import ArgumentParser
import CommandSupport
import LinuxSystem
import ManagedObjectModels
import MappingModels
import StoreMigration
import SystemPackage

struct ModelCheckCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check",
        abstract: "Check whether stores of an older model open with a newer one, as they are or by migration.",
        discussion: """
            Exits with 0 if they open, and 65 if not. Each finding names the entity, the property and a remedy. With \
            --all, checks every older version of one model against its current one. Uses the mapping models beside the \
            newer model, and those of --mapping, where they fit.

            Example:
              groupstore model check Notes.sqlite Notes.xcdatamodeld
            """)

    @Argument(help: "The older model or a store, and the newer model; with --all, one model.", completion: .file())
    var models: [String] = []

    @Flag(help: "Check every version of the model against its current one.")
    var all = false

    @Option(help: "Compare with this Git commit: its versions must still be there, unchanged.")
    var base: String?

    @Option(
        help:
            "Print findings as text, as annotations for GitHub Actions, as SARIF 2.1.0, or with --all as an HTML page.")
    var format: CheckFormat = .text

    @OptionGroup var modelOptions: ModelListOptions

    @Option(help: "Check only the entities of this configuration of the models.")
    var configuration: String?

    @OptionGroup var mappingOptions: MappingModelOptions
    @OptionGroup var renameOptions: ModelRenameOptions
    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        guard ![.sarif, .html].contains(format) || !outputOptions.json else {
            throw ValidationError("--json and --format \(format.rawValue) exclude each other")
        }
        guard format != .html || all && base == nil else {
            throw ValidationError("--format html needs --all, and doesn't show --base")
        }
        guard (modelOptions.models.isEmpty ? 0 : 1) + models.count == (all || base != nil ? 1 : 2) else {
            throw ValidationError(
                all || base != nil ? "--all and --base take one MODEL" : "name an older and a newer model")
        }
    }

    func run() throws {
        let output = Output(outputOptions)
        var isRefused = false
        try reporting(output) {
            let argument = try newer
            let (reports, newerVersions) =
                try all ? reportsOfAll(argument) : (base == nil ? [report(argument)] : [], [])
            if format == .html {
                let title = "Versions of \(argument.path.lexicallyNormalized().lastComponent?.string ?? "the model")"
                output.record([:], lines: CheckPage(title, reports, newer: newerVersions).lines)
                isRefused = reports.contains(where: \.isRefused)
                return
            }
            let printer = CheckPrinter(output, format)
            let named = models + modelOptions.models
            for model in named {
                // A large model takes a while to read.
                let isRead = named.count == 1 && configuration == nil
                try reportUnreadable(isRead ? argument : ModelArgument(model), output)
            }
            if all { printer.print(all: reports, newerVersions) } else { reports.forEach(printer.print) }
            let changes = try changesSinceBase(printer)
            let notes = newerVersions.map { CheckAnnotation(note: $0, "it is newer than the current version") }
            printer.printDocument(reports, changes, notes: notes)
            printer.summarize(reports, changes)
            isRefused = reports.contains(where: \.isRefused) || changes.contains { $0.finding.severity == .error }
        }
        if isRefused { throw ExitStatus.badData.code }
    }

    /// Compares each model with the commit of `--base`, and prints what changed.
    private func changesSinceBase(_ printer: CheckPrinter) throws -> [BaseComparison.Change] {
        guard let base else { return [] }
        var all: [BaseComparison.Change] = []
        for model in models + modelOptions.models {
            guard case .bundle(let working) = try ModelArgument(model),
                FileStatus(following: working.path)?.kind == .directory
            else {
                throw CommandFailure(
                    .usage, code: "usage", "--base: \(PrintableText(model)) is not a directory of a model",
                    remedy: "name an .xcdatamodeld or .xcdatamodel")
            }
            let revision = try GitRevision(base, in: working.path)
            let scratch = try ScratchDirectory()
            // Names and kinds of models depend on the directory's name.
            let name = working.path.lexicallyNormalized().lastComponent ?? "Model.xcdatamodeld"
            try Directory(scratch.path).makeDirectory(name, mode: 0o700)
            let copy = scratch.path.appending(name)
            let shipped = try withExtendedLifetime(scratch) {
                try revision.extract(to: copy)
                return try ModelBundle(reading: copy)
            }
            let comparison = BaseComparison(shipped, working, commit: revision.shortName)
            printer.print(comparison.changes, since: revision.shortName)
            all += comparison.changes
        }
        return all
    }

    /// The newer model, or the only one: the last argument, or the models of `--model`.
    private var newer: ModelArgument {
        get throws { try modelOptions.argument(modelOptions.models.isEmpty ? models.last : nil, configuration) }
    }

    private func reportUnreadable(_ model: ModelArgument, _ output: Output) throws {
        guard case .bundle(let bundle) = model else { return }
        for version in bundle.unreadable {
            let text = "\(version.name) can't be read: \(version.error.message) (\(version.error.remedy))"
            guard output.json || ![.sarif, .html].contains(format) else { continue }
            output.record(
                ["type": "note", "version": .string(version.name), "text": .string(text)],
                format == .github ? "::notice ::\(text)" : "note: " + text)
        }
    }

    private func report(_ argument: ModelArgument) throws -> CheckReport {
        let old = try ModelArgument([models[0]], configuration: configuration)
        let new = try argument.version(named: nil, .none)
        let target = try new.knownModel
        let mappings = try mappingOptions.files(beside: argument.paths)
        let bundle = argument.bundle
        if let store = old.store {
            return try CheckReport(store, new, in: bundle, renaming: renameOptions, mappings: mappings)
        }
        let from = try old.version(named: nil, .none)
        // A model that isn't a store's needs no place among the versions: it may be another revision of them.
        let between = Result { () throws(MigrationError) -> [ModelVersion] in
            let known = bundle?.version(like: from)
            let versions = try known.flatMap { bundle?.versions(from: $0, of: from, mappings) }?.get()
            if let model = from.model, let goal = new.version {
                try mappings.requireUse(from: (from.version?.name, model), to: goal, in: bundle)
            }
            return versions ?? []
        }
        let renamed = try from.model.map { try renameOptions.applied(to: target, from: $0) } ?? target
        return CheckReport(
            from, new, target: renamed, between: between, using: MigrationStepCache(mappings))
    }

    /// Returns the reports of all older versions, and the versions that are newer than the current one, whose stores
    /// aren't migrated.
    private func reportsOfAll(_ argument: ModelArgument) throws -> (reports: [CheckReport], newer: [String]) {
        guard case .bundle(let bundle) = argument else {
            throw CommandFailure(
                .usage, code: "usage", "--all \(models.first ?? ""): a store has one version",
                remedy: "name an .xcdatamodeld")
        }
        let versions = try argument.versions(.none)
        let mappings = try mappingOptions.files(beside: argument.paths)
        let current = try argument.version(named: nil, .none)
        let target = try current.knownModel
        if let version = current.version {
            try mappings.requireUse(from: (version.name, version.model), to: version, in: bundle)
        }
        let order = VersionOrder(bundle, mappings: mappings)
        let cache = MigrationStepCache(mappings)
        var newer: [String] = []
        var reports: [CheckReport] = []
        for old in versions where !old.isCurrent {
            let between = bundle.versions(from: old.version, of: old, mappings, order: order)
            guard case .success = between else {
                newer.append(old.name)
                continue
            }
            let renamed = try renameOptions.applied(to: target, from: old.knownModel)
            reports.append(
                CheckReport(old, current, target: renamed, between: between, using: cache))
        }
        return (reports, newer)
    }
}

/// The format of findings.
enum CheckFormat: String, CaseIterable, ExpressibleByArgument {
    case text
    /// Workflow commands, which GitHub shows beside the lines that they refer to.
    case github
    /// The Static Analysis Results Interchange Format, version 2.1.0.
    case sarif
    /// A page with a row for each version.
    case html
}

extension ModelBundle {
    /// Returns the version that corresponds to a model read from elsewhere: if several have its hashes, the one with
    /// its name.
    fileprivate func version(like model: NamedModel) -> ModelVersion? {
        let known = versions(matching: model.hashes)
        return known.first { $0.name == model.version?.name } ?? known.first
    }

    /// Returns the versions between a known one and the current one. A migration uses the same.
    fileprivate func versions(
        from known: ModelVersion?, of model: NamedModel, _ mappings: [MappingModelFile], order: VersionOrder? = nil
    ) -> Result<[ModelVersion], MigrationError> {
        Result { () throws(MigrationError) in
            try versions(
                from: known, to: current, ofStore: model.name, hashes: model.hashes, mappings: mappings, order: order)
        }
    }
}
