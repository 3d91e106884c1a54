import Glibc
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreHazards
import StoreRelocation
import SystemPackage

/// What at a store's name keeps branches from being joined, or is no store at all.
extension StoreLocation {
    /// True if the file at the store's name is empty, and has no log or journal of its own: it has no content.
    ///
    /// - Parameter foreign: The files at the store's names that belong to a branch.
    func hasEmptyFile(without foreign: Set<FileIdentity>, _ branches: [OrphanedBranch]) -> Bool {
        guard let status = try? directory.status(name.database), status.kind == .regular, status.size == 0,
            !branches.contains(where: \.sharesDatabase)
        else { return false }
        return ![name.wal, name.journal].contains { side in
            guard let found = try? directory.status(side) else { return false }
            return found.size > 0 && !foreign.contains(found.identity)
        }
    }

    /// Throws if the store's name is that of a symbolic link, a directory or another file that is no store: neither it
    /// nor what it leads to is the store that the branches are of.
    func checkKind() throws(RelocationFailure) {
        guard let status = try? directory.status(name.database), status.kind != .regular else { return }
        guard status.kind == .symbolicLink else {
            let other = path.appending(suffix: ".other").shellWord
            throw RelocationFailure(
                .badData, code: "not_a_file",
                "\(PrintablePath(path)) is \(status.kind == .directory ? "a directory" : "no regular file")",
                remedy: "move it away, and put the store back: mv -nT \(path.shellWord) \(other) && "
                    + "groupstore rescue \(path.shellWord)")
        }
        let target = path.withPlatformString { realpath($0, nil) }
        defer { free(target) }
        let place = target.flatMap { FilePath(platformString: $0) }
        throw RelocationFailure(
            .badData, code: place == nil ? "dangling_link" : "symbolic_link",
            "\(PrintablePath(path)) is a symbolic link that leads to "
                + (place.map { "\(PrintablePath($0)), and not to the former store" } ?? "no file"),
            remedy: "remove the link, and put the store back: "
                + "rm \(path.shellWord) && groupstore rescue \(path.shellWord)")
    }

    /// Throws if the store's database and another store's have changed places under their programs.
    func checkSwapped(_ branches: [OrphanedBranch]) throws(RelocationFailure) {
        guard let swapped = branches.first(where: \.isSwapped), let other = swapped.otherName else { return }
        let (mine, free, theirs) = (path.shellWord, path.appending(suffix: ".swapped").shellWord, other.shellWord)
        throw RelocationFailure(
            .badData, code: "swapped",
            "\(PrintablePath(path)) and \(PrintablePath(other)) have changed places: \(swapped.holders.list) has the "
                + "database open that is at \(PrintablePath(other)) now, and another program the one at the store's name",
            remedy: "give both their names back, while the programs run: "
                + "mv -n \(mine) \(free) && mv -n \(theirs) \(mine) && mv -n \(free) \(theirs)")
    }

    /// Throws if the log at the store's name contradicts the database, and no branch explains it. SQLite replays that
    /// log nevertheless, so its rows may be what programs at the name have committed.
    ///
    /// - Parameter foreign: The files at the store's names that belong to a branch.
    package func checkLog(without foreign: Set<FileIdentity> = []) throws {
        guard let log = try directory.status(name.wal), !foreign.contains(log.identity), let found = try foreignLog(),
            found.mismatch != .rollbackMode
        else { return }
        func word(_ suffix: String) -> String { path.appending(suffix: suffix).shellWord }
        throw RelocationFailure(
            .badData, code: "foreign_log",
            "\(found.description); or a program that had a lost log, and has ended, wrote the database under it",
            remedy: "see on a copy what SQLite reads with the log: cp -a \(word("")) \(word(".copy")) && "
                + "cp -a \(word("-wal")) \(word(".copy-wal")) && sqlite3 \(word(".copy")) .dump; if that is the store, "
                + "let SQLite take it: sqlite3 \(word("")) 'PRAGMA wal_checkpoint(TRUNCATE)'; "
                + "if not: mv \(word("-wal")) \(word("-wal.other"))")
    }

    /// Throws if the database at the store's name has a second name: programs that use it have a log of their own.
    func checkHardLinks() throws {
        guard let status = try directory.status(name.database), status.kind == .regular, status.links > 1
        else { return }
        var others: [FilePath] = []
        for found in try directory.names() where found != name.database {
            let isSame = try directory.status(found)?.identity == status.identity
            if isSame { others.append(directory.path.appending(found)) }
        }
        let word = path.shellWord
        let names = others.map { "\(PrintablePath($0))" }.joined(separator: ", ")
        let words = others.map { $0.shellWord }.joined(separator: " ")
        throw RelocationFailure(
            .badData, code: "hard_linked",
            "\(PrintablePath(path)) is one file with \(status.links) names, and can't be replaced under one of them"
                + (others.isEmpty ? "" : ": it is \(names) too"),
            remedy: others.isEmpty
                ? "find the other names, and remove them: "
                    + "find \"$(stat -c %m \(word))\" -ignore_readdir_race -xdev -samefile \(word)"
                : "remove the other name once no program uses it: rm \(words)")
    }
}
