import FoundationEssentials
import SystemPackage

/// An error that says what failed and what to do about it. Every error of this package that has a remedy conforms.
///
/// `localizedDescription`, and `"\(error)"` of each public error, is the ``fullMessage`` with the ``remedy`` in
/// parentheses: most programs show nothing else.
///
///     do {
///         for try await step in store.relocate() { print(step) }
///     } catch let error as any ActionableError {
///         print(error.fullMessage, "-", error.remedy)
///     }
public protocol ActionableError: LocalizedError, Sendable, CustomStringConvertible {
    /// A stable word for programs and scripts, such as `in_use`.
    var errorCode: String { get }
    /// One line that says what failed.
    var message: String { get }
    /// One line that says what would help.
    var remedy: String { get }
    /// The message with its place, where ``message`` omits it: the path, line and element, or Core Data's code.
    var fullMessage: String { get }
    /// The file or directory concerned, or nil.
    var errorPath: FilePath? { get }
    /// The error that caused this one, or nil.
    var underlyingError: (any Error)? { get }
}

extension ActionableError {
    /// The ``message``: it names its place itself.
    public var fullMessage: String { message }
    /// The path of the ``underlyingError``.
    public var errorPath: FilePath? { (underlyingError as? any ActionableError)?.errorPath }
    public var underlyingError: (any Error)? { nil }
    /// The ``fullMessage``.
    public var description: String { fullMessage }
    /// The ``fullMessage`` with the ``remedy`` in parentheses.
    public var errorDescription: String? { messageWithRemedy }
    /// The ``fullMessage``.
    public var failureReason: String? { fullMessage }
    /// The ``remedy``.
    public var recoverySuggestion: String? { remedy }

    /// The message with the remedy in parentheses, as one line of a log or a terminal.
    package var messageWithRemedy: String { "\(fullMessage) (\(remedy))" }
}

/// The cause of an error that can be compared. Two causes are equal if they have the same type and description.
package struct ErrorCause: Equatable, Sendable {
    package let error: any Error

    package init(_ error: any Error) { self.error = error }

    package static func == (left: ErrorCause, right: ErrorCause) -> Bool {
        type(of: left.error) == type(of: right.error) && "\(left.error)" == "\(right.error)"
    }
}
