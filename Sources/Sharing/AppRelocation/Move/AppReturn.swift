import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

// What an undo has to find: the move that it takes back, and the link at the old place.
extension AppRelocation {
    /// Returns the receipt of the move between two places. Throws `RelocationFailure`, which says what lies there, if
    /// there is none or the directory isn't there any more.
    func receipt(_ container: GroupContainer, _ places: AppPlaces) throws -> AppMoveReceipt {
        let receipts = try container.appReceipts(of: places.destination)
        let (from, to) = (PrintablePath(places.source), PrintablePath(places.destination))
        guard let receipt = receipts.last(where: { $0.move.source.path == places.source }) else {
            let present = try AppObstacle(places.sourceName, in: places.sourceParent)
            throw RelocationFailure.app(
                .unusablePlace, "no_receipt", "\(from) is \(present.words), and no move of it to \(to) is recorded",
                present.link.map { "if that is the program's old place: groupstore move-app --undo \($0.shellWord)" }
                    ?? "name the two places as in the move")
        }
        let present = try places.destinationParent.status(places.destinationName)
        if receipt.move.isFile(receipt.published, present) { return receipt }
        let obstacle = try AppObstacle(places.destinationName, in: places.destinationParent)
        if let target = obstacle.link {
            throw RelocationFailure.app(
                .conflict, "moved_on", "\(to), where \(from) was moved to, is now a link to \(PrintablePath(target))",
                "undo the later move first: groupstore move-app --undo \(places.destination.shellWord) && "
                    + "groupstore move-app --undo \(places.source.shellWord)")
        }
        throw RelocationFailure.app(
            .conflict, "replaced",
            "\(to) is \(obstacle.words), and not the directory that was moved there from \(from)", "move it by hand")
    }
}

extension AppPlan.Refusal {
    /// The failure of a move back to a place where the link is no more.
    static func replacedLink(_ place: FilePath, in parent: Directory) throws -> RelocationFailure {
        guard let name = place.lastComponent else { return AppPlan.Refusal.taken.failure(place, place) }
        return .app(
            .conflict, "destination_taken",
            "\(PrintablePath(place)) is \(try AppObstacle(name, in: parent).words), and not the link that the move left",
            "move it away: mv \(place.shellWord) \(place.appending(suffix: ".old").shellWord)")
    }
}

/// What lies at a place, in words for a message.
package struct AppObstacle {
    package let words: String
    /// The absolute path that a symbolic link there leads to.
    package let link: FilePath?

    package init(_ name: FilePath.Component, in parent: Directory) throws {
        switch try parent.status(name)?.kind {
        case nil: (words, link) = ("absent", nil)
        case .directory: (words, link) = ("a directory", nil)
        case .symbolicLink:
            let target = parent.path.pushing(try parent.linkTarget(name)).lexicallyNormalized()
            (words, link) = ("a link to \(PrintablePath(target))", target)
        case .regular, .other: (words, link) = ("a file", nil)
        }
    }
}
