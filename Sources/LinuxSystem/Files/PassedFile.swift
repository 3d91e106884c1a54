import CLinux
import Glibc
import SystemPackage

/// A file whose descriptor a peer has passed: that they have opened it is the proof that they may.
package struct PassedFile: Sendable, Equatable {
    package let identity: FileIdentity
    package let isReadable: Bool
    package let isWritable: Bool

    /// Nil where nothing can be said of it.
    package init?(_ descriptor: borrowing Descriptor) {
        let flags = fcntl(descriptor.raw, F_GETFL)
        guard flags >= 0, let status = try? descriptor.status() else { return nil }
        // One of O_PATH proves that its opener could reach the file, and no more.
        let isOpen = flags & CInt(gs_o_path) == 0
        identity = status.identity
        isReadable = isOpen && [O_RDONLY, O_RDWR].contains(flags & O_ACCMODE)
        isWritable = isOpen && [O_WRONLY, O_RDWR].contains(flags & O_ACCMODE)
    }
}
