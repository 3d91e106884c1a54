import Glibc
import SystemPackage

/// A system call that failed: which one, on what, and the errno it left.
package struct SystemError: Error, Equatable, CustomStringConvertible {
    package let call: String
    package let errno: Errno
    package let path: FilePath?

    package init(_ call: String, _ errno: Errno, path: FilePath? = nil) {
        self.call = call
        self.errno = errno
        self.path = path
    }

    /// The error that the C library's `errno` holds now.
    package static func last(_ call: String, path: FilePath? = nil) -> SystemError {
        SystemError(call, Errno(rawValue: Glibc.errno), path: path)
    }

    package var description: String {
        let place = path.map { " \(PrintablePath($0))" } ?? ""
        return "\(call)\(place): \(errno) (errno \(errno.rawValue))"
    }
}

/// Runs a call until a signal no longer interrupts it, and throws what it says otherwise.
@discardableResult
package func retrying<Result: SignedInteger>(
    _ call: String, path: @autoclosure () -> FilePath? = nil, _ body: () -> Result
) throws(SystemError) -> Result {
    while true {
        let result = body()
        if result >= 0 { return result }
        let error = SystemError.last(call, path: path())
        if error.errno != .interrupted { throw error }
    }
}
