import FoundationEssentials
import GroupContainers

// Apple's spellings that differ here. The compiler says what to write instead.

/// Write `FileCoordinator`.
@available(*, unavailable, renamed: "FileCoordinator")
public typealias NSFileCoordinator = FileCoordinator

/// Write `FilePresenter`.
@available(*, unavailable, renamed: "FilePresenter")
public typealias NSFilePresenter = FilePresenter

/// Write `FileAccessIntent`.
@available(*, unavailable, renamed: "FileAccessIntent")
public typealias NSFileAccessIntent = FileAccessIntent

extension FileCoordinator {
    /// Write `FileCoordinator(in:filePresenter:)`.
    @available(*, unavailable, message: "name the container: FileCoordinator(in: container, filePresenter:)")
    // Implicitly unwrapped, so that a call on the result has no error of its own.
    public convenience init!(filePresenter: (any FilePresenter)?) { return nil }

    /// Write `addFilePresenter(_:in:)`.
    @available(*, unavailable, message: "name the container: try await addFilePresenter(presenter, in: container)")
    public static func addFilePresenter(_ presenter: any FilePresenter) {}

    /// Write `removeFilePresenter(_:in:)`.
    @available(*, unavailable, message: "name the container: removeFilePresenter(presenter, in: container)")
    public static func removeFilePresenter(_ presenter: any FilePresenter) {}

    /// Write `coordinate(readingItemAt:options:deadline:byAccessor:)`.
    @available(*, unavailable, message: "leave out error: the method throws, and returns what its accessor returns")
    public func coordinate(
        readingItemAt url: URL, options: ReadingOptions = [], error: UnsafeMutableRawPointer?,
        byAccessor reader: (URL) -> Void
    ) {}

    /// Write `coordinate(writingItemAt:options:deadline:byAccessor:)`.
    @available(*, unavailable, message: "leave out error: the method throws, and returns what its accessor returns")
    public func coordinate(
        writingItemAt url: URL, options: WritingOptions = [], error: UnsafeMutableRawPointer?,
        byAccessor writer: (URL) -> Void
    ) {}

    /// Write `coordinate(readingItemAt:options:writingItemAt:options:deadline:byAccessor:)`.
    @available(*, unavailable, message: "leave out error: the method throws, and returns what its accessor returns")
    public func coordinate(
        readingItemAt readingURL: URL, options readingOptions: ReadingOptions = [], writingItemAt writingURL: URL,
        options writingOptions: WritingOptions = [], error: UnsafeMutableRawPointer?,
        byAccessor accessor: (URL, URL) -> Void
    ) {}

    /// Write `coordinate(writingItemAt:options:writingItemAt:options:deadline:byAccessor:)`.
    @available(*, unavailable, message: "leave out error: the method throws, and returns what its accessor returns")
    public func coordinate(
        writingItemAt firstURL: URL, options firstOptions: WritingOptions = [], writingItemAt secondURL: URL,
        options secondOptions: WritingOptions = [], error: UnsafeMutableRawPointer?,
        byAccessor accessor: (URL, URL) -> Void
    ) {}

    /// Write `coordinate(with:deadline:byAccessor:)`.
    @available(*, unavailable, message: "write try await coordinate(with: intents) { intents in … }, without a queue")
    public func coordinate(
        with intents: [FileAccessIntent], queue: AnyObject, byAccessor accessor: ((any Error)?) -> Void
    ) {}

    /// Write `coordinate(with:deadline:byAccessor:)`.
    @available(*, unavailable, message: "write try await coordinate(with: intents) { intents in … }, without a queue")
    public func coordinate(
        with intents: [FileAccessIntent], queue: AppleQueue, byAccessor accessor: ((any Error)?) -> Void
    ) {}

    /// The queue `.main` in Apple's spelling of `coordinate(with:)`. FoundationEssentials has no `OperationQueue`.
    @available(*, unavailable, message: "write try await coordinate(with: intents) { intents in … }, without a queue")
    public enum AppleQueue {
        /// `OperationQueue.main`.
        case main
    }

    /// Write `coordinate(with:deadline:byAccessor:)`, which claims any number of items together.
    @available(*, unavailable, message: "write try await coordinate(with: intents), which claims all items together")
    public func prepare(
        forReadingItemsAt readingURLs: [URL], options readingOptions: ReadingOptions = [],
        writingItemsAt writingURLs: [URL], options writingOptions: WritingOptions = [],
        error: UnsafeMutableRawPointer?, byAccessor batchAccessor: (@escaping () -> Void) -> Void
    ) {}

    /// Write `item(at:didMoveTo:)`.
    @available(*, unavailable, message: "nothing replaces it: call item(at:didMoveTo:) after the move")
    public func item(at oldURL: URL, willMoveTo newURL: URL) {}
}

extension FileManager {
    /// Write `GroupContainer(identifier:)`.
    @available(*, unavailable, message: "write try GroupContainer(identifier: groupIdentifier).url")
    public func containerURL(forSecurityApplicationGroupIdentifier groupIdentifier: String) -> URL? { nil }
}
