import FoundationEssentials

/// One item of a coordinated access to several items
/// (https://developer.apple.com/documentation/foundation/nsfileaccessintent).
///
///     try await coordinator.coordinate(with: [.readingIntent(with: draft), .writingIntent(with: notes)]) { intents in
///         try Data(contentsOf: intents[0].url).write(to: intents[1].url)
///     }
///
/// Pass intents to ``FileCoordinator/coordinate(with:deadline:byAccessor:)``.
public struct FileAccessIntent: Sendable {
    enum Access: Sendable {
        case read(FileCoordinator.ReadingOptions)
        case write(FileCoordinator.WritingOptions)
    }

    /// The item's file URL. In the accessor, it is the URL to use.
    public let url: URL
    let access: Access

    /// Returns an intent to read the item at `url`.
    public static func readingIntent(
        with url: URL, options: FileCoordinator.ReadingOptions = []
    ) -> FileAccessIntent {
        FileAccessIntent(url: url, access: .read(options))
    }

    /// Returns an intent to write the item at `url`, with at most one option. The item needn't exist.
    public static func writingIntent(
        with url: URL, options: FileCoordinator.WritingOptions = []
    ) -> FileAccessIntent {
        FileAccessIntent(url: url, access: .write(options))
    }
}
