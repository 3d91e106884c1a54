import LinuxSystem
import SystemPackage

/// Why a model can't be read: file, line and element, and what would help.
public struct ModelError: Error, Equatable, Sendable {
    public enum Code: String, Sendable {
        /// There is nothing at the path.
        case missing = "no_such_model"
        /// The file or directory can't be read; `errno` says why.
        case unreadable = "io_error"
        /// What is there is no model of a kind that is read.
        case notAModel = "not_a_model"
        /// It is damaged, or too large or too deep to be a model.
        case malformed = "malformed_model"
        /// It can be read, and says what no model can say.
        case invalid = "invalid_model"
        /// Models that can't be one.
        case unmergeable = "unmergeable_models"
    }

    public let code: Code
    public let path: FilePath
    /// From 1; nil where the file has no lines.
    public let line: Int?
    /// `Entity`, `Entity.property`, or the name of an XML element.
    public let element: String?
    public let message: String
    /// One line: what would help.
    public let remedy: String
    /// The system's error, where it is the cause.
    public let errno: Errno?

    package init(
        _ code: Code, _ path: FilePath, line: Int? = nil, element: String? = nil, _ message: String, remedy: String,
        errno: Errno? = nil
    ) {
        self.code = code
        self.path = path
        self.line = line
        self.element = element
        self.message = message
        self.remedy = remedy
        self.errno = errno
    }

    package init(_ fault: ModelFault, _ path: FilePath, line: Int? = nil) {
        self.init(.invalid, path, line: line, element: fault.element, fault.message, remedy: fault.remedy)
    }

    package init(_ error: SystemError, _ path: FilePath) {
        let isMissing = error.errno == .noSuchFileOrDirectory
        self.init(
            isMissing ? .missing : .unreadable, error.path ?? path,
            isMissing ? "no such file or directory" : "\(error.errno) (errno \(error.errno.rawValue))",
            remedy: isMissing ? "check the path" : "see that this user may read it", errno: error.errno)
    }
}

extension ModelError: CustomStringConvertible {
    public var description: String {
        let place = "\(PrintablePath(path))" + (line.map { ":\($0)" } ?? "")
        return place + ": " + (element.map { $0 + ": " } ?? "") + message
    }
}
