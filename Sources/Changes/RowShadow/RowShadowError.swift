import LinuxSystem
import SystemPackage

/// Why rows can't be told from a store's pages.
package enum RowShadowError: ActionableError, Equatable {
    /// A file of the shadow isn't what was written.
    case damaged(FilePath)
    /// The file is no database, or an encrypted one.
    case unreadable(FilePath)
    /// The store is too large to be copied unasked: its size in bytes.
    case tooLarge(FilePath, bytes: Int64)
    /// There is no store.
    case absent(FilePath)
    /// The store can't be read for now.
    case busy(FilePath)
    /// What is left of the disk, in bytes, is for the programs that write the store.
    case noSpace(FilePath, reserve: UInt64)

    /// The code of `busy`.
    package static let busyCode = "busy"

    package var errorCode: String {
        switch self {
        case .damaged: "damaged_shadow"
        case .unreadable: "not_a_database"
        case .tooLarge: "shadow_too_large"
        case .absent: "no_store"
        case .busy: Self.busyCode
        case .noSpace: "no_space"
        }
    }

    package var message: String {
        switch self {
        case .damaged(let path): "\(PrintablePath(path)) is damaged"
        case .unreadable(let path): "\(PrintablePath(path)) isn't a SQLite database, or is encrypted"
        case .tooLarge(let path, let bytes):
            "rows need a copy of \(PrintablePath(path)), which has \(ByteCount(bytes)); so much isn't copied unasked"
        case .absent(let path): "there is no store at \(PrintablePath(path))"
        case .busy(let path): "\(PrintablePath(path)) can't be read now: it is being written"
        case .noSpace(let path, let reserve):
            "\(PrintablePath(path)) can't grow: \(ByteCount(reserve)) of its disk are left to the programs that write there"
        }
    }

    package var remedy: String {
        switch self {
        case .damaged(let path): "remove it, and a copy is made anew: rm -r \(path.shellWord)"
        case .unreadable: "watch it without --rows and --values"
        case .tooLarge(let path, _): "groupstore rows enable \(path.shellWord)"
        case .absent: "create the store first"
        case .busy: "ask again"
        case .noSpace: "free space there"
        }
    }

    package var errorPath: FilePath? {
        switch self {
        case .damaged(let path), .unreadable(let path), .tooLarge(let path, _), .absent(let path), .busy(let path),
            .noSpace(let path, _):
            path
        }
    }
}
