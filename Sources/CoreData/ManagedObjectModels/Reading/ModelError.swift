import LinuxSystem
// Clients that catch any error of the package need not import its module.
@_exported import protocol LinuxSystem.ActionableError
import SystemPackage

/// The reason why a model can't be read: the file, line and element, and a remedy.
///
/// ```swift
/// do {
///     bundle = try ModelBundle(reading: path)
/// } catch let error as ModelError {
///     print(error, "-", error.remedy)
/// }
/// ```
public struct ModelError: ActionableError, Equatable {
    /// The kind of error. The raw value is stable.
    public enum Code: String, Sendable {
        /// The path does not exist.
        case missing = "no_such_model"
        /// The file or directory can't be read; ``ModelError/errno`` is the cause.
        case unreadable = "io_error"
        /// The file or directory is not a model in a supported format.
        case notAModel = "not_a_model"
        /// The model is damaged, too large or too deeply nested.
        case malformed = "malformed_model"
        /// The model can be read but is inconsistent.
        case invalid = "invalid_model"
        /// Several models can't be merged.
        case unmergeable = "unmergeable_models"
        /// The file to write exists already.
        case exists
        /// The file's format can't express the model.
        case inexpressible = "inexpressible_model"
    }

    /// The kind of the error, stable for programs.
    public let code: Code
    /// The file or directory with the error.
    public let path: FilePath
    /// The line, counted from 1; nil if the file has no lines.
    public let line: Int?
    /// The location: `Entity`, `Entity.property`, or the name of an XML element.
    public let element: String?
    /// The reason, in one line.
    public let message: String
    /// A suggestion that helps, in one line.
    public let remedy: String
    private let systemError: SystemError?

    package init(
        _ code: Code, _ path: FilePath, line: Int? = nil, element: String? = nil, _ message: String, remedy: String,
        cause: SystemError? = nil
    ) {
        self.code = code
        self.path = path
        self.line = line
        self.element = element
        self.message = message
        self.remedy = remedy
        systemError = cause
    }

    package init(_ fault: ModelFault, _ path: FilePath, line: Int? = nil) {
        self.init(.invalid, path, line: line, element: fault.element, fault.message, remedy: fault.remedy)
    }

    package init(_ error: SystemError, _ path: FilePath) {
        let isMissing = error.errno == .noSuchFileOrDirectory
        self.init(
            isMissing ? .missing : .unreadable, error.path ?? path,
            isMissing ? "no such file or directory" : "\(error.errno) (errno \(error.errno.rawValue))",
            remedy: isMissing ? "check the path" : "give this user permission to read it", cause: error)
    }
}

extension ModelError {
    /// The raw value of ``code``.
    public var errorCode: String { code.rawValue }
    /// The ``path``.
    public var errorPath: FilePath? { path }
    /// The failed system call, if one is the cause.
    public var underlyingError: (any Error)? { systemError }
    /// The full message, with the remedy in parentheses.
    public var description: String { messageWithRemedy }
    /// The system error, if it is the cause.
    public var errno: Errno? { systemError?.errno }

    /// The path, line, element and message.
    public var fullMessage: String {
        let place = "\(PrintablePath(path))" + (line.map { ":\($0)" } ?? "")
        return place + ": " + (element.map { $0 + ": " } ?? "") + message
    }
}
