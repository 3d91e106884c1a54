import Dispatch

/// An executor for tasks that others may wait for on blocked threads. It has a queue of its own, which gets a thread
/// even when all threads of the global executor are blocked.
package final class QueueExecutor: TaskExecutor {
    private let queue: DispatchQueue

    package init(_ label: String) { queue = DispatchQueue(label: label) }

    package func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }

    /// Returns after the duration, or when the task is cancelled, even when all threads of the global executor are
    /// blocked. `Task.sleep` needs one of them.
    package static func sleep(for duration: Duration) async {
        let (stream, continuation) = AsyncStream<Void>.makeStream()
        run(after: duration) { continuation.finish() }
        for await _ in stream {}
    }

    /// Calls `body` on a queue of its own, after a duration.
    package static func run(after duration: Duration = .zero, _ body: @escaping @Sendable () -> Void) {
        let queue = DispatchQueue(label: "gs-later")
        queue.asyncAfter(deadline: .now() + .nanoseconds(Int(duration.nanoseconds)), execute: body)
    }
}
