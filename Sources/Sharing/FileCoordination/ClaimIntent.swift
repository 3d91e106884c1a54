import SystemPackage

extension FileCoordinator {
    /// Options for reading an item
    /// (https://developer.apple.com/documentation/foundation/nsfilecoordinator/readingoptions).
    public struct ReadingOptions: OptionSet, Hashable, Sendable {
        public let rawValue: UInt
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// File presenters needn't save their changes first.
        public static let withoutChanges = ReadingOptions(rawValue: 1 << 0)
        /// If the item is a symbolic link, its target is read. The target must be in the group container too.
        public static let resolvesSymbolicLink = ReadingOptions(rawValue: 1 << 1)
        /// Only the item's metadata is read. File presenters are asked for nothing; conflicting claims are still waited
        /// for.
        public static let immediatelyAvailableMetadataOnly = ReadingOptions(rawValue: 1 << 2)
    }

    /// Options for writing an item
    /// (https://developer.apple.com/documentation/foundation/nsfilecoordinator/writingoptions).
    ///
    /// - Important: An access takes at most one writing option. More than one throws ``FileCoordinationError`` with the
    ///   code ``FileCoordinationError/Code-swift.enum/system``.
    public struct WritingOptions: OptionSet, Hashable, Sendable {
        public let rawValue: UInt
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// The item is deleted. Its file presenters accommodate the deletion first. If it is a directory, so do the
        /// presenters of everything in it.
        public static let forDeleting = WritingOptions(rawValue: 1 << 0)
        /// The item is moved or renamed. If it is a directory, claims on items in it are waited for.
        public static let forMoving = WritingOptions(rawValue: 1 << 1)
        /// The item is changed and not overwritten. File presenters save their changes first.
        public static let forMerging = WritingOptions(rawValue: 1 << 2)
        /// Another item replaces this one. File presenters accommodate that as for ``forDeleting``.
        public static let forReplacing = WritingOptions(rawValue: 1 << 3)
        /// Only metadata that doesn't depend on the content is written, or the presenters needn't relinquish the item,
        /// as with a database that SQLite writes. File presenters are asked for nothing; conflicting claims are still
        /// waited for.
        public static let contentIndependentMetadataOnly = WritingOptions(rawValue: 1 << 4)
    }
}

extension FileCoordinator {
    /// The names of the options outside Swift.
    package static let readingOptionNames: [String: ReadingOptions] = [
        "without_changes": .withoutChanges, "resolves_symbolic_link": .resolvesSymbolicLink,
        "immediately_available_metadata_only": .immediatelyAvailableMetadataOnly,
    ]
    package static let writingOptionNames: [String: WritingOptions] = [
        "for_deleting": .forDeleting, "for_moving": .forMoving, "for_merging": .forMerging,
        "for_replacing": .forReplacing, "content_independent_metadata_only": .contentIndependentMetadataOnly,
    ]
}

/// One item of a claim, with the intended access.
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

    /// True if no other process may access the item's contents during this access.
    var coversContents: Bool {
        guard case .write(let options) = access else { return false }
        return !options.isDisjoint(with: [.forDeleting, .forMoving, .forReplacing])
    }

    var deletes: Bool {
        guard case .write(let options) = access else { return false }
        return !options.isDisjoint(with: [.forDeleting, .forReplacing])
    }

    /// True if file presenters are notified of a change when the access ends.
    var changesContent: Bool { writes && !isMetadataOnly }

    /// True if the item's presenters relinquish it for this access.
    var displacesPresenters: Bool { writes && !isMetadataOnly }

    private var isMetadataOnly: Bool {
        switch access {
        case .read(let options): options.contains(.immediatelyAvailableMetadataOnly)
        case .write(let options): options.contains(.contentIndependentMetadataOnly)
        }
    }

    private var asksToSave: Bool {
        switch access {
        case .read(let options): !options.contains(.withoutChanges)
        case .write(let options): options.contains(.forMerging)
        }
    }

    /// Returns the requests to a presenter of `presented` before this access begins, in order. Saving comes first: a
    /// presenter can't save to a store that it has relinquished.
    func requests(for presented: ClaimedItem) -> [PresenterRequest] {
        guard !isMetadataOnly else { return [] }
        if presented == item || coversContents && presented.isInside(item) {
            let relinquish = PresenterRequest.relinquish(writes ? .writer : .reader)
            return (asksToSave ? [.save] : []) + [relinquish] + (deletes ? [.accommodateDeletion(nil)] : [])
        }
        return deletes && item.isInside(presented) ? [.accommodateDeletion(item)] : []
    }
}

/// A request to a file presenter that needs an answer.
package enum PresenterRequest: Hashable, Sendable {
    package enum Accessor: String, Sendable { case reader, writer }

    case save
    case relinquish(Accessor)
    /// Deletion of the presented item (nil), or of an item inside it.
    case accommodateDeletion(ClaimedItem?)
}

/// A notification to a file presenter.
package enum PresenterNotice: Hashable, Sendable {
    /// The claim for which the presenter relinquished its item has ended.
    case reacquire
    /// The presented item (nil), or an item inside it, changed.
    case didChange(ClaimedItem?)
    /// The presented item is now `to`. If `subitem` isn't nil, that item inside the presented one is now `to`.
    case didMove(to: ClaimedItem, subitem: ClaimedItem?)
}
