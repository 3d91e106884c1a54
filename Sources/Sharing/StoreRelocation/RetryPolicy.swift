import LinuxSystem
import SystemPackage

/// The rules for trying again: what a relocation repeats, after which errors, at which pace, and until when. All of its
/// loops share one deadline and one cancellation.
///
/// An attempt runs in scopes, the outermost first: `run` under the group's lock (`lock`), which is released while the
/// relocation waits for a program that keeps a store open (`release`); in it the `plan`, which begins with an
/// `inspection` of both places; in it each transfer's `attempt`. An error that a scope doesn't repeat ends it and
/// reaches the next outer one.
struct RetryPolicy: Sendable {
    let deadline: Deadline
    let isCancelled: @Sendable () -> Bool

    init(_ deadline: Deadline, isCancelled: @escaping @Sendable () -> Bool = { false }) {
        self.deadline = deadline
        self.isCancelled = isCancelled
    }

    /// The same rules for steps that put things back, which a cancellation doesn't stop.
    var ignoringCancellation: RetryPolicy { RetryPolicy(deadline, isCancelled: { false }) }

    /// A part of a relocation that may be repeated.
    enum Scope: CaseIterable {
        /// Acquiring the group's lock.
        case lock
        /// Everything under the group's lock. Its files may be replaced while the lock is released.
        case run
        /// Waiting without the lock until a store seems to be closed.
        case release
        /// Planning, and performing the plan.
        case plan
        /// Reading the two stores, to plan.
        case inspection
        /// One attempt to transfer a store. A staged copy is kept for the next one.
        case attempt

        var backoff: Backoff {
            switch self {
            case .lock: Backoff(first: .milliseconds(1), longest: .milliseconds(20))
            // Longer than the pause between two attempts to acquire the group's lock, so that others get it.
            case .run: Backoff(first: .milliseconds(30), longest: .milliseconds(30))
            // From 20 ms on, each step searches all processes for the holders.
            case .release: Backoff(first: .milliseconds(5), longest: .milliseconds(160))
            // The store is gone: nothing has to pass before another plan can be made.
            case .plan: Backoff(first: .zero, longest: .zero)
            // Each look may break another relocation's lease, which then starts over.
            case .inspection: Backoff(first: .milliseconds(10), longest: .milliseconds(10))
            case .attempt: Backoff(first: .microseconds(50), longest: .milliseconds(20))
            }
        }

        /// Returns true if the scope may succeed when it is repeated after the error.
        func repeats(after error: any Error) -> Bool {
            switch (self, error) {
            case (.lock, is GroupLockHeld), (.release, is StoreOpen): true
            case (.run, is StoreTransfer.RetryReason): true
            // Another relocation took the store, or its user did: what is there now leads to another plan.
            case (.plan, StoreTransfer.RetryReason.gone): true
            case (.inspection, _): TransientObstacle.caused(error)
            case (.attempt, StoreTransfer.RetryReason.held), (.attempt, StoreTransfer.RetryReason.changed): true
            case (.lock, _), (.release, _), (.run, _), (.plan, _), (.attempt, _): false
            }
        }
    }

    /// Another process has the group's lock.
    struct GroupLockHeld: Error {}
    /// A process has the store open.
    struct StoreOpen: Error {}

    /// Calls `body` until it succeeds. Throws its error if the scope doesn't repeat after that error or the deadline
    /// has passed, and a `RelocationFailure` once the relocation is cancelled.
    ///
    /// - Parameters:
    ///   - store: The store that a cancellation's message names.
    ///   - willWait: Called before each wait with the last error and the wait's length. Throws to give up.
    func run<Result: ~Copyable>(
        _ scope: Scope, of store: FilePath, willWait: (any Error, Duration) throws -> Void = { _, _ in },
        _ body: () throws -> Result
    ) throws -> Result {
        var backoff = scope.backoff
        while true {
            do {
                return try body()
            } catch {
                guard scope.repeats(after: error) else { throw error }
                try checkCancelled(store)
                guard !deadline.hasPassed else { throw error }
                try willWait(error, backoff.delay)
                pause(backoff.next())
            }
        }
    }

    /// Throws `RelocationFailure` if the relocation is cancelled.
    func checkCancelled(_ store: FilePath) throws(RelocationFailure) {
        if isCancelled() { throw .cancelled(store) }
    }
}

extension StoreTransfer {
    /// The reason why an attempt ended without moving the store. Everything is where it was.
    enum RetryReason: Error, Equatable {
        /// A process has the file open.
        case held(FileIdentity)
        /// The store changed midway: check and retry.
        case changed
        /// The store was taken away, as by another relocation.
        case gone

        /// Returns nil if the error is no reason to try again. `database`: the file that is to be transferred.
        init?(_ error: any Error, of database: FileIdentity) {
            if let reason = error as? RetryReason {
                self = reason
            } else if TransientObstacle.caused(error) {
                self = (error as? SystemError)?.isLeaseConflict == true ? .held(database) : .changed
            } else {
                return nil
            }
        }
    }
}

extension RelocationFailure {
    /// True if the same request may succeed later although both stores stay as they are: a disk may get space, or a
    /// user permission.
    package var isTransient: Bool {
        switch kind {
        // Other files decide these, at places that nobody watches.
        case .conflict, .badData: ["super_journal", "shared_support", "two_names", "in_group"].contains(code)
        case .busy, .unusablePlace, .notPermitted, .failed, .interrupted: true
        }
    }
}
