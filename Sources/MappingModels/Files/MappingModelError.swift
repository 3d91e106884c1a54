import LinuxSystem
import SystemPackage

/// Why a mapping model can't be read, or can't be used: file, line and element, and what would help.
public struct MappingModelError: Error, Equatable, Sendable {
    public enum Code: String, Sendable {
        /// There is nothing at the path.
        case missing = "no_such_mapping_model"
        /// The file can't be read; `errno` says why.
        case unreadable = "io_error"
        /// What is there is no mapping model of a kind that is read.
        case notAMappingModel = "not_a_mapping_model"
        /// It is damaged, or too large or too deep to be one.
        case malformed = "malformed_mapping_model"
        /// It can be read, and says what can't be done.
        case invalid = "invalid_mapping_model"
        /// It doesn't lead from the one model to the other.
        case unfitting = "unfitting_mapping_model"
        /// It names a policy that nobody registered.
        case unknownPolicy = "unknown_migration_policy"
        /// The other form has no words for it.
        case inexpressible = "inexpressible_mapping_model"
    }

    public let code: Code
    /// Nil for a mapping model that was made in code.
    public let path: FilePath?
    /// From 1; nil where the file has no lines.
    public let line: Int?
    /// An entity mapping's name, with a property's behind a dot; or the name of an element.
    public let element: String?
    public let message: String
    /// One line: what would help.
    public let remedy: String
    /// The system's error, where it is the cause.
    public let errno: Errno?

    package init(
        _ code: Code, _ path: FilePath?, line: Int? = nil, element: String? = nil, _ message: String, remedy: String,
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

    init(_ error: SystemError, _ path: FilePath) {
        let isMissing = error.errno == .noSuchFileOrDirectory
        self.init(
            isMissing ? .missing : .unreadable, error.path ?? path,
            isMissing ? "no such file or directory" : "\(error.errno) (errno \(error.errno.rawValue))",
            remedy: isMissing ? "check the path" : "see that this user may read it", errno: error.errno)
    }

    package init(_ fault: MappingFault, _ code: Code, _ path: FilePath?, line: Int? = nil, element: String? = nil) {
        self.init(
            code, path, line: line ?? fault.line, element: element ?? fault.element, fault.message,
            remedy: fault.remedy)
    }
}

extension MappingModelError: CustomStringConvertible {
    public var description: String {
        let place = path.map { "\(PrintablePath($0))" + (line.map { ":\($0)" } ?? "") + ": " } ?? ""
        return place + (element.map { $0 + ": " } ?? "") + message
    }
}

/// The same where the file isn't known yet.
package struct MappingFault: Error, Equatable {
    package let message: String
    package var remedy: String
    var line: Int?
    package var element: String?

    package init(
        _ message: String, remedy: String = "see Documentation/MappingModels.md", line: Int? = nil,
        element: String? = nil
    ) {
        self.message = message
        self.remedy = remedy
        self.line = line
        self.element = element
    }
}
