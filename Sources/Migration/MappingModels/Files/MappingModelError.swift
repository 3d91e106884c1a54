import LinuxSystem
// Clients that catch any error of the package need not import its module.
@_exported import protocol LinuxSystem.ActionableError
import SystemPackage

/// The reason a mapping model can't be read or used, with its place in the file.
///
///     do {
///         let file = try MappingModelFile(reading: "Zoo.mapping.yaml")
///     } catch {
///         print(error.line ?? 0, error.element ?? "", error.message, error.remedy)
///     }
public struct MappingModelError: ActionableError, Equatable {
    /// The stable code of an error.
    public enum Code: String, Sendable {
        /// There is no file at the path.
        case missing = "no_such_mapping_model"
        /// The file can't be read; see ``MappingModelError/errno``.
        case unreadable = "io_error"
        /// The file is not a mapping model in a supported form.
        case notAMappingModel = "not_a_mapping_model"
        /// The file is damaged, too large, or nested too deeply.
        case malformed = "malformed_mapping_model"
        /// The mapping model is readable, but requires something impossible.
        case invalid = "invalid_mapping_model"
        /// The mapping model doesn't fit the two models.
        case unfitting = "unfitting_mapping_model"
        /// The mapping model names a policy that isn't registered.
        case unknownPolicy = "unknown_migration_policy"
        /// The other form can't express the mapping model.
        case inexpressible = "inexpressible_mapping_model"
    }

    /// The stable code.
    public let code: Code
    /// The file's path; nil for a mapping model created in code.
    public private(set) var path: FilePath?
    /// The line in the file, starting at 1; nil if unknown.
    public let line: Int?
    /// The entity mapping's name, followed by a dot and the property's name if one is concerned; or another element's
    /// name.
    public let element: String?
    /// A description of the failure for a person.
    public let message: String
    /// One line that says how to fix the problem.
    public let remedy: String
    private let systemError: SystemError?

    package init(
        _ code: Code, at path: FilePath?, line: Int? = nil, element: String? = nil, _ message: String, remedy: String,
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

    init(_ error: SystemError, at path: FilePath) {
        let isMissing = error.errno == .noSuchFileOrDirectory
        self.init(
            isMissing ? .missing : .unreadable, at: error.path ?? path,
            isMissing ? "no such file or directory" : "\(error.errno) (errno \(error.errno.rawValue))",
            remedy: isMissing ? "check the path" : "make sure that this user may read it", cause: error)
    }

    package init(_ fault: MappingFault, code: Code, at path: FilePath?, line: Int? = nil, element: String? = nil) {
        self.init(
            code, at: path, line: line ?? fault.line, element: element ?? fault.element, fault.message,
            remedy: fault.remedy)
    }
}

extension MappingModelError {
    /// The raw value of ``code``.
    public var errorCode: String { code.rawValue }
    /// The ``path``.
    public var errorPath: FilePath? { path }
    /// The failed system call, if one is the cause.
    public var underlyingError: (any Error)? { systemError }
    /// The system's error code, if the system is the cause.
    public var errno: Errno? { systemError?.errno }

    /// Returns this error with the file's path, if it has none.
    package func inFile(_ file: FilePath) -> MappingModelError {
        var error = self
        error.path = path ?? file
        return error
    }

    /// The path, line, element and message.
    public var fullMessage: String {
        let place = path.map { "\(PrintablePath($0))" + (line.map { ":\($0)" } ?? "") + ": " } ?? ""
        return place + (element.map { $0 + ": " } ?? "") + message
    }

    /// The full message, with the remedy in parentheses.
    public var description: String { messageWithRemedy }
}

/// An error in a mapping model whose file isn't known yet.
package struct MappingFault: ActionableError, Equatable {
    package let message: String
    package var remedy: String
    var line: Int?
    package var element: String?

    package var errorCode: String { MappingModelError.Code.invalid.rawValue }

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
