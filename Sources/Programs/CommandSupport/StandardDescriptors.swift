import Glibc

/// The standard input, output and error descriptors. If one is closed, the next opened file gets its number, and
/// messages for people are written into it: into a store, or a lock.
package enum StandardDescriptors {
    /// Opens `/dev/null` for each that is closed.
    package static func openMissing() {
        // open(2) returns the lowest free number.
        while true {
            let descriptor = open("/dev/null", O_RDWR)
            guard descriptor >= 0 else { return }
            if descriptor > STDERR_FILENO {
                close(descriptor)
                return
            }
        }
    }
}
