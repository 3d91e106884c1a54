/// Identifies an access under way to the accesses nested in it.
final class Access: Sendable {}

/// The accesses that the current code runs inside of. A task that outlives the access it was created in keeps it here.
enum AccessScope {
    @TaskLocal static var current: [Access] = []
}

/// An access under way: the connection stays open until ``end()``.
struct AccessSession<Connection: SharedDatabaseConnection>: Sendable {
    let connection: Connection
    private let access: Access
    private let scope: [Access]
    private let lifecycle: ConnectionLifecycle<Connection>

    init(_ connection: Connection, _ access: Access, _ lifecycle: ConnectionLifecycle<Connection>) {
        self.connection = connection
        self.access = access
        self.lifecycle = lifecycle
        scope = AccessScope.current + [access]
    }

    /// Calls `body`, in which further accesses count as nested. Needed on each thread that runs the caller's code:
    /// GRDB calls it on a queue of its own.
    func nesting<Result>(_ body: () throws -> Result) rethrows -> Result {
        try AccessScope.$current.withValue(scope, operation: body)
    }

    func nesting<Result: Sendable>(_ body: () async throws -> Result) async rethrows -> Result {
        try await AccessScope.$current.withValue(scope, operation: body)
    }

    func end() { lifecycle.release(access) }
}
