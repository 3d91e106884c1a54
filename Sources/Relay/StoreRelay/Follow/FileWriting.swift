import LinuxSystem
import Synchronization
import SystemPackage

/// A thread that writes to a file, in order, while its owner checks the next chunks. The kernel takes as long to copy a
/// chunk as the processor to hash it: two threads do both at once.
final class FileWriting {
    /// The state that the thread and the owner share.
    private final class Shared: Sendable {
        struct State {
            var waiting: [[UInt8]] = []
            var failure: SystemError?
            var isOver = false
        }

        let state = Mutex(State())
        let arrived = MonotonicSemaphore()
        let room = MonotonicSemaphore()
        let ended = MonotonicSemaphore()
        let descriptor: Descriptor
        let path: FilePath

        init(_ descriptor: consuming Descriptor, _ path: FilePath) {
            self.descriptor = descriptor
            self.path = path
        }

        /// Writes the added pieces until the end. After an error, it writes nothing more.
        func run(from start: Int64) {
            var (offset, flushed) = (start, start)
            while true {
                arrived.wait()
                let (bytes, hasFailed) = state.withLock { state in
                    (state.waiting.isEmpty ? nil : state.waiting.removeFirst(), state.failure != nil)
                }
                guard let bytes else { break }
                defer { room.signal() }
                if hasFailed { continue }
                do throws(SystemError) {
                    try descriptor.write(bytes, at: offset, path: path)
                } catch {
                    state.withLock { $0.failure = error }
                    continue
                }
                offset += Int64(bytes.count)
                guard offset - flushed >= FileWriting.writeback else { continue }
                // A later sync has little left to write then.
                descriptor.beginWriteback(at: flushed, count: offset - flushed)
                flushed = offset
            }
            ended.signal()
        }
    }

    private let shared: Shared
    private let watchdog: Watchdog?

    /// The maximum number of waiting pieces.
    private static let ahead = 8
    private static let writeback: Int64 = 4 << 20
    /// The time within which the waiting pieces are written, even to a busy disk.
    private static let patience = Duration.seconds(600)

    /// Takes the descriptor. Throws `SystemError` if no thread can be created.
    ///
    /// - Parameter watchdog: Watches the waits for the thread; nil for nobody.
    init(
        to descriptor: consuming Descriptor, at offset: Int64, path: FilePath, watchdog: Watchdog? = nil
    ) throws(SystemError) {
        let shared = Shared(descriptor, path)
        for _ in 0..<Self.ahead { shared.room.signal() }
        // Before the object is whole: otherwise its end would wait for a thread that never began.
        _ = try SystemThread(name: "gs-write") { shared.run(from: offset) }
        self.shared = shared
        self.watchdog = watchdog
    }

    /// Waits for the thread, so that it never writes to a closed descriptor.
    deinit { end() }

    /// Adds bytes at the end. Blocks while too many pieces wait. Throws the error of an earlier write.
    func add(_ bytes: [UInt8]) throws(SystemError) {
        watchdog.watch("room to write", limit: Self.patience) { shared.room.wait() }
        let failure = shared.state.withLock { state in
            if state.failure == nil { state.waiting.append(bytes) }
            return state.failure
        }
        if let failure {
            shared.room.signal()
            throw failure
        }
        shared.arrived.signal()
    }

    /// Waits until everything is written. Throws the error of a write. Nothing may be added afterwards.
    func finish() throws(SystemError) {
        end()
        if let failure = shared.state.withLock({ $0.failure }) { throw failure }
    }

    private func end() {
        let wasOver = shared.state.withLock { state in
            defer { state.isOver = true }
            return state.isOver
        }
        if wasOver { return }
        shared.arrived.signal()
        watchdog.watch("end of writing", limit: Self.patience) { shared.ended.wait() }
    }
}
