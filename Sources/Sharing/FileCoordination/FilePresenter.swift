import FoundationEssentials

/// A closure that gives a presenter its item back after it has relinquished it.
public typealias Reacquirer = @Sendable () async -> Void

/// An object that displays or edits an item of a group container and takes part in other processes' accesses to it
/// (https://developer.apple.com/documentation/foundation/nsfilepresenter).
///
///     actor Document: FilePresenter {
///         nonisolated let presentedItemURL: URL?
///         init(_ url: URL) { presentedItemURL = url }
///
///         func relinquishPresentedItemToWriter() async throws -> Reacquirer? {
///             close()
///             return { [self] in await open() }
///         }
///     }
///
///     let registration = try await FileCoordinator.addFilePresenter(document, in: container)
///
/// All methods have default implementations that do nothing. A presenter may implement the methods with completion
/// handlers as `NSFilePresenter` spells them instead: the default implementations of the others call them. After
/// ``FileCoordinator/addFilePresenter(_:in:)``, they are called one at a time, never concurrently.
///
/// An access that asks a presenter waits for its answer, up to the access's deadline. A presenter that can't do what it
/// is asked throws, and the access then fails.
///
/// A file coordinator that was created with this presenter may be used in any of these methods, and in reacquirers: its
/// accesses bypass the queue of those that wait for this presenter's answer.
///
/// A class isolated to the main actor, in a program where that is the default too, conforms by
/// `@MainActor final class Document: nonisolated FilePresenter` and a `nonisolated` `presentedItemURL`. Its
/// asynchronous methods then run on the main actor.
///
/// - Important: Such a program must not block the main actor in a synchronous `coordinate` method: its presenters can't
///   answer in the meantime.
public protocol FilePresenter: AnyObject, Sendable {
    /// The item's file URL; nil while there is none.
    var presentedItemURL: URL? { get }

    /// The model versions that this program can open the presented store in; nil for any.
    ///
    /// Each is given by its name (`Notes 3`), one of its identifiers, or its checksum as `groupstore model hash` prints
    /// it. A migration to another version is refused while this presenter is registered.
    var openableModelVersions: Set<String>? { get }

    /// Another access waits to read the item. Don't write to the item until the returned closure is called.
    func relinquishPresentedItemToReader() async throws -> Reacquirer?

    /// Another access waits to write, move or delete the item. Close it, and don't touch it until the returned closure
    /// is called.
    ///
    /// The task is cancelled if that access is given up. A presenter that hasn't relinquished yet may then throw and go
    /// on using its item.
    func relinquishPresentedItemToWriter() async throws -> Reacquirer?

    /// Another access needs the item's current content. Write all unsaved changes.
    ///
    /// A write through a file coordinator that was created with this presenter runs while the other access waits.
    func savePresentedItemChanges() async throws

    /// The item is about to be deleted or replaced.
    func accommodatePresentedItemDeletion() async throws

    /// An item in the presented directory is about to be deleted or replaced.
    func accommodatePresentedSubitemDeletion(at url: URL) async throws

    /// The item was moved or renamed. ``presentedItemURL`` must return `newURL` from now on.
    func presentedItemDidMove(to newURL: URL) async

    /// The item was written through a file coordinator, or may have been: the agent that would have reported it ended.
    func presentedItemDidChange() async

    /// An item in the presented directory was written.
    func presentedSubitemDidChange(at url: URL) async

    /// The set of processes that ask this presenter changed: an agent started or ended, or it now serves or refuses the
    /// group.
    ///
    /// Called after changes only. If the agent refuses at first, ``FileCoordinator/addFilePresenter(_:in:)`` throws.
    func presentedItemRegistrationDidChange(to registration: FilePresenterRegistration) async

    /// An item in the presented directory was moved or renamed.
    func presentedSubitem(at oldURL: URL, didMoveTo newURL: URL) async

    // MARK: Apple's methods with completion handlers

    /// As `NSFilePresenter` spells ``relinquishPresentedItemToReader()``, which takes precedence.
    func relinquishPresentedItem(toReader reader: @escaping @Sendable ((@Sendable () -> Void)?) -> Void) async

    /// As `NSFilePresenter` spells ``relinquishPresentedItemToWriter()``, which takes precedence.
    func relinquishPresentedItem(toWriter writer: @escaping @Sendable ((@Sendable () -> Void)?) -> Void) async

    /// As `NSFilePresenter` spells ``savePresentedItemChanges()``, which takes precedence.
    func savePresentedItemChanges(completionHandler: @escaping @Sendable ((any Error)?) -> Void) async

    /// As `NSFilePresenter` spells ``accommodatePresentedItemDeletion()``, which takes precedence.
    func accommodatePresentedItemDeletion(completionHandler: @escaping @Sendable ((any Error)?) -> Void) async

    /// As `NSFilePresenter` spells ``accommodatePresentedSubitemDeletion(at:)``, which takes precedence.
    func accommodatePresentedSubitemDeletion(
        at url: URL, completionHandler: @escaping @Sendable ((any Error)?) -> Void
    ) async
}

extension FilePresenter {
    public var openableModelVersions: Set<String>? { nil }
    public func presentedItemDidMove(to newURL: URL) async {}
    public func presentedItemDidChange() async {}
    public func presentedItemRegistrationDidChange(to registration: FilePresenterRegistration) async {}
    public func presentedSubitemDidChange(at url: URL) async {}
    public func presentedSubitem(at oldURL: URL, didMoveTo newURL: URL) async {}
}
