import CLinux
import Glibc

/// A lease (`F_SETLEASE` of fcntl(2)). A write lease proves that no other descriptor is open on the file, in any
/// process or mount namespace. A later open waits until the lease is released or the kernel's `lease-break-time` is
/// over. A read lease proves as much about descriptors for writing, and delays only opens for writing; its own
/// descriptor must be for reading.
///
/// The lease is released when its value is destroyed. The descriptor must outlive it.
package struct FileLease: ~Copyable {
    package enum Kind {
        case write, read

        fileprivate var value: CInt {
            switch self {
            case .write: gs_lease_write
            case .read: gs_lease_read
            }
        }
    }

    private let raw: CInt
    private let kind: Kind

    /// Acquires a lease. Returns nil if somebody else has the file open (for writing, for a read lease).
    package init?(_ descriptor: borrowing Descriptor, _ kind: Kind = .write) throws(SystemError) {
        let raw = descriptor.raw
        do {
            try retrying("fcntl F_SETLEASE") { gs_set_lease(raw, kind.value) }
        } catch {
            if error.errno == .resourceTemporarilyUnavailable { return nil }
            throw error
        }
        self.raw = raw
        self.kind = kind
    }

    /// False once somebody waits to open the file. The kernel then reports the reduced lease that it demands.
    package var isIntact: Bool { Self.isIntact(raw, kind) }

    package static func isIntact(_ raw: CInt, _ kind: Kind = .write) -> Bool { gs_get_lease(raw) == kind.value }

    deinit { _ = gs_set_lease(raw, gs_lease_none) }
}

extension FileLease {
    /// Returns false if somebody else has the file open at this moment, and true if nobody has, or if the file system
    /// has no leases.
    package static func isGranted(_ descriptor: borrowing Descriptor) -> Bool {
        do {
            guard let lease = try FileLease(descriptor) else { return false }
            _ = consume lease
        } catch {}
        return true
    }

    /// Ignores the signal that announces a waiting opener, which would end the process. Use `isIntact` instead.
    package static func ignoreBreakSignal() { _ = Glibc.signal(SIGIO, SIG_IGN) }
}
