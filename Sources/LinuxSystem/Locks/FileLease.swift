import CLinux
import Glibc

/// A write lease, `F_SETLEASE` of fcntl(2): proof that no other descriptor is open on the file, in any process or
/// mount namespace. Whoever opens the file afterwards waits until it is released, or until the kernel's
/// `lease-break-time` is over.
///
/// It is released when its owner lets go of it; the descriptor must outlive it.
package struct FileLease: ~Copyable {
    private let raw: CInt

    /// Nil when somebody else has the file open.
    package init?(_ descriptor: borrowing Descriptor) throws(SystemError) {
        let raw = descriptor.raw
        do {
            try retrying("fcntl F_SETLEASE") { gs_set_lease(raw, gs_lease_write) }
        } catch {
            if error.errno == .resourceTemporarilyUnavailable { return nil }
            throw error
        }
        self.raw = raw
    }

    /// False once somebody waits to open the file: the kernel then reports the lease that it wants left.
    package var isIntact: Bool { Self.isIntact(raw) }

    package static func isIntact(_ raw: CInt) -> Bool { gs_get_lease(raw) == gs_lease_write }

    deinit { _ = gs_set_lease(raw, gs_lease_none) }
}

extension FileLease {
    /// The signal that tells of a waiting opener would end the process; whether one waits is asked with `isIntact`.
    package static func ignoreBreakSignal() { _ = Glibc.signal(SIGIO, SIG_IGN) }
}
