import EndToEndSupport
import SystemPackage
import TestSupport
import Testing

/// Apple's spellings, which the compiler accepts or answers with what to write instead.
@Suite(.ownThreads) struct AppleSpellingTests {
    /// Returns what the compiler says about the body of a function.
    private func diagnostics(_ body: String, _ declarations: String = "") throws -> String {
        let scratch = try TemporaryDirectory()
        let file = scratch.path.appending("app.swift")
        try write(
            """
            import Foundation
            import GroupStore
            \(declarations)
            func use(_ coordinator: FileCoordinator, _ container: GroupContainer, _ document: Document, _ url: URL)
                async throws {
            \(body)
            }
            final class Document: FilePresenter {
                let presentedItemURL: URL? = nil
            }

            """, to: file)
        let done = try run("swiftc", Typecheck.options + [Word(file)], within: .ample)
        return done.output + done.errors
    }

    /// Lines of code, and a part of what the compiler says about each.
    private static let answers = [
        ("let _: NSFileCoordinator", "renamed to 'FileCoordinator'"),
        ("let _: NSFileAccessIntent", "renamed to 'FileAccessIntent'"),
        ("let _: any NSFilePresenter", "renamed to 'FilePresenter'"),
        ("_ = FileCoordinator(filePresenter: nil)", "FileCoordinator(in: container"),
        ("FileCoordinator.addFilePresenter(document)", "try await addFilePresenter(presenter, in: container)"),
        ("FileCoordinator.removeFilePresenter(document)", "removeFilePresenter(presenter, in: container)"),
        ("coordinator.coordinate(readingItemAt: url, options: [], error: nil) { _ in }", "leave out error"),
        ("coordinator.coordinate(writingItemAt: url, error: nil) { _ in }", "leave out error"),
        ("coordinator.coordinate(with: [], queue: OperationQueue()) { _ in }", "try await coordinate(with:"),
        ("coordinator.coordinate(with: [], queue: .main) { _ in }", "try await coordinate(with:"),
        ("var e: NSError?; coordinator.coordinate(readingItemAt: url, error: &e) { _ in }", "leave out error"),
        (
            "var e: NSError?; NSFileCoordinator(filePresenter: nil).coordinate(readingItemAt: url, error: &e) { _ in }",
            "renamed to 'FileCoordinator'"
        ),
        ("coordinator.item(at: url, willMoveTo: url)", "item(at:didMoveTo:)"),
        (
            "_ = FileManager.default.containerURL(forSecurityApplicationGroupIdentifier: \"g\")",
            "try GroupContainer(identifier: groupIdentifier).url"
        ),
        ("try await FileCoordinator.addFilePresenter(document, in: container)", "is unused"),
    ]

    /// One run of the compiler judges all lines.
    @Test func theCompilerSaysWhatToWrite() throws {
        let said = try diagnostics(Self.answers.map { "do { \($0.0) }" }.joined(separator: "\n")).split(separator: "\n")
        for (index, (line, words)) in Self.answers.enumerated() {
            // The body begins on the file's sixth line.
            let place = "app.swift:\(index + 6):"
            #expect(
                said.contains { $0.contains(place) && $0.contains(words) }, "\(line): \(said.joined(separator: "\n"))")
        }
    }

    /// The methods as Apple's headers declare them. One whose handlers lack `@Sendable` would not be called.
    @Test func aPresenterWrittenForAppleIsAccepted() throws {
        let said = try diagnostics(
            "",
            """
            final class Note: FilePresenter {
                let presentedItemURL: URL? = nil
                var presentedItemOperationQueue: OperationQueue { .main }
                func relinquishPresentedItem(toReader reader: @escaping @Sendable ((@Sendable () -> Void)?) -> Void) {
                    reader {}
                }
                func relinquishPresentedItem(toWriter writer: @escaping @Sendable ((@Sendable () -> Void)?) -> Void) {
                    writer {}
                }
                func savePresentedItemChanges(completionHandler: @escaping @Sendable ((any Error)?) -> Void) {
                    completionHandler(nil)
                }
                func presentedItemDidMove(to newURL: URL) {}
                func presentedItemDidChange() {}
                func presentedSubitemDidChange(at url: URL) {}
            }
            """)
        #expect(said == "")
    }

    @Test func aHandlerOfAnotherTypeIsNamed() throws {
        let said = try diagnostics(
            "",
            """
            final class Note: FilePresenter {
                let presentedItemURL: URL? = nil
                func relinquishPresentedItem(toWriter writer: @escaping ((() -> Void)?) -> Void) { writer {} }
            }
            """)
        #expect(said.contains("relinquishPresentedItem(toWriter:)"), "\(said)")
    }
}
