import FoundationEssentials

/// One item of a coordinated access to several
/// (https://developer.apple.com/documentation/foundation/nsfileaccessintent).
public struct FileAccessIntent: Sendable {
    enum Access: Sendable {
        case read(FileCoordinator.ReadingOptions)
        case write(FileCoordinator.WritingOptions)
    }

    /// Where the item is; inside the accessor, what is to be used.
    public let url: URL
    let access: Access

    public static func readingIntent(
        with url: URL, options: FileCoordinator.ReadingOptions = []
    ) -> FileAccessIntent {
        FileAccessIntent(url: url, access: .read(options))
    }

    public static func writingIntent(
        with url: URL, options: FileCoordinator.WritingOptions = []
    ) -> FileAccessIntent {
        FileAccessIntent(url: url, access: .write(options))
    }
}
