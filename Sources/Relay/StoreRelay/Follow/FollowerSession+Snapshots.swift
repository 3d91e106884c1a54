import AgentProtocol
import GroupContainers
import LinuxSystem
import PersistentHistory
import StoreReplication

extension FollowerSession {
    /// Gives the replica the content of a snapshot, or creates it. Does nothing if the end is requested meanwhile.
    func takeSnapshot(_ reason: SnapshotRequest.Reason, _ stop: RelayStop) throws {
        held.abandonBatch()
        if reason != .first { stop.wait(snapshotDelay.next()) }
        let container = GroupContainer(directory: location.directory)
        let download = try SnapshotDownload(
            connection, options.stream, key: options.key, in: container, for: location.name.database)
        let request = SnapshotRequest(follower: options.follower, have: held.replica?.position, reason: reason)
        guard
            let snapshot = try download.run(
                request, stop, making: { showSnapshot() },
                progress: { done, size in
                    showSnapshot()
                    reportProgress(done, of: size)
                },
                last: { try StreamSearch(options.stream, connection, key: options.key).last() })
        else {
            // Whatever was left out, the home has nothing more.
            if let replica = held.replica, !stop.isRequested, replica.position == request.have {
                try caughtUp(replica)
            }
            return
        }
        do {
            try held.take(snapshot)
        } catch {
            try? download.remove()
            throw error
        }
        try download.remove()
        status.record.snapshots += 1
        reporter.clearErrors()
        retryDelay.reset()
        guard let position = held.replica?.position else { return }
        progress.learn(position.number)
        note(position)
        try progress.confirm(position, force: true)
        reporter.report(
            RelayEvent(
                "reset", ["reason": .string(reason.rawValue), "upto": .string("\(position)")],
                "took a snapshot (\(reason.rawValue)) up to \(position)"))
    }

    /// A home that doesn't answer leaves the status as it is: what the follower waits for is said there.
    private func showSnapshot() {
        let isNew = status.record.state != "snapshot"
        status.record.state = "snapshot"
        status.write(force: isNew)
    }

    /// Reports each tenth.
    private func reportProgress(_ done: Int64, of size: Int64) {
        let tenths = done * 10 / max(1, size)
        guard tenths != reportedTenths else { return }
        reportedTenths = tenths
        reporter.report(
            RelayEvent(
                "snapshot", ["bytes": .integer(done), "size": .integer(size)],
                "received \(ByteCount(done)) of \(ByteCount(size)) of a snapshot"))
    }
}
