import LinuxSystem
import StoreRelocation
import SystemPackage

/// What was seen at one of the two places.
enum AppPlace: Equatable, Sendable {
    case nothing
    case directory(FileIdentity)
    /// A symbolic link, with what it leads to.
    case link(to: FileIdentity?)
    case other
}

/// The facts that decide what a move does.
struct AppFacts: Equatable, Sendable {
    var source: AppPlace
    var destination: AppPlace
    /// True for the way back: the destination may be a link to the source.
    var isUndo = false
    /// True if the destination lies in the source.
    var isInside = false
    /// True if the source is a group container, or lies in the records of one.
    var hasRecords = false
    /// A directory in the source that another move has brought there.
    var movedApp: FilePath?
    /// A mount point at the source or below it.
    var mountPoint: FilePath?
}

/// What a move does: a pure function of what was seen.
enum AppPlan: Equatable, Sendable {
    case move(FileIdentity, replacesLink: Bool)
    case alreadyMoved
    case refuse(Refusal)

    enum Refusal: Equatable, Sendable {
        case noSource, sourceIsLink, sourceLeadsNowhere, sourceIsFile, taken, inside, records
        case mounted(FilePath)
        case holdsApp(FilePath)
    }

    init(_ facts: AppFacts) {
        switch facts.source {
        case .nothing: self = .refuse(.noSource)
        case .other: self = .refuse(.sourceIsFile)
        case .link(to: nil): self = .refuse(.sourceLeadsNowhere)
        case .link(let target?):
            self = facts.destination == .directory(target) ? .alreadyMoved : .refuse(.sourceIsLink)
        case .directory(let root): self = Self.moving(root, facts)
        }
    }

    private static func moving(_ root: FileIdentity, _ facts: AppFacts) -> AppPlan {
        if facts.destination == .directory(root) { return .alreadyMoved }
        if facts.isInside { return .refuse(.inside) }
        if let app = facts.movedApp { return .refuse(.holdsApp(app)) }
        if facts.hasRecords { return .refuse(.records) }
        if let mount = facts.mountPoint { return .refuse(.mounted(mount)) }
        switch facts.destination {
        case .nothing: return .move(root, replacesLink: false)
        case .link(to: root) where facts.isUndo: return .move(root, replacesLink: true)
        case .directory, .link, .other: return .refuse(.taken)
        }
    }
}

extension AppPlaces {
    /// Makes something at the destination. Throws the refusal of a taken destination if something has come there.
    func taking(_ body: () throws(SystemError) -> Void) throws {
        do throws(SystemError) {
            try body()
        } catch {
            guard error.errno == .fileExists else { throw error }
            throw AppPlan.Refusal.taken.failure(source, destination)
        }
    }
}

extension AppPlan.Refusal {
    func failure(_ source: FilePath, _ destination: FilePath) -> RelocationFailure {
        let (from, to) = (PrintablePath(source), PrintablePath(destination))
        return switch self {
        case .noSource:
            .app(.unusablePlace, "no_source", "there is no directory \(from)", "name the program's directory")
        case .sourceIsLink:
            .app(
                .unusablePlace, "symbolic_link", "\(from) is a symbolic link to another place than \(to)",
                "name the directory that it leads to: readlink -f \(source.shellWord)")
        case .sourceLeadsNowhere:
            .app(
                .unusablePlace, "symbolic_link", "\(from) is a symbolic link that leads nowhere",
                "put the directory back to where it leads: readlink -m \(source.shellWord)")
        case .sourceIsFile:
            .app(
                .unusablePlace, "not_a_directory", "\(from) is not a directory",
                "move a single store with groupstore relocate")
        case .taken:
            .app(
                .conflict, "destination_taken", "\(to) exists already",
                "name another place, or move it away: "
                    + "mv \(destination.shellWord) \(destination.appending(suffix: ".old").shellWord)")
        case .inside:
            .app(.unusablePlace, "inside", "\(to) is inside \(from)", "name a place outside of the directory")
        case .records:
            .app(
                .unusablePlace, "own_directory", "\(from) is a group container: its records name its own place",
                "move its stores one at a time with groupstore relocate")
        case .holdsApp(let app):
            .app(
                .unusablePlace, "own_directory",
                "\(from) holds \(PrintablePath(app)), which move-app has brought there: the record of that names its place",
                "take that move back first: groupstore move-app --undo \(app.shellWord)")
        case .mounted(let mount):
            .app(
                .unusablePlace, "mount_point", "\(PrintablePath(mount)) is a mount point, and would not move along",
                "unmount it first: umount \(mount.shellWord)")
        }
    }
}
