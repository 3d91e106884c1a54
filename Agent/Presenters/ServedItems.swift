import AgentProtocol
import FileCoordination
import LinuxSystem
import SystemPackage

/// The items of the groups that the agent serves.
struct ServedItems {
    let configuration: CurrentConfiguration

    /// Returns the item's path as the agent sees it, for display. A store that is still to be relocated is at its
    /// legacy path.
    func path(of item: ItemAddress, isUntrusted: Bool) -> FilePath? {
        guard let group = configuration.value.group(item.group), let relative = FilePath(bytes: item.path) else {
            return nil
        }
        let path = group.directory.pushing(relative)
        guard !isUntrusted, FileStatus(following: path) == nil, let name = relative.lastComponent,
            relative.components.count == 1
        else { return path }
        return group.store(named: name)?.legacy.first { FileStatus(following: $0) != nil } ?? path
    }

    /// Returns the item of an address. Throws an error for an item of another group, and for one of groupstore's own.
    func item(_ address: ItemAddress) throws(WireError) -> ClaimedItem {
        guard configuration.value.group(address.group) != nil, let item = ClaimedItem(address) else {
            throw .unknownItem(of: address.group)
        }
        guard !item.isBookkeeping else {
            throw WireError(
                code: "bad_request", ".groupstore is groupstore's own, and can't be presented or claimed",
                hint: "name another file of the group")
        }
        return item
    }
}

extension PresentOperation {
    /// Returns the presenting process. The kernel names the peer; if the kernel can't, the peer's own words count.
    func holder(_ peer: PeerCredentials) -> FileHolder {
        guard peer.pid != 0 else {
            return FileHolder(pid: pid ?? 0, program: program ?? "?", isElsewhere: true)
        }
        return FileHolder(
            pid: peer.pid, program: FileHolder.program(of: peer.pid),
            isElsewhere: pid.map { $0 != peer.pid } ?? false)
    }
}
