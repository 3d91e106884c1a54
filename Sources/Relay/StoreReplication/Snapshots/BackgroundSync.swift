import Glibc
import LinuxSystem
import Synchronization
import SystemPackage

/// A sync of a file by another thread, while this one checks the file.
final class BackgroundSync: Sendable {
    private let path: FilePath
    private let outcome = Mutex<Result<Void, SystemError>?>(nil)
    private let ended = MonotonicSemaphore()

    /// Begins the sync. Throws `SystemError` if no thread can be created.
    init(_ path: FilePath) throws(SystemError) {
        self.path = path
        _ = try SystemThread(name: "gs-sync") { [self] in
            let result = Result { () throws(SystemError) in
                try Descriptor(opening: path, flags: O_RDWR | O_NOFOLLOW).synchronize(path: path)
            }
            outcome.withLock { $0 = result }
            ended.signal()
        }
    }

    /// Waits for the end, and throws what the sync has thrown: the kernel reports a failed write once only.
    func finish() throws(SystemError) {
        ended.wait()
        try outcome.withLock { $0 }?.get()
    }
}
