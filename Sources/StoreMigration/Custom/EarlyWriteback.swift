import Glibc
import LinuxSystem
import SystemPackage

/// Makes the kernel write the finished tables of a new store to the disk while its indexes are built, so that the sync
/// at the end has less left to do. Without a second thread, the sync does all of it.
struct EarlyWriteback {
    /// The longest wait for the kernel to accept the pages. It does the same work during the sync, which has no limit.
    private static let limit = Duration.seconds(3600)

    private let thread: SystemThread?

    /// Begins with what SQLite has written by now. Only this process may know the file: closing a descriptor drops the
    /// process's locks on it.
    init(of path: FilePath) {
        thread = try? SystemThread(name: "gs-writeback") {
            guard let file = try? Descriptor(opening: path, flags: O_RDONLY) else { return }
            // 0 is the end of the file.
            file.beginWriteback(at: 0, count: 0)
        }
    }

    /// Waits until the file is closed again.
    func finish() { _ = thread?.join(within: Self.limit) }
}
