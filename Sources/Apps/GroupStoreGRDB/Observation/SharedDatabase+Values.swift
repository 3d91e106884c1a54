import GRDB

extension SharedDatabase {
    /// Returns the observed values: the current one at once, then a fresh one whenever this or another process commits
    /// something that the observation reads, and after each relocation of the store. Values may repeat;
    /// `ValueObservation.removeDuplicates()` removes repetitions while the database stays open.
    ///
    ///     let titles = ValueObservation.tracking { try String.fetchAll($0, sql: "SELECT title FROM note") }
    ///     for try await fresh in notes.values(of: titles) { show(fresh) }
    ///
    /// The sequence ends when the database is closed for good or the iterating task is cancelled. It throws the
    /// observation's error. GRDB's `observation.values(in: notes)` yields the same values, and throws when the database
    /// is closed for good.
    ///
    /// - Parameters:
    ///   - observation: The value observation, which is started on each connection that is opened.
    ///   - bufferingPolicy: Decides about values that come faster than they are consumed; by default only the newest is
    ///     kept.
    public func values<Reducer: ValueReducer>(
        of observation: ValueObservation<Reducer>,
        bufferingPolicy: AsyncThrowingStream<Reducer.Value, any Error>.Continuation.BufferingPolicy = .bufferingNewest(
            1)
    ) -> AsyncThrowingStream<Reducer.Value, any Error> where Reducer.Value: Sendable {
        let (stream, continuation) = AsyncThrowingStream.makeStream(
            of: Reducer.Value.self, throwing: (any Error).self, bufferingPolicy: bufferingPolicy)
        let cancellable = observation.start(
            in: self, scheduling: .task,
            onError: { [lifecycle] error in
                lifecycle.isEnded ? continuation.finish() : continuation.finish(throwing: error)
            }, onChange: { continuation.yield($0) })
        continuation.onTermination = { _ in cancellable.cancel() }
        return stream
    }

    /// Starts one of GRDB's value observations. `ValueObservation` calls this for `start(in:)`, `values(in:)` and
    /// `publisher(in:)`.
    ///
    /// The observation continues on each connection that is opened, with the value that is current by then. While the
    /// database is closed for another process, an observation with an immediate initial value waits for it on the
    /// calling thread, and any other one begins when the database is open. An observation ends with GRDB's error
    /// `SQLITE_MISUSE` when the database is closed for good.
    public func _add<Reducer: ValueReducer>(
        observation: ValueObservation<Reducer>, scheduling scheduler: some ValueObservationScheduler,
        onChange: @escaping @Sendable (Reducer.Value) -> Void
    ) -> AnyDatabaseCancellable {
        let observer = ReopeningValueObserver(
            observation, scheduler, standIn: standIn, onChange: onChange)
        func fail() -> AnyDatabaseCancellable {
            standIn.fail(observation, scheduling: scheduler, onChange: onChange)
        }
        var number: UInt64?
        if scheduler.immediateInitialValue() {
            guard case .success(let session) = lifecycle.blockingSession() else { return fail() }
            number = session.nesting { lifecycle.add(observer, begunIn: session) }
            session.end()
        } else {
            number = lifecycle.add(observer)
        }
        guard let number else { return fail() }
        // Like GRDB's databases, it stays open while it is observed.
        return AnyDatabaseCancellable { [self] in
            lifecycle.removeObserver(number)
            observer.cancel()
        }
    }
}

// MARK: - Transaction observers

extension SharedDatabase {
    /// Adds a transaction observer, like `DatabaseWriter.add(transactionObserver:extent:)`, to this connection and to
    /// each that is opened after it. It is notified of other processes' commits, and of a change of the whole database
    /// after each reopening.
    ///
    /// - Important: GRDB's method for any `DatabaseWriter` adds the observer to the open connection only: call this
    ///   one, on a value whose type is ``SharedDatabase``.
    public func add(
        transactionObserver: some TransactionObserver,
        extent: Database.TransactionObservationExtent = .observerLifetime
    ) {
        guard extent != .nextTransaction else {
            return writeWithoutTransaction { $0.add(transactionObserver: transactionObserver, extent: extent) }
        }
        let observer = ReopeningTransactionObserver(transactionObserver, extent: extent)
        guard let number = lifecycle.add(observer) else { return }
        transactionObservers.withLock { entries in
            entries.removeAll { $0.observer.isGone }
            entries.append((number, observer))
        }
    }

    /// Removes a transaction observer, like `DatabaseWriter.remove(transactionObserver:)`.
    public func remove(transactionObserver: some TransactionObserver) {
        let numbers = transactionObservers.withLock { entries in
            let found = entries.filter { $0.observer.isFor(transactionObserver) }.map(\.number)
            entries.removeAll { found.contains($0.number) }
            return found
        }
        for number in numbers { lifecycle.removeObserver(number) }
        writeWithoutTransaction { $0.remove(transactionObserver: transactionObserver) }
    }
}

// Swift prefers GRDB's method, which takes any `DatabaseWriter`, to a generic one. So these two aren't generic.
extension DatabaseRegionObservation {
    /// Starts the observation on a shared pool, and again on each connection that it opens. `onChange` is also called
    /// for other processes' commits, and after each reopening.
    ///
    /// - Important: GRDB's method for any `DatabaseWriter` observes the open connection only: call this one, on a value
    ///   whose type is ``SharedDatabasePool``.
    public func start(
        in database: SharedDatabasePool, onError: @escaping @Sendable (any Error) -> Void,
        onChange: @escaping @Sendable (Database) -> Void
    ) -> AnyDatabaseCancellable {
        database.start(self, onError: onError, onChange: onChange)
    }

    /// Starts the observation on a shared queue, and again on each connection that it opens. `onChange` is also called
    /// for other processes' commits, and after each reopening.
    ///
    /// - Important: GRDB's method for any `DatabaseWriter` observes the open connection only: call this one, on a value
    ///   whose type is ``SharedDatabaseQueue``.
    public func start(
        in database: SharedDatabaseQueue, onError: @escaping @Sendable (any Error) -> Void,
        onChange: @escaping @Sendable (Database) -> Void
    ) -> AnyDatabaseCancellable {
        database.start(self, onError: onError, onChange: onChange)
    }
}

extension SharedDatabase {
    fileprivate func start(
        _ observation: DatabaseRegionObservation, onError: @escaping @Sendable (any Error) -> Void,
        onChange: @escaping @Sendable (Database) -> Void
    ) -> AnyDatabaseCancellable {
        let observer = ReopeningRegionObserver(observation, store: store.name, onError: onError, onChange: onChange)
        guard let number = lifecycle.add(observer) else {
            observer.end()
            return AnyDatabaseCancellable {}
        }
        return AnyDatabaseCancellable { [lifecycle] in
            lifecycle.removeObserver(number)
            observer.cancel()
        }
    }
}
