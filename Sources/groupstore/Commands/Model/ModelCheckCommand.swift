import AgentProtocol
import ArgumentParser
import ManagedObjectModels
import MappingModels
import StoreMigration

struct ModelCheckCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check",
        abstract: "Tell whether a newer model opens an older one's stores: as they are, by migration, or not.",
        discussion: """
            Exit code 0 when it does, 65 when it doesn't. Each reason names the entity, the property and what would \
            fix it. With --all, every older version of one model is checked against its current one. Mapping models \
            that lie beside the newer model, and those named by --mapping, are used where they fit.
            """)

    @Argument(help: "The older model or a store, and the newer model; with --all, one model.", completion: .file())
    var models: [String]

    @Flag(help: "Check every version of the model against its current one.")
    var all = false

    @Option(help: "How findings are printed: \(CheckFormat.allCases.map(\.rawValue).joined(separator: ", ")).")
    var format: CheckFormat = .text

    @OptionGroup var mappingOptions: MappingModelOptions
    @OptionGroup var renameOptions: ModelRenameOptions
    @OptionGroup var outputOptions: OutputOptions

    func validate() throws {
        guard models.count == (all ? 1 : 2) else {
            throw ValidationError(all ? "--all takes one MODEL" : "name an OLD and a NEW model")
        }
    }

    func run() throws {
        let output = Output(outputOptions)
        var isRefused = false
        try reporting(output) {
            let (reports, newer) = try all ? reportsOfAll() : ([report()], [])
            let printer = CheckPrinter(output, format)
            for model in models { try tellOfUnreadable(model, output) }
            if all { printer.print(all: reports, newer) } else { reports.forEach(printer.print) }
            printer.summarize(reports)
            isRefused = reports.contains(where: \.isRefused)
        }
        if isRefused { throw ExitStatus.badData.code }
    }

    private func tellOfUnreadable(_ model: String, _ output: Output) throws {
        guard case .bundle(let bundle) = try ModelArgument(model) else { return }
        for version in bundle.unreadable {
            let text = "\(version.name) can't be read: \(version.error.message) (\(version.error.remedy))"
            output.record(
                ["type": "note", "version": .string(version.name), "text": .string(text)],
                format == .github ? "::notice ::\(text)" : "note: " + text)
        }
    }

    private func report() throws -> CheckReport {
        let old = try ModelArgument(models[0])
        let argument = try ModelArgument(models[1])
        let new = try argument.version(named: nil, .none)
        let target = try new.knownModel
        let mappings = try mappingOptions.files(beside: argument.path)
        let bundle: ModelBundle? = if case .bundle(let bundle) = argument { bundle } else { nil }
        if let store = old.store {
            return try CheckReport(store, new, in: bundle, renameOptions, mappings: mappings)
        }
        let from = try old.version(named: nil, .none)
        // What is no store needs no place among the versions: it may be another revision of them.
        let between = bundle.flatMap { bundle in
            bundle.version(like: from).map { bundle.versions(from: $0, of: from, mappings) }
        }
        let renamed = try from.model.map { try renameOptions.applied(to: target, from: $0) } ?? target
        return CheckReport(from, new, renamed, between ?? .success([]), mappings: mappings)
    }

    /// And the versions that are newer than the current one: their stores aren't migrated.
    private func reportsOfAll() throws -> (reports: [CheckReport], newer: [String]) {
        let argument = try ModelArgument(models[0])
        guard case .bundle(let bundle) = argument else {
            throw CommandFailure(
                .usage, code: "usage", "--all \(models[0]): a store has one version", remedy: "name an .xcdatamodeld")
        }
        let versions = try argument.versions(.none)
        let mappings = try mappingOptions.files(beside: argument.path)
        let current = try argument.version(named: nil, .none)
        let target = try current.knownModel
        var newer: [String] = []
        var reports: [CheckReport] = []
        for old in versions where !old.isCurrent {
            let between = bundle.versions(from: old.version, of: old, mappings)
            guard case .success = between else {
                newer.append(old.name)
                continue
            }
            let renamed = try renameOptions.applied(to: target, from: old.knownModel)
            reports.append(
                CheckReport(old, current, renamed, between, mappings: mappings))
        }
        return (reports, newer)
    }
}

/// How findings are printed.
enum CheckFormat: String, CaseIterable, ExpressibleByArgument {
    case text
    /// Workflow commands that GitHub shows beside the lines they are about.
    case github
}

extension ModelBundle {
    /// The place among the versions of a model that was read from elsewhere: that of its name, where several have its
    /// hashes.
    fileprivate func version(like model: NamedModel) -> ModelVersion? {
        let known = versions(matching: model.hashes)
        return known.first { $0.name == model.version?.name } ?? known.first
    }

    /// The versions between a known one and the current one; a migration goes by the same.
    fileprivate func versions(
        from known: ModelVersion?, of model: NamedModel, _ mappings: [MappingModelFile]
    ) -> Result<[ModelVersion], MigrationError> {
        Result { () throws(MigrationError) in
            try versions(from: known, to: current, ofStore: model.name, hashes: model.hashes, mappings: mappings)
        }
    }
}
