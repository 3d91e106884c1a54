import AgentProtocol
import ArgumentParser
import PersistentHistory

/// The form of a change batch.
enum BatchFormat: String, ExpressibleByArgument, CaseIterable {
    /// A line for people, or with `--json` the wire's form.
    case standard
    /// The envelope of Debezium's change events, an object a line.
    case debezium
}

/// Options that ask for rows with their values.
struct BatchOptions: ParsableArguments {
    @Flag(
        help: """
            Print the changed rows whole, as they are now: a change batch. Without --limit, all of it, read in one \
            transaction.
            """)
    var values = false

    @Option(
        help: ArgumentHelp(
            "The form of the rows: standard, or debezium for an envelope a line; implies --values.", valueName: "form"))
    var format: BatchFormat = .standard

    @Option(
        help: ArgumentHelp(
            "Print a reset if the store's schema has changed since this state, of an earlier batch.",
            valueName: "state"))
    var schema: String?

    var isBatch: Bool { values || format != .standard }

    func validate() throws {
        if schema != nil, !isBatch { throw ValidationError("--schema needs --values") }
    }
}
