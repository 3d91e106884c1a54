import CLinux
import Glibc
import SystemPackage

/// A file whose descriptor a peer has passed. The open descriptor proves the peer's access.
package struct PassedFile: Sendable, Equatable {
    package let identity: FileIdentity
    package let isReadable: Bool
    package let isWritable: Bool

    /// Returns nil if the descriptor can't be inspected.
    package init?(_ descriptor: borrowing Descriptor) {
        let flags = fcntl(descriptor.raw, F_GETFL)
        guard flags >= 0, let status = try? descriptor.status() else { return nil }
        // An O_PATH descriptor proves only that its opener could reach the file.
        let isOpen = flags & CInt(gs_o_path) == 0
        identity = status.identity
        isReadable = isOpen && [O_RDONLY, O_RDWR].contains(flags & O_ACCMODE)
        isWritable = isOpen && [O_WRONLY, O_RDWR].contains(flags & O_ACCMODE)
    }
}
