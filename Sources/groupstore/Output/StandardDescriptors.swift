import Glibc

/// The three descriptors that a process is born with. Where one is closed, the next file that is opened gets its number,
/// and has printed into it what is meant for a person: a store, or a lock.
enum StandardDescriptors {
    static func takeMissingOnes() {
        // Each open takes the least number that is free.
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
