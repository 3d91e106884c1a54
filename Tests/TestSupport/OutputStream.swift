import Glibc

/// The output of a child process on one pipe, read without blocking.
struct OutputStream {
    private(set) var descriptor: CInt
    private(set) var bytes: [UInt8] = []
    private(set) var ended = false
    private var lineStart = 0

    init(_ descriptor: CInt) {
        self.descriptor = descriptor
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
    }

    mutating func fill() {
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while !ended {
            let count = read(descriptor, &buffer, buffer.count)
            if count > 0 {
                bytes.append(contentsOf: buffer[..<count])
            } else if count == 0 {
                ended = true
            } else if errno != EINTR {
                return
            }
        }
    }

    /// Returns the next unread line. At the end, also one without a newline.
    mutating func nextLine() -> [UInt8]? {
        if let newline = bytes[lineStart...].firstIndex(of: 0x0A) {
            defer { lineStart = newline + 1 }
            return Array(bytes[lineStart..<newline])
        }
        guard ended, lineStart < bytes.count else { return nil }
        defer { lineStart = bytes.count }
        return Array(bytes[lineStart...])
    }

    mutating func close() {
        if descriptor >= 0 { _ = Glibc.close(descriptor) }
        descriptor = -1
        ended = true
    }
}
