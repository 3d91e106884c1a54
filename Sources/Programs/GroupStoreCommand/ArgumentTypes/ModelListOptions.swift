import ArgumentParser

/// Models that are merged into one, as an app with several bundles does. They take the place of a command's last
/// argument.
struct ModelListOptions: ParsableArguments {
    @Option(
        name: .customLong("model"),
        help: "Instead of the last argument: several models, which are merged. Repeat it for each.",
        completion: .file())
    var models: [String] = []

    /// Returns the model that the argument names, merged with those of the options.
    func argument(_ argument: String?, _ configuration: String?) throws -> ModelArgument {
        try ModelArgument([argument].compactMap(\.self) + models, configuration: configuration)
    }

    /// Throws `ValidationError` unless a model is named, by `count` arguments or by the options.
    func validate(_ arguments: [String], _ count: Int) throws {
        guard arguments.count == count || !models.isEmpty else { throw ValidationError("name a model") }
    }

    /// Throws `ValidationError` without a model.
    static func requireModel(_ models: [String]) throws {
        guard !models.isEmpty else { throw ValidationError("Missing expected argument '--model <model>'") }
    }
}
