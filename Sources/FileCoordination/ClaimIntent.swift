import SystemPackage

extension FileCoordinator {
    /// How an item is read
    /// (https://developer.apple.com/documentation/foundation/nsfilecoordinator/readingoptions).
    public struct ReadingOptions: OptionSet, Hashable, Sendable {
        public let rawValue: UInt
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// File presenters need not save their changes first.
        public static let withoutChanges = ReadingOptions(rawValue: 1 << 0)
        /// When the item is a symbolic link, what it leads to is read; it must be in the group container too.
        public static let resolvesSymbolicLink = ReadingOptions(rawValue: 1 << 1)
        /// Only the item's metadata is read: file presenters are asked for nothing, other claims are waited for.
        public static let immediatelyAvailableMetadataOnly = ReadingOptions(rawValue: 1 << 2)
    }

    /// What is done to an item; at most one of them
    /// (https://developer.apple.com/documentation/foundation/nsfilecoordinator/writingoptions).
    public struct WritingOptions: OptionSet, Hashable, Sendable {
        public let rawValue: UInt
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// It is deleted: its file presenters accommodate that first. With a directory, so is all that is in it.
        public static let forDeleting = WritingOptions(rawValue: 1 << 0)
        /// It is moved or renamed. With a directory, claims of what is in it are waited for.
        public static let forMoving = WritingOptions(rawValue: 1 << 1)
        /// It is changed, not written anew: file presenters save their changes first.
        public static let forMerging = WritingOptions(rawValue: 1 << 2)
        /// Another item takes its place: as `forDeleting`.
        public static let forReplacing = WritingOptions(rawValue: 1 << 3)
        /// Only metadata that doesn't depend on the content is written, or the item is one that presenters need not let
        /// go of, as a database that SQLite writes: they are asked for nothing, other claims are waited for.
        public static let contentIndependentMetadataOnly = WritingOptions(rawValue: 1 << 4)
    }
}

extension FileCoordinator {
    /// The options' names outside Swift.
    package static let readingWords: [String: ReadingOptions] = [
        "without_changes": .withoutChanges, "resolves_symbolic_link": .resolvesSymbolicLink,
        "immediately_available_metadata_only": .immediatelyAvailableMetadataOnly,
    ]
    package static let writingWords: [String: WritingOptions] = [
        "for_deleting": .forDeleting, "for_moving": .forMoving, "for_merging": .forMerging,
        "for_replacing": .forReplacing, "content_independent_metadata_only": .contentIndependentMetadataOnly,
    ]
}

/// One item of a claim, and what is to be done with it.
package struct ClaimIntent: Hashable, Sendable {
    package enum Access: Hashable, Sendable {
        case read(FileCoordinator.ReadingOptions)
        case write(FileCoordinator.WritingOptions)
    }

    package let item: ClaimedItem
    package let access: Access

    package init(_ item: ClaimedItem, _ access: Access) {
        self.item = item
        self.access = access
    }

    package var writes: Bool { if case .write = access { true } else { false } }

    /// Nobody may be at work on what is inside the item meanwhile.
    var coversContents: Bool {
        guard case .write(let options) = access else { return false }
        return !options.isDisjoint(with: [.forDeleting, .forMoving, .forReplacing])
    }

    var deletes: Bool {
        guard case .write(let options) = access else { return false }
        return !options.isDisjoint(with: [.forDeleting, .forReplacing])
    }

    /// Whether file presenters are told of it when it is over.
    var changesContent: Bool { writes && !metadataOnly }

    /// The item's presenters let go of it meanwhile.
    var displacesPresenters: Bool { writes && !metadataOnly }

    private var metadataOnly: Bool {
        switch access {
        case .read(let options): options.contains(.immediatelyAvailableMetadataOnly)
        case .write(let options): options.contains(.contentIndependentMetadataOnly)
        }
    }

    private var savesFirst: Bool {
        switch access {
        case .read(let options): !options.contains(.withoutChanges)
        case .write(let options): options.contains(.forMerging)
        }
    }

    /// What a presenter of `presented` is asked before this begins, in this order. Saving comes first: a store that
    /// was let go of can't be saved to.
    func requests(for presented: ClaimedItem) -> [PresenterRequest] {
        guard !metadataOnly else { return [] }
        if presented == item || coversContents && presented.isInside(item) {
            let relinquish = PresenterRequest.relinquish(writes ? .writer : .reader)
            return (savesFirst ? [.save] : []) + [relinquish] + (deletes ? [.accommodateDeletion(nil)] : [])
        }
        return deletes && item.isInside(presented) ? [.accommodateDeletion(item)] : []
    }
}

/// What a file presenter is asked, and answers.
package enum PresenterRequest: Hashable, Sendable {
    package enum Accessor: String, Sendable { case reader, writer }

    case save
    case relinquish(Accessor)
    /// Of the presented item, or of one inside it.
    case accommodateDeletion(ClaimedItem?)
}

/// What a file presenter is told.
package enum PresenterNotice: Hashable, Sendable {
    /// The claim for which it was asked to relinquish is over.
    case reacquire
    /// The presented item, or one inside it.
    case didChange(ClaimedItem?)
    /// The presented item is this one now; or `subitem`, inside it, is.
    case didMove(to: ClaimedItem, subitem: ClaimedItem?)
}
