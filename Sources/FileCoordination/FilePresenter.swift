import FoundationEssentials

/// Gives an item back to the presenter that had let go of it.
public typealias Reacquirer = @Sendable () async -> Void

/// Something that shows or edits an item of a group container, and wants a say when others use it
/// (https://developer.apple.com/documentation/foundation/nsfilepresenter). All methods are called one after another,
/// never two at once, after `FileCoordinator.addFilePresenter`.
///
/// A class that is isolated to the main actor, in a program where that is the default too, is a presenter by
/// `@MainActor final class Document: nonisolated FilePresenter` and a `nonisolated` `presentedItemURL`; its asynchronous
/// methods run on the main actor. Nothing there may block in `coordinate`: its presenters could not answer meanwhile.
///
/// An access through a file coordinator that was made with this presenter doesn't stand in line behind those who wait
/// for this presenter's answer: it may be made in any of these methods, and in reacquirers.
///
/// Whoever asks waits, up to its deadline: a presenter that can't do what it is asked throws, and the access does not
/// take place.
public protocol FilePresenter: AnyObject, Sendable {
    /// Where the item is. Nil while there is none.
    var presentedItemURL: URL? { get }

    /// Which versions of its model the presented store may be of for this program to open it, each by the version's name
    /// (`Notes 3`), one of its identifiers, or its checksum as `groupstore model hash` prints it. A migration to another
    /// one is refused while this presenter is registered. Nil: any.
    var openableModelVersions: Set<String>? { get }

    /// Somebody waits to read the item: don't write to it until the reacquirer that is returned is called.
    func relinquishPresentedItemToReader() async throws -> Reacquirer?

    /// Somebody waits to write, move or delete the item: close it, and leave it alone until the reacquirer that is
    /// returned is called. The task is cancelled when that access was given up: a presenter that has not let go yet may
    /// throw, and go on with its item at once.
    func relinquishPresentedItemToWriter() async throws -> Reacquirer?

    /// Somebody wants the item as it is meant to be: write what isn't yet written. A write through a file coordinator
    /// that was made with this presenter runs while the other one waits.
    func savePresentedItemChanges() async throws

    /// The item is about to be deleted or replaced.
    func accommodatePresentedItemDeletion() async throws

    /// An item in the presented directory is about to be deleted or replaced.
    func accommodatePresentedSubitemDeletion(at url: URL) async throws

    /// The item has another place or name. `presentedItemURL` is to return it from now on.
    func presentedItemDidMove(to newURL: URL) async

    /// Somebody wrote the item through a file coordinator; or may have, where the agent that would say so has ended.
    func presentedItemDidChange() async

    /// An item in the presented directory was written.
    func presentedSubitemDidChange(at url: URL) async

    /// Others ask this presenter from now on, or don't any more: an agent came or went, serves the group now or refuses.
    /// Called when it changes; `addFilePresenter` throws where it is refused at first.
    func presentedItemRegistrationDidChange(to registration: FilePresenterRegistration) async

    /// An item in the presented directory has another place or name.
    func presentedSubitem(at oldURL: URL, didMoveTo newURL: URL) async
}

extension FilePresenter {
    public var openableModelVersions: Set<String>? { nil }
    public func relinquishPresentedItemToReader() async throws -> Reacquirer? { nil }
    public func relinquishPresentedItemToWriter() async throws -> Reacquirer? { nil }
    public func savePresentedItemChanges() async throws {}
    public func accommodatePresentedItemDeletion() async throws {}
    public func accommodatePresentedSubitemDeletion(at url: URL) async throws {}
    public func presentedItemDidMove(to newURL: URL) async {}
    public func presentedItemDidChange() async {}
    public func presentedItemRegistrationDidChange(to registration: FilePresenterRegistration) async {}
    public func presentedSubitemDidChange(at url: URL) async {}
    public func presentedSubitem(at oldURL: URL, didMoveTo newURL: URL) async {}
}
