import CLinux
import Dispatch
import LinuxSystem
import Synchronization

/// A thread with a table of descriptors of its own, which does file operations for others. The files that it opens are
/// in no child process of another test, so each is closed at once. A child process would close it while other events
/// come, and the kernel tells several inotify instances of that one after the other.
final class OwnDescriptors: Sendable {
    static let shared = OwnDescriptors()

    private let work = Mutex<[@Sendable () -> Void]>([])
    private let arrived = DispatchSemaphore(value: 0)
    private let thread = Mutex<SystemThread?>(nil)

    /// Runs `body` on the thread, and returns when that is done.
    func run(_ body: @escaping @Sendable () -> Void) {
        thread.withLock { thread in
            guard thread == nil else { return }
            thread = try? SystemThread(name: "own-files") { [self] in
                _ = gs_unshare_descriptors(2)
                while true {
                    arrived.wait()
                    work.withLock { $0.isEmpty ? nil : $0.removeFirst() }?()
                }
            }
        }
        let done = DispatchSemaphore(value: 0)
        work.withLock {
            $0.append {
                body()
                done.signal()
            }
        }
        arrived.signal()
        done.wait()
    }
}
