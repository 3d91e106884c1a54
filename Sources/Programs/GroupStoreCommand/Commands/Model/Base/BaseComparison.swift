import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import StoreMigration
import SystemPackage

/// The comparison of a model with what an earlier commit had: a version that users' stores may have must stay as it is.
struct BaseComparison {
    /// A version that is no longer what it was.
    struct Change {
        /// The kind of a change; the raw value is stable.
        enum Kind: String {
            case edited, renamingEdited = "renaming_edited", renamed, deleted, setBack = "set_back"
        }

        let kind: Kind
        let version: String
        /// The checksum of the version in the commit.
        let baseChecksum: String
        /// The checksum in the working tree; nil if the version is not there.
        let checksum: String?
        /// The entities whose hashes differ.
        let entities: [(name: String, base: [UInt8]?, working: [UInt8]?)]
        let finding: MigrationFinding
        /// The file that the change is in.
        let path: FilePath
    }

    private let base: ModelBundle
    private let working: ModelBundle
    private let commit: String
    private(set) var changes: [Change] = []

    /// Compares a bundle of the working tree with that of a commit, whose name is for messages.
    init(_ base: ModelBundle, _ working: ModelBundle, commit: String) {
        self.base = base
        self.working = working
        self.commit = commit
        for version in base.versions { compare(version) }
        compareCurrent()
    }

    private mutating func compare(_ old: ModelVersion) {
        guard let new = working.versions.first(where: { $0.name == old.name }) else { return addMissing(old) }
        let (before, after) = (old.model.entityVersionHashesByName, new.model.entityVersionHashesByName)
        guard before != after else {
            if old.model.renamingIdentifiers != new.model.renamingIdentifiers {
                add(
                    .renamingEdited, old, new, .warning,
                    "its renaming identifiers are not those of \(commit), although its hashes are: stores of users may be "
                        + "migrated in another way than was tested",
                    remedy: "restore the version; change renaming identifiers in a new version only")
            }
            return
        }
        add(
            .edited, old, new, .error,
            "the version was edited after \(commit): stores that have it are of no version any more",
            remedy: "restore it (git checkout \(commit) -- …), and make the change in a new version")
    }

    private mutating func addMissing(_ old: ModelVersion) {
        let hashes = old.model.entityVersionHashesByName
        if let other = working.versions.first(where: { $0.model.entityVersionHashesByName == hashes }) {
            add(
                .renamed, old, other, .note, "the version of \(commit) is called \(other.name) now",
                remedy: "none needed: stores are recognised by their hashes; mapping models may name it")
            return
        }
        add(
            .deleted, old, nil, .error,
            "the version was deleted after \(commit): a store that has it can be migrated only by the model that it carries",
            remedy: "restore it (git checkout \(commit) -- …)")
    }

    /// Reports a current version that is older than the commit's.
    private mutating func compareCurrent() {
        let new = working.current
        guard let before = base.versions.first(where: { $0.name == new.name }), before.name != base.current.name,
            VersionOrder(base).leads(from: before, to: base.current)
        else { return }
        add(
            .setBack, base.current, working.versions.first { $0.name == base.current.name }, .error,
            "the current version was set back from \(base.current.name) to \(new.name): stores aren't migrated backwards",
            remedy: "make \(base.current.name), or a new version, the current one")
    }

    private mutating func add(
        _ kind: Change.Kind, _ old: ModelVersion, _ new: ModelVersion?, _ severity: MigrationFinding.Severity,
        _ message: String, remedy: String
    ) {
        let before = old.model.entityVersionHashesByName
        let after = new?.model.entityVersionHashesByName ?? [:]
        let names = Set(before.keys).union(after.keys).filter { before[$0] != after[$0] }
        changes.append(
            Change(
                kind: kind, version: old.name, baseChecksum: old.model.versionChecksum,
                checksum: new?.model.versionChecksum,
                entities: new == nil
                    ? [] : names.sorted { $0.precedes($1) }.map { ($0, before[$0], after[$0]) },
                finding: MigrationFinding(severity, entity: nil, message, remedy: remedy),
                path: kind == .setBack ? working.path : new?.path ?? working.path))
    }
}
