import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// One transfer of a plan.
struct PlannedTransfer {
    /// The store that leaves its name.
    let snapshot: StoreSnapshot
    let purpose: Transfer.Purpose
    let decision: RelocationDecision
    /// What a publishing transfer puts in the store's place.
    var content = PublishedContent.same
    var isInPlace = false
    var id = TransferIdentifier()

    var store: StoreLocation { snapshot.location }
}

extension PlannedTransfer {
    /// Creates the transfer that publishes a store, with some content, under the group's name for it.
    init(
        publishing content: PublishedContent, of snapshot: StoreSnapshot, _ decision: RelocationDecision,
        inPlace: Bool = false
    ) {
        let name = decision.endpoints.group.name.database
        self.init(
            snapshot: snapshot, purpose: .publish(as: StoredPath(FilePath(root: nil, [name]))), decision: decision,
            content: content, isInPlace: inPlace)
    }
}
