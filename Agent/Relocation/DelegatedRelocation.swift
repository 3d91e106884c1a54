import AgentProtocol
import Glibc
import LinuxSystem
import SystemPackage

/// Relocations that users other than the agent's own request: only those that the user could do without the agent, of
/// configured stores.
extension Requester {
    /// Throws if the user may not request the relocation. The error is the same for every reason, so that it doesn't
    /// reveal what exists. `source`: the file whose descriptor came with the request.
    func checkRelocation(
        _ operation: RelocateOperation, _ configuration: Configuration, source: PassedFile?
    ) throws(WireError) {
        guard !isTrusted else { return }
        guard !operation.namesFiles else {
            throw WireError(
                code: "not_permitted",
                "another user's relocation may not name a model, mapping or default store, or set opaque or assume_closed",
                hint: "leave them out: the configuration's model is used")
        }
        guard hasOpened(operation, source), let paths = Paths(operation, configuration), mayWrite(paths) else {
            throw WireError(
                code: "not_permitted", "user \(peer.uid) may not request that relocation",
                hint:
                    "name a served group and a store of its configuration, and pass a descriptor of the source, open for"
                    + " reading and writing; both directories must be writable for that user")
        }
    }

    private struct Paths {
        let source: FilePath
        let group: Configuration.Group
        let destination: FilePath

        /// Returns nil if the group isn't served, or the store isn't in its configuration.
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

    /// True if the user has opened the file that is at the path.
    private func hasOpened(_ operation: RelocateOperation, _ source: PassedFile?) -> Bool {
        guard let source, source.isReadable, source.isWritable, let path = FilePath(bytes: operation.source) else {
            return false
        }
        return operation.sourceIdentity.map(FileIdentity.init) == source.identity
            && FileStatus(following: path)?.identity == source.identity
    }

    /// True if the user may write to both directories, which moving a file from one to the other requires.
    private func mayWrite(_ paths: Paths) -> Bool {
        let parent = paths.source.removingLastComponent()
        let directories = [parent, paths.group.directory]
        guard mayOpen(directories, R_OK | W_OK | X_OK).allSatisfy({ $0 }), mayOpen(paths.destination, R_OK | W_OK)
        else { return false }
        return zip(directories, [paths.source, paths.destination]).allSatisfy { directory, file in
            guard let directory = FileStatus(following: directory) else { return false }
            // In a sticky directory only the owner of the file or of the directory may remove it (unlink(2)).
            guard directory.permissions & S_ISVTX != 0, let file = FileStatus(following: file) else { return true }
            return [file.owner, directory.owner].contains(peer.uid)
        }
    }
}

extension RelocateOperation {
    /// True if the request names files that the agent would open, or skips a check that protects other users.
    fileprivate var namesFiles: Bool {
        model != nil || !mappings.isEmpty || defaultStore != nil || opaque || assumeClosed
    }
}

extension RelocateAnswer {
    /// The answer for users who may not know all that the agent has read: without paths, table names and file content.
    /// The agent's log has the whole.
    var redacted: RelocateAnswer {
        switch self {
        case .recognized: return self
        case .progress(let type, let object):
            var redacted = JSONObject()
            for key in ["bytes", "of", "fraction", "bytes_to_copy", "holders"] { redacted[key] = object[key] }
            return .progress(type: type, redacted)
        case .summary(let object):
            var redacted = JSONObject()
            for key in [
                "outcome", "dry_run", "from", "from_b64", "to", "to_b64", "method", "bytes", "seconds", "holders",
            ] {
                redacted[key] = object[key]
            }
            if let error = object.object("error"), let code = error.string("code") {
                redacted["error"] = .object([
                    "code": .string(code), "message": .string("the store was not relocated: \(code)"),
                    "hint": "the agent's log says more", "exit": error["exit"] ?? .null,
                ])
            }
            return .summary(redacted)
        case .refused(let error): return .refused(WireError(code: error.code, "the store was not relocated", hint: nil))
        }
    }
}
