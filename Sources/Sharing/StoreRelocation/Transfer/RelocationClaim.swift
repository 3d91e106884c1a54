import FileCoordination
import GroupContainers
import LinuxSystem
import Synchronization

/// The claims that a relocation holds on its store, until the store has arrived at its destination or stays at its old
/// place: one in the group container, and one in the group container that the store comes from, if it does.
final class RelocationClaim {
    /// A store in a group container, and the registry of its presenters.
    struct Place {
        let item: ClaimedItem
        let container: GroupContainer
        let registry: any PresenterRegistry
        /// True if the store is published here, false if it leaves.
        let isDestination: Bool
    }

    private struct Part {
        let place: Place
        let claim: Claim
        let number: UInt64
    }

    private var parts: [Part] = []

    /// Waits until presenters have relinquished the store and no other claim conflicts. Throws `FileCoordinationError`;
    /// it then holds nothing.
    init(
        _ places: [Place], deadline: Deadline, isCancelled: @escaping @Sendable () -> Bool,
        report: @escaping ([FileHolder]) -> Void
    ) throws {
        // In one order for all relocations, so that two in opposite directions don't wait for each other.
        let ordered = places.sorted { first, second in
            let (a, b) = (first.container.directory.identity, second.container.directory.identity)
            return (a.device, a.inode) < (b.device, b.inode)
        }
        do {
            for place in ordered {
                parts.append(
                    try Self.claim(place, deadline: deadline, isCancelled: isCancelled, report: report))
            }
        } catch {
            end(published: false)
            throw error
        }
    }

    private static func claim(
        _ place: Place, deadline: Deadline, isCancelled: @escaping @Sendable () -> Bool,
        report: @escaping ([FileHolder]) -> Void
    ) throws -> Part {
        let intents = [ClaimIntent(place.item, .write(.forMoving))]
        let claim = try Claim(intents, in: place.container)
        let waitReport = Mutex(WaitReport())
        // Called on this thread only, and only until the claim is granted.
        nonisolated(unsafe) let report = report
        let wait = ClaimWait(
            deadline,
            isCancelled: {
                let holders = waitReport.withLock {
                    $0.newHolders {
                        claim.blockers() + place.registry.presenters(of: place.item).map(\.holder)
                    }
                }
                if let holders { report(holders) }
                return isCancelled()
            })
        let number = try ClaimProcedure(claim: claim, intents: intents, registry: place.registry).run(wait)
        return Part(place: place, claim: claim, number: number)
    }

    /// The holders that are waited for. Reports them when they change, and not before 300 ms.
    private struct WaitReport {
        private var reported: [FileHolder] = []
        private var next = ContinuousClock.now.advanced(by: .milliseconds(300))

        mutating func newHolders(_ holders: () -> [FileHolder]) -> [FileHolder]? {
            guard next <= .now else { return nil }
            next = .now.advanced(by: .milliseconds(300))
            let found = holders()
            guard found != reported, !found.isEmpty else { return nil }
            reported = found
            return found
        }
    }

    /// Ends the claims: presenters reacquire the store. Does nothing when called again.
    func end(published: Bool) {
        for part in parts.reversed() {
            part.claim.release()
            // Presenters at the destination know the store by this name already; now it is there. Those of the place
            // that it has left look for it again, where they may find it under its legacy URL.
            let item = part.place.item
            let moves = published && part.place.isDestination ? [ClaimState.Outcome.Move(from: item, to: item)] : []
            part.place.registry.end(part.number, .init(tookPlace: published, moves: moves))
        }
        parts = []
    }
}
