import Glibc
import LinuxSystem
import SystemPackage

/// Makes the kernel write a new store to the disk while its indexes are built or it is audited, so that the sync at the
/// end has less left to do. Without a second thread, the sync does all of it.
struct EarlyWriteback {
    /// The longest wait for the kernel to accept the pages. It does the same work during the sync, which has no limit.
    private static let limit = Duration.seconds(3600)

    private let thread: SystemThread?

    /// Begins with what SQLite has written by now. Only this process may know the file: closing a descriptor drops the
    /// process's locks on it.
    ///
    /// - Parameter former: A file to remove: freeing the memory of a large one takes time, too.
    init(of path: FilePath, removing former: FilePath? = nil) {
        let remove: @Sendable () -> Void = { _ = former?.withPlatformString { unlink($0) } }
        thread = try? SystemThread(name: "gs-writeback") {
            // 0 is the end of the file.
            if let file = try? Descriptor(opening: path, flags: O_RDONLY) { file.beginWriteback(at: 0, count: 0) }
            remove()
        }
        if thread == nil { remove() }
    }

    /// Waits until the file is closed again.
    func finish() { _ = thread?.join(within: Self.limit) }
}
