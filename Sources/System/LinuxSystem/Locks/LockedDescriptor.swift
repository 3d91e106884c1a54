import CLinux
import Glibc

/// A descriptor whose open file description may hold locks (`F_OFD_SETLK` of fcntl(2)). All of them are released when
/// the value is destroyed.
///
/// Closing alone doesn't release them at once: a child process that any thread is starting has a copy of each
/// descriptor until it runs its program. A child that was forked and runs none leaves its parent's locks alone.
struct LockedDescriptor: ~Copyable, Sendable {
    let descriptor: Descriptor
    private let process = getpid()

    init(_ descriptor: consuming Descriptor) { self.descriptor = descriptor }

    deinit {
        // Closing still releases what can't be unlocked.
        if getpid() == process { _ = gs_ofd_lock(descriptor.raw, Int16(F_UNLCK), 0, 0) }
    }
}
