import Dispatch
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage

/// Reads a file back behind its writer, on a thread of its own, and hashes it.
final class ReadBack: Sendable {
    private struct State {
        var written: Int64 = 0
        var isComplete = false
        var isCancelled = false
    }

    private let state = Mutex(State())
    private let result = Mutex<Result<String, SystemError>?>(nil)
    private let changed = DispatchSemaphore(value: 0)
    private let finished = DispatchSemaphore(value: 0)
    private let descriptor: CInt
    private let path: FilePath
    private static let chunk = 1 << 18

    /// The descriptor must stay open until `finish` or `cancel` has returned. Throws when there is no thread to be had.
    init(descriptor: CInt, path: FilePath) throws(SystemError) {
        self.descriptor = descriptor
        self.path = path
        _ = try SystemThread(name: "gs-read-back") { self.run() }
    }

    func advance(to offset: Int64) {
        state.withLock { $0.written = offset }
        changed.signal()
    }

    func cancel() {
        state.withLock { $0.isCancelled = true }
        changed.signal()
        finished.wait()
    }

    /// The hash of all that was written.
    func finish() throws -> String {
        state.withLock { $0.isComplete = true }
        changed.signal()
        finished.wait()
        return try result.withLock { try $0?.get() ?? "" }
    }

    private func run() {
        let outcome: Result<String, SystemError>
        do throws(SystemError) { outcome = .success(try hash()) } catch { outcome = .failure(error) }
        result.withLock { $0 = outcome }
        finished.signal()
    }

    private func hash() throws(SystemError) -> String {
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: Self.chunk, alignment: 4096)
        defer { buffer.deallocate() }
        var hash = ContentHash()
        var offset: Int64 = 0
        while true {
            let now = state.withLock { $0 }
            if now.isCancelled { return "" }
            if offset == now.written {
                if now.isComplete { return hash.text() }
                changed.wait()
                continue
            }
            let wanted = Int(min(Int64(Self.chunk), now.written - offset))
            let count = try retrying("pread", path: path) {
                pread(descriptor, buffer.baseAddress, wanted, off_t(offset))
            }
            // The writer said that the bytes are there: an early end is content that got lost.
            if count == 0 { return "" }
            hash.update(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
            offset += Int64(count)
        }
    }
}
