import FoundationEssentials
import GroupContainers
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import FileCoordination

/// The behaviour that Apple documents for a file coordinator, one test per statement. The pages are below
/// https://developer.apple.com/documentation/foundation/.
@Suite(.timeLimit(.minutes(60))) struct FileCoordinatorTests {
    let rig: Rig

    init() throws { rig = try Rig() }

    private func read(
        _ coordinator: FileCoordinator, _ options: FileCoordinator.ReadingOptions = [], of url: URL? = nil
    ) async throws {
        let log = rig.log
        try await coordinator.coordinate(
            with: [.readingIntent(with: url ?? rig.notes, options: options)], deadline: .ample
        ) { _ in log.note("read") }
    }

    private func write(
        _ coordinator: FileCoordinator, _ options: FileCoordinator.WritingOptions = [], to url: URL? = nil
    ) async throws {
        let log = rig.log
        try await coordinator.coordinate(
            with: [.writingIntent(with: url ?? rig.notes, options: options)], deadline: .ample
        ) { _ in log.note("write") }
    }

    /// Whoever deleted the locks or a log by an access would take them from those who use them.
    @Test(
        arguments: [
            ".groupstore", ".groupstore/claims", "Notes.sqlite-wal", "Notes.sqlite-shm", "Notes.sqlite-journal",
        ])
    func refusesAnAccessToWhatIsNoItem(_ name: String) async throws {
        try await write(rig.coordinator(), [])
        for options: FileCoordinator.WritingOptions in [[], .forDeleting, .forMoving, .forReplacing] {
            let error = await #expect(throws: FileCoordinationError.self) {
                try await write(rig.coordinator(), options, to: rig.url(name))
            }
            #expect(error?.code == .notAnItem)
            #expect(error?.shapeDefects == [])
        }
    }

    /// It took seconds to look at each part of such a path.
    @Test(arguments: [String(repeating: "x", count: 70_000), String(repeating: "x/", count: 35_000)])
    func refusesAPathThatNoSystemCallAccepts(_ path: String) async throws {
        let error = await #expect(throws: FileCoordinationError.self) {
            try await write(rig.coordinator(), to: URL(filePath: "/tmp/" + path, directoryHint: .notDirectory))
        }
        #expect(error?.code == .notAnItem)
        #expect(error?.message.contains("bytes") == true)
        #expect((error?.message.utf8.count ?? 0) < 200)
        #expect(error?.shapeDefects == [])
    }

    @Test func aNameLikeALogsIsAnItemWithoutItsDatabase() async throws {
        try await write(rig.coordinator(), .forDeleting, to: rig.url("Other.sqlite-wal"))
        #expect(rig.log.entries == ["write"])
    }

    @Test func refusesMoreItemsThanAnAgentAccepts() async throws {
        let intents = (0...FileCoordinator.maximumItems).map { FileAccessIntent.readingIntent(with: rig.url("\($0)")) }
        let error = await #expect(throws: FileCoordinationError.self) {
            try await rig.coordinator().coordinate(with: intents) { _ in }
        }
        #expect(error?.message.contains("65 items") == true)
        try await rig.coordinator().coordinate(with: Array(intents.dropLast())) { _ in }
    }

    /// Another process that opens the container's path coordinates in the directory that is there now.
    @Test func coordinatesInTheDirectoryThatHasTheContainersPath() async throws {
        try write(rig.coordinator(), to: rig.notes, while: {})
        let (path, parent) = (rig.scratch.path, try Directory(rig.scratch.path.removingLastComponent()))
        let name = try #require(path.lastComponent)
        let former = try #require(name.appending(".former"))
        try parent.rename(name, to: former, in: parent, .refuse)
        defer { try? parent.removeTree(former) }
        // There is no directory to coordinate in.
        let gone = #expect(throws: FileCoordinationError.self) {
            try write(rig.coordinator(), to: rig.notes, while: {})
        }
        #expect(gone?.code == .containerReplaced)
        try parent.makeDirectory(name, mode: 0o700)
        let other = try FileCoordinator(
            in: GroupContainer(path, identifier: rig.container.identifier),
            presenters: RegisteredPresenters(registry: InProcessRegistry()))
        try write(other, to: rig.notes) {
            let late = #expect(throws: FileCoordinationError.self) {
                try write(rig.coordinator(), to: rig.notes, deadline: .zero, while: {})
            }
            #expect(late?.code == .busy)
        }
        try write(rig.coordinator(), to: rig.notes, while: {})
    }

    /// The directory is replaced between the choice of the locks and their acquisition.
    @Test func aClaimInAReplacedDirectoryFails() throws {
        let intent = ClaimIntent(rig.container.item("Notes.sqlite"), .write([]))
        let claim = try Claim([intent], in: rig.container)
        defer { claim.release() }
        let (path, parent) = (rig.scratch.path, try Directory(rig.scratch.path.removingLastComponent()))
        let name = try #require(path.lastComponent)
        let former = try #require(name.appending(".former"))
        try parent.rename(name, to: former, in: parent, .refuse)
        defer { try? parent.removeTree(former) }
        try parent.makeDirectory(name, mode: 0o700)
        let failure = #expect(throws: FileCoordinationError.self) {
            try claim.acquire(ClaimWait(Deadline(after: .ample)))
        }
        #expect(failure?.code == .containerReplaced)
    }

    private func write(
        _ coordinator: FileCoordinator, to url: URL, deadline: Duration = .ample, while body: () throws -> Void
    ) throws {
        try coordinator.coordinate(writingItemAt: url, deadline: deadline) { _ in try body() }
    }

    /// nsfilecoordinator/coordinate(readingitemat:options:error:byaccessor:)
    @Test func readingAsksToSaveAndToRelinquish() async throws {
        _ = try await rig.present(rig.notes)
        try await read(rig.coordinator())
        await rig.log.has("P reacquires")
        #expect(rig.log.entries == ["P saves", "P has saved", "P to reader", "read", "P reacquires"])
    }

    /// nsfilecoordinator/readingoptions/withoutchanges
    @Test func readingWithoutChangesDoesNotAskToSave() async throws {
        _ = try await rig.present(rig.notes)
        try await read(rig.coordinator(), .withoutChanges)
        await rig.log.has("P reacquires")
        #expect(rig.log.entries == ["P to reader", "read", "P reacquires"])
    }

    /// nsfilecoordinator/readingoptions/immediatelyavailablemetadataonly
    @Test func readingMetadataAsksNoPresenter() async throws {
        _ = try await rig.present(rig.notes)
        try await read(rig.coordinator(), .immediatelyAvailableMetadataOnly)
        #expect(rig.log.entries == ["read"])
    }

    /// nsfilecoordinator/readingoptions/resolvessymboliclink
    @Test func readingResolvesALink() throws {
        try rig.container.directory.makeSymbolicLink("Link", to: "Notes.sqlite")
        let link = rig.url("Link")
        let resolved = try rig.coordinator().coordinate(readingItemAt: link, options: .resolvesSymbolicLink) { $0 }
        let plain = try rig.coordinator().coordinate(readingItemAt: link) { $0 }
        #expect(resolved.lastPathComponent == "Notes.sqlite")
        #expect(plain.lastPathComponent == "Link")
    }

    /// nsfilecoordinator/coordinate(writingitemat:options:error:byaccessor:)
    @Test func writingAsksToRelinquishAndReportsTheChange() async throws {
        _ = try await rig.present(rig.notes)
        try await write(rig.coordinator())
        await rig.log.has("P reacquires")
        #expect(rig.log.entries == ["P to writer", "write", "P changed", "P reacquires"])
    }

    /// nsfilecoordinator/writingoptions/formerging
    @Test func mergingAsksToSaveFirst() async throws {
        _ = try await rig.present(rig.notes)
        try await write(rig.coordinator(), .forMerging)
        await rig.log.has("P reacquires")
        #expect(rig.log.entries.prefix(4) == ["P saves", "P has saved", "P to writer", "write"])
    }

    /// nsfilecoordinator/writingoptions/fordeleting and .../forreplacing
    @Test(arguments: [FileCoordinator.WritingOptions.forDeleting, .forReplacing])
    func deletingAsksToAccommodate(_ option: FileCoordinator.WritingOptions) async throws {
        _ = try await rig.present(rig.notes)
        try await write(rig.coordinator(), option)
        await rig.log.has("P reacquires")
        #expect(rig.log.entries.prefix(3) == ["P to writer", "P accommodates deletion", "write"])
    }

    /// nsfilecoordinator/writingoptions/contentindependentmetadataonly
    @Test func writingMetadataAsksNoPresenter() async throws {
        _ = try await rig.present(rig.notes)
        try await write(rig.coordinator(), .contentIndependentMetadataOnly)
        #expect(rig.log.entries == ["write"])
    }

    /// nsfilecoordinator/writingoptions: "You must specify only one constant at a time"
    @Test func refusesTwoWritingOptions() async throws {
        await #expect(throws: FileCoordinationError.self) {
            try await write(rig.coordinator(), [.forDeleting, .forMoving])
        }
        #expect(rig.log.entries.isEmpty)
    }

    /// nsfilepresenter/accommodatepresentedsubitemdeletion(at:completionhandler:)
    @Test func notifiesPresentersOfADirectoryOfItsContents() async throws {
        _ = try await rig.present(rig.documents, name: "D")
        try await write(rig.coordinator(), .forDeleting, to: rig.inside)
        await rig.log.has("D changed in Inside")
        #expect(rig.log.entries == ["D accommodates deletion of Inside", "write", "D changed in Inside"])
    }

    /// nsfilecoordinator/writingoptions/formoving: presenters of items in a moved directory relinquish them too
    @Test func movingADirectoryAsksThePresentersInside() async throws {
        _ = try await rig.present(rig.inside, name: "I")
        try await write(rig.coordinator(), [], to: rig.documents)
        #expect(rig.log.entries == ["write"])
        try await write(rig.coordinator(), .forMoving, to: rig.documents)
        await rig.log.has("I reacquires")
        #expect(rig.log.entries == ["write", "I to writer", "write", "I reacquires"])
    }

    /// nsfilecoordinator/item(at:didmoveto:) and nsfilepresenter/presenteditemdidmove(to:)
    @Test func presentersFollowAMovedItem() async throws {
        let presenter = try await rig.present(rig.notes)
        let coordinator = rig.coordinator()
        let new = rig.url("Moved.sqlite")
        try coordinator.coordinate(
            writingItemAt: rig.notes, options: .forMoving, writingItemAt: new, options: .forReplacing,
            deadline: .ample
        ) { old, new in
            try rig.container.directory.rename("Notes.sqlite", to: "Moved.sqlite", in: rig.container.directory, .refuse)
            coordinator.item(at: old, didMoveTo: new)
        }
        await rig.log.has("P reacquires")
        #expect(rig.log.entries == ["P to writer", "P is now Moved.sqlite", "P changed", "P reacquires"])
        #expect(presenter.presentedItemURL?.lastPathComponent == "Moved.sqlite")
        try await read(rig.coordinator(), .withoutChanges, of: new)
        #expect(rig.log.entries.contains("P to reader"))
    }

    /// nsfilecoordinator/init(filepresenter:): its own presenter isn't asked
    @Test func aCoordinatorDoesNotAskItsOwnPresenter() async throws {
        let own = try await rig.present(rig.notes, name: "Own")
        _ = try await rig.present(rig.notes, name: "Other")
        try await write(rig.coordinator(own))
        await rig.log.has("Other reacquires")
        #expect(rig.log.entries == ["Other to writer", "write", "Other changed", "Other reacquires"])
    }

    /// nsfilepresenter/savepresenteditemchanges(completionhandler:): the presenter writes through a coordinator of its
    /// own while the reader that asked waits
    @Test func aWriteWhileSavingRunsBeforeTheReader() async throws {
        let presenter = try await rig.present(rig.notes)
        let own = rig.coordinator(presenter)
        let (notes, log) = (rig.notes, rig.log)
        presenter.onSave {
            try await own.coordinate(with: [.writingIntent(with: notes)], deadline: .ample) { _ in
                log.note("P writes")
            }
        }
        try await read(rig.coordinator(), [])
        #expect(rig.log.entries.prefix(5) == ["P saves", "P writes", "P has saved", "P to reader", "read"])
    }

    /// The presenter reads the item when it is notified of a change, while the next writer waits for it to relinquish:
    /// the read runs first.
    @Test func aReadAfterAChangeRunsBeforeTheNextWriter() async throws {
        let presenter = try await rig.present(rig.notes)
        _ = try await rig.present(rig.notes, name: "Q")
        let next = Mutex<Task<Void, any Error>?>(nil)
        presenter.onChange { [self] in
            guard next.withLock({ $0 }) == nil else { return }
            next.withLock { $0 = Task { try await write(rig.coordinator()) } }
            // All presenters are asked at once.
            while rig.log.entries.count(where: { $0 == "Q to writer" }) < 2 { await Task.yield() }
            do {
                try await rig.coordinator(presenter).coordinate(
                    with: [.readingIntent(with: rig.notes)], deadline: .seconds(10)
                ) { _ in rig.log.note("P reads") }
            } catch {
                rig.log.note("P can't read: \(error)")
            }
        }
        try await write(rig.coordinator())
        await rig.log.has("P changed")
        while next.withLock({ $0 }) == nil { await Task.yield() }
        try await next.withLock { $0 }?.value
        #expect(
            rig.log.entries.filter { $0 == "write" || $0.hasPrefix("P reads") || $0.hasPrefix("P can't") }
                == ["write", "P reads", "write"])
    }

    /// The access was queued before its presenter was asked, and the presenter may be waiting for that very access.
    @Test func aQueuedAccessProceedsWhenItsPresenterIsAsked() async throws {
        let presenter = try await rig.present(rig.notes)
        let intents = [ClaimIntent(try rig.container.item(at: rig.notes), .write([]))]
        let claim = try Claim(intents, in: rig.container)
        try claim.joinQueue(ClaimWait(Deadline(after: .ample)))
        let reading = Task { try await read(rig.coordinator(presenter)) }
        while rig.container.claimRecords().count < 2 { await Task.yield() }
        presenter.onRelinquish { try await reading.value }
        let number = try rig.presenters.registry.begin(intents, excluding: nil, deadline: .ample) { _ in }
        try await reading.value
        claim.release()
        rig.presenters.registry.end(number, ClaimState.Outcome(tookPlace: false))
        await rig.log.has("P reacquires")
        #expect(rig.log.entries.last == "P reacquires")
    }

    /// nsfilepresenter/savepresenteditemchanges(completionhandler:): an error fails the access
    @Test func aPresentersErrorFailsTheAccess() async throws {
        let presenter = try await rig.present(rig.notes)
        presenter.onSave { throw RecordingPresenter.CannotSave() }
        let error = try await #require(throws: FileCoordinationError.self) { try await read(rig.coordinator()) }
        #expect(error.code == .presenterFailed)
        #expect(error.message.contains("CannotSave"))
        #expect(!rig.log.entries.contains("read"))
        // The presenters that had relinquished reacquire; the next access is free.
        presenter.onSave {}
        try await read(rig.coordinator())
        #expect(rig.log.entries.contains("read"))
    }

    /// nsfilecoordinator/purposeidentifier
    @Test func equalPurposesDoNotBlockEachOther() async throws {
        let (notes, log) = (rig.notes, rig.log)
        let (outer, same, other) = (
            rig.coordinator(purpose: "sync"), rig.coordinator(purpose: "sync"), rig.coordinator(purpose: "other")
        )
        try await outer.coordinate(with: [.writingIntent(with: notes)], deadline: .ample) { _ in
            try await same.coordinate(with: [.writingIntent(with: notes)], deadline: .ample) { _ in
                log.note("same purpose")
            }
            let error = try await #require(throws: FileCoordinationError.self) {
                try await other.coordinate(with: [.readingIntent(with: notes)], deadline: .milliseconds(50)) { _ in }
            }
            #expect(error.code == .busy)
        }
        #expect(rig.log.entries == ["same purpose"])
    }

    /// nsfilecoordinator/cancel()
    @Test func cancelEndsTheWait() async throws {
        let (notes, waiting) = (rig.notes, rig.coordinator())
        try await rig.coordinator().coordinate(with: [.writingIntent(with: notes)], deadline: .ample) { _ in
            let outcome = Task {
                try await waiting.coordinate(with: [.readingIntent(with: notes)], deadline: .ample) { _ in }
            }
            // Cancel as soon as it is queued, which its record shows.
            while rig.container.claimRecords().count < 2 { await Task.yield() }
            waiting.cancel()
            let error = await #expect(throws: FileCoordinationError.self) { try await outcome.value }
            #expect(error?.code == .cancelled)
        }
    }

    @Test func cancellingTheTaskEndsTheWait() async throws {
        let (notes, waiting) = (rig.notes, rig.coordinator())
        try await rig.coordinator().coordinate(with: [.writingIntent(with: notes)], deadline: .ample) { _ in
            let task = Task {
                try await waiting.coordinate(with: [.readingIntent(with: notes)], deadline: .ample) { _ in }
            }
            while rig.container.claimRecords().count < 2 { await Task.yield() }
            task.cancel()
            await #expect(throws: FileCoordinationError.self) { try await task.value }
        }
    }

    /// Apple's has no deadline: here an access waits for a silent presenter no longer than its own.
    @Test func namesASilentPresenterAtTheDeadline() async throws {
        let presenter = try await rig.present(rig.notes)
        let (release, log) = (Gate(), rig.log)
        presenter.onRelinquish { await release.wait() }
        let error = try await #require(throws: FileCoordinationError.self) {
            try await rig.coordinator().coordinate(
                with: [.writingIntent(with: rig.notes)], deadline: .milliseconds(100)
            ) { _ in log.note("write") }
        }
        #expect(error.code == .busy)
        #expect(error.holders.map(\.pid) == [ProcessIdentity.current.pid])
        #expect(error.message.contains("did not answer"))
        release.open()
        await rig.log.has("P reacquires")
        #expect(!rig.log.entries.contains("write"))
    }

    /// So is the holder of a claim.
    @Test func namesTheHolderOfAClaim() async throws {
        let (notes, other) = (rig.notes, rig.coordinator())
        try await rig.coordinator().coordinate(with: [.readingIntent(with: notes)], deadline: .ample) { _ in
            let error = try await #require(throws: FileCoordinationError.self) {
                try await other.coordinate(with: [.writingIntent(with: notes)], deadline: .milliseconds(50)) { _ in }
            }
            #expect(error.holders.map(\.pid) == [ProcessIdentity.current.pid])
            #expect(error.message.contains("claimed by"))
        }
    }

    @Test func aPresenterAddedDuringAnAccessWaits() async throws {
        let (notes, rig) = (rig.notes, rig)
        let adding = try await rig.coordinator().coordinate(
            with: [.writingIntent(with: notes)], deadline: .ample
        ) { _ in
            let task = Task {
                let presenter = try await rig.present(notes, name: "Late")
                rig.log.note("Late is there")
                return presenter
            }
            for _ in 0..<100 { await Task.yield() }
            #expect(!rig.log.entries.contains("Late is there"))
            rig.log.note("written")
            return task
        }
        _ = try await adding.value
        #expect(rig.log.entries.contains("Late is there"))
        #expect(rig.log.entries.firstIndex(of: "written") ?? 0 < rig.log.entries.firstIndex(of: "Late is there") ?? 0)
    }

    /// nsfilecoordinator/purposeidentifier: "Multiple coordinators can share the same purpose". Those of one presenter
    /// do, and no coordinator waits for itself, even if another access is queued in between.
    @Test func aCoordinatorDoesNotWaitForItself() async throws {
        let own = try await rig.present(rig.notes, name: "Own")
        let (notes, log, container) = (rig.notes, rig.log, rig.container)
        let (stranger, alone) = (rig.coordinator(), rig.coordinator())
        for (outer, inner) in [(rig.coordinator(own), rig.coordinator(own)), (alone, alone)] {
            #expect(outer.purposeIdentifier == inner.purposeIdentifier)
            #expect(outer.purposeIdentifier != stranger.purposeIdentifier)
            let waiting = try await outer.coordinate(with: [.readingIntent(with: notes)], deadline: .ample) { _ in
                let waiting = Task {
                    try await stranger.coordinate(with: [.writingIntent(with: notes)], deadline: .ample) { _ in
                        log.note("stranger")
                    }
                }
                while !container.claimRecords().contains(where: { !$0.isGranted }) { await Task.yield() }
                try await inner.coordinate(with: [.writingIntent(with: notes)], deadline: .ample) { _ in
                    log.note("inner")
                }
                #expect(log.entries.last != "stranger")
                return waiting
            }
            try await waiting.value
        }
        #expect(log.entries.filter { $0 == "inner" || $0 == "stranger" } == ["inner", "stranger", "inner", "stranger"])
    }

    @Test func aDeadlineOfZeroTriesOnce() async throws {
        let (notes, other) = (rig.notes, rig.coordinator())
        try await other.coordinate(with: [.writingIntent(with: notes)], deadline: .zero) { _ in
            let error = await #expect(throws: FileCoordinationError.self) {
                try await rig.coordinator().coordinate(with: [.readingIntent(with: notes)], deadline: .zero) { _ in }
            }
            #expect(error?.code == .busy)
        }
    }

    @Test func acceptsTheLongestDeadline() async throws {
        for deadline in [Duration.seconds(Int64.max), .seconds(Int64.max) * 10] {
            try await rig.coordinator().coordinate(with: [.writingIntent(with: rig.notes)], deadline: deadline) { _ in }
        }
        // The nanoseconds of the deadline matter only if the claim has to wait.
        let held = try Claim([ClaimIntent(try rig.container.item(at: rig.notes), .write([]))], in: rig.container)
        try held.joinQueue(ClaimWait(Deadline(after: .ample)))
        let waiting = Task { [rig] in
            try await rig.coordinator().coordinate(
                with: [.writingIntent(with: rig.notes)], deadline: .seconds(Int64.max)
            ) { _ in }
        }
        while rig.container.claimRecords().count < 2 { await Task.yield() }
        held.release()
        try await waiting.value
    }

    @Test func callsAPresenterAddedTwiceOnce() async throws {
        let presenter = try await rig.present(rig.notes)
        _ = try await rig.presenters.add(presenter, in: rig.container)
        try await write(rig.coordinator())
        await rig.log.has("P reacquires")
        #expect(rig.log.entries == ["P to writer", "write", "P changed", "P reacquires"])
    }

    /// The presenter is removed and added again while it carries out a request: the new calls follow.
    @Test func doesNotCallAPresenterConcurrently() async throws {
        let presenter = try await rig.present(rig.notes)
        let (release, log) = (Gate(), rig.log)
        presenter.onRelinquish {
            await release.wait()
            log.note("P is done")
        }
        let writing = Task { [rig] in
            try await rig.coordinator().coordinate(with: [.writingIntent(with: rig.notes)], deadline: .ample) { _ in
                log.note("write")
            }
        }
        await log.has("P to writer")
        rig.presenters.remove(presenter)
        // The access no longer waits for it.
        try await writing.value
        _ = try await rig.presenters.add(presenter, in: rig.container)
        let next = Task { [rig] in
            try await rig.coordinator().coordinate(with: [.writingIntent(with: rig.notes)], deadline: .ample) { _ in
                log.note("write again")
            }
        }
        for _ in 0..<100 { await Task.yield() }
        release.open()
        try await next.value
        await log.has("P reacquires")
        #expect(
            log.entries.prefix(6) == ["P to writer", "write", "P is done", "P to writer", "P is done", "write again"])
    }

    /// An open item is displaced by nobody, not even by processes that can't ask its presenter. Another registry stands
    /// for those.
    @Test func doesNotDisplaceAnOpenItem() async throws {
        let presenter = RecordingPresenter(rig.notes, "P", rig.log)
        let item = try rig.container.item(at: rig.notes)
        let held = try PresentedClaim(item, in: rig.container, of: presenter, ClaimWait(Deadline(after: .ample)))
        try await read(rig.coordinator())
        try await write(rig.coordinator(), .contentIndependentMetadataOnly)
        try await write(rig.coordinator(presenter))
        for options in [[], .forDeleting, .forMoving, .forReplacing, .forMerging] as [FileCoordinator.WritingOptions] {
            let error = await #expect(throws: FileCoordinationError.self) {
                try await rig.coordinator().coordinate(
                    with: [.writingIntent(with: rig.notes, options: options)], deadline: .zero
                ) { _ in }
            }
            #expect(error?.holders.map(\.pid) == [ProcessIdentity.current.pid])
        }
        held.release()
        try await write(rig.coordinator())
    }

    /// As open(2) resolves it: `..` after a link is the parent of the link's target.
    @Test func resolvesAPathAsTheKernelDoes() throws {
        try rig.container.directory.makeSymbolicLink("Link", to: "Documents/Deep")
        try rig.container.directory.directory("Documents").makeDirectory("Deep", mode: 0o700)
        let inside = try rig.container.item(at: rig.inside)
        for path in ["Link/../Inside", "Documents/./Inside", "Documents/Deep/../Inside", "Link/.././Deep/../Inside"] {
            #expect(try rig.container.item(at: rig.url(path)) == inside, "\(path)")
        }
        // Names that don't exist are kept as they are.
        let missing = try rig.container.item(at: rig.url("Nowhere/../Missing"))
        #expect(missing.path == "Missing")
        #expect(throws: FileCoordinationError.self) { try rig.container.item(at: rig.url("Link/../../../Inside")) }
    }

    @Test func refusesItemsOutsideTheContainer() async throws {
        for path in ["/etc/passwd", "\(rig.scratch.path.string)/../elsewhere"] {
            let error = try await #require(throws: FileCoordinationError.self) {
                try await read(rig.coordinator(), of: URL(filePath: path))
            }
            #expect(error.code == .outsideContainer)
        }
    }
}

/// A gate at which tasks wait until it is opened.
final class Gate: Sendable {
    private let state = Mutex<(isOpen: Bool, waiting: [CheckedContinuation<Void, Never>])>((false, []))

    func wait() async {
        await withCheckedContinuation { continuation in
            let isOpen = state.withLock { state in
                if !state.isOpen { state.waiting.append(continuation) }
                return state.isOpen
            }
            if isOpen { continuation.resume() }
        }
    }

    func open() {
        let waiting = state.withLock { state in
            state.isOpen = true
            return state.waiting
        }
        for continuation in waiting { continuation.resume() }
    }
}
