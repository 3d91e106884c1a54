import Glibc

/// The output of a child process on one pipe, read without blocking.
struct OutputStream {
    private(set) var descriptor: CInt
    private(set) var bytes: [UInt8] = []
    private(set) var ended = false
    private var lineStart = 0
    /// The number of bytes among which there is no further newline.
    private var searched = 0

    init(_ descriptor: CInt) {
        self.descriptor = descriptor
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
    }

    mutating func fill() {
        // Not an array, which would be cleared each time.
        withUnsafeTemporaryAllocation(byteCount: 65_536, alignment: 1) { buffer in
            while !ended {
                let count = read(descriptor, buffer.baseAddress, buffer.count)
                if count > 0 {
                    bytes.append(contentsOf: UnsafeRawBufferPointer(rebasing: buffer[..<count]))
                } else if count == 0 {
                    ended = true
                } else if errno != EINTR {
                    return
                }
            }
        }
    }

    /// Returns the next unread line. At the end, also one without a newline.
    mutating func nextLine() -> [UInt8]? {
        if let newline = nextNewline() {
            defer { (lineStart, searched) = (newline + 1, newline + 1) }
            return Array(bytes[lineStart..<newline])
        }
        searched = bytes.count
        guard ended, lineStart < bytes.count else { return nil }
        defer { lineStart = bytes.count }
        return Array(bytes[lineStart...])
    }

    private func nextNewline() -> Int? {
        bytes.withUnsafeBytes { all in
            guard searched < all.count, let start = all.baseAddress,
                let found = memchr(start + searched, 0x0A, all.count - searched)
            else { return nil }
            return UnsafeRawPointer(found) - start
        }
    }

    mutating func close() {
        if descriptor >= 0 { _ = Glibc.close(descriptor) }
        descriptor = -1
        ended = true
    }
}
