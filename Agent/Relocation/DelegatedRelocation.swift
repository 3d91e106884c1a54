import AgentProtocol
import Glibc
import LinuxSystem
import SystemPackage

/// Relocations that users other than the agent's own ask for: only what they could do themselves, and what the configuration
/// is about.
extension Requester {
    /// Throws the same error whatever is missing: it doesn't tell what there is. `source`: the file whose descriptor came with
    /// the request.
    func checkRelocation(
        _ operation: RelocateOperation, _ configuration: Configuration, source: PassedFile?
    ) throws(WireError) {
        guard !isTrusted else { return }
        guard !operation.namesFiles else {
            throw WireError(
                code: "not_permitted",
                "another user's relocation names no model, mapping or default store, and nothing of opaque or assume_closed",
                hint: "leave them out: the configuration's model holds")
        }
        guard isTheirs(operation, source), let places = Places(operation, configuration), mayWrite(places) else {
            throw WireError(
                code: "not_permitted", "user \(peer.uid) may not have that relocated",
                hint:
                    "name a served group and a store of its configuration, and pass a descriptor of the source, open for"
                    + " reading and writing; both directories must be writable for that user")
        }
    }

    private struct Places {
        let source: FilePath
        let group: Configuration.Group
        let destination: FilePath

        /// Nil where the group isn't served, or the store is none of its configuration.
        init?(_ operation: RelocateOperation, _ configuration: Configuration) {
            guard let source = FilePath(bytes: operation.source), let path = FilePath(bytes: operation.group),
                let identity = FileStatus(following: path)?.identity,
                operation.groupIdentity.map(FileIdentity.init) == identity,
                let group = configuration.groups.first(where: {
                    FileStatus(following: $0.directory)?.identity == identity
                }),
                let name = operation.name.map({ FilePath.Component(bytes: $0) }) ?? source.lastComponent,
                group.store(named: name) != nil
            else { return nil }
            self.source = source
            self.group = group
            destination = group.directory.appending(name)
        }
    }

    /// They have opened the very file, and it is at the path.
    private func isTheirs(_ operation: RelocateOperation, _ source: PassedFile?) -> Bool {
        guard let source, source.isReadable, source.isWritable, let path = FilePath(bytes: operation.source) else {
            return false
        }
        return operation.sourceIdentity.map(FileIdentity.init) == source.identity
            && FileStatus(following: path)?.identity == source.identity
    }

    /// Taking a file out of a directory, and putting another one there, takes the right to write to the directory.
    private func mayWrite(_ places: Places) -> Bool {
        let parent = places.source.removingLastComponent()
        let directories = [parent, places.group.directory]
        guard mayOpen(directories, R_OK | W_OK | X_OK).allSatisfy({ $0 }), mayOpen(places.destination, R_OK | W_OK)
        else { return false }
        return zip(directories, [places.source, places.destination]).allSatisfy { directory, file in
            guard let directory = FileStatus(following: directory) else { return false }
            // In a sticky directory only a file's owner, or the directory's, may take it away (unlink(2)).
            guard directory.permissions & S_ISVTX != 0, let file = FileStatus(following: file) else { return true }
            return [file.owner, directory.owner].contains(peer.uid)
        }
    }
}

extension RelocateOperation {
    /// The agent would open them, or leave out a check that protects others.
    fileprivate var namesFiles: Bool {
        model != nil || !mappings.isEmpty || defaultStore != nil || opaque || assumeClosed
    }
}

extension RelocateAnswer {
    /// For users who may not know all that the agent has read: no path, no name of a table, nothing of a file's content. The
    /// agent's log has it.
    var withoutPlaces: RelocateAnswer {
        switch self {
        case .recognized: return self
        case .progress(let type, let object):
            var bare = JSONObject()
            for key in ["bytes", "of", "fraction", "bytes_to_copy", "holders"] { bare[key] = object[key] }
            return .progress(type: type, bare)
        case .summary(let object):
            var bare = JSONObject()
            for key in [
                "outcome", "dry_run", "from", "from_b64", "to", "to_b64", "method", "bytes", "seconds", "holders",
            ] {
                bare[key] = object[key]
            }
            if let error = object.object("error"), let code = error.string("code") {
                bare["error"] = .object([
                    "code": .string(code), "message": .string("the store was not relocated: \(code)"),
                    "hint": "the agent's log says more", "exit": error["exit"] ?? .null,
                ])
            }
            return .summary(bare)
        case .refused(let error): return .refused(WireError(code: error.code, "the store was not relocated", hint: nil))
        }
    }
}
